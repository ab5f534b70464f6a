"""Any distribution-based algorithm of evosax, under this library's conventions.

evosax minimises, keeps the mean as one vector and wants its population back. Behind
this bridge fitness is maximised, weights are pytrees, and ``init`` / ``ask`` / ``tell``
are pure functions of one state, like :class:`jax_es.es.openai_es.OpenAIES`.

The whole population is materialised, P × |θ| numbers, and CMA-ES adds |θ|² of its own:
it is for small policies. ``strategies.py`` has those that ``--strategy`` names.
"""

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from evosax.algorithms.distribution_based import ARS, CR_FM_NES, PGPE
from evosax.algorithms.distribution_based.base import DistributionBasedAlgorithm

from jax_es.es.fitness import check_shape, replace_nonfinite
from jax_es.es.population import MaterializedPopulation
from jax_es.es.strategy import StrategyFunctions
from jax_es.types import PyTree

ANTITHETIC = (ARS, CR_FM_NES, PGPE)
"""Algorithms whose second half of members mirrors the first; behind the bridge a pair
is two successive members, as everywhere, so that it meets the same seed."""


class EvosaxState(NamedTuple):
    """What the next generation needs."""

    mean: PyTree
    """θ, a weight pytree."""
    algorithm_state: PyTree
    """evosax's own; it minimises, and so do the numbers in it."""
    generation: jax.Array
    """``[]`` int32, generations told so far."""
    key: jax.Array
    """The run's key; never consumed, only folded into."""


class EvosaxInfo(NamedTuple):
    """What a human looks at after ``tell``; all ``[]``."""

    update_norm: jax.Array
    """‖θ' − θ‖₂."""
    mean_norm: jax.Array
    """‖θ'‖₂."""
    num_nonfinite: jax.Array
    """int32, members whose fitness was NaN or ±∞."""


def evosax_strategy(
    algorithm: type[DistributionBasedAlgorithm],
    population_size: int,
    mean: PyTree,
    **hyperparameters: Any,
) -> StrategyFunctions:
    """Wraps an algorithm of evosax; its states are :class:`EvosaxState`.

    ``ask`` returns a :class:`MaterializedPopulation`, which ``tell`` draws again.

    Args:
        algorithm: of ``evosax.algorithms.distribution_based``, but no Stein-variational
            one, which has several means.
        population_size: P, members a generation.
        mean: gives the shapes of the weights.
        **hyperparameters: evosax's, by its own names: fields of the algorithm's
            ``default_params`` (``std_init=0.1``), arguments of its constructor
            (``optimizer=optax.adam(1e-2)``), or ``elite_ratio``. Its optimizers
            *descend*.
    """
    arguments = inspect.signature(algorithm).parameters
    constructor = {k: v for k, v in hyperparameters.items() if k in arguments}
    evolver = algorithm(population_size, mean, **constructor)
    if "elite_ratio" in hyperparameters:  # no argument, and the parameters follow it
        evolver.elite_ratio = hyperparameters["elite_ratio"]
    es_params = evolver.default_params.replace(
        **{
            name: value
            for name, value in hyperparameters.items()
            if name not in arguments and name != "elite_ratio"
        }
    )

    def init(key: jax.Array, mean: PyTree) -> EvosaxState:
        init_key, run_key = jax.random.split(key)
        algorithm_state = evolver.init(init_key, mean, es_params)
        # Not weakly typed, which a checkpoint would not keep.
        algorithm_state = jax.tree.map(lambda x: x.astype(x.dtype), algorithm_state)
        return EvosaxState(mean, algorithm_state, jnp.int32(0), run_key)

    def keys(state: EvosaxState) -> jax.Array:
        return jax.random.split(jax.random.fold_in(state.key, state.generation))

    @jax.jit
    def sample(state: EvosaxState) -> tuple[PyTree, PyTree]:
        ask_key, _ = keys(state)
        return evolver.ask(ask_key, state.algorithm_state, es_params)

    is_antithetic = issubclass(algorithm, ANTITHETIC)
    drawn: list[tuple[EvosaxState, PyTree, PyTree]] = []

    def draw(state: EvosaxState) -> tuple[PyTree, PyTree]:
        """As ``sample``, but once for an ask and its tell: CMA-ES pays |θ|³ for it."""
        if not (drawn and drawn[0][0] is state):
            drawn[:] = [(state, *sample(state))]
        return drawn[0][1:]

    def ask(state: EvosaxState) -> MaterializedPopulation:
        members, _ = draw(state)
        if is_antithetic:
            members = jax.tree.map(paired, members)
        return MaterializedPopulation(state.mean, members)

    @jax.jit
    def paired(m: jax.Array) -> jax.Array:
        return m.reshape(2, -1, *m.shape[1:]).swapaxes(0, 1).reshape(m.shape)

    def tell(state: EvosaxState, fitness: jax.Array) -> tuple[EvosaxState, EvosaxInfo]:
        check_shape(fitness, population_size)
        members, asked = draw(state)
        drawn.clear()
        return descend(state, members, asked, jnp.asarray(fitness, jnp.float32))

    @jax.jit
    def descend(
        state: EvosaxState, members: PyTree, asked: PyTree, fitness: jax.Array
    ) -> tuple[EvosaxState, EvosaxInfo]:
        _, tell_key = keys(state)
        cost = -replace_nonfinite(fitness)
        if is_antithetic:
            cost = cost.reshape(-1, 2).T.ravel()
        told, _ = evolver.tell(tell_key, members, cost, asked, es_params)
        # A step that makes NaN or ∞ of a number (σ may shrink to 0) is not taken.
        before = state.algorithm_state
        is_sound = jax.tree.reduce(
            jnp.logical_and,
            jax.tree.map(
                lambda new, old: jnp.all(jnp.isfinite(new) | ~jnp.isfinite(old)),
                told,
                before,
            ),
        )
        algorithm_state = jax.tree.map(
            lambda new, old: jnp.where(is_sound, new, old), told, before
        )
        mean = evolver.get_mean(algorithm_state)
        info = EvosaxInfo(
            update_norm=optax.tree.norm(optax.tree.sub(mean, state.mean)),
            mean_norm=optax.tree.norm(mean),
            num_nonfinite=jnp.sum(~jnp.isfinite(fitness), dtype=jnp.int32),
        )
        return EvosaxState(mean, algorithm_state, state.generation + 1, state.key), info

    return StrategyFunctions(init, ask, tell)
