"""What a rollout has to do, and who does it next."""

from typing import NamedTuple

import jax
import numpy as np

from jax_es.es.population import MEAN

IDLE = -1
"""The task of a slot that has none."""


class Tasks(NamedTuple):
    """Episodes to run; every field is ``[E]`` unless it says otherwise.

    Attributes:
        member: int32, whose episode it is; :data:`~jax_es.es.population.MEAN` for θ.
        seed: int32, seeds the environment and the policy's own randomness.
        max_steps: int32, the episode is cut after this many environment steps.
        observed: bool, whether its observations enter the statistics.
        command: float32, the episode return that the policy is asked for; None leaves
            it to the policy.
        variation: ``[E, V]`` float64, how the environment differs from its ordinary
            self, as its ``reset(options={"variation": …})`` reads it; None for none.
        recorded: bool, whether its steps are kept; None for none.
    """

    member: np.ndarray
    seed: np.ndarray
    max_steps: np.ndarray
    observed: np.ndarray
    command: np.ndarray | None = None
    variation: np.ndarray | None = None
    recorded: np.ndarray | None = None

    def asked_for(self, target_return: float) -> "Tasks":
        """Returns these tasks, each of which asks for the same return."""
        shape = np.shape(self.member)
        return self._replace(command=np.full(shape, target_return, np.float32))

    def followed_by(self, other: "Tasks") -> "Tasks":
        """Returns these tasks and then the others; both or neither have each field."""
        return jax.tree.map(lambda *parts: np.concatenate(parts), self, other)


def tasks_of_mean(seed: np.ndarray, max_steps: int) -> Tasks:
    """Lists one episode of the mean policy for each seed ``[E]``; none is observed."""
    shape = np.shape(seed)
    return Tasks(
        member=np.full(shape, MEAN, np.int32),
        seed=np.asarray(seed, np.int32),
        max_steps=np.full(shape, max_steps, np.int32),
        observed=np.zeros(shape, bool),
    )


class TaskQueue:
    """Hands out tasks in order, keeping the tasks of a group on one lane.

    A lane is one slot group on one device. One that holds what a group of members
    shares (a pair's ε) takes the group's remaining tasks before it opens another, so
    that is drawn once for all members and episodes.

    Args:
        member: ``[E]``, the tasks' members; those of a group should be neighbours.
        members_per_group: as of the population.
        num_lanes: slot groups times devices.

    Example:
        >>> queue = TaskQueue(np.array([14, 15, 16, 17]), 2, num_lanes=2)
        >>> [queue.take(lane) for lane in (0, 1, 1, 0, 0)]
        [0, 2, 3, 1, -1]
    """

    def __init__(
        self, member: np.ndarray, members_per_group: int, num_lanes: int
    ) -> None:
        group = member // members_per_group
        begins = np.ones(len(member), bool)
        begins[1:] = (group[1:] != group[:-1]) | (member[1:] == MEAN)
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(member))
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
