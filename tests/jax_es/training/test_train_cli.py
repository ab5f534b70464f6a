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
import pytest

from jax_es import train
from jax_es.cli import options
from jax_es.cli import signals as stop_signals
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.presets import PRESETS, preset
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_run
from jax_es.runs.machine import git_commit, machine
from jax_es.runs.metrics import read_metrics
from jax_es.train_config import from_dict
from jax_es.training.build import POLICY_KINDS, TrainConfig
from tests.trials import inputs

TINY = [*inputs.TINY.split(), "--num-generations", "2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["humanoid-td"], ["preset 'humanoid-td'", "did you mean humanoid-dt"]),
        (["--es.sigma", "0"], ["es.sigma must be positive", "got 0.0"]),
        (["--env.id", "Hoper-v5"], ["Hoper-v5", "did you mean", "Hopper-v5"]),
        (["--resume"], ["--resume needs --name", "Runs in runs: none"]),
        (
            ["humanoid", "--es.sigma-end", "0.01"],
            ["phase ", '"es.sigma" may not change', "phases out (--phases None)."],
        ),
        (
            ["--policy", "mlp", "--policy.hidden-sizes", *[f"{10**9}"] * 2],
            ["policy mlp of 1,000,0", "weights would take about", "GiB"],
        ),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, words, refused):
    refused(train.main, arguments, *words)


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


def test_what_a_presets_phases_change_again_is_told_of(recwarn):
    typed = ["humanoid", "--policy", "linear", "--lr", "0.1"]
    typed.append("--rollout.num_substeps=3")
    for more in ([], ["--phases", "None"]):
        with options.typed_options([*typed, *more]):
            train.parse([*typed, *more])
    train.parse(typed)  # nothing was typed now
    (warning,) = [each for each in recwarn if each.category is UserWarning]
    words = "phases of humanoid change --es.learning-rate, --rollout.num-substeps again"
    assert words in str(warning.message)


@pytest.mark.parametrize("kind", ["decision-transformer", "cnn"])
def test_help_explains_every_field(kind, capsys):
    with pytest.raises(SystemExit) as stop:
        train.main(["--policy", kind, "--help-all"])
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
            if field.name.endswith("kwargs"):  # shown where there are some
                continue
            if not dataclasses.is_dataclass(
                getattr(preset("hopper-small"), field.name, 0)
            ):
                assert f"--{prefix}{field.name.replace('_', '-')}" in text
                assert " ".join(documents[field.name].split()) in text
    for name in PRESETS:
        assert name in text
    for field in ("--name", "--runs-dir", "--seeds", "--resume"):
        assert field in text


def test_help_leaves_out_what_only_games_or_obedience_need(capsys):
    texts = []
    for word in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as stop:
            train.main(["--env.game", "hero", word])
        assert not stop.value.code
        texts.append(" ".join(capsys.readouterr().out.split()))
    short, whole = texts
    for option in ("--env.game", "--env.noop-max", "--es.command-low"):
        assert f"{option} " not in short and f"{option} " in whole
    assert "--help-all lists those of games and obedience, too." in short
    assert "--es.sigma FLOAT" in short


@pytest.mark.parametrize(
    "strategy", ["openai-es", "cma-es", "pgpe", "guided", "cem-rl"]
)
def test_help_leaves_out_what_a_strategy_does_not_read(strategy, capsys):
    with pytest.raises(SystemExit):
        train.main(["hopper", "--strategy", strategy, "--help-all"])
    text = capsys.readouterr().out
    estimates = strategy in ("openai-es", "guided")
    assert ("--es.learning-rate FLOAT" in text) == estimates
    assert ("--es.shaping" in text) == (estimates or strategy == "pgpe")
    assert "--es.sigma FLOAT" in text


def test_a_run_leaves_its_configuration_metrics_and_checkpoints(
    refused, capsys, folder
):
    assert train.main([*TINY, "--name", "tiny"]) == 0
    out, err = capsys.readouterr()
    run = folder / "runs" / "tiny"
    text = out + err
    reached = "Ended after 2 generations and "
    assert reached in text and "steps: num_generations 2 reached." in text
    assert "Training mlp (13 parameters) on InvertedPendulum-v5: 2 pairs" in text
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
    refused(
        train.main,
        [*TINY, "--name", "tiny"],
        "runs/tiny holds a run already",
        "--resume",
    )
    # Nor may a resume change what its numbers depend on.
    for arguments in ([*TINY, "--es.sigma", "0.7"], ["--es.sigma", "0.7"]):
        resume = [*arguments, "--resume", "--name", "tiny"]
        refused(train.main, resume, "es.sigma was 0.05, now 0.7")
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before

    # A finished run says so, and what to raise.
    assert train.main(["--resume", "--name", "tiny"]) == 0
    said = "Nothing is left to train: the run has reached num_generations 2; raise"
    assert said in capsys.readouterr().err

    # More generations are no change; nor are threads and how often to save.
    arguments = ["--resume", "--name", "tiny", "--num-generations", "3"]
    arguments += ["--rollout.num-threads", "2", "--checkpoint-every", "2"]
    assert train.main(arguments) == 0
    assert [r.generation for r in read_metrics(run)] == [0, 1, 2, 3]


def test_runs_get_names_of_their_own():
    request = train.parse(["hopper-small", "--seed", "3"])
    assert re.fullmatch(r"hopper-small-seed3-\d{8}-\d{6}", request.run.path.name)
    assert request.run.path.parent == Path("runs")
    assert request.config == dataclasses.replace(preset("hopper-small"), seed=3)
    assert not request.arguments.resume


@pytest.mark.parametrize(
    ("recorded", "today", "fine_tune"),
    [
        ("hopper", "hopper-small", False),
        ("hopper-clipup", "hopper", False),
        ("hopper-pretrained", "hopper-small", True),
    ],
)
def test_a_run_resumes_under_the_name_that_it_recorded(
    recorded, today, fine_tune, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    config = preset(today, "mlp", fine_tune=fine_tune)
    if fine_tune:
        config = dataclasses.replace(config, init="runs/clone")
    RunDirectory(Path("runs/old")).create(config, recorded)
    resume = ["--resume", "--name", "old"]
    for named in (
        [],
        [recorded, "--policy", "mlp", *["--init", "runs/clone"] * fine_tune],
    ):
        assert train.parse([*named, *resume]).config == config


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


def test_a_class_that_raises_is_one_line_and_leaves_nothing(capsys, folder):
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
        raise stop_signals.Stopped(signal.SIGTERM)

    monkeypatch.setattr("jax_es.training.train_policy.build", stopped)
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
    with stop_signals.StopSignals() as signals:
        signals.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(stop_signals.Stopped) as stop:
            signals.check()
        assert stop.value.signum == signal.SIGINT
        # The same one through another path changes nothing; a later one is not ours.
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(stop_signals, "PATIENCE_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
