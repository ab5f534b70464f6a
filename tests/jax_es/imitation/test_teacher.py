"""Teachers: what SBX learns acts here as it does there, and goes on."""

import functools
import json
import re
import shutil
import signal
import sys
import warnings
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from jax_es import evaluate, load_policy, teacher
from jax_es.imitation.teacher_settings import TeacherSettings, settings_of
from jax_es.presets import preset
from jax_es.rollout.observation_statistics import view_of
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import Method
from jax_es.runs.metrics import read_metrics
from jax_es.training.single_env import make_learning_env
from jax_es.training.trained_mean import load_mean

with warnings.catch_warnings():
    # Of TensorFlow Probability, which SBX imports.
    warnings.filterwarnings("ignore", "jax.core", DeprecationWarning)
    from jax_es.imitation import sbx_teacher

SHORT = [
    *("--steps", "96", "--evaluate-every", "32", "--batch-size", "8"),
    *("--critic-hidden-sizes", "8", "8", "--evaluation.num-episodes", "3"),
]
TINY = [*SHORT, "--learning-starts", "16", "--train-freq", "4"]
MLP = ["--policy.hidden-sizes", "8", "6"]
TRANSFORMER = [
    *("--policy", "decision-transformer", "--policy.width", "8"),
    *("--policy.num-layers", "1", "--policy.context-length", "3"),
]
# Their actions are in [-3, 3] and in [-2, 2].
SHORT_PENDULUM = ["--env.id", "Pendulum-v1", "--env.max-episode-steps", "12"]
KINDS = {
    "sac": [
        *("inverted-pendulum", *TINY, *MLP, "--algo", "sac"),
        *("--policy.activation", "tanh"),
    ],
    "td3-transformer": [*SHORT_PENDULUM, *TINY, *TRANSFORMER, "--algo", "td3"],
    "ppo": [*SHORT_PENDULUM, *SHORT, *MLP, "--algo", "ppo", "--n-steps", "16"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trains a run of a kind, once; its folder is not to be changed."""
    runs_dir = tmp_path_factory.mktemp("runs")

    @functools.cache
    def run(kind):
        arguments = [*KINDS[kind], "--name", kind, "--runs-dir", str(runs_dir)]
        assert teacher.main(arguments) == 0
        return runs_dir / kind

    return run


def restored(run):
    """SBX's own training as it was at the end of a run."""
    directory = RunDirectory(run)
    settings = settings_of(directory.method())
    one = sbx_teacher.Teacher(settings, directory.config())
    one.restore(run / "sbx" / "state.npz")
    return one


def predicted(model, observation):
    """SBX's own action, without exploration."""
    return model.predict(observation, deterministic=True)[0]


def seen_by(one, observation):
    """An observation as a teacher's own environment normalises it, then clipped."""
    if "observations" not in one._running:
        return observation
    sums = one._running["observations"]
    normalized = (observation - sums.mean) / np.sqrt(sums.var + 1e-8)
    return np.float32(np.clip(normalized, -10, 10))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sac", "td3-transformer", "ppo"])
def test_it_acts_as_sbx_does_over_whole_episodes(kind, runs):
    options, run = KINDS[kind], runs(kind)
    assert [r.total_env_steps for r in read_metrics(run)] == [0, 32, 64, 96]
    assert Checkpoints(run / "checkpoints").steps() == [32, 64, 96]
    names = {"state.npz", "model.zip", "digests.json"}
    assert {file.name for file in (run / "sbx").iterdir()} == names
    method = RunDirectory(run).method()
    assert method.name == options[options.index("--algo") + 1]
    assert method.settings["critic_hidden_sizes"] == [8, 8]
    # It has learned something, whatever that is.
    first, last = load_mean(run, 32).mean, load_mean(run, 96).mean
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), first, last)
    assert max(jax.tree.leaves(moved)) > 1e-4

    ours, theirs = load_policy(run, "last"), restored(run)
    learning_env = make_learning_env(RunDirectory(run).config())
    env = gymnasium.make(ours.env_id, **ours.env_options)
    for seed in (3, 4):
        observation, _ = env.reset(seed=seed)
        seen, _ = learning_env.reset(seed=seed)
        ours.reset()
        reward, done, steps = 0.0, False, 0
        while not done:
            action = predicted(theirs._model, seen_by(theirs, seen))
            if kind == "ppo":  # SBX's PPO knows of no bounds but ±1
                action = action * env.action_space.high
            np.testing.assert_allclose(ours(observation, reward), action, atol=1e-5)
            observation, reward, *_ = env.step(action)
            seen, *_, terminated, truncated, _ = learning_env.step(action)
            done, steps = terminated or truncated, steps + 1
        assert steps > 4  # longer than the transformer's context


