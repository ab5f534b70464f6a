"""A genetic algorithm: the best members have offspring, which are them and some noise.

Such et al. 2017 (Deep Neuroevolution, arXiv 1712.06567). Nothing is averaged: one lucky
mutation is enough, where an estimated gradient needs many members. A generation:

1. ``ask``: member 0 is the elite, the best of the last generation, as it is. Each other
   one is a parent, drawn uniformly, plus σ times standard normal noise.
2. Their episodes run.
3. ``tell``: the best T members are the next parents, the best of all the elite. It is
   θ of the run: what is evaluated, saved as the best and reloaded.

A member's noise is drawn from the key of its generation and its own number. So a parent
is a list of numbers, one a generation, and from the weights that the run began with it
is made again to the bit; a state holds these lists, and of weights only θ and the
first. The parents' weights are kept in memory beside it, T networks. Who goes on from a
checkpoint makes them again: T draws for each generation so far.

Such et al. begin with independently drawn networks; here all of the first generation
are θ plus noise. They choose the elite by 30 further episodes of each of the best ten;
here fitness alone chooses it, so give members several episodes
(``es.episodes_per_member``) where returns are noisy. It meets new episodes in every
generation.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from jax_es.checks import ConfigError, require
from jax_es.es.fitness import check_shape, replace_nonfinite
from jax_es.es.noise import FullNoise, member_key
from jax_es.es.population import MEAN
from jax_es.es.strategy import StrategyFunctions
from jax_es.types import PyTree, Variables

_NOISE = FullNoise()

AS_IT_IS = 0
"""The number of the member that is its parent without noise, the elite."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Offspring:
    """A population of the parents' offspring; only the parents are in memory."""

    parents: PyTree
    """Weights, with a leading axis ``T``, the elite first."""
    key: jax.Array
    """The generation's key."""
    sigma: jax.Array
    """``[]`` float32, standard deviation of this generation's noise."""
    size: int = dataclasses.field(metadata={"static": True})
    """P, the number of members."""

    members_per_group = 1

    def shared(self) -> Variables:
        """Returns nothing: a member's weights are all its own."""
        return {}

    def group(self, index: jax.Array) -> jax.Array:
        """Draws the noise of one member."""
        one = jax.tree.map(lambda leaf: leaf[0], self.parents)
        return _NOISE.sample(member_key(self.key, index), one)

    def variables(self, group: jax.Array, member: jax.Array) -> Variables:
        """Returns a member's weights; those of the elite for the mean."""
        is_elite = (member == MEAN) | (member == AS_IT_IS)
        count = jax.tree.leaves(self.parents)[0].shape[0]
        parent = jnp.where(is_elite, 0, _parent(self.key, member, count))
        weights = jax.tree.map(lambda leaf: leaf[parent], self.parents)
        return _NOISE.member(weights, group, jnp.where(is_elite, 0.0, self.sigma))

    @property
    def members(self) -> PyTree:
        """All members' weights, ``[P, …]`` per leaf; for small populations."""

        def member(index: jax.Array) -> PyTree:
            return self.variables(self.group(index), index)["params"]

        return jax.vmap(member)(jnp.arange(self.size))


class GeneticState(NamedTuple):
    """What the next generation needs."""

    mean: PyTree
    """θ, the elite's weights."""
    start: PyTree
    """The weights that the run began with, which all members descend from."""
    ancestors: jax.Array
    """``[T, G]`` int32: the numbers that a parent's ancestors and it had as members in
    generations 0, 1, …, of which those told so far count; the elite first."""
    generation: jax.Array
    """``[]`` int32, generations told so far."""
    key: jax.Array
    """The run's key; never consumed, only folded into."""


class GeneticInfo(NamedTuple):
    """What a human looks at after ``tell``; all ``[]``."""

    update_norm: jax.Array
    """‖θ' − θ‖₂; 0 where the elite stays."""
    mean_norm: jax.Array
    """‖θ'‖₂."""
    num_nonfinite: jax.Array
    """int32, members whose fitness was NaN or ±∞."""


