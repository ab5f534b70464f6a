"""A world of tiny runs of each kind, made once; each trial has a copy of its own."""

import importlib
import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.trials.inputs import CLONE, TINY


def run(command: str) -> int:
    """Runs ``python -m jax_es.COMMAND``, or ``jax-es …``, in this process."""
    program, *arguments = shlex.split(command)
    module = "__main__" if program == "jax-es" else program
    return importlib.import_module(f"jax_es.{module}").main(arguments)


@pytest.fixture(scope="session")
def made(stay_as_configured, tmp_path_factory):
    """The world that is copied."""
    pytest.importorskip("minari")
    folder = tmp_path_factory.mktemp("world")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for command in (
            f"train {TINY} --num-generations 2 --name es",
            f"train {TINY} --num-generations 2 --seeds 2 --name many",
            "train inverted-pendulum --env.max-episode-steps 5 --policy.width 4 "
            "--policy.num-layers 1 --policy.context-length 2 --es.num-pairs 2 "
            "--evaluation.num-episodes 1 --rollout.num-slots 1 "
            "--rollout.num-devices 1 --num-generations 1 --name dt",
            f"train {TINY} --env.id CartPole-v1 --num-generations 1 --name cart",
            "collect runs/es --dataset pole-v0 --episodes 4",
            # What is imported late: a signal in there leaves half a module.
            "plot runs/es --output warm.svg",
            "report runs/es --output warm.html",
            "evaluate runs/es --episodes 1",
            f"pretrain {CLONE} --epochs 2 --steps-per-epoch 2 --warmup-steps 1 "
            "--batch-size 2 --name clone",
        ):
            assert run(command) == 0
        shutil.copytree("runs/es", "runs/begun")
        for name in ("metrics.jsonl", "checkpoints", "tensorboard"):
            path = Path("runs/begun", name)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        Path("notes.txt").write_text("mine\n")
        Path("one.json").write_text('{"a": 1}')
        Path("latin.json").write_bytes('{"café": {}}'.encode("latin-1"))
        Path("runs/folder.html").mkdir()
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def unchanged(made, monkeypatch):
    """The world itself, as working directory: for what must change nothing."""
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def world(made, tmp_path, monkeypatch):
    """A copy of the world, as working directory."""
    folder = tmp_path / "world"
    shutil.copytree(made, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, tuple[int, int] | None]:
    """Returns when files were written and their sizes, None for folders; no locks."""
    found = {}
    for root, folders, files in os.walk(folder):
        found |= {os.path.join(root, name): None for name in folders}
        for file in (os.path.join(root, name) for name in files if name != ".lock"):
            stat = os.stat(file)
            found[file] = stat.st_mtime_ns, stat.st_size
    return found