@pytest.mark.slow
def test_it_goes_on_from_its_last_evaluation(runs, monkeypatch, capsys, refused):
    """With what it has learned: a stop signal in the second stretch, and more steps."""
    learn = sbx_teacher.Teacher.learn

    def learn_and_stop(self, on_step):
        def stop(taken):
            on_step(taken)
            if taken == 40:
                signal.raise_signal(signal.SIGTERM)

        learn(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(sbx_teacher.Teacher, "learn", learn_and_stop)
        assert teacher.main([*KINDS["sac"], "--name", "x"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err.splitlines()[-1] == (
        "SIGTERM: the first 32 steps are saved in runs/x; continue with python -m "
        "jax_es.teacher --resume --name x"
    )
    begun = load_mean("runs/x", "last").mean
    again = restored(Path("runs/x"))
    jax.tree.map(np.testing.assert_array_equal, begun, again.mean())
    assert again.num_steps == 32 == again._model.replay_buffer.size() + 1
    arguments = ["--resume", "--name", "x"]
    assert teacher.main([*arguments, "--steps", "64"]) == 0
    assert "\nevaluation  2/2  steps        64  " in capsys.readouterr().err
    shutil.copytree("runs/x/sbx", "sbx-64")
    # More steps are no change, and a finished run has nothing left to do.
    assert teacher.main([*arguments, "--steps", "96"]) == 0
    assert teacher.main(arguments) == 0
    said = "Nothing is left to train: the run has reached steps 96; raise that"
    assert said in capsys.readouterr().err
    assert [r.total_env_steps for r in read_metrics("runs/x")] == [0, 32, 64, 96]
    for changed, words in [
        (["--steps", "64"], "steps must be at least 96"),
        (["--gamma", "0.9"], "gamma was 0.99, now 0.9"),
        (["--policy", "linear"], "was mlp, now linear"),
    ]:
        refused(teacher.main, [*arguments, *changed], words)
    shutil.copytree("sbx-64", "runs/x/sbx", dirs_exist_ok=True)
    assert teacher.main(arguments) == 2
    assert "was saved after 64 steps, and the last ch" in capsys.readouterr().err
    Path("runs/x/sbx/state.npz").unlink()  # or saved by an earlier version
    refused(teacher.main, arguments, "state.npz is missing")
    assert evaluate.main(["runs/x", "--episodes", "1"]) == 0


def test_sbx_itself_reads_what_is_saved(runs):
    import sbx

    run = runs("sac")
    model = sbx.SAC.load(run / "sbx" / "model.zip")
    observation = np.float32([0.1, -0.1, 0.2, 0.3])
    np.testing.assert_array_equal(
        predicted(model, observation), predicted(restored(run)._model, observation)
    )


def test_without_sbx_one_line_says_what_to_install(monkeypatch, refused):
    monkeypatch.delitem(sys.modules, "jax_es.imitation.sbx_teacher")
    monkeypatch.delattr("jax_es.imitation.sbx_teacher")
    monkeypatch.setitem(sys.modules, "sbx", None)
    words = "teachers need SBX", "pip install -e '.[pretraining]'"
    refused(teacher.main, KINDS["sac"], *words)


def test_the_preset_gives_the_task_and_the_transformer():
    request = teacher.parse(["hopper-small", "--algo", "td3", "--seed", "3"])
    assert request.config.env == preset("hopper-small").env
    assert request.config.seed == 3
    assert request.config.policy.hidden_sizes == (256, 256)
    assert request.config.policy.activation == "relu"
    assert not request.config.rollout.observation_statistics
    assert re.fullmatch(r"td3-hopper-small-seed3-\d{8}-\d{6}", request.run.path.name)
    arguments = ["hopper-small", "--policy", "decision-transformer", "--algo", "td3"]
    assert teacher.parse(arguments).config.policy == preset("hopper-small").policy


@pytest.mark.slow
def test_ppo_goes_on_with_what_it_normalises_by(runs, tmp_path):
    shutil.copytree(runs("ppo"), tmp_path / "x")
    before = restored(tmp_path / "x").statistics()
    assert before.count == pytest.approx(load_mean(runs("ppo"), 96).statistics.count)
    # 96 steps, and the first observation of each of the nine episodes.
    assert before.count == pytest.approx(96 + 9)
    arguments = ["--resume", "--name", "x", "--runs-dir", str(tmp_path)]
    assert teacher.main([*arguments, "--steps", "128"]) == 0
    # A new episode began.
    after = load_mean(tmp_path / "x", 128).statistics
    assert after.count == pytest.approx(before.count + 32 + 3)


def test_ppo_is_seen_by_as_it_learned_far_from_0(runs):
    directory = RunDirectory(runs("ppo"))
    one = sbx_teacher.Teacher(settings_of(directory.method()), directory.config())
    rng = np.random.default_rng(0)
    seen = np.float32(1000 + 0.1 * rng.normal(size=(5000, 3)))
    for rows in seen.reshape(50, 100, 3):
        one._running["observations"].update(rows)
    mean, std, _ = view_of(directory.config(), one.statistics()).normalizer(
        (3,), np.float32
    )
    found = (seen[:9] - mean) / std
    # Policies subtract a float32 mean, which is off by up to 3e-5 there.
    np.testing.assert_allclose(found, seen_by(one, seen[:9]), atol=1e-3)


@pytest.mark.parametrize("algo", ["sac", "td3", "ppo"])
def test_settings_survive_being_recorded(algo):
    settings = TeacherSettings(algo=algo, steps=5000, critic_hidden_sizes=(3, 4))
    recorded = Method(*json.loads(json.dumps(settings.method())))
    assert settings_of(recorded) == settings
    assert ("policy_delay" in recorded.settings) == (algo == "td3")
    assert ("tau" in recorded.settings) == (algo != "ppo")
    assert ("n_epochs" in recorded.settings) == (algo == "ppo")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--algo", "ppo", "--tau", "0.1"], "--tau 0.1 has no meaning with --algo ppo"),
        (["--n-epochs", "3"], "or choose --algo ppo"),
        (["--algo", "ppo", "--n-steps", "100"], "got 100; add --n-steps 256"),
        (["--algo", "ppo", "--batch-size", "1"], "--batch-size must be at least 2"),
        (["--algo", "ppo", "--log-std-init", "inf"], "--log-std-init must be in [-20"),
        (
            [
                *("--env.id", "Humanoid-v5", "--algo", "ppo"),
                *("--steps", "2100000000", "--n-steps", "2048000000"),
            ],
            "--n-steps 2048000000 ",
        ),
        (["--algo", "ppo", "--steps", "2048"], "--n-steps must be below steps 2048"),
        (
            ["--algo", "ppo", "--policy", "decision-transformer"],
            "cannot be trained by --algo ppo; choose --policy mlp, or --algo td3",
        ),
    ],
)
def test_what_a_method_does_not_read_is_refused(options, words, refused):
    refused(teacher.main, ["hopper-small", *options], words)
