"""SIGINT and SIGTERM: a request to stop, and what a stopped program says."""

import signal
import threading
import time
from types import FrameType
from typing import Any

from jax_es.runs.directory import RunDirectory, experiment_of, resume_options
from jax_es.runs.folders import program_command

PATIENCE_SECONDS = 1.0
"""A signal may come twice at once: to a process, and through the parent it shares a
group with. Only one that comes later means "at once"."""


class Stopped(BaseException):
    """A signal asked the program to stop; like ``KeyboardInterrupt`` it is no error.

    Attributes:
        signum: the signal.
        outcome: what is left of the work; programs that save some say so here.
    """

    outcome = "stopped; unfinished files are removed"

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
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        """Installs the handlers."""
        if threading.current_thread() is threading.main_thread():  # Python's rule
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._previous[signum] = signal.signal(signum, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous handlers; what comes from now on comes too late."""
        self._at_once = False
        self._restore()

    def check(self) -> None:
        """Raises :class:`Stopped` once a signal has come."""
        if self.signum is not None:
            raise Stopped(self.signum)

    def _restore(self) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def _request(self, signum: int, _: FrameType | None) -> None:
        if self.signum is None:
            self.signum, self._requested_at = signum, time.monotonic()
            if self._at_once:
                raise Stopped(signum)
        elif time.monotonic() - self._requested_at >= PATIENCE_SECONDS:
            self._restore()
            signal.raise_signal(signum)  # which ends the program


def outcome_of_run(run: RunDirectory, program: str, saved: str) -> str:
    """Says what is saved of a run and how to continue it, if it has begun."""
    if not run.exists() and experiment_of(run) is None:
        return "nothing had begun; start again with the same command"
    how = f"{program_command(program)} {resume_options(run)}"
    return f"{saved} in {run.path}; continue with {how}"
