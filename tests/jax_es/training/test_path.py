"""How far one has to read: files that a set-up and a generation enter, and reads."""

import contextlib
import importlib
import os
import sys
from pathlib import Path

import pytest

from jax_es.train import main

REPOSITORY = Path(__file__).parents[3]
ROOMS = tuple(f"{REPOSITORY / room}/" for room in ("jax_es", "models", "envs"))
SMALL = (
    *("half-cheetah", "--policy", "mlp", "--name", "a", "--es.num-pairs", "2"),
    *("--env.max-episode-steps", "5", "--evaluation.num-episodes", "1"),
    *("--rollout.num-slots", "2", "--rollout.num-devices", "1"),
)

reads: list[str] | None = None
"""Records that were opened to be read, while somebody counts."""


def _count_reads(event: str, arguments: tuple[object, ...]) -> None:
    if reads is not None and event == "open" and arguments[1] in ("r", "rb"):
        name = Path(str(arguments[0])).name
        if name == "config.json":
            reads.append(name)


sys.addaudithook(_count_reads)  # it cannot be removed, but costs next to nothing


@pytest.fixture
def read(monkeypatch):
    """A list that grows with every record that is opened to be read."""
    monkeypatch.setattr(sys.modules[__name__], "reads", [])
    return reads


@contextlib.contextmanager
def watched(files):
    """Adds the files of which functions are called to ``files``."""

    def watch(frame, *_):
        path = frame.f_code.co_filename
        if path.startswith(ROOMS):
            files.add(path)

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


def test_a_set_up_and_a_generation_enter_no_more_files_than_they_did(monkeypatch):
    """These bounds only ever go down: a file more is one more to read."""
    loop = importlib.import_module("jax_es.training.loop")
    run_generation, set_up, generation = loop.run_generation, set(), set()
    later = iter([contextlib.nullcontext(), watched(generation)])

    def counted(*arguments):
        sys.settrace(None)  # the set-up is over
        with next(later):
            return run_generation(*arguments)

    main([*SMALL, "--num-generations", "1"])  # what is entered by imports alone
    monkeypatch.setattr(loop, "run_generation", counted)
    with watched(set_up):
        main([*SMALL, "--name", "b", "--num-generations", "2"])
    assert len(set_up) <= 58, sorted(set_up)
    assert len(generation) <= 26, sorted(generation)


def test_a_resume_reads_its_record_once(read):
    main([*SMALL, "--num-generations", "1"])
    os.utime("runs/a/config.json")  # what this process knows of it counts no more
    read.clear()
    main(["--resume", "--name", "a"])
    assert read == ["config.json"]
