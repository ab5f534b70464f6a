"""What the programs share on the command line: errors, names, stop signals."""

import contextlib
import io
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import tyro

from jax_es.config import require

USAGE_ERROR = 2

PATIENCE_SECONDS = 1.0
"""A signal may come twice at once: to a process, and through the parent it shares a
group with. Only one that comes later means "at once"."""

T = TypeVar("T")


def run_program(program: Callable[[list[str]], int], argv: list[str] | None) -> int:
    """Runs a program; bad input becomes one line on stderr and exit code 2.

    Args:
        program: takes the arguments, returns the exit code.
        argv: the arguments; the process's own if not given.
    """
    warnings.showwarning = _show_warning
    try:
        return program(sys.argv[1:] if argv is None else argv)
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return USAGE_ERROR


class InputError(Exception):
    """Bad input that a program has found; its text is all that the user needs."""


def parse_options(arguments: type[T], argv: list[str], **options: Any) -> T:
    """Reads options into a dataclass with tyro, whose error boxes become one line.

    Args:
        arguments: the dataclass.
        argv: the command line.
        **options: passed on to ``tyro.cli``.

    Raises:
        InputError: for whatever tyro refuses.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(arguments, args=argv, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        text = re.sub(r"╭─[^─]*─+╮|[╭╮╰╯│─]+", " ", errors.getvalue())
        # The box ends with a pointer to --help, which our line gives in its own way.
        text = text.partition("For full helptext")[0].partition("Full helptext")[0]
        text = " ".join(re.sub(r"Error parsing \w[\w.]*:", "", text).split())
        raise InputError(f"{text} (--help lists all options)") from None


def take_option(arguments: list[str], option: str) -> str | None:
    """Removes ``option VALUE`` or ``option=VALUE``; returns VALUE, None if absent.

    Raises:
        ConfigError: if VALUE is missing.
    """
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return arguments.pop(index).split("=", 1)[1]
        if argument == option:
            require(
                index + 1 < len(arguments),
                f"{option} needs a value (--help lists all options)",
            )
            del arguments[index]
            return arguments.pop(index)
    return None


def named_folder(arguments: list[str]) -> tuple[Path, str | None]:
    """Returns ``--runs-dir`` and ``--name`` of a command line; takes none from it."""
    copy = list(arguments)
    name = take_option(copy, "--name")
    runs_dir = take_option(copy, "--runs-dir") or take_option(copy, "--runs_dir")
    return Path(runs_dir or "runs"), name


@contextlib.contextmanager
def input_errors() -> Iterator[None]:
    """Marks ``ValueError`` raised inside as the user's input being wrong.

    Used around reading and building what the user asked for, never around the work
    itself, where a ``ValueError`` is our fault and deserves its traceback.
    """
    try:
        yield
    except ValueError as error:
        raise InputError(str(error)) from error


class Stopped(Exception):
    """A signal asked the run to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.signum = signum


class StopSignals:
    """Turns the first SIGINT or SIGTERM into a request, the second into an end."""

    def __init__(self) -> None:
        self._signum: int | None = None
        self._requested_at = 0.0
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopSignals":
        """Installs the handlers."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._previous[signum] = signal.signal(signum, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous handlers."""
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def check(self) -> None:
        """Raises :class:`Stopped` once a signal has come."""
        if self._signum is not None:
            raise Stopped(self._signum)

    def _request(self, signum: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._signum is None:
            self._signum, self._requested_at = signum, now
        elif now - self._requested_at >= PATIENCE_SECONDS:
            # A second signal does what it would have done without us.
            for number, handler in self._previous.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
            signal.raise_signal(signum)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    """Prints a warning as one line, without the source line it came from."""
    del category, filename, lineno, line
    (file or sys.stderr).write(f"warning: {message}\n")
