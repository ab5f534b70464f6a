"""Cloning as a run: what it leaves, how it resumes, and one line for bad input."""

import dataclasses

import gymnasium
import jax
import numpy as np
import pytest

import jax_es
from jax_es import pretrain
from jax_es.config import EvaluationConfig
from jax_es.imitation import clone_run
from jax_es.imitation.clone_run import pretrain_run
from jax_es.imitation.cloning import Cloner
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.datasets import read_episodes
from jax_es.imitation.epoch_records import read_epochs
from jax_es.presets import for_cloning, preset
from jax_es.rollout.observation_statistics import UNCHANGED, mean_and_std
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.find import find_run
from jax_es.runs.method import Method
from jax_es.runs.metrics import read_metrics
from jax_es.training import generation
from jax_es.training.parts import build
from jax_es.training.trained_mean import load_mean

# Other programs' datasets hold none.
pytestmark = pytest.mark.filterwarnings("ignore:.* holds no digests")

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
def here(folder, monkeypatch, datasets):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(datasets))


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


def test_a_preset_is_cloned_without_its_phases():
    assert preset("humanoid").phases
    assert for_cloning(preset("humanoid")).phases == ()


@pytest.mark.slow
def test_a_clone_is_a_run_like_any_other(folder, capsys):
    arguments = ["inverted-pendulum", "--dataset", DATASET, *SIZES, "--name", "clone"]
    small = ["--policy.width", "8", "--policy.num-layers", "1", "--warmup-steps", "99"]
    small += ["--policy.context-length", "3", "--policy.target-return", "61"]
    assert pretrain.main([*arguments, *small]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    first, compiling, *epochs, dataset, metrics, evaluate, _ = err.splitlines()
    assert compiling == "compiling and running the first epoch"
    assert "Cloning decision-transformer" in first
    assert "6 episodes" in first
    assert "240 steps, mean return 40" in first
    assert [line.split()[:2] for line in epochs] == [["epoch", "1/2"], ["epoch", "2/2"]]
    assert "asked-40" in epochs[0]
    assert "dataset's episodes: 40." in dataset
    assert "metrics.jsonl" in metrics
    assert evaluate.endswith("jax_es.evaluate runs/clone")

    run = find_run("runs/clone")
    given = CloningConfig(11, 2, batch_size=16, learning_rate=1e-3, warmup_steps=99)
    settings = {"dataset": DATASET, **given.read}
    settings["target_returns"] = []
    assert run.method() == Method("cloning", settings)
    records = read_epochs(run.path)
    assert [(r.epoch, r.step) for r in records] == [(0, 11), (1, 22)]
    evaluations = read_metrics(run.path)
    for record, evaluation in zip(records, evaluations, strict=True):
        # The own target is asked for first, then the best of the dataset.
        own, other = record.evaluations
        assert (own["target_return"], other["target_return"]) == (61.0, 40.0)
        assert own["return_mean"] == evaluation.evaluation_return_mean
        assert own["length_mean"] == evaluation.evaluation_length_mean
        assert evaluation.total_env_steps == 0
    assert Checkpoints(run.checkpoints).steps() == [11, 22]
    assert load_mean(run.path, "best").statistics is None
    policy = jax_es.load_policy(run.path)
    assert policy(np.zeros(4)).shape == (1,)


@pytest.mark.slow
def test_more_epochs_continue_a_finished_run(folder, capsys, refused):
    assert pretrain.main([*TINY, "--name", "a"]) == 0
    before = read_epochs(folder / "runs/a")
    assert pretrain.main(["--resume", "--name", "a", "--epochs", "3"]) == 0
    assert "Resuming after step 22" in capsys.readouterr().err
    after = read_epochs(folder / "runs/a")
    assert after[:2] == before and after[2].step == 33
    assert find_run("runs/a").method().settings["epochs"] == 3
    assert pretrain.main(["--resume", "--name", "a"]) == 0
    said = "Nothing is left to train: the run has reached epochs 3; raise that"
    assert said in capsys.readouterr().err
    resume = [*TINY, "--name", "a", "--resume"]
    words = "--learning-rate was 0.001, now 0.5"
    refused(pretrain.main, [*resume, "--learning-rate", "0.5"], words)
    refused(pretrain.main, [*resume, "--epochs", "2"], "epochs must be at least 3")
    refused(pretrain.main, [*TINY, "--name", "a"], "holds a run already")


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


def test_cloning_begins_with_an_evolutions_weights(folder):
    """Both draw the same initial weights from the same seed."""
    evolution = build(config())
    cloner = Cloner(evolution.policy, CLONING, evolution.devices, UNCHANGED, KEY)
    evolved = generation.initial_state(evolution).es.mean
    begun = clone_run.initial_state(cloner, config().seed).mean
    jax.tree.map(np.testing.assert_array_equal, begun, evolved)
    evolution.close()


def test_a_loss_that_diverges_ends_in_one_line(capsys):
    arguments = [*TINY, "--name", "a", "--learning-rate", "1e38", "--warmup-steps", "0"]
    assert pretrain.main(arguments) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and "--learning-rate" in line
    assert "no longer finite in epoch 1" in line
