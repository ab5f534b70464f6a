"""CEM-RL: a part of the members climbs a critic before it is evaluated.

Pourchot & Sigaud 2019 (arXiv 1810.01222). A weight has a mean μ and a variance v of
its own; P members are drawn from them. K ≤ P/2 of them then take gradient steps on a
critic (``critic.py``) that learns from all members' steps. All P are evaluated, and
with x₁, x₂, … the best half from the best on, and λᵢ ∝ ln(1 + P/2) − ln i, Σ λᵢ = 1,

    μ' = Σ λᵢ xᵢ,   v' = Σ λᵢ (xᵢ − μ)² + e²,

where e falls from ``extra_std`` to ``extra_std_end``: without it the distribution
shrinks before it has found much. Members that the critic leads astray are not among
the best, and cost one evaluation each.

K follows what is seen: of all members the share that climbs is that of the elites that
had climbed, as a running mean over generations; at least one member and at most half of
them. Where the critic misleads, the method is nearly the plain one of ``cem.py``; one
that is right again wins its members back.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jax_es.checks import Count, NotNegativeFinite, Positive, Weight
from jax_es.es.critic import Climb, CriticOptions
from jax_es.es.fitness import check_shape, replace_nonfinite
from jax_es.es.population import MaterializedPopulation
from jax_es.es.strategy import FollowingFunctions, read_options
from jax_es.types import PyTree

RUNNING = 0.2
"""Share of the latest generation in the running mean of elites that climbed."""


@dataclasses.dataclass(frozen=True)
class CEMRLOptions(CriticOptions):
    """Hyperparameters of CEM-RL, each as --es.kwargs.NAME VALUE."""

    actor_learning_rate: Positive = 0.001
    """Of the members that climb the critic, by Adam."""
    actor_delay: Count = 4
    """The critic's gradient steps for each of theirs, which they take all at once."""
    extra_std: NotNegativeFinite | None = None
    """Standard deviation that the first generation adds to the elites'; sigma if not
    given."""
    extra_std_end: NotNegativeFinite | None = None
    """What it falls to; a tenth of extra_std if not given."""
    extra_decay: Weight = 0.95
    """What is left, after a generation, of the way that its variance has to fall."""

    @property
    def way(self) -> Climb:
        """Members climb."""
        return Climb(self.actor_learning_rate, self.actor_delay)


class CEMRLState(NamedTuple):
    """What the next generation needs."""

    mean: PyTree
    """μ, a weight pytree: θ."""
    variance: jax.Array
    """``[|θ|]`` v, in the order of ``ravel_pytree``."""
    generation: jax.Array
    """``[]`` int32, generations told so far."""
    key: jax.Array
    """The run's key; never consumed, only folded into."""
    climbed: PyTree
    """``[P/2, …]``, like θ: the first K are those that climbed for this generation."""
    num_climbed: jax.Array
    """``[]`` int32 K; 0 if there was no critic to climb."""
    share: jax.Array
    """``[]`` float32, the running share of elites that had climbed."""


class CEMRLInfo(NamedTuple):
    """What a human looks at after ``tell``; see :class:`~jax_es.es.openai_es.ESInfo`.

    Attributes:
        own: ``num_climbed`` K of this generation, ``elite_share``, the share of its
            elites that had climbed (NaN if none had), and its running mean
            ``mean_elite_share``.
    """

    update_norm: jax.Array
    mean_norm: jax.Array
    num_nonfinite: jax.Array
    own: Mapping[str, jax.Array]


