"""What the tests of programs and runs share."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(stay_as_configured, tmp_path, monkeypatch):
    """An empty working directory; the process's JAX stays as the tests configure it.

    Modules that a test wrote there and imported are forgotten: the next test may write
    another of the same name.
    """
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def refused(capsys):
    """A function that runs a program on what cannot be done, and checks its words.

    Other command lines of this kind are in ``tests/trials/inputs.txt``.
    """

    def files():
        found = {path for path in Path().rglob("*") if path.name != ".lock"}
        return {path for path in found if "__pycache__" not in path.parts}

    def refuse(main, arguments, *words):
        """Checks that there is one line, that it has ``words``, and no new file."""
        before = files()
        capsys.readouterr()
        assert main([str(each) for each in arguments]) == 2
        out, err = capsys.readouterr()
        *others, line = err.splitlines()
        assert out == "" and line.startswith("error: ") and len(line) < 1300
        assert all(other.startswith("warning: ") for other in others), err
        for word in words:
            assert word in line, line
        assert files() == before
        return line

    return refuse
