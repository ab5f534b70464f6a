"""Standard output and error, which may go away while a program works.

A terminal is closed, a pipe has no reader any more, a disk is full: what is shown is
lost, and the work goes on.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

from jax_es.checks import ConfigError


class Display:
    """A text stream, or none, that raises no error: what it cannot write is dropped.

    Attributes:
        stream: that it writes to.
        error: why something was dropped.
    """

    def __init__(self, stream: TextIO | None) -> None:
        if stream is None:
            # Kept open, so that nothing else gets a closed stream's number.
            number = os.open(os.devnull, os.O_WRONLY)
            stream = open(number, "w", closefd=False)  # noqa: SIM115
        self.stream = stream
        self.error: OSError | None = None

    @classmethod
    def of(cls, stream: TextIO | None) -> "Display":
        """Returns a stream as one that raises no error."""
        return stream if isinstance(stream, cls) else cls(stream)

    def __getattr__(self, name: str) -> Any:
        """Returns what is the stream's own, such as ``isatty``."""
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes a text; returns its length."""
        self._try(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Writes what waits."""
        self._try(self.stream.flush)

    def _try(self, do: Callable[..., object], *arguments: str) -> None:
        try:
            do(*arguments)
        except OSError as error:
            self.error = self.error or error
            if isinstance(error, BlockingIOError):  # busy now, not gone
                return
            # What waits in buffers would be tried again, at the latest by Python's end.
            with contextlib.suppress(OSError):
                number = self.stream.fileno()
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


@contextlib.contextmanager
def standard_error() -> Iterator[None]:
    """Lets a program go on without standard error; no file takes a closed one's place.

    A system's number of an open file is the lowest that is free. What libraries write
    to number 2 would stand in the file that has it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    with contextlib.redirect_stderr(cast(TextIO, Display.of(sys.stderr))):
        yield


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Says at the end of a program whether its standard output was lost.

    Raises:
        BrokenPipeError: the reader has seen enough, as ``head`` has.
        ConfigError: nothing could be written.
    """
    display = Display(sys.stdout)
    with contextlib.redirect_stdout(cast(TextIO, display)):
        try:
            yield
        except SystemExit:  # --help has been shown
            _check(display)
            raise
        _check(display)


def _check(display: Display) -> None:
    display.flush()
    if isinstance(display.error, BrokenPipeError):
        raise display.error
    if display.error is not None:
        raise ConfigError(
            f"standard output cannot be written ({display.error.strerror}); send it "
            "elsewhere, or free space."
        )