def cem_rl(
    population_size: int, mean: PyTree, sigma: float, options: CEMRLOptions
) -> FollowingFunctions:
    """Builds the method; its states are :class:`CEMRLState`.

    Without ``guide`` it is the cross-entropy method alone.

    Args:
        population_size: P, members a generation, an even number.
        mean: gives the shapes of the weights.
        sigma: standard deviation of the first generation's weights.
        options: the others.
    """
    _, unravel = ravel_pytree(mean)
    half = population_size // 2
    places = jnp.log(1.0 + half) - jnp.log(jnp.arange(1.0, half + 1.0))
    lambdas = places / places.sum()
    begin = sigma if options.extra_std is None else options.extra_std
    end = begin / 10 if options.extra_std_end is None else options.extra_std_end

    def init(key: jax.Array, mean: PyTree) -> CEMRLState:
        flat, _ = ravel_pytree(mean)
        variance = jnp.full(flat.shape, sigma**2, flat.dtype)
        # At first half of the elites are taken for those that climbed.
        return drawn(mean, variance, jnp.int32(0), key, jnp.float32(0.5))

    def drawn(
        mean: PyTree,
        variance: jax.Array,
        generation: jax.Array,
        key: jax.Array,
        share: jax.Array,
    ) -> CEMRLState:
        """Returns a state whose members have not climbed."""
        nothing = jax.tree.map(
            lambda leaf: jnp.zeros((half, *jnp.shape(leaf)), jnp.result_type(leaf)),
            mean,
        )
        own = mean, variance, generation, key
        return CEMRLState(*own, nothing, jnp.int32(0), share)

    @jax.jit
    def draw(state: CEMRLState) -> PyTree:
        flat, _ = ravel_pytree(state.mean)
        key = jax.random.fold_in(state.key, state.generation)
        z = jax.random.normal(key, (population_size, flat.size))
        return jax.vmap(unravel)(flat + jnp.sqrt(state.variance) * z)

    @jax.jit
    def members_of(state: CEMRLState) -> PyTree:
        has_climbed = jnp.arange(half) < state.num_climbed

        def first(all_of: jax.Array, climbed: jax.Array) -> jax.Array:
            chosen = has_climbed.reshape(-1, *[1] * (all_of.ndim - 1))
            return all_of.at[:half].set(jnp.where(chosen, climbed, all_of[:half]))

        return jax.tree.map(first, draw(state), state.climbed)

    def ask(state: CEMRLState) -> MaterializedPopulation:
        return MaterializedPopulation(state.mean, members_of(state))

    @jax.jit
    def tell(state: CEMRLState, fitness: jax.Array) -> tuple[CEMRLState, CEMRLInfo]:
        fitness = jnp.asarray(fitness, jnp.float32)
        check_shape(fitness, population_size)
        _, best = jax.lax.top_k(replace_nonfinite(fitness), half)
        elites = jax.vmap(lambda member: ravel_pytree(member)[0])(members_of(state))
        elites = elites[best]
        before, _ = ravel_pytree(state.mean)
        after = lambdas @ elites
        left = options.extra_decay**state.generation
        extra = end**2 + (begin**2 - end**2) * left
        variance = lambdas @ (elites - before) ** 2 + extra
        is_seen = state.num_climbed > 0
        seen = jnp.mean(best < state.num_climbed)
        running = state.share + RUNNING * (seen - state.share)
        share = jnp.where(is_seen, running, state.share)
        info = CEMRLInfo(
            update_norm=jnp.linalg.norm(after - before),
            mean_norm=jnp.linalg.norm(after),
            num_nonfinite=jnp.sum(~jnp.isfinite(fitness), dtype=jnp.int32),
            own={
                "num_climbed": state.num_climbed,
                "elite_share": jnp.where(is_seen, seen, jnp.nan),
                "mean_elite_share": share,
            },
        )
        told = unravel(after), variance, state.generation + 1, state.key
        return drawn(*told, share), info

    def judged(state: CEMRLState) -> PyTree:
        """Returns the members that may climb, ``[K, …]``, as they were drawn."""
        count = int(np.clip(np.round(population_size * float(state.share)), 1, half))
        return jax.tree.map(lambda leaf: leaf[:count], draw(state))

    def guide(state: CEMRLState, climbed: PyTree) -> CEMRLState:
        def first(all_of: jax.Array, new: jax.Array) -> jax.Array:
            return all_of.at[: len(new)].set(new)

        count = len(jax.tree.leaves(climbed)[0])
        filled = jax.tree.map(first, state.climbed, climbed)
        return state._replace(climbed=filled, num_climbed=jnp.int32(count))

    return FollowingFunctions(init, ask, tell, judged, guide, options)


def cem_rl_options(given: Mapping[str, Any]) -> CEMRLOptions:
    """Reads a configuration's ``es.kwargs``.

    Raises:
        ConfigError: for an unknown name, or a value that cannot be.
    """
    return read_options(CEMRLOptions, "cem-rl", given)
