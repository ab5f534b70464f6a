"""The evolution-strategies gradient of any function, for any optax optimizer."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jax_es.checks import require
from jax_es.es.noise import FullNoise, member_key
from jax_es.es.strategy import check_floats
from jax_es.types import PyTree


def es_gradient(
    function: Callable[[PyTree], jax.Array],
    mean: PyTree,
    key: jax.Array,
    *,
    sigma: float,
    num_pairs: int,
) -> PyTree:
    """Estimates ∇θ E[f(θ + σε)] from antithetic pairs; f needs no derivative.

    (1/2Nσ) Σᵢ (f(θ + σεᵢ) − f(θ − σεᵢ)) εᵢ (Salimans et al. 2017, arXiv 1703.03864),
    which is unbiased for the function smoothed by N(0, σ²). Two values of f are
    computed at a time, so memory does not depend on N.

    Args:
        function: θ → ``[]``, in JAX; for others use ``ask`` and ``tell``.
        mean: θ, a pytree of float arrays.
        key: consumed.
        sigma: σ, in the unit of θ.
        num_pairs: N.

    Returns:
        A pytree like θ. It points uphill, as ``jax.grad``'s: an optax optimizer that
        gets it minimises f.

    Raises:
        ConfigError: if ``sigma`` or ``num_pairs`` is not positive, or θ no floats.

    Example:
        >>> import optax
        >>> def loss(x):
        ...     return jnp.sum(jnp.abs(jnp.round(x - 3.0, 1)))  # its slope is 0
        >>> optimizer, x = optax.adam(0.1), jnp.zeros(4)
        >>> state = optimizer.init(x)
        >>> @jax.jit
        ... def step(x, state, key):
        ...     gradient = es_gradient(loss, x, key, sigma=0.1, num_pairs=32)
        ...     updates, state = optimizer.update(gradient, state)
        ...     return optax.apply_updates(x, updates), state
        >>> for key in jax.random.split(jax.random.key(0), 200):
        ...     x, state = step(x, state, key)
        >>> bool(loss(x) < 1.0)
        True
    """
    require(0 < sigma < float("inf"), f"sigma must be positive, got {sigma}.")
    check_floats("mean", mean)
    require(num_pairs >= 1, f"num_pairs must be at least 1, got {num_pairs}.")
    noise = FullNoise()

    def difference(pair: jax.Array) -> jax.Array:
        epsilon = noise.sample(member_key(key, pair), mean)
        plus, minus = (
            function(noise.member(mean, epsilon, scale)["params"])
            for scale in (jnp.float32(sigma), jnp.float32(-sigma))
        )
        return plus - minus

    pairs = jnp.arange(num_pairs)
    weights = jax.lax.map(difference, pairs)
    total = noise.weighted_sum(key, pairs, weights, mean)
    return jax.tree.map(lambda leaf: leaf / (2 * num_pairs * sigma), total)
