"""What the programs share on the command line: options, errors, stop signals.

A program imports what starts JAX or a simulator only after it has read its options,
so that ``--help`` comes at once.
"""

import contextlib
import dataclasses
import io
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import docstring_parser
import tyro

from jax_es.config import check_integers, require
from jax_es.runs.directory import program_command

USAGE_ERROR = 2
ENVIRONMENT_ERROR = 1

DEBUG_OPTION = "--debug"
"""Every program takes it."""

PATIENCE_SECONDS = 1.0
"""A signal may come twice at once: to a process, and through the parent it shares a
group with. Only one that comes later means "at once"."""

T = TypeVar("T")


def run_program(program: Callable[[list[str]], int], argv: list[str] | None) -> int:
    """Runs a program; whatever ends it early is one line on stderr.

    Bad input ends it with exit code 2, an environment of the user's that fails with 1,
    and SIGINT or SIGTERM with 128 and the signal's number: at once, unless the program
    has :class:`StopSignals` of its own. ``--debug`` shows the tracebacks, too.

    Args:
        program: takes the arguments, returns the exit code.
        argv: the arguments; the process's own if not given.
    """
    warnings.showwarning = _show_warning
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = DEBUG_OPTION in arguments
    arguments = [argument for argument in arguments if argument != DEBUG_OPTION]
    with StopSignals(at_once=True) as signals:
        try:
            return program(arguments)
        except BrokenPipeError:  # the reader has seen enough, as head has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        except BaseException as error:
            ending = _ending(error, signals.signum)
            if ending is None:
                raise
            if debug:
                report = getattr(error, "report", "")  # of another process, perhaps
                sys.stderr.write(report or traceback.format_exc())
            line, code = ending
            sys.stderr.write(f"{line}\n")
            return code


def _ending(error: BaseException, signum: int | None) -> tuple[str, int] | None:
    """Returns what to say of an error, and the exit code; None if it is our fault."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        signum = getattr(error, "signum", signal.SIGINT)
    if signum is not None:  # whatever a program raises on its way out
        name = signal.Signals(signum).name
        return f"{name}: stopped; unfinished files are removed", 128 + signum
    if isinstance(error, InputError):
        return f"error: {error}", USAGE_ERROR
    if not isinstance(error, Exception):  # --help ends by SystemExit
        return None
    from envs.faults import EnvironmentFailure  # late: it loads Gymnasium

    if isinstance(error, EnvironmentFailure):
        notes = getattr(error, "__notes__", [f"{DEBUG_OPTION} shows its traceback"])
        return "; ".join([f"error: {error}", *notes]), ENVIRONMENT_ERROR
    return None


def report_stop(stop: "Stopped", outcome: str) -> int:
    """Says what a stop signal leaves; returns the exit code of a program it ended."""
    sys.stderr.write(f"{signal.Signals(stop.signum).name}: {outcome}\n")
    return 128 + stop.signum


class InputError(Exception):
    """Bad input that a program has found; its text is all that the user needs."""


def parse_options(
    arguments: type[T],
    argv: list[str],
    program: str,
    *,
    usage: str = "",
    description: str | None = None,
    short: dict[str, str] | None = None,
    **options: Any,
) -> T:
    """Reads options into a dataclass with tyro, whose error boxes become one line.

    Args:
        arguments: the dataclass.
        argv: the command line.
        program: its name, as ``"train"``.
        usage: arguments that are no options, as ``--help`` shows them.
        description: of the program, a paragraph a line; the dataclass' own docstring
            if not given.
        short: short names of options.
        **options: passed on to ``tyro.cli``.

    Raises:
        InputError: for whatever tyro refuses.
    """
    parts = [argument.partition("=") for argument in argv]
    argv = ["".join([(short or {}).get(name, name), *rest]) for name, *rest in parts]
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), _docstrings_in_one_line():
            parsed = tyro.cli(
                arguments,
                args=argv,
                prog=f"{program_command(program)} {usage}".rstrip(),
                description=description and _wrapped(description),
                **options,
            )
        check_integers(dict(_leaves(dataclasses.asdict(parsed))))  # type: ignore
        return parsed
    except SystemExit as stop:
        if not stop.code:
            raise
        text = _BOX.sub(" ", errors.getvalue())
        # The box ends with a pointer to --help, which our line gives in its own way.
        text = text.partition("For full helptext")[0].partition("Full helptext")[0]
        text = " ".join(re.sub(r"Error parsing \w[\w.]*:", "", text).split())
        raise InputError(f"{text} (--help lists all options)") from None


_BOX = re.compile(r"╭─[^─]*─+╮|[╭╮╰╯│─]+|\A\s*.*\n *-{3,}|-{3,}")
"""What tyro draws around an error, title included; dashes where a terminal has no
box characters."""


def _leaves(options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields single options by name."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield name, value


def _wrapped(text: str) -> str:
    """Fills each line's paragraph; a line indented is one that tyro does not join."""
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False)
        for line in text.split("\n")
    )


