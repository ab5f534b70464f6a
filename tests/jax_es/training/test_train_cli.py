"""The command line of training: help, one line for bad input, what a run leaves."""

import ast
import dataclasses
import inspect
import itertools
import json
import re
import signal
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from jax_es import train
from jax_es.cli import signals as stop_signals
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.presets import PRESETS, preset
from jax_es.runs.find import find_run
from jax_es.runs.machine import git_commit, machine
from jax_es.runs.metrics import read_metrics
from jax_es.train_config import from_dict
from jax_es.training.build import POLICY_KINDS, TrainConfig

TINY = [
    *("inverted-pendulum", "--policy", "mlp", "--policy.hidden-sizes", "4"),
    *("--es.num-pairs", "2", "--evaluation.num-episodes", "2"),
    *("--rollout.num-slots", "1", "--rollout.num-devices", "1"),
    *("--rollout.num-threads", "1", "--num-generations", "2"),
]


def refused(arguments, capsys):
    """Runs the program on bad input; returns the one line that it prints."""
    assert train.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert len(line) < 1000
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["humanoid-td"], ["preset 'humanoid-td'", "did you mean humanoid-dt"]),
        (["--policy", "mpl"], ["policy 'mpl'", "did you mean mlp"]),
        (["--policy"], ["--policy needs a value"]),
        (["--es.sigm", "1"], ["--es.sigm", "--es.sigma"]),
        (["--es.sigma", "0"], ["es.sigma must be positive", "got 0.0"]),
        (
            ["--es.num-pairs", "1", "--es.shaping", "pair_rank"],
            ["es.num_pairs must be at least 2", "pair_rank"],
        ),
        (["--es.num-pairs", "2.5"], ["--es.num-pairs", "2.5"]),
        (["--es.shaping", "rank"], ["--es.shaping", "rank", "pair_rank"]),
        (["--num-generations", "0"], ["num_generations must be at least 1"]),
        (["--rollout.num-devices", "99"], ["num_devices must be at most", "got 99"]),
        (["--policy.width", "0"], ["width", "0"]),
        (["--policy.num-heads", "5"], ["num_heads", "5", "must divide width"]),
        (["--env.id", "Hoper-v5"], ["Hoper-v5", "did you mean", "Hopper-v5"]),
        (["--env.id", "nowhere:Hop-v1"], ["nowhere"]),
        (["--env.id", "Blackjack-v1"], ["Blackjack-v1", "Tuple"]),
        (["--env.id", "Taxi-v4"], ["Discrete", "expected a Box"]),
        (["--policy", "mlp", "--policy.sample-actions"], ["sample_actions"]),
        (["--resume"], ["--resume needs --name", "Runs in runs: none"]),
        (["--resume", "--name"], ["--name needs a value"]),
        (["--resume", "--name", "gone"], ["runs/gone is not a run"]),
        (["hopper", "walker2d"], ["walker2d"]),
        (["--name", "../x"], ["--name must be the name of a folder", "'../x'"]),
        (["--es.num-pairs", f"{10**10}"], ["es.num_pairs must be below 2^31"]),
        (["--es.num-pairs", f"{10**9}"], ["es.num_pairs 1000000000 with", "GiB"]),
        (
            ["--es.episodes-per-member", f"{10**9}"],
            ["es.num_pairs", "with es.episodes_per_member 1000000000 would take"],
        ),
        (
            ["--evaluation.num-episodes", f"{10**9}"],
            ["evaluation.num_episodes 1000000000 would take about", "GiB of memory"],
        ),
        (
            ["--es.num-pairs", f"{10**7}", "--rollout.num-slots", f"{10**7}"],
            ["rollout.num_slots 10000000 would take about", "choose a smaller value"],
        ),
        (
            ["--policy", "mlp", "--policy.hidden-sizes", *[f"{10**9}"] * 2],
            ["policy.hidden_sizes 1000000000 1000000000 would take about"],
        ),
        (["--policy.width", f"{10**6}"], ["policy.width 1000000 would take about"]),
        (["--policy.context-length", f"{10**9}"], ["policy.context_length 100000"]),
        (["--policy.num-layers", "1001"], ["policy.num_layers=1001", "at most 1000"]),
        (["--rollout.num-threads", f"{10**9}"], ["num_threads must be in [1, 4096]"]),
        (["--strategy", "cma"], ["strategy 'cma' is unknown", "did you mean cma-es"]),
        (
            ["--strategy", "snes", "--es.optimizer", "adam"],
            ["es.optimizer adam has no meaning with es.strategy snes; leave it out"],
        ),
        (["--es.kwargs.c_std", "1"], ["has no meaning with es.strategy openai-es"]),
        (
            ["hopper", "--strategy", "snes", "--es.kwargs.lr-std", "1"],
            ["snes has no hyperparameter lr_std; it has", "lr_std_init"],
        ),
        (
            ["humanoid-mlp", "--strategy", "cma-es"],
            ["es.strategy cma-es, with matrices of 159,", "GiB", "--strategy sep-cma"],
        ),
        (
            ["humanoid-mlp", "--strategy", "snes", "--es.num-pairs", f"{10**6}"],
            [
                "es.num_pairs 1000000, whose 2,000,000 members",
                "GiB",
                "choose fewer pairs",
            ],
        ),
        (["--max-env-steps", f"{2**63}"], ["max_env_steps must be below 2^63"]),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, words, capsys, folder):
    line = refused(arguments, capsys)
    for word in words:
        assert word in line
    assert list(folder.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_one_line(capsys, folder):
    # A file where a folder should be: unlike permissions it also stops root.
    (folder / "file").write_text("")
    for runs_dir in ("file", "file/runs"):
        arguments = [*TINY, "--runs-dir", runs_dir, "--name", "x"]
        line = refused(arguments, capsys)
        assert f"{runs_dir}/x cannot be written" in line
        assert "choose another" in line
    assert [path.name for path in folder.iterdir()] == ["file"]


def documented_fields(cls):
    """The fields of a dataclass with the docstrings beneath them."""
    (body,) = (
        node.body
        for node in ast.walk(ast.parse(inspect.getsource(cls)))
        if isinstance(node, ast.ClassDef)
    )
    documents = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            documents[field.target.id] = text.value.value
    return documents


@pytest.mark.parametrize("kind", ["decision-transformer", "cnn"])
def test_help_explains_every_field(kind, capsys):
    with pytest.raises(SystemExit) as stop:
        train.main(["--policy", kind, "--help"])
    assert not stop.value.code
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    groups = {
        "": TrainConfig,
        "env.": EnvConfig,
        "es.": ESConfig,
        "rollout.": RolloutConfig,
        "evaluation.": EvaluationConfig,
        "policy.": POLICY_KINDS[kind],
    }
    for prefix, cls in groups.items():
        documents = {}
        for base in reversed(cls.__mro__[:-1]):
            documents |= documented_fields(base)
        for field in dataclasses.fields(cls):
            assert len(documents[field.name]) > 10
            if field.name == "kwargs":  # shown where there are some
                continue
            if not dataclasses.is_dataclass(getattr(preset("hopper"), field.name, 0)):
                assert f"--{prefix}{field.name.replace('_', '-')}" in text
                assert " ".join(documents[field.name].split()) in text
    for name in PRESETS:
        assert name in text
    for field in ("--name", "--runs-dir", "--seeds", "--resume"):
        assert field in text


def test_a_run_leaves_its_configuration_metrics_and_checkpoints(capsys, folder):
    assert train.main([*TINY, "--name", "tiny"]) == 0
    out, err = capsys.readouterr()
    run = folder / "runs" / "tiny"
    text = out + err
    assert "Training mlp (25 parameters) on InvertedPendulum-v5: 2 pairs" in text
    assert "A slot runs one episode at a time; busy is the share of slots" in text
    for hint in (
        "python -m jax_es.evaluate runs/tiny",
        "jax_es.load_policy('runs/tiny')",
        "runs/tiny/metrics.jsonl",
    ):
        assert hint in text
    assert [r.generation for r in read_metrics(run)] == [0, 1, 2]
    stored = json.loads((run / "config.json").read_text())
    config = from_dict(stored["config"])
    assert config == find_run(run).config()
    assert config.es.num_pairs == 2
    assert stored["preset"] == "inverted-pendulum"
    assert stored["versions"]["jax"] == jax.__version__
    assert stored["git_commit"] == git_commit()
    assert stored["machine"] == machine()
    assert list((run / "tensorboard").iterdir())

    # The run is there: nothing may write over it.
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    line = refused([*TINY, "--name", "tiny"], capsys)
    assert "runs/tiny holds a run already" in line
    assert "--resume" in line
    # Nor may a resume change what its numbers depend on.
    for arguments, words in [
        ([*TINY, "--es.sigma", "0.7"], ["es.sigma was 0.05, now 0.7"]),
        (["--es.sigma", "0.7"], ["es.sigma was 0.05, now 0.7"]),
        (["--seed", "1"], ["seed was 0, now 1"]),
        (["--env.id", "Hopper-v5"], ["env.id was 'InvertedPendulum-v5', now 'Hopper"]),
        (["--policy", "lstm"], ["was mlp, now lstm"]),
        (
            ["inverted-pendulum"],
            ["policy.kind was 'mlp', now 'decision-transformer'", "es.num_pairs was 2"],
        ),
        (["--num-generations", "1"], ["num_generations must be at least 2", "got 1"]),
    ]:
        line = refused([*arguments, "--resume", "--name", "tiny"], capsys)
        for word in words:
            assert word in line
    line = refused(["--resume"], capsys)
    assert "Runs in runs: tiny" in line
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before

    # More generations are no change; nor are threads and how often to save.
    arguments = ["--resume", "--name", "tiny", "--num-generations", "3"]
    arguments += ["--rollout.num-threads", "2", "--checkpoint-every", "2"]
    # Another version of a library may be, which is worth a line.
    stored["versions"]["jax"] = "0.0"
    (run / "config.json").write_text(json.dumps(stored))
    with pytest.warns(UserWarning, match=r"began with other versions \(jax 0.0 → "):
        assert train.main(arguments) == 0
    assert [r.generation for r in read_metrics(run)] == [0, 1, 2, 3]


def test_runs_get_names_of_their_own():
    request = train.parse(["hopper", "--seed", "3"])
    assert re.fullmatch(r"hopper-seed3-\d{8}-\d{6}", request.run.path.name)
    assert request.run.path.parent == Path("runs")
    assert request.config == dataclasses.replace(preset("hopper"), seed=3)
    assert not request.resume


def test_options_are_read_into_their_fields():
    request = train.parse([])
    assert (request.preset, request.config) == ("quickstart", preset("quickstart"))
    arguments = ["--policy=lstm", "--rollout.step-cap-factor", "None", "--name", "x"]
    arguments += ["--es.shaping", "centered_rank"]
    arguments += ["--rollout.no-observation-statistics"]
    request = train.parse(arguments)
    config = request.config
    assert request.run.path == Path("runs/x")
    assert type(config.policy) is POLICY_KINDS["lstm"]
    assert config.rollout.step_cap_factor is None
    assert config.es.shaping == "centered_rank"
    assert not config.rollout.observation_statistics


class Faulty(gymnasium.Env):
    """Raises in the process's step ``fails_at``."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    fails_at = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Faulty.fails_at -= 1
        if Faulty.fails_at == 0:
            raise ZeroDivisionError("mine")
        return np.zeros(2, np.float32), float(action), False, False, {}


@pytest.fixture
def faulty():
    """Arguments of a run of 30 environment steps a generation."""
    gymnasium.register("Faulty-v0", Faulty, max_episode_steps=5)
    yield [*TINY, "--env.id", "Faulty-v0"]
    del gymnasium.registry["Faulty-v0"]


def test_an_environment_that_raises_costs_one_line_and_one_generation(
    faulty, capsys, folder, monkeypatch
):
    monkeypatch.setattr(Faulty, "fails_at", 45)
    assert train.main([*faulty, "--name", "x"]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line == (
        "error: environment Faulty-v0 raised ZeroDivisionError in step: mine; its "
        "traceback is in runs/x/error.log; mend it, then continue with --resume --name "
        "x"
    )
    log = (folder / "runs" / "x" / "error.log").read_text()
    assert 'raise ZeroDivisionError("mine")' in log
    assert "rollout" not in log
    assert train.main(["--resume", "--name", "x"]) == 0
    assert train.main([*faulty, "--name", "y"]) == 0
    resumed, whole = (read_metrics(folder / "runs" / name) for name in "xy")
    assert [r.return_mean for r in resumed] == [r.return_mean for r in whole]


def test_a_class_that_raises_is_one_line_and_leaves_nothing(faulty, capsys, folder):
    def broken():
        raise SystemExit(0)

    gymnasium.register("Broken-v0", broken, max_episode_steps=5)
    try:
        arguments = [*TINY, "--env.id", "Broken-v0"]
        assert train.main(arguments) == 1
        assert capsys.readouterr().err == (
            "error: environment Broken-v0 called sys.exit(0) when it was made; --debug "
            "shows its traceback\n"
        )
        assert train.main(["--debug", *arguments]) == 1
        assert "raise SystemExit(0)" in capsys.readouterr().err
    finally:
        del gymnasium.registry["Broken-v0"]
    assert list(folder.iterdir()) == []


def test_stopped_before_there_is_a_run_no_resume_is_advised(capsys, monkeypatch):
    def stopped(*_, **__):
        raise train.Stopped(signal.SIGTERM)

    monkeypatch.setattr("jax_es.training.loop.build", stopped)
    assert train.main(TINY) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == (
        "SIGTERM: nothing had begun; start again with the same command\n"
    )


def test_signals_are_given_back(monkeypatch):
    # A background job starts with SIGINT ignored; this is about one that does not.
    started_with = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        check_that_signals_are_given_back(monkeypatch)
    finally:
        signal.signal(signal.SIGINT, started_with)


def check_that_signals_are_given_back(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    with train.StopSignals() as signals:
        signals.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(train.Stopped) as stop:
            signals.check()
        assert stop.value.signum == signal.SIGINT
        # The same one through another path changes nothing; a later one is not ours.
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(stop_signals, "PATIENCE_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
