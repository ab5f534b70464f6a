"""Teachers: what SBX learns acts here as it does there, and survives being killed."""

import base64
import dataclasses
import functools
import json
import os
import re
import shutil
import signal
import sys
import warnings
import zipfile
from pathlib import Path

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from jax_es import evaluate, load_policy, plot, teacher
from jax_es.checks import ConfigError
from jax_es.cli.progress import StepProgress
from jax_es.imitation import teacher_run
from jax_es.imitation.gradient_run import GradientRun
from jax_es.imitation.teacher_settings import TeacherSettings, settings_of
from jax_es.presets import preset
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import Method
from jax_es.runs.metrics import read_metrics
from jax_es.runs.records import WALL_CLOCK_FIELDS
from jax_es.training.build import make_learning_env
from jax_es.training.load_policy import load_mean

with warnings.catch_warnings():
    # Of TensorFlow Probability, which SBX imports.
    warnings.filterwarnings("ignore", "jax.core", DeprecationWarning)
    from jax_es.imitation import sbx_teacher

TINY = [
    *("--steps", "96", "--evaluate-every", "32"),
    *("--learning-starts", "16", "--batch-size", "8", "--train-freq", "4"),
    *("--critic-hidden-sizes", "8", "8", "--evaluation.num-episodes", "3"),
]
MLP = ["--policy.hidden-sizes", "8", "6"]
TRANSFORMER = [
    *("--policy", "decision-transformer", "--policy.width", "8"),
    *("--policy.num-layers", "1", "--policy.context-length", "3"),
]
# Their actions are in [-3, 3] and in [-2, 2].
SHORT_PENDULUM = ["--env.id", "Pendulum-v1", "--env.max-episode-steps", "12"]
KINDS = {
    "sac": ["inverted-pendulum", *TINY, *MLP, "--algo", "sac"],
    "td3": [
        *("inverted-pendulum", *TINY, *MLP, "--algo", "td3"),
        *("--policy.activation", "tanh"),
    ],
    "td3-transformer": [*SHORT_PENDULUM, *TINY, *TRANSFORMER, "--algo", "td3"],
}


@pytest.fixture(scope="module", autouse=True)
def compilation_cache(tmp_path_factory):
    """Programs are compiled once: a dozen runs here are of the same three kinds."""
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = {name: jax.config.values[name] for name in names}
    folder = str(tmp_path_factory.mktemp("cache"))
    for name, value in zip(names, (folder, 0.0), strict=True):
        jax.config.update(name, value)
    reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory; the process's JAX stays as the tests configure it."""
    jax.devices()
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
    one = sbx_teacher.Teacher(settings, directory.config(), settings.steps)
    one.restore(teacher_run.sbx_states(directory).restore(96).state)
    return one


def records(run):
    """What a run recorded, but for the times."""
    rows = [dataclasses.asdict(record) for record in read_metrics(run)]
    return [
        str({k: v for k, v in row.items() if k not in WALL_CLOCK_FIELDS})
        for row in rows
    ]


def assert_same_run(run, other):
    assert records(run) == records(other)
    for which in ("last", "best"):
        ours, theirs = load_mean(run, which), load_mean(other, which)
        assert ours.generation == theirs.generation
        jax.tree.map(np.testing.assert_array_equal, ours.mean, theirs.mean)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_like_any_other(kind, runs):
    options, run = KINDS[kind], runs(kind)
    recorded = read_metrics(run)
    assert [r.total_env_steps for r in recorded] == [0, 32, 64, 96]
    assert [r.generation for r in recorded] == [0, 1, 2, 3]
    assert Checkpoints(run / "checkpoints").steps() == [32, 64, 96]
    assert teacher_run.sbx_states(RunDirectory(run)).steps() == [64, 96]
    method = RunDirectory(run).method()
    assert method.name == options[options.index("--algo") + 1]
    assert method.settings["train_freq"] == 4
    assert method.settings["critic_hidden_sizes"] == [8, 8]
    # It has learned something, whatever that is.
    first, last = load_mean(run, 32).mean, load_mean(run, 96).mean
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), first, last)
    assert max(jax.tree.leaves(moved)) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_acts_as_sbx_does_over_whole_episodes(kind, runs):
    run = runs(kind)
    ours, theirs = load_policy(run, "last"), restored(run)
    learning_env = make_learning_env(RunDirectory(run).config())
    env = gymnasium.make(ours.env_id, **ours.env_options)
    for seed in (3, 4):
        observation, _ = env.reset(seed=seed)
        seen, _ = learning_env.reset(seed=seed)
        ours.reset()
        reward, done, steps = 0.0, False, 0
        while not done:
            action = theirs.predict(seen)
            np.testing.assert_allclose(ours(observation, reward), action, atol=1e-5)
            observation, reward, *_ = env.step(action)
            seen, *_, terminated, truncated, _ = learning_env.step(action)
            done, steps = terminated or truncated, steps + 1
        assert steps > 4  # longer than the transformer's context


