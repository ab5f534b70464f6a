"""Work goes on without its display; a result that nobody gets is said."""

import errno
import io
import os
import sys

import pytest

from jax_es.checks import ConfigError
from jax_es.cli.display import Display, standard_error, standard_output
from jax_es.cli.program import program
from jax_es.cli.progress import Progress


class Gone(io.StringIO):
    """A terminal, or a file, that is not there any more."""

    def __init__(self, is_terminal):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def write(self, text):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class Full(io.StringIO):
    def flush(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("stream", [Gone(True), Gone(False), None])
def test_progress_goes_on_without_its_stream(stream, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    with Progress(3) as progress:
        progress.message("hello")
        progress.generation_started(1)
        progress.tasks_done(1, 2)


def test_what_waits_for_a_reader_who_is_gone_is_dropped():
    read, write = os.pipe()
    with open(write, "w") as stream:
        os.close(read)
        display = Display(stream)
        display.write(100_000 * "x")
        assert isinstance(display.error, BrokenPipeError)
        stream.write("also without the display, as Python does at its end")
        stream.flush()


def test_a_closed_standard_error_is_nobody_elses(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", None)
    kept = os.dup(2)
    os.close(2)
    try:
        with standard_error(), (tmp_path / "metrics.jsonl").open("w") as file:
            assert file.fileno() > 2
            os.write(2, b"a library's message")
            assert sys.stderr.write("lost") == 4
        assert (tmp_path / "metrics.jsonl").read_text() == ""
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@pytest.mark.parametrize("fault", [lambda: 0, lambda: sys.exit(0)])
def test_a_result_that_cannot_be_written_is_said(fault, monkeypatch, capsys):
    @program
    def main(argv):
        sys.stdout.write("a table\n")
        return fault()

    monkeypatch.setattr(sys, "stdout", Full())
    assert main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: standard output cannot be written (No space left")


def test_an_error_is_not_hidden_by_a_lost_result(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(ConfigError, match="of its own"), standard_output():
        raise ConfigError("of its own")
