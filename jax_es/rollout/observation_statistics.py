"""Observation statistics: what the paper calls its virtual batch normalisation.

The policy sees (o − mean)/std, where mean and std come from a random share of all
episodes so far and change once per generation, so that the members of a generation
see the same world (Lorenc & Neruda, arXiv 2501.13883; Salimans et al. 2017, §2.2).

The sums are kept in float64 NumPy arrays: float32 loses the mean's last digits after
some 10⁷ observations, and integer frames would overflow.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jax_es.checks import require
from jax_es.train_config import TrainConfig

PIXEL_RANGE = 255.0
"""Brightest value of a pixel: policies see bytes divided by it, in [0, 1]."""

STD_FLOOR = 0.1
"""Default lower bound of std, in the unit of the observations themselves: an entry that
never changes must not be blown up."""


CONSTANT = 1e-5
"""A number of the observation counts as constant while its standard deviation is at
most this share of its root mean square: float64 sums of squares tell no finer."""


class ObservationStatistics(NamedTuple):
    """Sums over the observations seen so far.

    Attributes:
        count: ``[]`` float64, number of observations.
        sum: ``[O]`` float64.
        sum_of_squares: ``[O]`` float64.
    """

    count: np.ndarray
    sum: np.ndarray
    sum_of_squares: np.ndarray


def scaled(observation: Any) -> Any:
    """Divides bytes by :data:`PIXEL_RANGE`; leaves real numbers alone."""
    if observation.dtype == np.uint8:
        return observation.astype(np.float32) / np.float32(PIXEL_RANGE)
    return observation


def normalized(observation: Any, mean: Any, std: Any, clip: Any = np.inf) -> Any:
    """Returns observations as policies see them: scaled, (o − mean)/std, in ±clip."""
    return ((scaled(observation) - mean) / std).clip(-clip, clip)


def initial_statistics(observation_size: int) -> ObservationStatistics:
    """Returns the statistics of no observation."""
    return ObservationStatistics(
        np.zeros(()), np.zeros(observation_size), np.zeros(observation_size)
    )


def observe(
    statistics: ObservationStatistics, observations: np.ndarray
) -> ObservationStatistics:
    """Adds a batch of observations ``[B, …]``, as policies see them (:func:`scaled`).

    They are summed in float64, where no number of frames overflows. Rows that hold NaN
    or ±∞ are left out: one broken episode would otherwise blind every later policy of
    the run.
    """
    observations = np.asarray(observations, np.float64)
    observations = observations.reshape(len(observations), statistics.sum.size)
    observations = observations[np.isfinite(observations).all(axis=1)]
    return ObservationStatistics(
        statistics.count + len(observations),
        statistics.sum + observations.sum(axis=0),
        statistics.sum_of_squares + np.einsum("bo,bo->o", observations, observations),
    )


def merge(
    first: ObservationStatistics, second: ObservationStatistics
) -> ObservationStatistics:
    """Returns the statistics of both sets of observations together."""
    return ObservationStatistics(*(a + b for a, b in zip(first, second, strict=True)))


def mean_and_std(
    statistics: ObservationStatistics,
    std_floor: float = STD_FLOOR,
    dtype: Any = np.float32,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns ``[O]`` float32 mean and std, the latter at least ``std_floor``.

    Args:
        statistics: of observations as policies see them.
        std_floor: in the unit of the observations themselves, grey levels of bytes.
        dtype: of the observations themselves.

    Before the first observation they are 0 and 1, which leaves observations alone.
    """
    if statistics.count == 0:
        size = statistics.sum.shape
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    mean = statistics.sum / statistics.count
    variance = statistics.sum_of_squares / statistics.count - mean**2
    if dtype == np.uint8:
        std_floor /= PIXEL_RANGE
    std = np.sqrt(np.maximum(variance, std_floor**2))
    return mean.astype(np.float32), std.astype(np.float32)


def constant_entries(statistics: ObservationStatistics) -> np.ndarray:
    """Returns ``[O]`` bool, the numbers that have not varied so far.

    No fitness ever depended on the weights that such a number meets, and noise moves
    them all the same: a body that weighs 1 % more would meet them at random. Before
    there are two observations none is constant.
    """
    if statistics.count < 2:
        return np.zeros(statistics.sum.shape, bool)
    mean = statistics.sum / statistics.count
    mean_square = statistics.sum_of_squares / statistics.count
    return mean_square - mean**2 <= CONSTANT**2 * mean_square


class View(NamedTuple):
    """How policies see observations.

    Attributes:
        statistics: what observations are normalised by; None leaves them as they are.
        reference: ``[R, …]``, of a ``ReferencePolicy``; ``()`` for others.
        std_floor: lower bound of the standard deviation, as of :func:`mean_and_std`.
        clip: bound of normalised observations; None for none.
        hidden: which numbers policies read 0 for, as of :func:`hidden_entries`.
        hide_constants: whether they also read 0 for :func:`constant_entries`.
    """

    statistics: ObservationStatistics | None = None
    reference: Any = ()
    std_floor: float = STD_FLOOR
    clip: float | None = None
    hidden: Sequence[str] = ()
    hide_constants: bool = False

    def normalizer(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
        """Returns mean and std, both of an observation's shape, and the bound.

        Args:
            shape: of an observation.
            dtype: of an observation as the environment gives it.
        """
        clip = np.float32(np.inf if self.clip is None else self.clip)
        statistics = self.statistics or initial_statistics(math.prod(shape))
        mean, std = mean_and_std(statistics, self.std_floor, dtype)
        std[hidden_entries(self.hidden, shape)] = np.inf  # (o − mean)/∞ is 0
        if self.hide_constants:
            std[constant_entries(statistics)] = np.inf
        return mean.reshape(shape), std.reshape(shape), clip


UNCHANGED = View()
"""Observations as the environment gives them."""


def view_of(
    config: TrainConfig,
    statistics: ObservationStatistics | None,
    reference: Any = (),
) -> View:
    """Returns how a configuration's policies see observations.

    Args:
        config: of the run.
        statistics: the run's; not read if it normalises nothing.
        reference: as in :class:`View`.
    """
    rollout = config.rollout
    return View(
        statistics if rollout.observation_statistics else None,
        reference,
        rollout.std_floor,
        rollout.observation_clip,
        config.env.hide_observation,
        rollout.hide_constants,
    )


def hidden_entries(hidden: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """Returns ``[O]`` bool, the numbers of an observation that indices or slices name.

    Args:
        hidden: each as Python writes it: 2, -1, 5:8.
        shape: of an observation.

    Raises:
        ConfigError: there are no such numbers, or observations are no vectors.
    """
    mask = np.zeros(math.prod(shape), bool)
    for text in hidden:
        start, colon, stop = text.partition(":")
        entries = np.arange(mask.size)
        if colon:
            entries = entries[int(start or 0) : int(stop) if stop else None]
        else:
            entries = entries[int(start) :][:1] if int(start) >= -mask.size else ()
        require(
            len(shape) == 1 and len(entries) > 0,
            f"env.hide_observation {text} names nothing in observations of the shape "
            f"{shape}; choose indices from 0 to {mask.size - 1}, of an environment "
            "that observes vectors.",
        )
        mask[entries] = True
    return mask