def genetic(
    population_size: int,
    mean: PyTree,
    sigma: float,
    parents: int | None = None,
    first_sigma: float | None = None,
    max_generations: int = 100_000,
) -> StrategyFunctions:
    """Builds the algorithm; its states are :class:`GeneticState`.

    Args:
        population_size: P, members a generation.
        mean: gives the shapes of the weights.
        sigma: standard deviation of the noise of a generation.
        parents: T, the best members, which have offspring, below P; 20, but no more
            than a fifth of the members, if not given.
        first_sigma: standard deviation in the first generation; ``sigma`` if not given.
        max_generations: G, the longest list of ancestors.

    Raises:
        ConfigError: there are as many parents as members, or more; in ``tell`` after G
            generations.
    """
    if parents is None:
        parents = min(20, max(1, population_size // 5))
    require(
        parents < population_size,
        f"es.kwargs.parents must be below the number of members {population_size} with "
        f"es.strategy ga, got {parents}: nothing would be selected; add "
        f"--es.kwargs.parents {max(1, population_size // 5)}, or more es.num_pairs.",
    )
    del mean
    sigmas = sigma if first_sigma is None else first_sigma, sigma

    def sigma_of(generation: jax.Array) -> jax.Array:
        return jnp.where(generation == 0, *map(jnp.float32, sigmas))

    def init(key: jax.Array, mean: PyTree) -> GeneticState:
        ancestors = jnp.zeros((parents, max_generations), jnp.int32)
        return GeneticState(mean, mean, ancestors, jnp.int32(0), key)

    @jax.jit
    def grow(
        weights: PyTree, state: GeneticState, begin: jax.Array, end: jax.Array
    ) -> PyTree:
        """Adds the noise of generations from ``begin`` to ``end``; ``[T, …]``.

        One program, whether it makes one step or all of them: as a whole they could be
        rounded in another way than one by one.
        """

        def one(weights: PyTree, key: jax.Array, member: jax.Array, scale: jax.Array):
            epsilon = _NOISE.sample(member_key(key, member), weights)
            scale = jnp.where(member == AS_IT_IS, 0.0, scale)
            return _NOISE.member(weights, epsilon, scale)["params"]

        def step(generation: jax.Array, weights: PyTree) -> PyTree:
            key = jax.random.fold_in(state.key, generation)
            members = state.ancestors[:, generation]
            every = jax.vmap(one, in_axes=(0, None, 0, None))
            return every(weights, key, members, sigma_of(generation))

        return jax.lax.fori_loop(begin, end, step, weights)

    def born(state: GeneticState) -> PyTree:
        """Makes the parents from the first weights on."""
        every = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (parents, *leaf.shape)), state.start
        )
        return grow(every, state, jnp.int32(0), state.generation)

    kept: list[tuple[jax.Array, PyTree]] = []

    def weights_of(state: GeneticState) -> PyTree:
        """Returns the parents' weights, from memory if the last tell left them."""
        if isinstance(state.ancestors, Tracer):
            return born(state)
        if not (kept and kept[0][0] is state.ancestors):
            kept[:] = [(state.ancestors, born(state))]
        return kept[0][1]

    def ask(state: GeneticState) -> Offspring:
        key = jax.random.fold_in(state.key, state.generation)
        sigma = sigma_of(state.generation)
        return Offspring(weights_of(state), key, sigma, population_size)

    @jax.jit
    def select(
        state: GeneticState, fitness: jax.Array
    ) -> tuple[jax.Array, GeneticState]:
        """Returns the numbers of the next parents' parents, and the next lists."""
        _, best = jax.lax.top_k(replace_nonfinite(fitness), parents)
        key = jax.random.fold_in(state.key, state.generation)
        chosen = jax.vmap(_parent, in_axes=(None, 0, None))(key, best, parents)
        chosen = jnp.where(best == AS_IT_IS, 0, chosen)
        ancestors = state.ancestors[chosen].at[:, state.generation].set(best)
        return chosen, state._replace(
            ancestors=ancestors, generation=state.generation + 1
        )

    @jax.jit
    def describe(
        before: PyTree, weights: PyTree, fitness: jax.Array
    ) -> tuple[PyTree, GeneticInfo]:
        elite = jax.tree.map(lambda leaf: leaf[0], weights)
        return elite, GeneticInfo(
            update_norm=optax.tree.norm(optax.tree.sub(elite, before)),
            mean_norm=optax.tree.norm(elite),
            num_nonfinite=jnp.sum(~jnp.isfinite(fitness), dtype=jnp.int32),
        )

    def tell(
        state: GeneticState, fitness: jax.Array
    ) -> tuple[GeneticState, GeneticInfo]:
        fitness = jnp.asarray(fitness, jnp.float32)
        check_shape(fitness, population_size)
        is_traced = isinstance(state.ancestors, Tracer)
        if not is_traced and int(state.generation) >= max_generations:
            raise ConfigError(
                f"es.kwargs.max_generations {max_generations} are over; begin another "
                "run from this one's checkpoint with --init RUN."
            )
        chosen, told = select(state, fitness)
        weights = jax.tree.map(lambda leaf: leaf[chosen], weights_of(state))
        weights = grow(weights, told, state.generation, told.generation)
        elite, info = describe(state.mean, weights, fitness)
        told = told._replace(mean=elite)
        if not is_traced:
            kept[:] = [(told.ancestors, weights)]
        return told, info

    return StrategyFunctions(init, ask, tell)


def _parent(key: jax.Array, member: jax.Array, count: int) -> jax.Array:
    """Draws which of the parents a member has."""
    key = member_key(jax.random.fold_in(key, 2**32 - 1), member)  # no noise' key
    return jax.random.randint(key, (), 0, count)
