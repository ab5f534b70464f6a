"""The cross-entropy method: each generation is drawn around the last one's elites.

A weight has a mean and a variance of its own. Both become those of the best members,
and some variance is added, less in every generation: without it the distribution
shrinks before it has found much (Szita & Lőrincz 2006, Learning Tetris Using the Noisy
Cross-Entropy Method, whose initial variance is 100 and whose noise is 5 − t/10).

Example:
    >>> mean = {"x": jnp.array([3.0, -2.0])}
    >>> strategy = cem(40, mean, sigma=1.0)
    >>> state = strategy.init(jax.random.key(0), mean)
    >>> for _ in range(60):
    ...     members = strategy.ask(state).members
    ...     fitness = -jnp.sum((members["x"] - 1.0) ** 2, axis=-1)
    ...     state, info = strategy.tell(state, fitness)
    >>> bool(jnp.all(jnp.abs(state.mean["x"] - 1.0) < 0.05))
    True
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jax_es.es.evosax_bridge import EvosaxInfo
from jax_es.es.fitness import check_shape, replace_nonfinite
from jax_es.es.population import MaterializedPopulation
from jax_es.es.strategy import StrategyFunctions
from jax_es.types import PyTree


class CEMState(NamedTuple):
    """What the next generation needs."""

    mean: PyTree
    """θ, a weight pytree."""
    variance: jax.Array
    """``[|θ|]``, of each weight, in the order of ``ravel_pytree``."""
    generation: jax.Array
    """``[]`` int32, generations told so far."""
    key: jax.Array
    """The run's key; never consumed, only folded into."""


def cem(
    population_size: int,
    mean: PyTree,
    sigma: float,
    elite_ratio: float = 0.1,
    extra_std: float | None = None,
    extra_generations: int = 50,
) -> StrategyFunctions:
    """Builds the method; its states are :class:`CEMState`.

    Args:
        population_size: P, members a generation.
        mean: gives the shapes of the weights.
        sigma: standard deviation of the first generation's weights.
        elite_ratio: share of the members that are elites; at least two are, but never
            all.
        extra_std: standard deviation of the noise that the first generation adds to
            the elites'; √0.05 σ if not given, 0 for the method without noise.
        extra_generations: in which the noise' variance falls to 0, linearly.
    """
    _, unravel = ravel_pytree(mean)
    num_elites = min(population_size - 1, max(2, round(elite_ratio * population_size)))
    extra = 0.05 * sigma**2 if extra_std is None else extra_std**2

    def init(key: jax.Array, mean: PyTree) -> CEMState:
        flat, _ = ravel_pytree(mean)
        variance = jnp.full(flat.shape, sigma**2, flat.dtype)
        return CEMState(mean, variance, jnp.int32(0), key)

    def sample(state: CEMState) -> jax.Array:
        flat, _ = ravel_pytree(state.mean)
        key = jax.random.fold_in(state.key, state.generation)
        z = jax.random.normal(key, (population_size, flat.size))
        return flat + jnp.sqrt(state.variance) * z

    members_of = jax.jit(lambda state: jax.vmap(unravel)(sample(state)))

    def ask(state: CEMState) -> MaterializedPopulation:
        return MaterializedPopulation(state.mean, members_of(state))

    @jax.jit
    def tell(state: CEMState, fitness: jax.Array) -> tuple[CEMState, EvosaxInfo]:
        fitness = jnp.asarray(fitness, jnp.float32)
        check_shape(fitness, population_size)
        _, best = jax.lax.top_k(replace_nonfinite(fitness), num_elites)
        elites = sample(state)[best]
        noise = extra * jnp.maximum(0.0, 1.0 - state.generation / extra_generations)
        before, _ = ravel_pytree(state.mean)
        after = jnp.mean(elites, axis=0)
        info = EvosaxInfo(
            update_norm=jnp.linalg.norm(after - before),
            mean_norm=jnp.linalg.norm(after),
            num_nonfinite=jnp.sum(~jnp.isfinite(fitness), dtype=jnp.int32),
        )
        variance = jnp.var(elites, axis=0) + noise
        state = CEMState(unravel(after), variance, state.generation + 1, state.key)
        return state, info

    return StrategyFunctions(init, ask, tell)
