"""The members of one generation, as a recipe that devices follow.

A strategy decides *who* is evaluated, an evaluator *where*: a :class:`Population` is
what the one hands to the other. It is a pytree; its arrays are copied to the devices
once a generation, and its methods are traced there.

Members are numbered 0 … P−1; :data:`MEAN` is the mean policy θ itself.
"""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp

from jax_es.es.noise import Noise, member_key
from jax_es.types import PyTree, Variables

MEAN = -1
"""The member that is the mean θ, without a perturbation."""


class Population(Protocol):
    """Who is evaluated. The weights of a member are ``{**shared, **variables}``.

    Successive members form groups of ``members_per_group``. What a group has in common
    (an antithetic pair its ε) is drawn once, and the slots of a device keep it.
    """

    @property
    def size(self) -> int:
        """P, the number of members."""
        ...

    @property
    def members_per_group(self) -> int:
        """How many successive members are a group; 1 where they share nothing."""
        ...

    def shared(self) -> Variables:
        """Returns the collections that all members read."""
        ...

    def group(self, index: jax.Array) -> PyTree:
        """Draws what the members of group ``index`` have in common; ``()`` if nothing.

        Its shapes do not depend on ``index``.
        """
        ...

    def variables(self, group: PyTree, member: jax.Array) -> Variables:
        """Returns one member's own collections.

        Args:
            group: of the member's group; of any group for :data:`MEAN`.
            member: ``[]`` int32.
        """
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AntitheticPopulation:
    """θ + σεᵢ is member 2i and θ − σεᵢ is member 2i + 1; nothing is materialised."""

    mean: PyTree
    """θ."""
    key: jax.Array
    """The generation's key."""
    sigma: jax.Array
    """``[]`` float32 σ."""
    num_pairs: int = dataclasses.field(metadata={"static": True})
    """N. Further pairs are drawn alike, so a generation may evaluate more."""
    noise: Noise = dataclasses.field(metadata={"static": True})
    """The noise family, which draws εᵢ from ``member_key(key, i)``."""

    members_per_group = 2  # a pair shares its ε

    @property
    def size(self) -> int:
        """P = 2N."""
        return 2 * self.num_pairs

    def shared(self) -> Variables:
        """Returns what the noise family lets all members read."""
        return self.noise.shared(self.mean)

    def group(self, index: jax.Array) -> PyTree:
        """Draws a pair's ε."""
        return self.noise.sample(member_key(self.key, index), self.mean)

    def variables(self, group: PyTree, member: jax.Array) -> Variables:
        """Returns θ ± σε, as the noise family holds it; θ + 0·ε for the mean."""
        sign = jnp.where(member % 2 == 0, 1.0, -1.0)
        scale = jnp.where(member == MEAN, 0.0, sign) * self.sigma
        return self.noise.member(self.mean, group, scale)

    @property
    @jax.jit  # or every generation would compile noise's loop anew
    def members(self) -> PyTree:
        """θ ± σεᵢ of every member, ``[P, …]`` per leaf of θ; for small populations."""

        def pair(index: jax.Array) -> PyTree:
            epsilon = self.noise.weighted_sum(
                self.key, index[None], jnp.ones(1), self.mean
            )

            def both(mean: jax.Array, part: jax.Array) -> jax.Array:
                signed = (mean + scale * part for scale in (self.sigma, -self.sigma))
                return jnp.stack([*signed])

            return jax.tree.map(both, self.mean, epsilon)

        pairs = jax.vmap(pair)(jnp.arange(self.num_pairs))
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), pairs)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JoinedPopulations:
    """The antithetic populations of several θ, so that one rollout evaluates them all.

    Of θ number m, members m·(2N + 2) … are its 2N and then θ itself, twice
    (:meth:`member_of`). Each member holds weights of its own, low-rank noise beside
    them: it is meant for policies that are small.
    """

    means: PyTree
    """``[M, …]``, like θ."""
    keys: jax.Array
    """``[M]``, as ``key`` of :class:`AntitheticPopulation`, and so are the others."""
    sigmas: jax.Array
    """``[M]``."""
    num_pairs: int = dataclasses.field(metadata={"static": True})
    noise: Noise = dataclasses.field(metadata={"static": True})

    members_per_group = 2

    @property
    def size(self) -> int:
        """M (2N + 2)."""
        return self.sigmas.shape[0] * self.member_of(1, 0)

    def member_of(self, index: int, member: int) -> int:
        """Returns the number here of a member of θ number ``index``; 2N is θ itself."""
        return index * (2 * self.num_pairs + 2) + member

    def shared(self) -> Variables:
        """Returns nothing: a member's weights are all its own."""
        return {}

    def group(self, index: jax.Array) -> PyTree:
        """Draws a pair's ε."""
        which, pair = jnp.divmod(index, self.num_pairs + 1)
        key = member_key(self.keys[which], pair)
        return self.noise.sample(key, self._mean(which))

    def variables(self, group: PyTree, member: jax.Array) -> Variables:
        """Returns θ ± σε, or θ + 0·ε for θ itself."""
        which, member = jnp.divmod(member, 2 * self.num_pairs + 2)
        sign = jnp.where(member % 2 == 0, 1.0, -1.0)
        scale = jnp.where(member < 2 * self.num_pairs, sign, 0.0) * self.sigmas[which]
        mean = self._mean(which)
        return {**self.noise.shared(mean), **self.noise.member(mean, group, scale)}

    def _mean(self, which: jax.Array) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[which], self.means)


class _Ungrouped:
    """What populations have in common for whose members nothing is drawn."""

    members_per_group = 1

    def group(self, index: jax.Array) -> PyTree:
        """Returns nothing."""
        return ()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MaterializedPopulation(_Ungrouped):
    """Members whose weights stand in memory, as CMA-ES and archives have them."""

    mean: PyTree
    """θ."""
    members: PyTree
    """Like θ, with a leading axis ``P``."""

    @property
    def size(self) -> int:
        """P."""
        return jax.tree.leaves(self.members)[0].shape[0]

    def shared(self) -> Variables:
        """Returns nothing: a member's weights are all its own."""
        return {}

    def variables(self, group: PyTree, member: jax.Array) -> Variables:
        """Looks the member's weights up."""

        def weights(mean: jax.Array, members: jax.Array) -> jax.Array:
            return jnp.where(member == MEAN, mean, members[member])

        return {"params": jax.tree.map(weights, self.mean, self.members)}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MeanPopulation(_Ungrouped):
    """θ alone, for evaluations: every task is of :data:`MEAN`, which is no member."""

    mean: PyTree
    """θ."""

    size = 0

    def shared(self) -> Variables:
        """Returns θ, which all slots read."""
        return {"params": self.mean}

    def variables(self, group: PyTree, member: jax.Array) -> Variables:
        """Returns nothing: no slot has weights of its own."""
        return {}
