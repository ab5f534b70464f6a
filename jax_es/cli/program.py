"""What makes a function a program: its exit codes, and errors of one line.

A program imports what starts JAX or a simulator only after it has read its options,
so that ``--help`` comes at once.
"""

import contextlib
import functools
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from jax_es.checks import ConfigError, printable, program_runs
from jax_es.cli.display import standard_error, standard_output
from jax_es.cli.help import HELP_ALL_OPTION
from jax_es.cli.options import InputError, as_typed, typed_options
from jax_es.cli.signals import Stopped, StopSignals
from jax_es.runs.files import writing

USAGE_ERROR = 2
ENVIRONMENT_ERROR = 1

DEBUG_OPTION = "--debug"
"""Every program takes it."""


def program(run: Callable[[list[str]], int | None]) -> Callable[..., int]:
    """Makes a program, which returns its exit code, of a function of its arguments.

    The code is 0 unless the function returns another. The arguments are the process's
    own if none are given.

    An error or a signal that ends it is one line on stderr. Bad input ends it with exit
    code 2, an environment of the user's that fails with 1, and SIGINT or SIGTERM with
    128 and the signal's number: at once, unless the program has :class:`StopSignals` of
    its own. ``--debug`` shows the tracebacks, too. A terminal that goes away ends no
    work (``display.py``).
    """

    @functools.wraps(run)
    def main(argv: list[str] | None = None) -> int:
        warnings.formatwarning = _warning
        given = sys.argv[1:] if argv is None else argv
        arguments = [
            "--help" if argument == HELP_ALL_OPTION else argument
            for argument in given
            if argument != DEBUG_OPTION
        ]
        with (
            typed_options(given),
            standard_error(),
            program_runs(),
            StopSignals(at_once=True) as signals,
        ):
            try:
                with standard_output():
                    return run(arguments) or 0
            except BrokenPipeError:
                return 128 + signal.SIGPIPE
            except BaseException as error:
                ending = _ending(error, signals.signum)
                if ending is None:
                    raise
                if DEBUG_OPTION in given:
                    # Of another process, perhaps.
                    report = getattr(error, "report", "") or traceback.format_exc()
                    sys.stderr.write(report)
                sys.stderr.write(f"{printable(as_typed(ending[0]))}\n")
                return ending[1]

    return main


def _warning(message: Warning | str, *_: object, **__: object) -> str:
    """Returns the one line of a warning; Gymnasium's are coloured."""
    plain = re.sub(r"\x1b\[\d*m", "", str(message))
    return f"warning: {printable(plain)}\n"


def _ending(error: BaseException, signum: int | None) -> tuple[str, int] | None:
    """Returns what to say of an error, and the exit code; None if it is our fault."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        signum = getattr(error, "signum", signal.SIGINT)
    if signum is not None:  # whatever a program raises on its way out
        outcome = getattr(error, "outcome", Stopped.outcome)
        return f"{signal.Signals(signum).name}: {outcome}", 128 + signum
    if isinstance(error, InputError | ConfigError):
        return f"error: {error}", USAGE_ERROR
    if not isinstance(error, Exception):  # --help ends by SystemExit
        return None
    from jax_es.envs.faults import EnvironmentFailure  # late: it loads Gymnasium

    if isinstance(error, EnvironmentFailure):
        notes = getattr(error, "__notes__", [f"{DEBUG_OPTION} shows its traceback"])
        return "; ".join([f"error: {error}", *notes]), ENVIRONMENT_ERROR
    return None


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


@contextlib.contextmanager
def run_errors(path: Path, resume: str) -> Iterator[None]:
    """Marks what the user can mend while ``path`` is written; ``resume`` continues."""
    from jax_es.runs.checkpoint import CheckpointError  # late: it loads JAX

    remedy = f"make it writable or free space, then continue with {resume}"
    try:
        with writing(path, remedy):
            yield
    except (ConfigError, CheckpointError) as error:
        notes = getattr(error, "__notes__", [])
        text = "; ".join([str(error), *(note.format(resume) for note in notes)])
        raise InputError(text) from error