class KilledError(BaseException):
    """Ends the program wherever it is, as SIGKILL would."""


def test_killed_anywhere_it_resumes_to_the_same_numbers(runs, monkeypatch, capsys):
    """After a save, between the two saves of a step, and by a stop signal."""
    arguments = [*KINDS["sac"], "--name", "x"]
    for calls, owner, saved in (
        (0, GradientRun, []),  # before the first checkpoint
        (1, GradientRun, [0]),
        (1, sbx_teacher.Teacher, [0, 32]),
    ):
        name = "save" if owner is GradientRun else "state"
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(owner, name, dying(getattr(owner, name), calls))
            teacher.main(arguments)
        assert Checkpoints("runs/x/checkpoints").steps() == saved
        arguments = ["--resume", "--name", "x"]

    steps_done = StepProgress.steps_done

    def interrupted(progress, taken):
        steps_done(progress, taken)
        if taken == 50:
            signal.raise_signal(signal.SIGTERM)

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(StepProgress, "steps_done", interrupted)
        assert teacher.main(arguments) == 128 + signal.SIGTERM
    begin, *_, end = capsys.readouterr().err.splitlines()
    assert begin.startswith("Resuming after 32 steps: mlp (")
    assert end == (
        "SIGTERM: the first 32 steps are saved in runs/x; continue with python -m "
        "jax_es.teacher --resume --name x"
    )
    assert teacher.main(arguments) == 0
    assert_same_run("runs/x", runs("sac"))


def dying(function, calls):
    """Wraps a function that ends the program after so many calls."""
    left = iter(range(calls))

    def wrapped(*args, **more):
        if next(left, None) is None:
            raise KilledError
        return function(*args, **more)

    return wrapped


def test_more_steps_are_no_change(runs, capsys):
    run, resume = runs("td3-transformer"), ["--resume", "--name", "x"]
    arguments = [*KINDS["td3-transformer"], "--steps", "64", "--name", "x"]
    assert teacher.main(arguments) == 0
    assert teacher.main([*resume, "--steps", "96"]) == 0
    assert_same_run("runs/x", run)
    assert RunDirectory(Path("runs/x")).method() == RunDirectory(run).method()
    # A finished run has nothing left to do, and other settings make another run.
    assert teacher.main(resume) == 0
    for changed, words in [
        (["--steps", "64"], "--steps must be at least 96"),
        (["--gamma", "0.9"], "gamma was 0.99, now 0.9"),
        (["--evaluate-every", "8"], "evaluate_every was 32, now 8"),
        (["--algo", "sac"], "was trained by TD3, not by SAC"),
        (["--seed", "1"], "seed was 0, now 1"),
        (["--policy", "mlp"], "was decision-transformer, now mlp"),
        (["--policy.width", "9"], "policy.width was 8, now 9"),
    ]:
        assert words in refused([*resume, *changed], capsys)
    assert_same_run("runs/x", run)


def test_the_programs_take_it(runs, capsys):
    run = runs("sac")
    assert evaluate.main([str(run), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2
    assert plot.main([str(run), "--x", "env-steps", "--output", "plot.png"]) == 0
    assert Path("plot.png").stat().st_size > 1000


def refused(arguments, capsys):
    """Runs the program on bad input; returns the one line that it prints."""
    capsys.readouterr()
    assert teacher.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert len(line) < 1000
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["PRESET or --env.id is needed"]),
        (["hoper"], ["preset 'hoper'", "did you mean hopper"]),
        (["hopper", "--policy", "lstm"], ["--policy lstm cannot be trained by --algo"]),
        (
            ["hopper", "--policy", "decision-transformer"],
            ["cannot be trained by --algo sac", "or --algo td3"],
        ),
        (
            ["hopper", "--algo", "td3", *TRANSFORMER, "--policy.attention", "cache"],
            ["--policy.attention cache", "choose --policy.attention window"],
        ),
        (
            ["hopper", "--policy.action-scale", "none"],
            ["--policy.action-scale none is not possible", "choose bounds"],
        ),
        (["--env.id", "ALE/Hero-v5"], ["--algo sac", "observation vectors", "Hero"]),
        (["--env.id", "CartPole-v1"], ["--algo sac", "bounded real", "Discrete(2)"]),
        (
            ["hopper", "--steps", "100"],
            ["--learning-starts must be at least 0 and below --steps 100", "got 100"],
        ),
        (["--resume"], ["--resume needs --name", "Runs in runs: none"]),
        (["--resume", "--name", "gone"], ["runs/gone is not a run"]),
        (
            ["hopper", "--steps", "1000000000", "--buffer-size", "1000000000"],
            ["--buffer-size 1000000000 would take about", "GiB", "choose a smaller"],
        ),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, words, capsys, folder):
    line = refused(arguments, capsys)
    for word in words:
        assert word in line
    assert list(folder.iterdir()) == []


