"""How long a worker may take before it counts as lost."""

from collections import deque
from typing import NamedTuple

UNKNOWN_SECONDS = 3600.0
"""How long a job may take before one like it has ended."""


class Patience(NamedTuple):
    """How long to wait before something counts as lost."""

    slack: float = 30.0
    """Seconds that any job may take, besides a multiple of its expected time."""
    factor: float = 4.0
    """That multiple."""
    alone: float = 60.0
    """Seconds that there may be no worker at all."""
    build: float = 600.0
    """Seconds that a worker may take to build its engine, and its first job more than
    others: programs are compiled."""


PATIENCE = Patience()


class Deadlines:
    """Learns how long jobs take, per unit of their work.

    Args:
        patience: with jobs.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._rates: dict[str, deque[float]] = {}

    def forget(self) -> None:
        """Begins again, for other jobs."""
        self._rates.clear()

    def ended(self, method: str, seconds: float, units: float) -> None:
        """Takes note of a job that has ended."""
        rates = self._rates.setdefault(method, deque(maxlen=100))
        rates.append(seconds / max(units, 1.0))

    def seconds(self, method: str, most_units: float, losses: int, new: bool) -> float:
        """Returns how long a job may take.

        Args:
            method: of the engine.
            most_units: of work, that the job may be at most.
            losses: how often it was lost: a machine may have become slow, and what was
                cut off gets more time.
            new: whether the worker never did such a job.
        """
        seconds = UNKNOWN_SECONDS
        if rates := self._rates.get(method):
            expected = max(rates) * most_units
            seconds = self._patience.slack + self._patience.factor * expected
            seconds += self._patience.build * new
        return seconds * 2**losses
