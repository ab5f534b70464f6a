"""What the head knows of one worker, and of the jobs under way."""

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from jax_es.distributed.worker import Place

OUT_OF_MEMORY = "ran out of memory"


class Patience(NamedTuple):
    """How long to wait before something counts as lost."""

    slack: float = 30.0
    """Seconds that any job may take, besides a multiple of the longest one so far."""
    factor: float = 10.0
    """That multiple."""
    alone: float = 60.0
    """Seconds that there may be no worker at all."""
    build: float = 600.0
    """Seconds that a worker may take to build its engine, and its first job more than
    others: programs are compiled."""


@dataclasses.dataclass(eq=False)
class Member:
    """What the head knows of a worker."""

    number: int
    actor: Any
    reply: Any
    """What it will answer; None while it is idle."""
    stage: Literal["placing", "building", "idle", "busy"] = "placing"
    place: Place | None = None
    job: int = -1
    began: float = 0.0
    deadline: float = math.inf
    called: set[str] = dataclasses.field(default_factory=set)
    """Methods whose programs it has compiled."""

    def __str__(self) -> str:
        """Names it for people."""
        where = f" on {self.place.address}" if self.place else ""
        return f"worker {self.number}{where}"


@dataclasses.dataclass
class Jobs:
    """One call of :meth:`Workers.run`."""

    method: str
    shared: Any
    jobs: Sequence[tuple]
    waiting: deque[int]
    results: dict[int, Any] = dataclasses.field(default_factory=dict)
    """Of jobs that have ended, until an earlier one has."""
    losses: Counter[int] = dataclasses.field(default_factory=Counter)


def why_ended(error: Exception) -> str:
    """Says in few words why a worker is no more."""
    text = str(error)
    if "OutOfMemory" in type(error).__name__ or "low on memory" in text:
        return OUT_OF_MEMORY
    if "its node has died" in text or "NodeDied" in type(error).__name__:
        return "is gone with its node"
    return "ended"
