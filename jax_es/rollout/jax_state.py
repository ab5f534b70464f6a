"""What the loop over environments in JAX holds while it runs, on each device.

Records that ``jax_engine.py`` hands from step to step: present episodes, what ended
ones came to, sums of observations, and the tasks that wait.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.rollout.observation_statistics import ObservationStatistics
from jax_es.rollout.slots import Slots
from jax_es.types import PyTree


class Sum(NamedTuple):
    """A sum of float32 numbers with what rounding has lost of it (Kahan 1965)."""

    value: jax.Array
    lost: jax.Array

    @classmethod
    def zeros(cls, *shape: int) -> "Sum":
        """Returns the sum of nothing."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def plus(self, number: jax.Array) -> "Sum":
        """Returns the sum with one number more."""
        number = number - self.lost
        total = self.value + number
        return Sum(total, (total - self.value) - number)

    def exact(self) -> np.ndarray:
        """Returns it in float64."""
        return np.asarray(self.value, np.float64) - np.asarray(self.lost, np.float64)


class Queue(NamedTuple):
    """One device's tasks ``[E/D]``, padded; fields as in :class:`Tasks`."""

    count: np.ndarray
    """``[]`` int32, how many there are."""
    member: np.ndarray
    seed: np.ndarray
    max_steps: np.ndarray
    observed: np.ndarray
    command: np.ndarray


class Outcome(NamedTuple):
    """What one device's tasks came to, ``[E/D]``; 0 of those that have not ended."""

    returns: Sum
    healthy_rewards: Sum
    lengths: jax.Array
    failed: jax.Array
    descriptors: jax.Array
    """``[E/D, B]`` float32."""
    sums: dict[str, Sum]
    last: dict[str, jax.Array]


class Episodes(NamedTuple):
    """One device's present episodes, ``[S/D]`` each."""

    task: jax.Array
    """int32, the place in the queue; :data:`IDLE` for none."""
    state: PyTree
    """The environments' own."""
    observation: jax.Array
    reward: jax.Array
    """float32, of the previous step."""
    length: jax.Array
    """int32, steps so far."""
    returns: Sum
    healthy_rewards: Sum
    sums: dict[str, Sum]
    """What steps reported so far, by the names that the objective asks for."""


class Seen(NamedTuple):
    """Sums over the observed observations x, of x − ``origin``.

    Near the origin float32 has digits to spare.
    """

    count: jax.Array
    """``[]`` int32."""
    sum: Sum
    """``[O]``."""
    sum_of_squares: Sum
    """``[O]``."""

    def statistics(self, origin: np.ndarray) -> ObservationStatistics:
        """Returns the sums of the observations themselves, over all devices."""
        count = np.asarray(self.count, np.float64)[:, None]
        first, second = self.sum.exact(), self.sum_of_squares.exact()
        return ObservationStatistics(
            count.sum(),
            (first + count * origin).sum(axis=0),
            (second + 2 * origin * first + count * origin**2).sum(axis=0),
        )


class Run(NamedTuple):
    """The loop's state on one device."""

    slots: Slots
    carry: PyTree
    """``[S/D, …]``, the policies', flat."""
    episodes: Episodes
    outcome: Outcome
    seen: Seen
    taken: jax.Array
    """``[]`` int32, how many tasks have left the queue."""
    done: jax.Array
    """``[]`` int32, how many have ended."""
    env_steps: jax.Array
    """``[]`` int32, live steps of this call."""
    iterations: jax.Array
    """``[]`` int32, steps of all slots of this call."""
