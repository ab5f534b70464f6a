"""Cloning as a run: what it leaves, how it resumes, and one line for bad input."""

import dataclasses
import json
import signal
import warnings

import gymnasium
import jax
import numpy as np
import pytest

import jax_es
from jax_es import pretrain
from jax_es.cli.signals import Stopped
from jax_es.config import EvaluationConfig
from jax_es.imitation import pretraining
from jax_es.imitation.cloning import CloningConfig
from jax_es.imitation.datasets import read_episodes
from jax_es.imitation.epochs import CLONING_FILE, EpochRecord, read_epochs
from jax_es.presets import for_cloning, preset
from jax_es.rollout.observation_statistics import mean_and_std
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_run
from jax_es.runs.method import Method
from jax_es.runs.metrics import read_metrics
from jax_es.runs.records import WALL_CLOCK_FIELDS
from jax_es.training.generation import initial_state
from jax_es.training.load_policy import load_mean

minari = pytest.importorskip("minari")

DATASET = "pendulum/balanced-v0"
CLONING = CloningConfig(
    steps_per_epoch=11,
    epochs=3,
    batch_size=16,
    learning_rate=1e-3,
    warmup_steps=10,
    holdout=0.2,
)
SIZES = [
    *("--steps-per-epoch", "11", "--epochs", "2", "--batch-size", "16"),
    *("--learning-rate", "0.001", "--warmup-steps", "10"),
    *("--evaluation.num-episodes", "2", "--rollout.num-slots", "2"),
    *("--rollout.num-devices", "1", "--rollout.num-threads", "1"),
]
MLP = ["inverted-pendulum", "--policy", "mlp", "--policy.hidden-sizes", "4"]
TINY = [*MLP, "--dataset", DATASET, *SIZES]


def balance(observation):
    """A linear controller that keeps the pole up."""
    return np.clip(observation @ [1.0, 12.0, 1.5, 3.0], -3.0, 3.0)[None]


@pytest.fixture(scope="session")
def datasets(tmp_path_factory):
    """Six episodes of 40 steps of a balanced pole, in Minari's own words."""
    root = tmp_path_factory.mktemp("datasets")
    buffers = []
    env = gymnasium.make("InvertedPendulum-v5", max_episode_steps=40)
    for seed in range(6):
        observation, _ = env.reset(seed=seed)
        episode = {"observations": [observation], "actions": [], "rewards": []}
        for _ in range(40):
            action = balance(observation).astype(np.float32)
            observation, reward, *_ = env.step(action)
            episode["observations"].append(observation)
            episode["actions"].append(action)
            episode["rewards"].append(reward)
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                **{name: np.array(part) for name, part in episode.items()},
                terminations=np.zeros(40, bool),
                truncations=np.arange(40) == 39,
                infos={},
            )
        )
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wants authors and the like
        patch.setenv("MINARI_DATASETS_PATH", str(root))
        minari.create_dataset_from_buffers(DATASET, buffers, env=env)
    env.close()
    return root


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, datasets):
    """An empty working directory; the process's JAX stays as the tests configure it."""
    jax.devices()
    monkeypatch.setattr("jax_es.rollout.devices.use_compilation_cache", lambda: None)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(datasets))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(policy="decision-transformer", **more):
    base = for_cloning(preset("inverted-pendulum", policy))
    fields = {
        **{"context_length": 3, "width": 8, "num_layers": 1},
        "target_return": 40.0,
    }
    if policy == "mlp":
        fields = {"hidden_sizes": ()}
    return dataclasses.replace(
        base,
        policy=dataclasses.replace(base.policy, **fields),
        rollout=dataclasses.replace(
            base.rollout, num_slots=2, num_devices=1, num_threads=1, **more
        ),
        evaluation=EvaluationConfig(2),
    )


def timeless(records):
    """Records without what wall-clocks say."""
    names = {*WALL_CLOCK_FIELDS, "steps_per_second"}
    return [
        {k: repr(v) for k, v in dataclasses.asdict(record).items() if k not in names}
        for record in records
    ]


