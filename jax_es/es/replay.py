"""Steps of episodes, and a bounded store of the latest of them.

They are NumPy arrays in the host's memory: a store may be larger than what a device
has room for beside its slots, and only batches of it are learned from.
"""

from typing import NamedTuple

import numpy as np


class Transitions(NamedTuple):
    """Steps of episodes; ``T`` of them, in the order of tasks and then of time.

    Attributes:
        observations: ``[T, O]`` float32, before the step, as the environment gives
            them.
        actions: ``[T, A]`` float32, in the environment's own unit.
        rewards: ``[T]`` float32, as the task pays them.
        healthy_rewards: ``[T]`` float32, what of the rewards was paid for staying
            healthy.
        next_observations: ``[T, O]`` float32, after the step.
        terminated: ``[T]`` bool, whether the task ended the episode by this step; an
            episode that was cut has none.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    healthy_rewards: np.ndarray
    next_observations: np.ndarray
    terminated: np.ndarray

    @classmethod
    def empty(
        cls, count: int, observation_size: int, action_size: int
    ) -> "Transitions":
        """Returns ``count`` steps of zeros."""
        return cls(
            observations=np.zeros((count, observation_size), np.float32),
            actions=np.zeros((count, action_size), np.float32),
            rewards=np.zeros(count, np.float32),
            healthy_rewards=np.zeros(count, np.float32),
            next_observations=np.zeros((count, observation_size), np.float32),
            terminated=np.zeros(count, bool),
        )

    def finite(self) -> "Transitions":
        """Returns those steps whose numbers are all finite."""
        fine = np.isfinite(self.rewards) & np.isfinite(self.healthy_rewards)
        for rows in (self.observations, self.actions, self.next_observations):
            fine &= np.isfinite(rows).all(axis=1)
        return Transitions(*(field[fine] for field in self))


class Replay(NamedTuple):
    """The latest steps: row i holds one for i < ``size``.

    Attributes:
        steps: ``[C, …]``, C being the most that are kept.
        size: how many there are.
        position: the row that the next step takes, the oldest one's if all are taken.
    """

    steps: Transitions
    size: int
    position: int


def empty_replay(capacity: int, observation_size: int, action_size: int) -> Replay:
    """Returns a store of at most ``capacity`` steps that has none yet."""
    return Replay(Transitions.empty(capacity, observation_size, action_size), 0, 0)


def remember(replay: Replay, steps: Transitions) -> Replay:
    """Returns a store with further steps in it; of too many the last ones.

    The given one stays as it is: a generation that is repeated begins with it.
    """
    capacity = len(replay.steps.rewards)
    steps = Transitions(*(field[-capacity:] for field in steps))
    count = len(steps.rewards)
    rows = (replay.position + np.arange(count)) % capacity
    kept = Transitions(*(field.copy() for field in replay.steps))
    for field, new in zip(kept, steps, strict=True):
        field[rows] = new
    return Replay(
        kept, min(capacity, replay.size + count), (replay.position + count) % capacity
    )
