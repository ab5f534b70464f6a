"""All programs as one command, what they import for help, and their neighbours."""

import importlib.metadata
import itertools
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jax_es.__main__ as command
from jax_es import plot, pretrain, teacher, train
from jax_es.runs.folders import program_command

ROOT = Path(__file__).parents[2]

HELP = """
import sys
from jax_es.__main__ import PROGRAMS, main

for arguments in [*([name] for name in PROGRAMS), ["train", "hero-dt"], ["-h"]]:
    try:
        assert main([*arguments, "--help"]) == 0 and arguments == ["-h"]
    except SystemExit as stop:
        assert not stop.code
heavy = {"jax", "flax", "optax", "orbax", "mujoco", "gymnasium", "scipy", "matplotlib"}
sys.exit(f"imported: {heavy & {*sys.modules}}" if heavy & {*sys.modules} else 0)
"""


def python(*arguments, cwd=ROOT, **variables):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )


def test_help_starts_neither_jax_nor_a_simulator():
    done = python("-c", HELP)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: ") == len(command.PROGRAMS) + 2


def test_the_script_is_the_command():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pkgutil.resolve_name(project["scripts"]["jax-es"]) is command.main


def test_a_program_gets_the_arguments_after_its_name(monkeypatch):
    monkeypatch.setattr(plot, "main", lambda argv: 10 + len(argv))
    assert command.main(["plot", "runs/a", "--x", "seconds"]) == 13


def test_the_version_is_that_of_the_package(capsys):
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out == f"jax-es {importlib.metadata.version('jax-es')}\n"


def shown(program, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        program.main(["--help"])
    assert not stop.value.code
    return capsys.readouterr().out.splitlines()


def test_help_is_named_as_it_was_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/venv/bin/jax-es", "train", "--help"])
    first, *_ = shown(train, capsys, monkeypatch)
    assert first == "usage: jax-es train [PRESET] [--policy KIND] [-h] [OPTIONS]"
    assert program_command("evaluate") == "jax-es evaluate"
    monkeypatch.setattr(sys, "argv", ["jax_es/train.py", "--help"])
    first, *_ = shown(train, capsys, monkeypatch)
    assert first.startswith("usage: python -m jax_es.train [PRESET]")


@pytest.mark.parametrize("program", [train, teacher, pretrain])
def test_help_is_wrapped_once(program, capsys, monkeypatch):
    lines = shown(program, capsys, monkeypatch)
    assert max(map(len, lines)) <= 80
    # A line of an option's text is left early only if the next word is too long for it.
    texts = [re.fullmatch(r"( {8,})(\S.*)", line.replace("│", " ")) for line in lines]
    pairs = [
        (a[0], b[2]) for a, b in itertools.pairwise(texts) if a and b and a[1] == b[1]
    ]
    assert len(pairs) > 20
    for line, following in pairs:
        word = re.match("[^ ,]*,?", following)[0]
        assert len(line.rstrip()) + 1 + len(word) > 78, (line, following)


def test_lr_is_the_learning_rate():
    assert train.parse(["--lr", "0.5"]).config.es.learning_rate == 0.5
    assert train.parse(["--lr=0.5"]).config.es.learning_rate == 0.5
    assert (
        teacher.parse(["hopper-small", "--lr", "0.5"]).arguments.settings.learning_rate
        == 0.5
    )


def test_a_project_may_have_folders_of_its_own_called_models_and_envs(tmp_path):
    """``python -m`` looks in the working directory first."""
    for name in ("models", "envs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')\n")
    tiny = (
        "inverted-pendulum --policy mlp --policy.hidden-sizes 4 --es.num-pairs 2 "
        "--num-generations 1 --evaluation.num-episodes 1 --name one"
    )
    for arguments in (f"train {tiny}", "evaluate runs/one --episodes 1"):
        program, *rest = arguments.split()
        done = python("-m", f"jax_es.{program}", *rest, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_old_names_are_the_same_modules_in_a_clone():
    program = """
import models, envs.tetris
from models.mlp import MLPPolicy
import jax_es.envs.tetris, jax_es.models.mlp
assert models is jax_es.models and envs.tetris is jax_es.envs.tetris
assert MLPPolicy is jax_es.models.mlp.MLPPolicy
assert models.mlp.__spec__.name == "jax_es.models.mlp"
"""
    done = python("-c", program, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")
    for name in ("models", "envs"):
        assert done.stderr.count(f"FutureWarning: {name} is jax_es.{name} now") == 1


def test_a_reader_who_has_seen_enough_gets_no_traceback():
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "jax_es.train", "--help"]
    done = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
