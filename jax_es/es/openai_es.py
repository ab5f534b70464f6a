"""OpenAI-ES: the whole algorithm, as ``init``, ``ask`` and ``tell``.

One generation, with mean θ, N antithetic pairs and standard deviation σ
(Salimans et al. 2017, arXiv 1703.03864; Lorenc & Neruda 2025, arXiv 2501.13883):

1. ``ask``: pair i is θ + σεᵢ and θ − σεᵢ, with εᵢ ~ N(0, I) drawn from
   ``fold_in(fold_in(key, generation), i)`` (low-rank noise has the same first two
   moments, see ``noise.py``). Nothing is materialised: an
   :class:`AntitheticPopulation` is θ, σ and a key.
2. Someone evaluates the members (``rollout/``, or any function).
3. ``tell``: returns → weights w by rank → natural-gradient estimate
   g = 1/(2Nσ) Σ wᵢ εᵢ, the εᵢ drawn again from their keys → one optax step *up* g.

Example:
    >>> import jax.numpy as jnp
    >>> es = openai_es(ESConfig(num_pairs=64, sigma=0.1, learning_rate=0.3,
    ...                         weight_decay=0.0))
    >>> state = es.init(jax.random.key(0), {"x": jnp.array([3.0, -2.0])})
    >>> for _ in range(60):
    ...     members = es.ask(state).members
    ...     fitness = -jnp.sum(members["x"] ** 2, axis=-1)
    ...     state, info = es.tell(state, fitness)
    >>> bool(jnp.all(jnp.abs(state.mean["x"]) < 0.1))
    True
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from jax_es.config import ESConfig
from jax_es.es.fitness import SHAPINGS, shape_elites
from jax_es.es.noise import FullNoise, Noise
from jax_es.es.optimizers import make_optimizer, schedule
from jax_es.es.population import AntitheticPopulation
from jax_es.types import PyTree

WeightedSum = Callable[[jax.Array, jax.Array, PyTree], PyTree]
"""``(generation_key, weights [N], mean) → Σᵢ wᵢ εᵢ``, wherever it is computed."""


class ESState(NamedTuple):
    """What the next generation needs.

    Attributes:
        mean: θ, a weight pytree.
        optimizer_state: optax's.
        generation: ``[]`` int32, generations told so far.
        key: the run's key; never consumed, only folded into.
    """

    mean: PyTree
    optimizer_state: PyTree
    generation: jax.Array
    key: jax.Array


class ESInfo(NamedTuple):
    """What a human looks at after ``tell``; all ``[]``.

    Attributes:
        gradient_norm: ‖g‖₂.
        update_norm: ‖θ' − θ‖₂.
        mean_norm: ‖θ'‖₂.
        num_nonfinite: int32, members whose fitness was NaN or ±∞.
    """

    gradient_norm: jax.Array
    update_norm: jax.Array
    mean_norm: jax.Array
    num_nonfinite: jax.Array


class OpenAIES(NamedTuple):
    """The algorithm for one configuration: pure functions over :class:`ESState`.

    Attributes:
        init: ``(key, mean) → state``.
        ask: ``state → AntitheticPopulation``.
        tell: ``(state, fitness) → (state, info)``; larger fitness is better. Fitness is
            ``[P]`` in the order of the members, or ``[N, 2]`` with column 0 for θ+σε,
            which is the same. With ``interactions_per_generation`` N may be any
            multiple of the configuration's ``num_pairs``. It is the next two in turn,
            for strategies that weigh pairs by more than fitness.
        weigh: ``fitness → weights [N]``, by the configuration's shaping.
        follow: ``(state, weights [N], fitness, lean) → (state, info)``; fitness is
            counted, no more. ``lean``, if given, makes another sum of Σ wᵢ εᵢ.
        noise: the noise family.
    """

    init: Callable[[jax.Array, PyTree], ESState]
    ask: Callable[[ESState], AntitheticPopulation]
    tell: Callable[[ESState, ArrayLike], tuple[ESState, ESInfo]]
    weigh: Callable[[ArrayLike], jax.Array]
    follow: Callable[..., tuple[ESState, ESInfo]]
    noise: Noise


def openai_es(
    config: ESConfig,
    noise: Noise | None = None,
    weighted_sum: WeightedSum | None = None,
) -> OpenAIES:
    """Builds OpenAI-ES.

    Args:
        config: the hyperparameters.
        noise: the noise family; ``FullNoise()`` by default.
        weighted_sum: computes Σ wᵢ εᵢ, for instance on all devices
            (``rollout.weighted_sum``); on the default device if not given.
    """
    noise = FullNoise() if noise is None else noise
    optimizer = make_optimizer(config)
    shape, ascend = _programs(config, SHAPINGS[config.shaping])
    sigma = schedule(config, config.sigma, config.sigma_end)
    if weighted_sum is None:
        weighted_sum = jax.jit(
            lambda key, weights, mean: noise.weighted_sum(
                key, jnp.arange(weights.shape[0]), weights, mean
            )
        )

    def init(key: jax.Array, mean: PyTree) -> ESState:
        return ESState(mean, optimizer.init(mean), jnp.int32(0), key)

    def ask(state: ESState) -> AntitheticPopulation:
        key = jax.random.fold_in(state.key, state.generation)
        sigma = sigma_of(state)
        return AntitheticPopulation(state.mean, key, sigma, config.num_pairs, noise)

    def sigma_of(state: ESState) -> jax.Array:
        value = sigma(state.generation) if sigma else config.sigma
        return jnp.asarray(value, jnp.float32)

    def tell(state: ESState, fitness: ArrayLike) -> tuple[ESState, ESInfo]:
        return follow(state, weigh(fitness), fitness)

    def weigh(fitness: ArrayLike) -> jax.Array:
        fitness = jnp.asarray(fitness, jnp.float32)
        given = fitness.shape
        if len(given) == 1 and given[0] % 2 == 0:
            fitness = fitness.reshape(-1, 2)
        num_pairs = fitness.shape[0] if fitness.ndim else 0
        is_whole = num_pairs and num_pairs % config.num_pairs == 0
        if not (
            fitness.shape == (num_pairs, 2)
            and is_whole
            and num_pairs <= config.most_pairs
        ):
            raise ValueError(
                f"fitness must have shape [P] = ({2 * config.num_pairs},), or "
                f"({config.num_pairs}, 2), got {given}; of pair i, member 2i is θ+σε "
                "and member 2i + 1 is θ−σε."
            )
        return shape(fitness)

    def follow(
        state: ESState,
        weights: jax.Array,
        fitness: ArrayLike,
        lean: Callable[[PyTree], PyTree] = lambda total: total,
    ) -> tuple[ESState, ESInfo]:
        num_pairs = len(weights)
        total = lean(weighted_sum(ask(state).key, weights, state.mean))
        # Without a schedule the division is done in double precision.
        if sigma:
            factor = 1.0 / (2 * num_pairs * sigma_of(state))
        else:
            factor = jnp.float32(1.0 / (2 * num_pairs * config.sigma))
        num_nonfinite = _count_nonfinite(jnp.asarray(fitness, jnp.float32))
        return ascend(state, total, num_nonfinite, factor)

    return OpenAIES(init, ask, tell, weigh, follow, noise)


@functools.lru_cache(maxsize=4)
def _programs(
    config: ESConfig, shaping: Callable[[jax.Array], jax.Array]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the parts that are compiled; a process's next run finds them so."""
    optimizer = make_optimizer(config)

    @jax.jit
    def shape(fitness: jax.Array) -> jax.Array:
        return shape_elites(shaping, fitness, config.elite_fraction)

    # Nothing here has the shape of the population: it is compiled once.
    @jax.jit
    def ascend(
        state: ESState, total: PyTree, num_nonfinite: jax.Array, factor: jax.Array
    ) -> tuple[ESState, ESInfo]:
        gradient = jax.tree.map(lambda leaf: factor * leaf, total)
        updates, optimizer_state = optimizer.update(
            gradient, state.optimizer_state, state.mean
        )
        mean = optax.apply_updates(state.mean, updates)
        info = ESInfo(
            gradient_norm=optax.tree.norm(gradient),
            update_norm=optax.tree.norm(updates),
            mean_norm=optax.tree.norm(mean),
            num_nonfinite=num_nonfinite,
        )
        state = ESState(mean, optimizer_state, state.generation + 1, state.key)
        return state, info

    return shape, ascend


@jax.jit
def _count_nonfinite(fitness: jax.Array) -> jax.Array:
    return jnp.sum(~jnp.isfinite(fitness), dtype=jnp.int32)
