"""Cloning as a run: what it leaves, how it resumes, and one line for bad input."""

import dataclasses
import signal
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import jax_es
from jax_es import pretrain
from jax_es.cli.signals import Stopped
from jax_es.config import CloningConfig, EvaluationConfig
from jax_es.imitation import clone_run
from jax_es.imitation.clone_run import pretrain_run
from jax_es.imitation.cloning import Cloner
from jax_es.imitation.datasets import read_episodes
from jax_es.imitation.epoch_records import read_epochs
from jax_es.presets import for_cloning, preset
from jax_es.rollout.observation_statistics import UNCHANGED, mean_and_std
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_run
from jax_es.runs.method import Method
from jax_es.runs.metrics import read_metrics
from jax_es.runs.records import WALL_CLOCK_FIELDS
from jax_es.training import generation
from jax_es.training.load_policy import load_mean
from jax_es.training.parts import build

KEY = jax.random.key(0)
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
    action = np.clip(observation @ [1.0, 12.0, 1.5, 3.0], -3.0, 3.0)
    return action[None].astype(np.float32)


@pytest.fixture(scope="session")
def datasets(tmp_path_factory, record):
    """Six episodes of 40 steps of a balanced pole."""
    root = tmp_path_factory.mktemp("datasets")
    env = gymnasium.make("InvertedPendulum-v5", max_episode_steps=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(root))
        record(DATASET, env, balance, 6)
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
    rows = [getattr(r, "_asdict", lambda r=r: dataclasses.asdict(r))() for r in records]
    names = {*WALL_CLOCK_FIELDS, "steps_per_second"}
    return [{k: repr(v) for k, v in r.items() if k not in names} for r in rows]


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
    assert "asked-20" in epochs[0]
    assert "dataset's episodes: 40.0" in dataset
    assert "metrics.jsonl" in metrics
    assert evaluate.endswith("jax_es.evaluate runs/clone")

    run = find_run("runs/clone")
    given = CloningConfig(11, 2, batch_size=16, learning_rate=1e-3, warmup_steps=10)
    settings = {"dataset": DATASET, **dataclasses.asdict(given)}
    settings["target_returns"] = [20.0, 40.0]
    assert run.method() == Method("cloning", settings)
    records = read_epochs(run.path)
    assert [(r.epoch, r.step) for r in records] == [(0, 11), (1, 22)]
    evaluations = read_metrics(run.path)
    for record, evaluation in zip(records, evaluations, strict=True):
        # The own target is asked for once, and first.
        own, other = record.evaluations
        assert (own["target_return"], other["target_return"]) == (40.0, 20.0)
        assert own["return_mean"] == evaluation.evaluation_return_mean
        assert own["length_mean"] == evaluation.evaluation_length_mean
        assert evaluation.total_env_steps == 0
    assert Checkpoints(run.checkpoints).steps() == [11, 22]
    assert load_mean(run.path, "best").statistics is None
    policy = jax_es.load_policy(run.path)
    assert policy(np.zeros(4)).shape == (1,)


@pytest.mark.slow
def test_a_resumed_run_has_an_uninterrupted_runs_numbers(folder, monkeypatch):
    """Killed in the first epoch, and between a record and its checkpoint."""
    uninterrupted = pretrain_run(config(), CLONING, DATASET, "runs/whole")
    run, save = folder / "runs" / "torn", Checkpoints.save

    def die_with(num_saved, resume):
        def save_or_die(self, *args):
            if len(self.steps()) == num_saved:
                raise Stopped(signal.SIGKILL)
            return save(self, *args)

        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(Checkpoints, "save", save_or_die)
            pretrain_run(config(), CLONING, DATASET, run, resume=resume)

    die_with(0, resume=False)
    die_with(1, resume=True)
    assert len(read_epochs(run)) == len(read_metrics(run)) == 2
    assert Checkpoints(run / "checkpoints").steps() == [11]
    resumed = pretrain_run(config(), CLONING, DATASET, run, resume=True)
    assert timeless(resumed.records) == timeless(uninterrupted.records)
    jax.tree.map(np.testing.assert_array_equal, resumed.mean, uninterrupted.mean)
    assert timeless(read_metrics("runs/whole")) == timeless(read_metrics(run))


