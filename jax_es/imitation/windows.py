"""From recorded episodes to what behaviour cloning learns from: windows of steps.

A window is T successive steps of one episode. Where the episode ends earlier, the rest
of the window is *padding*: its last step over and over, whose loss is not counted. No
policy sees later steps than its own, so what stands on the right changes no prediction
before it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jax_es.imitation.datasets import Episodes
from jax_es.rollout.observation_statistics import (
    ObservationStatistics,
    initial_statistics,
    observe,
    scaled,
)
from jax_es.streams import stream

STEPS_AT_ONCE = 4096
"""Observations that are turned into float64 at once: images would fill the memory."""


NOWHERE = -1
"""Where a window begins that holds no step, and only fills up a batch."""


class Recording(NamedTuple):
    """Episodes, and what follows from them for each of their ``S`` steps.

    Attributes:
        episodes: as they were recorded.
        returns_to_go: ``[S]`` float32, undiscounted sum of the rewards from this step
            to the end of the episode, in the environment's unit.
        timesteps: ``[S]`` int32, the step's index in its episode.
        last: ``[S]`` int64, where the last step of the step's episode is.
    """

    episodes: Episodes
    returns_to_go: np.ndarray
    timesteps: np.ndarray
    last: np.ndarray

    @property
    def num_steps(self) -> int:
        """S."""
        return len(self.last)


class Windows(NamedTuple):
    """Windows ``[…, T]`` of steps, in the environment's units.

    Attributes:
        returns_to_go: ``[…, T]`` float32.
        observations: ``[…, T, O]``, as the environment gave them.
        actions: ``[…, T, A]``, or ``[…, T]`` integers.
        timesteps: ``[…, T]`` int32.
        is_real: ``[…, T]`` bool, whether it is a step and not padding.
    """

    returns_to_go: Any
    observations: Any
    actions: Any
    timesteps: Any
    is_real: Any


def recording(episodes: Episodes) -> Recording:
    """Works out returns-to-go and timesteps of episodes."""
    ends = np.cumsum(episodes.lengths)
    last = np.repeat(ends - 1, episodes.lengths)
    first = np.repeat(ends - episodes.lengths, episodes.lengths)
    # Sums over all episodes, of which an episode's are differences: in float64, where
    # millions of steps leave more digits than a float32 has.
    paid = np.cumsum(episodes.rewards, dtype=np.float64)
    return Recording(
        episodes,
        (paid[last] - paid + episodes.rewards).astype(np.float32),
        (np.arange(len(last)) - first).astype(np.int32),
        last,
    )


def hold_out(
    recording: Recording, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses whole episodes that are not learnt from.

    Args:
        recording: of E episodes.
        fraction: share of them to hold out; unless it is 0 at least one episode is,
            but never all.
        seed: decides which.

    Returns:
        The steps to learn from and those held out, in order.
    """
    lengths = recording.episodes.lengths
    count = max(1, round(fraction * len(lengths))) if fraction else 0
    count = min(count, len(lengths) - 1)
    is_held_out = np.zeros(len(lengths), bool)
    chosen = stream(seed, "held-out episodes").permutation(len(lengths))[:count]
    is_held_out[chosen] = True
    by_step = np.repeat(is_held_out, lengths)
    return np.flatnonzero(~by_step), np.flatnonzero(by_step)


def windows_at(recording: Recording, starts: np.ndarray, length: int) -> Windows:
    """Cuts windows out of a recording.

    Args:
        recording: the episodes.
        starts: ``[…]`` steps at which windows begin; :data:`NOWHERE` for one that is
            all padding.
        length: T.

    Returns:
        Windows ``[…, T]``.
    """
    steps = starts[..., None] + np.arange(length)
    last = recording.last[starts][..., None]
    is_real = (steps <= last) & (starts[..., None] != NOWHERE)
    steps = np.where(is_real, steps, last)
    episodes = recording.episodes
    return Windows(
        recording.returns_to_go[steps],
        episodes.observations[steps],
        episodes.actions[steps],
        recording.timesteps[steps],
        is_real,
    )


def covering(recording: Recording, steps: np.ndarray, length: int) -> np.ndarray:
    """Returns where windows begin that hold each of the steps exactly once.

    Args:
        recording: the episodes.
        steps: of whole episodes.
        length: T.
    """
    return steps[recording.timesteps[steps] % length == 0]


def random_starts(
    steps: np.ndarray, num_batches: int, batch_size: int, seed: int, epoch: int
) -> Iterator[np.ndarray]:
    """Yields where the windows of an epoch's batches begin, ``[batch_size]`` each.

    Any of ``steps`` is equally likely. An epoch's batches depend on nothing but the
    arguments, so that a training can be resumed from its epochs' ends.
    """
    rng = stream(seed, "cloning batches", epoch)
    for _ in range(num_batches):
        yield steps[rng.integers(len(steps), size=batch_size)]


def statistics_of(episodes: Episodes) -> ObservationStatistics:
    """Returns the statistics of all recorded observations."""
    observations = episodes.observations
    statistics = initial_statistics(int(np.prod(observations.shape[1:])))
    for at in range(0, len(observations), STEPS_AT_ONCE):
        statistics = observe(statistics, scaled(observations[at : at + STEPS_AT_ONCE]))
    return statistics