@contextlib.contextmanager
def _docstrings_in_one_line() -> Iterator[None]:
    """Leaves the wrapping of a field's docstring to tyro.

    It would keep the source's line breaks, and break between them once more.
    """
    parse = docstring_parser.parse_from_object

    def parse_and_join(obj: Any) -> docstring_parser.Docstring:
        parsed = parse(obj)
        for field in parsed.params:
            field.description = " ".join((field.description or "").split())
        return parsed

    docstring_parser.parse_from_object = parse_and_join
    try:
        yield
    finally:
        docstring_parser.parse_from_object = parse


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


def names_environment(arguments: list[str]) -> bool:
    """Returns whether a command line has ``--env.id``; takes nothing from it."""
    return take_option([*arguments], "--env.id") is not None


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


class Stopped(BaseException):
    """A signal asked the program to stop; like ``KeyboardInterrupt`` it is no error."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.signum = signum


class StopSignals:
    """Turns the first SIGINT or SIGTERM into a request, the second into an end.

    Args:
        at_once: the first raises :class:`Stopped` wherever the program is, instead of
            waiting for :meth:`check`.

    Attributes:
        signum: the signal that came; None as long as there was none.
    """

    def __init__(self, at_once: bool = False) -> None:
        self.signum: int | None = None
        self._at_once = at_once
        self._requested_at = 0.0
        self._previous: dict[int, object] = {}
        self._hook: Any = None

    def __enter__(self) -> "StopSignals":
        """Installs the handlers."""
        if threading.current_thread() is threading.main_thread():  # Python's rule
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._previous[signum] = signal.signal(signum, self._request)
            if self._at_once:
                self._hook, sys.unraisablehook = sys.unraisablehook, self._raise_again
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous handlers; what comes from now on comes too late."""
        self._at_once = False
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        if self._hook is not None:
            sys.unraisablehook = self._hook

    def check(self) -> None:
        """Raises :class:`Stopped` once a signal has come."""
        if self.signum is not None:
            raise Stopped(self.signum)

    def _request(self, signum: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.signum is None:
            self.signum, self._requested_at = signum, now
            if self._at_once:
                raise Stopped(signum)
        elif now - self._requested_at >= PATIENCE_SECONDS:
            # A second signal does what it would have done without us.
            for number, handler in self._previous.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
            signal.raise_signal(signum)

    def _raise_again(self, unraisable: Any) -> None:
        """Raises later what a destructor or a callback (JAX has some) has swallowed."""
        if not isinstance(unraisable.exc_value, Stopped):
            self._hook(unraisable)
            return
        stopped = unraisable.exc_value.signum
        self._previous.setdefault(signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        signal.signal(signal.SIGALRM, lambda *_: _raise(Stopped(stopped)))
        signal.setitimer(signal.ITIMER_REAL, 0.01)


def _raise(error: BaseException) -> None:
    raise error


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    """Prints a warning as one line, without the source line it came from."""
    del category, filename, lineno, line
    (file or sys.stderr).write(f"warning: {message}\n")
