"""What the head knows of one worker, and of the jobs under way."""

import dataclasses
import math
from collections import Counter, deque
from typing import Any, Literal

from jax_es.distributed.worker import Place


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


class Jobs:
    """One call of :meth:`Workers.run`."""

    def __init__(self, method: str, shared: Any, num: int) -> None:
        self.method, self.shared = method, shared
        self.waiting = deque(range(num))
        self.results: dict[int, Any] = {}
        self.losses = Counter[int]()
        self.num_done = 0


def versions_here() -> dict[str, str]:
    """Returns what a worker must have, too: with others it gives other numbers."""
    from jax_es.runs.machine import git_commit, versions

    ours = versions() | {"commit": git_commit() or ""}
    ours.pop("platform")  # workers compute on the CPU
    return ours


def other_versions(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Lists what a worker, whose versions are those of ``worker.py``, has in others."""
    return [
        f"{name} {theirs.get(name)} there and {version} here"
        for name, version in ours.items()
        if theirs.get(name) != version
    ]


def is_memory(error: Any) -> bool:
    """Returns whether a job failed since there was no memory."""
    cause = error.cause
    return isinstance(cause, MemoryError) or "RESOURCE_EXHAUSTED" in str(cause)


def why_ended(error: Exception) -> str:
    """Says in few words why a worker is no more."""
    text = str(error)
    if "OutOfMemory" in type(error).__name__ or "low on memory" in text:
        return "ran out of memory"
    if "its node has died" in text or "NodeDied" in type(error).__name__:
        return "is gone with its node"
    return "ended"
