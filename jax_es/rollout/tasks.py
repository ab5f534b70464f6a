"""What a rollout has to do, and who does it next."""

from typing import NamedTuple

import numpy as np

IDLE = -1
"""The task of a slot that has none, and the pair of a task of the mean policy."""


class Tasks(NamedTuple):
    """Episodes to run; every field is ``[E]``.

    Attributes:
        pair: int32 antithetic pair, or :data:`IDLE` where ``sign`` is 0.
        sign: float32 +1 and −1 for θ+σε and θ−σε, 0 for the mean θ itself.
        seed: int32, seeds the environment and the policy's own randomness.
        max_steps: int32, the episode is cut after this many environment steps.
        observed: bool, whether its observations enter the statistics.
    """

    pair: np.ndarray
    sign: np.ndarray
    seed: np.ndarray
    max_steps: np.ndarray
    observed: np.ndarray


class TaskQueue:
    """Hands out tasks in order, keeping the tasks of a pair on one lane.

    A lane is one slot group on one device. One that holds a pair's ε takes the pair's
    remaining tasks before it opens another pair, so each ε is drawn once for both signs
    and all episodes.

    Args:
        pair: ``[E]``, the tasks' pairs; equal neighbours belong together.
        num_lanes: slot groups times devices.

    Example:
        >>> queue = TaskQueue(np.array([7, 7, 8, 8]), num_lanes=2)
        >>> [queue.take(lane) for lane in (0, 1, 1, 0, 0)]
        [0, 2, 3, 1, -1]
    """

    def __init__(self, pair: np.ndarray, num_lanes: int) -> None:
        begins = np.ones(len(pair), bool)
        begins[1:] = (pair[1:] != pair[:-1]) | (pair[1:] == IDLE)
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(pair))
        self._groups = list(map(range, starts.tolist(), ends.tolist()))
        self._num_opened = 0
        self._open = [range(0)] * num_lanes

    @property
    def num_lanes(self) -> int:
        """How many lanes there are."""
        return len(self._open)

    def take(self, lane: int) -> int:
        """Returns the next task for ``lane``, or :data:`IDLE` if there is none."""
        if not self._open[lane]:
            if self._num_opened == len(self._groups):
                return IDLE
            self._open[lane] = self._groups[self._num_opened]
            self._num_opened += 1
        first, self._open[lane] = self._open[lane][0], self._open[lane][1:]
        return first

    def is_empty(self) -> bool:
        """Returns whether no lane will get another task."""
        return self._num_opened == len(self._groups) and not any(self._open)
