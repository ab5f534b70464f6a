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
from jax_es.rollout.streams import stream

STEPS_AT_ONCE = 4096
"""Observations that are turned into float64 at once: images would fill the memory."""

PADDING_START = -1
"""Where a window begins that is all padding, and only fills up a batch."""


class Steps(NamedTuple):
    """Episodes, and what follows from them for each of their ``S`` steps."""

    episodes: Episodes
    returns_to_go: np.ndarray
    """``[S]`` float32, undiscounted sum of the rewards from this step to the end of the
    episode, in the environment's unit."""
    timesteps: np.ndarray
    """``[S]`` int32, the step's index in its episode."""
    last: np.ndarray
    """``[S]`` int64, where the last step of the step's episode is."""


class Windows(NamedTuple):
    """Windows ``[…, T]`` of steps; the fields are those of :class:`Steps`."""

    returns_to_go: Any
    observations: Any
    actions: Any
    timesteps: Any
    is_real: Any
    """``[…, T]`` bool, whether it is a step and not padding."""


def steps_of(episodes: Episodes) -> Steps:
    """Works out returns-to-go and timesteps of episodes."""
    ends = np.cumsum(episodes.lengths)
    last = np.repeat(ends - 1, episodes.lengths)
    first = np.repeat(ends - episodes.lengths, episodes.lengths)
    # Sums over all episodes, of which an episode's are differences: in float64, where
    # millions of steps leave more digits than a float32 has.
    paid = np.cumsum(episodes.rewards, dtype=np.float64)
    return Steps(
        episodes,
        (paid[last] - paid + episodes.rewards).astype(np.float32),
        (np.arange(len(last)) - first).astype(np.int32),
        last,
    )


def hold_out(steps: Steps, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Holds out a share of the episodes: at least one unless it is 0, but never all.

    Returns the steps to learn from and those held out, in order.
    """
    lengths = steps.episodes.lengths
    count = max(1, round(fraction * len(lengths))) if fraction else 0
    count = min(count, len(lengths) - 1)
    is_held_out = np.zeros(len(lengths), bool)
    chosen = stream(seed, "held-out episodes").permutation(len(lengths))[:count]
    is_held_out[chosen] = True
    by_step = np.repeat(is_held_out, lengths)
    return np.flatnonzero(~by_step), np.flatnonzero(by_step)


def windows_at(steps: Steps, starts: np.ndarray, length: int) -> Windows:
    """Cuts windows ``[…, T]`` out of episodes, T being the length.

    They begin at the steps ``starts […]``; at :data:`PADDING_START` all is padding.
    """
    wanted = starts[..., None] + np.arange(length)
    last = steps.last[starts][..., None]
    is_real = (wanted <= last) & (starts[..., None] != PADDING_START)
    at = np.where(is_real, wanted, last)
    return Windows(
        steps.returns_to_go[at],
        steps.episodes.observations[at],
        steps.episodes.actions[at],
        steps.timesteps[at],
        is_real,
    )


def covering(steps: Steps, chosen: np.ndarray, length: int) -> np.ndarray:
    """Returns where windows begin that hold each step of whole episodes once."""
    return chosen[steps.timesteps[chosen] % length == 0]


def random_starts(
    steps: np.ndarray, num_batches: int, batch_size: int, seed: int, epoch: int
) -> Iterator[np.ndarray]:
    """Yields where the windows of an epoch's batches begin, ``[batch_size]`` each.

    Any of ``steps`` is equally likely. What is drawn depends on the arguments alone.
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