def test_more_epochs_continue_a_finished_run(folder, capsys):
    assert pretrain.main([*TINY, "--name", "a"]) == 0
    before = read_epochs(folder / "runs/a")
    assert pretrain.main(["--resume", "--name", "a", "--epochs", "3"]) == 0
    assert "Resuming after step 22" in capsys.readouterr().err
    after = read_epochs(folder / "runs/a")
    assert after[:2] == before and after[2].step == 33
    assert find_run("runs/a").method().settings["epochs"] == 3
    capsys.readouterr()
    resume = [*TINY, "--name", "a", "--resume"]
    for changed, words in (
        (["--learning-rate", "0.5"], "learning_rate was 0.001, now 0.5"),
        (["--seed", "3"], "seed was 0, now 3"),
        (["--epochs", "2"], "epochs must be at least 3"),
        (["--dataset", str(Path("elsewhere"))], "is not a dataset"),
    ):
        assert words in refused([*resume, *changed], capsys)
    assert "holds a run already" in refused([*TINY, "--name", "a"], capsys)
    line = refused(["--resume", "--name", "a", "--policy", "lstm"], capsys)
    assert "it was mlp, now lstm" in line


def test_observation_statistics_are_the_datasets(folder):
    """And nothing held out is no loss."""
    ready = config("mlp", observation_statistics=True)
    one = dataclasses.replace(CLONING, epochs=1, holdout=0.0)
    result = pretrain_run(ready, one, DATASET, "runs/seen")
    assert result.records[0].holdout_loss is None
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
    result = pretrain_run(config("mlp"), settings, DATASET, "runs/linear")
    assert result.records[0].holdout_loss < 1e-3
    assert result.best_evaluation == 1000.0


def test_settings_that_ask_for_the_impossible_are_said(folder):
    far = config()
    policy = dataclasses.replace(far.policy, target_return=61.0)
    settings = dataclasses.replace(CLONING, steps_per_epoch=1, epochs=1)
    with (
        pytest.warns(UserWarning, match=r"61 is far above .* best return is 40\.0"),
        pytest.warns(UserWarning, match="warmup_steps 10 outlast the run's 1 steps"),
    ):
        far = dataclasses.replace(far, policy=policy)
        result = pretrain_run(far, settings, DATASET, "runs/far")
    (record,) = result.records
    assert [each["target_return"] for each in record.evaluations] == [61.0, 40.0]


def test_cloning_begins_with_an_evolutions_weights(folder):
    """Both draw the same initial weights from the same seed."""
    evolution = build(config())
    cloner = Cloner(evolution.policy, CLONING, evolution.devices, UNCHANGED, KEY)
    evolved = generation.initial_state(evolution).es.mean
    begun = clone_run.initial_state(cloner, config().seed).mean
    jax.tree.map(np.testing.assert_array_equal, begun, evolved)
    evolution.close()


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
        ([*TINY, "--dropout", "1"], ["dropout must be in [0, 1), got 1.0"]),
        ([*TINY, "--target-returns", "1"], ["policy mlp has no target return"]),
        (
            ["inverted-pendulum", "--dataset", DATASET, "--target-returns", "nan"],
            ["--target-returns must be finite, got nan"],
        ),
    ],
    ids=lambda value: " ".join(value)[-40:],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, words, capsys, folder):
    line = refused(arguments, capsys)
    for word in words:
        assert word in line
    assert list(folder.iterdir()) == []


def test_a_run_of_another_method_is_not_continued(capsys, folder):
    RunDirectory(folder / "runs" / "es").create(config("mlp"), "inverted-pendulum")
    line = refused(["--resume", "--name", "es"], capsys)
    assert "was trained by OpenAI-ES, not by cloning" in line


def test_a_loss_that_diverges_ends_in_one_line(capsys, folder):
    arguments = [*TINY, "--name", "a", "--learning-rate", "1e38", "--warmup-steps", "0"]
    assert pretrain.main(arguments) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert "no longer finite in epoch 1" in line
    assert "--learning-rate" in line