def test_a_clone_is_a_run_like_any_other(folder, capsys):
    arguments = ["inverted-pendulum", "--dataset", DATASET, *SIZES, "--name", "clone"]
    small = ["--policy.width", "8", "--policy.num-layers", "1"]
    small += ["--policy.target-return", "40"]
    assert pretrain.main([*arguments, *small, "--target-returns", "20", "40"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    first, *epochs, dataset, metrics, evaluate, _ = err.splitlines()
    assert "Cloning decision-transformer" in first
    assert "6 episodes" in first
    assert "240 steps, mean return 40.0" in first
    assert [line.split()[:2] for line in epochs] == [["epoch", "1/2"], ["epoch", "2/2"]]
    assert all(f" {name} " in epochs[0] for name in ("loss", "held-out", "left"))
    assert "asked-20" in epochs[0]
    assert "dataset's episodes: 40.0" in dataset
    assert CLONING_FILE in metrics
    assert evaluate.endswith("jax_es.evaluate runs/clone")

    run = find_run("runs/clone")
    method = run.method()
    assert method == Method(
        "cloning",
        {
            "dataset": DATASET,
            "steps_per_epoch": 11,
            "epochs": 2,
            "batch_size": 16,
            "learning_rate": 0.001,
            "warmup_steps": 10,
            "weight_decay": 1e-4,
            "gradient_clip": 0.25,
            "dropout": 0.1,
            "holdout": 0.05,
            "target_returns": [20.0, 40.0],
        },
    )
    records = read_epochs(run.path)
    assert [(r.epoch, r.step) for r in records] == [(0, 11), (1, 22)]
    # The own target is asked for once, and first.
    assert [[e.target_return for e in r.evaluations] for r in records] == [
        [40.0, 20.0]
    ] * 2
    evaluations = read_metrics(run.path)
    for record, evaluation in zip(records, evaluations, strict=True):
        own = record.evaluations[0]
        assert own.return_mean == evaluation.evaluation_return_mean
        assert own.length_mean == evaluation.evaluation_length_mean
        assert record.evaluations[1].return_mean > 0
        assert evaluation.total_env_steps == 0
    best = max(e.evaluation_return_mean for e in evaluations)
    assert evaluations[-1].best_evaluation_return == best
    assert Checkpoints(run.checkpoints).steps() == [11, 22]
    assert load_mean(run.path, "last").generation == 22
    assert load_mean(run.path, "best").statistics is None
    policy = jax_es.load_policy(run.path)
    assert policy(np.zeros(4)).shape == (1,)


def test_a_resumed_run_has_an_uninterrupted_runs_numbers(folder, monkeypatch):
    """Stopped in the first epoch, killed between a record and its checkpoint."""
    uninterrupted = pretraining.pretrain_run(config(), CLONING, DATASET, "runs/whole")

    def stop(*_, **__):
        raise Stopped(signal.SIGKILL)

    run = folder / "runs" / "torn"
    with monkeypatch.context() as patch:
        patch.setattr(pretraining.GradientRun, "evaluate", stop)
        with pytest.raises(Stopped):
            pretraining.pretrain_run(config(), CLONING, DATASET, run)
    assert read_epochs(run) == []
    save = pretraining.GradientRun.save

    def die_in_the_second(self, *args, **more):
        if self.num_evaluations == 2:
            raise Stopped(signal.SIGKILL)
        save(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(pretraining.GradientRun, "save", die_in_the_second)
        with pytest.raises(Stopped):
            pretraining.pretrain_run(config(), CLONING, DATASET, run, resume=True)
    assert len(read_epochs(run)) == len(read_metrics(run)) == 2
    assert Checkpoints(run / "checkpoints").steps() == [11]
    resumed = pretraining.pretrain_run(config(), CLONING, DATASET, run, resume=True)
    assert timeless(resumed.records) == timeless(uninterrupted.records)
    jax.tree.map(np.testing.assert_array_equal, resumed.mean, uninterrupted.mean)
    assert resumed.best_evaluation == uninterrupted.best_evaluation
    whole = folder / "runs" / "whole"
    assert timeless(read_metrics(whole)) == timeless(read_metrics(run))
    states = [Checkpoints(path / "checkpoints").restore() for path in (whole, run)]
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_more_epochs_continue_a_finished_run(folder, capsys):
    assert pretrain.main([*TINY, "--name", "a"]) == 0
    for file in ("metrics.jsonl", "cloning.jsonl"):
        whole = (folder / "runs/a" / file).read_text()
        (folder / "runs/a" / file).write_text(whole.splitlines(keepends=True)[0])
        assert pretrain.main(["--resume", "--name", "a"]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert f"runs/a/{file}" in line and "restore it from a backup" in line
        (folder / "runs/a" / file).write_text(whole)
    assert pretrain.main(["--resume", "--name", "a", "--epochs", "3"]) == 0
    assert "Resuming after step 22" in capsys.readouterr().err
    assert pretrain.main([*TINY, "--name", "b", "--epochs", "3"]) == 0
    a, b = (read_epochs(folder / "runs" / name) for name in "ab")
    assert len(a) == 3
    assert timeless(a) == timeless(b)
    assert find_run("runs/a").method() == find_run("runs/b").method()


def test_observation_statistics_are_the_datasets(folder):
    ready = config("mlp", observation_statistics=True)
    one = dataclasses.replace(CLONING, epochs=1)
    pretraining.pretrain_run(ready, one, DATASET, "runs/seen")
    statistics = load_mean("runs/seen").statistics
    observations = read_episodes(DATASET, ready).observations
    assert statistics.count == 240
    mean, std = mean_and_std(statistics)
    np.testing.assert_allclose(mean, observations.mean(axis=0), atol=1e-5)
    expected = np.maximum(observations.std(axis=0), 0.1)
    np.testing.assert_allclose(std, expected, rtol=1e-3)


def test_a_balanced_pole_is_cloned(folder):
    """A linear teacher, a linear clone: it balances for 1 000 steps, not just 40."""
    settings = dataclasses.replace(
        CLONING, steps_per_epoch=600, epochs=1, learning_rate=0.03, batch_size=64
    )
    result = pretraining.pretrain_run(config("mlp"), settings, DATASET, "runs/linear")
    assert result.records[0].holdout_loss < 1e-3
    assert result.best_evaluation == 1000.0


def test_nothing_held_out_is_no_loss(folder):
    settings = dataclasses.replace(CLONING, epochs=1, holdout=0.0)
    result = pretraining.pretrain_run(config("mlp"), settings, DATASET, "runs/all")
    assert np.isnan(result.records[0].holdout_loss)
    line = (folder / "runs" / "all" / CLONING_FILE).read_text()
    assert json.loads(line)["holdout_loss"] is None


def test_settings_that_ask_for_the_impossible_are_said():
    far = config()
    policy = dataclasses.replace(far.policy, target_return=61.0)
    settings = dataclasses.replace(CLONING, warmup_steps=33)
    with (
        pytest.warns(UserWarning, match=r"61 is far above .* best return is 40\.0"),
        pytest.warns(UserWarning, match="warmup_steps 33 outlast the run's 33 steps"),
    ):
        ready = pretraining.prepare(
            dataclasses.replace(far, policy=policy), settings, DATASET
        )
    ready.parts.close()
    assert ready.target_returns == (61.0, 40.0)


def test_cloning_begins_with_an_evolutions_weights(folder):
    """Both draw the same initial weights from the same seed; and 40 is asked once."""
    ready = pretraining.prepare(config(), CLONING, DATASET)
    evolved = initial_state(ready.parts).es.mean
    jax.tree.map(np.testing.assert_array_equal, ready.initial.mean, evolved)
    ready.parts.close()
    assert ready.target_returns == (40.0,)


def refused(arguments, capsys):
    """Runs the program on bad input; returns the one line that it prints."""
    assert pretrain.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    line = err.splitlines()[-1]
    assert all(other.startswith("warning: ") for other in err.splitlines()[:-1])
    assert line.startswith("error: ")
    assert len(line) < 1000
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (MLP, ["--dataset is required"]),
        ([*MLP, "--dataset", "gone-v0"], ["gone-v0 is not a dataset", DATASET]),
        (
            ["hopper", "--policy", "mlp", "--dataset", DATASET],
            ["InvertedPendulum-v5", "Hopper-v5", "choose another"],
        ),
        (
            ["inverted-pendulum", "--policy", "lstm", "--dataset", DATASET],
            ["policy lstm cannot be cloned", "--policy mlp"],
        ),
        (["hoper"], ["preset 'hoper'", "did you mean hopper"]),
        ([*TINY, "--steps-per-epoch", "0"], ["steps_per_epoch", "got 0"]),
        ([*TINY, "--epochs", "0"], ["epochs must be at least 1, got 0"]),
        ([*TINY, "--batch-size", "0"], ["batch_size must be at least 1, got 0"]),
        ([*TINY, "--dropout", "1"], ["dropout must be in [0, 1), got 1.0"]),
        ([*TINY, "--holdout", "-0.5"], ["holdout must be in [0, 1), got -0.5"]),
        ([*TINY, "--target-returns", "1"], ["policy mlp has no target return"]),
        (
            ["inverted-pendulum", "--dataset", DATASET, "--target-returns", "nan"],
            ["--target-returns must be finite, got nan"],
        ),
        ([*TINY, "--name", "../x"], ["--name must be the name of a folder"]),
        (["--resume"], ["--resume needs --name", "Runs in runs: none"]),
        (["--resume", "--name", "gone"], ["runs/gone is not a run"]),
    ],
    ids=lambda value: " ".join(value)[-40:],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, words, capsys, folder):
    line = refused(arguments, capsys)
    for word in words:
        assert word in line
    assert list(folder.iterdir()) == []


def test_what_a_resumed_run_may_not_change(capsys, folder, datasets):
    assert pretrain.main([*TINY, "--name", "a"]) == 0
    capsys.readouterr()
    resume = [*TINY, "--name", "a", "--resume"]
    for changed, words in (
        (["--learning-rate", "0.5"], ["learning_rate was 0.001, now 0.5"]),
        (["--seed", "3"], ["seed was 0, now 3"]),
        (["--policy.hidden-sizes", "5"], ["policy.hidden_sizes", "(4,)", "(5,)"]),
        (["--epochs", "1"], ["epochs must be at least 2", "got 1"]),
        (["--dataset", str(datasets / DATASET)], ["dataset was"]),
    ):
        line = refused([*resume, *changed], capsys)
        assert all(word in line for word in words), line
    line = refused([*TINY, "--name", "a"], capsys)
    assert "holds a run already" in line
    line = refused(["--resume", "--name", "a", "--policy", "lstm"], capsys)
    assert "it was mlp, now lstm" in line


def test_other_data_under_the_same_name(capsys, folder, monkeypatch):
    assert pretrain.main([*TINY, "--name", "a"]) == 0
    capsys.readouterr()

    def shorter(dataset, config):
        episodes = read_episodes(dataset, config)
        parts = (part[:200] for part in episodes[:3])
        return type(episodes)(*parts, episodes.lengths[:5])

    monkeypatch.setattr(pretraining, "read_episodes", shorter)
    line = refused(["--resume", "--name", "a"], capsys)
    assert "it had 240 steps, now 200" in line


def test_a_run_of_another_method_is_not_continued(capsys, folder):
    RunDirectory(folder / "runs" / "es").create(config("mlp"), "inverted-pendulum")
    line = refused(["--resume", "--name", "es"], capsys)
    assert "was trained by OpenAI-ES, not by cloning" in line
    line = refused([*TINY, "--resume", "--name", "es"], capsys)
    assert "was trained by OpenAI-ES, not by cloning" in line


def test_a_loss_that_diverges_ends_in_one_line(capsys, folder):
    arguments = [*TINY, "--name", "a", "--learning-rate", "1e38", "--warmup-steps", "0"]
    line = refused_with_progress(arguments, capsys)
    assert "no longer finite in epoch 1" in line
    assert "--learning-rate" in line


def refused_with_progress(arguments, capsys):
    """Like :func:`refused`, after work has begun."""
    assert pretrain.main(arguments) == 2
    (line,) = (
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("error: ")
    )
    return line


def test_a_stop_signal_leaves_a_resumable_run(capsys, folder, monkeypatch):
    write = pretraining.write_epoch

    def write_and_stop(run, record: EpochRecord):
        write(run, record)
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "write_epoch", write_and_stop)
        assert pretrain.main([*TINY, "--name", "a"]) == 128 + signal.SIGTERM
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        "SIGTERM: 11 steps are saved in runs/a; continue with python -m "
        "jax_es.pretrain --resume --name a"
    )
    assert pretrain.main(["--resume", "--name", "a"]) == 0
    assert len(read_epochs(folder / "runs" / "a")) == 2
