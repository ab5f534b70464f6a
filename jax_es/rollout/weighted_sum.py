"""Σ wᵢ εᵢ on all local devices: what an update costs more of with every pair."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.es.noise import Noise
from jax_es.rollout.devices import Devices
from jax_es.types import PyTree

PAIRS_PER_CALL = 256
"""Pairs whose ε one device sums in one call of :func:`spread_weighted_sum`.

It bounds how long one call runs (a stop signal waits for it), and lets populations of
any size share one compiled program.
"""


def spread_weighted_sum(
    noise: Noise,
    devices: Devices,
    on_call: Callable[[], None] = lambda: None,
    block: int | None = None,
) -> Callable[..., PyTree]:
    """Returns ``(generation_key, weights [N], mean) → Σᵢ wᵢ εᵢ`` on all devices.

    Each device regenerates its share of the ε's and sums them; only the D partial
    sums, each the size of θ, meet. Memory does not depend on N. The function takes the
    number of the first pair, too, if it is not 0.

    Args:
        noise: the noise family.
        devices: where to compute.
        on_call: called before each chunk, for instance to notice a stop signal.
        block: N is always a multiple of it: one program then serves every N.
    """
    partial_sum = _partial_sum(noise, devices)

    def weighted_sum(
        key: jax.Array, weights: jax.Array, mean: PyTree, first: int = 0
    ) -> PyTree:
        num_pairs = weights.shape[0]
        # Small populations get a small program of their own.
        width = min(PAIRS_PER_CALL, -(-(block or num_pairs) // devices.count))
        chunk_size = width * devices.count
        padded = -(-num_pairs // chunk_size) * chunk_size
        # The padding's ε count with weight 0.
        all_weights = np.zeros(padded, np.float32)
        all_weights[:num_pairs] = weights
        mean = devices.share(mean)
        total = None
        for start in range(0, padded, chunk_size):
            on_call()
            pairs = first + np.arange(start, start + chunk_size, dtype=np.int32)
            shape = (devices.count, width)
            chunk = devices.put(
                (
                    pairs.reshape(shape),
                    all_weights[start : start + chunk_size].reshape(shape),
                )
            )
            part = partial_sum(key, *chunk, mean)
            # Wait here, so that chunks do not queue up behind a stop signal.
            total = jax.block_until_ready(part if total is None else _add(total, part))
        return total

    return weighted_sum


@functools.lru_cache(maxsize=4)  # the next run of the process finds it compiled
def _partial_sum(noise: Noise, devices: Devices) -> Callable[..., PyTree]:
    """Returns the program of one call on all devices."""
    return devices.map_together(
        lambda total, *args: total(noise.weighted_sum(*args)), (None, 0, 0, None)
    )


@functools.partial(jax.jit, donate_argnums=0)
def _add(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.add, a, b)