def test_other_runs_are_not_continued(capsys):
    config = preset("inverted-pendulum", "mlp")
    RunDirectory(Path("runs/es")).create(config, "inverted-pendulum")
    for arguments in ([], KINDS["td3"]):
        line = refused([*arguments, "--resume", "--name", "es"], capsys)
        assert "runs/es was trained by" in line
        assert "not by" in line


def test_a_teacher_that_cannot_go_on_is_one_line(runs, capsys):
    """Saved by a version before this one, for instance; θ needs no SBX."""
    shutil.copytree(runs("td3-transformer"), "runs/x")
    arguments = ["--resume", "--name", "x"]
    shutil.rmtree("runs/x/sbx/last")
    Path("runs/x/sbx/96").mkdir()
    line = refused(arguments, capsys)
    assert "runs/x cannot be continued, since runs/x/sbx has nothing" in line
    assert evaluate.main(["runs/x", "--episodes", "1"]) == 0
    Checkpoints("runs/x/sbx").save(96, {"networks": {"0": np.zeros(3)}})
    line = refused(arguments, capsys)
    assert "runs/x/sbx: what SBX had learned is not of this training" in line


class Payload:
    """Its pickle makes a file when it is loaded."""

    def __reduce__(self):
        return os.system, ("touch executed",)


def test_a_resume_loads_no_pickle(runs):
    """SBX's own ``load`` would."""
    shutil.copytree(runs("sac"), "runs/foreign")
    payload = base64.b64encode(cloudpickle.dumps(Payload())).decode()
    data = {"policy": {":type:": "x", ":serialized:": payload}}
    with zipfile.ZipFile("runs/foreign/sbx/model.zip", "w") as archive:
        archive.writestr("data", json.dumps(data))
    arguments = ["--resume", "--name", "foreign", "--steps", "100"]
    assert teacher.main(arguments) == 0
    assert not Path("executed").exists()


def test_sbx_itself_reads_what_is_saved(runs):
    import sbx

    run = runs("sac")
    model = sbx.SAC.load(run / "sbx" / "model.zip")
    observation = np.float32([0.1, -0.1, 0.2, 0.3])
    np.testing.assert_array_equal(
        model.predict(observation, deterministic=True)[0],
        restored(run).predict(observation),
    )


def test_without_sbx_one_line_says_what_to_install(monkeypatch, capsys, folder):
    monkeypatch.delitem(sys.modules, "jax_es.imitation.sbx_teacher")
    monkeypatch.delattr("jax_es.imitation.sbx_teacher")
    monkeypatch.setitem(sys.modules, "sbx", None)
    line = refused(KINDS["sac"], capsys)
    assert "sbx is not installed: pip install -e '.[pretraining]'" in line
    assert list(folder.iterdir()) == []


def test_the_preset_gives_the_task_and_the_transformer():
    request = teacher.parse(["hopper", "--algo", "td3", "--seed", "3"])
    assert request.config.env == preset("hopper").env
    assert request.config.seed == 3
    assert request.config.policy.hidden_sizes == (256, 256)
    assert request.config.policy.activation == "relu"
    assert not request.config.rollout.observation_statistics
    assert re.fullmatch(r"td3-hopper-seed3-\d{8}-\d{6}", request.run.path.name)
    arguments = ["hopper", "--policy", "decision-transformer", "--algo", "td3"]
    assert teacher.parse(arguments).config.policy == preset("hopper").policy
    request = teacher.parse(["--env.id", "Hopper-v5", "--steps", "200"])
    assert request.config.env.id == "Hopper-v5"
    assert request.settings.steps == 200


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_settings_survive_being_recorded(algo):
    settings = TeacherSettings(algo=algo, steps=500, critic_hidden_sizes=(3, 4))
    recorded = Method(*json.loads(json.dumps(settings.method())))
    assert settings_of(recorded) == settings
    assert ("policy_delay" in recorded.settings) == (algo == "td3")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        *(("steps", 0, "at least 1"), ("evaluate_every", 0, "at least 1")),
        *(("gradient_steps", 0, "at least 1, or -1"), ("gamma", 1.5, "in [0, 1]")),
        *(("learning_rate", -1.0, "positive and finite"), ("tau", 0.0, "in (0, 1]")),
        ("critic_hidden_sizes", (0,), "at least 1 each"),
    ],
)
def test_impossible_settings_are_named(field, value, words):
    message = f"--{field.replace('_', '-')} must be {words}.*, got {value}"
    with pytest.raises(ConfigError, match=re.escape(message).replace(r"\.\*", ".*")):
        TeacherSettings(**{field: value})
    with pytest.raises(ConfigError, match="--policy-delay 3 has no meaning with"):
        TeacherSettings(policy_delay=3)
