"""Perturbations: key → ε, regenerated wherever it is needed and stored nowhere.

A *noise family* decides what ε looks like and how a member carries it. The
estimator, the rollout and the update know only :class:`Noise`; ``full`` is the
reference family, and a cheaper one is another class with these four methods.

Pair ``i`` of a generation draws its ε from ``member_key(generation_key, i)``, hence
the same ε on whichever device, in whichever order and however often it is asked for.
"""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.types import PyTree, Variables


def member_key(generation_key: jax.Array, pair: jax.Array | int) -> jax.Array:
    """Returns the key of one antithetic pair's ε in one generation."""
    return jax.random.fold_in(generation_key, pair)


class Noise(Protocol):
    """A family of perturbations with E[ε εᵀ] = I.

    A policy is applied to ``{**shared(mean), **member(mean, ε, s)}``: the first part
    is common to the whole population, the second is one member's own, and together
    they mean the weights θ + s·ε.
    """

    def sample(self, key: jax.Array, mean: PyTree) -> PyTree:
        """Draws one ε for weights shaped like ``mean``; ``key`` is consumed."""
        ...

    def shared(self, mean: PyTree) -> Variables:
        """Returns the collections that all members read."""
        ...

    def member(self, mean: PyTree, epsilon: PyTree, scale: jax.Array) -> Variables:
        """Returns one member's own collections for the weights θ + ``scale``·ε."""
        ...

    def weighted_sum(
        self,
        generation_key: jax.Array,
        pairs: jax.Array,
        weights: jax.Array,
        mean: PyTree,
    ) -> PyTree:
        """Returns Σᵢ wᵢ εᵢ with every εᵢ regenerated from its key.

        Args:
            generation_key: the generation's key.
            pairs: ``[B]`` int32, indices of the pairs to sum over.
            weights: ``[B]`` float32.
            mean: gives the shapes.

        Returns:
            A pytree of full matrices, shaped like ``mean``.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FullNoise:
    """ε has the shape of θ: independent standard normals (Salimans et al. 2017).

    A member holds its own weights. Memory is one copy of θ per *live* member;
    :meth:`weighted_sum` holds a few, whatever the population size.

    ε is kept flat, ``[|θ|]``, in the order of ``jax.tree.leaves``: one draw instead of
    one per leaf compiles many times faster, and sums in one fused loop.
    """

    def sample(self, key: jax.Array, mean: PyTree) -> jax.Array:
        """Draws one standard normal per weight, ``[|θ|]`` float32."""
        size = sum(leaf.size for leaf in jax.tree.leaves(mean))
        return jax.random.normal(key, (size,), jnp.float32)

    def shared(self, mean: PyTree) -> Variables:
        """Returns nothing: a member's weights are all its own."""
        return {}

    def member(self, mean: PyTree, epsilon: jax.Array, scale: jax.Array) -> Variables:
        """Returns the member's weights θ + ``scale``·ε."""
        shaped = unflatten(epsilon, mean)
        return {"params": jax.tree.map(lambda m, e: m + scale * e, mean, shaped)}

    def weighted_sum(
        self,
        generation_key: jax.Array,
        pairs: jax.Array,
        weights: jax.Array,
        mean: PyTree,
    ) -> PyTree:
        """Adds one ε after the other to a single accumulator."""

        def add(total: jax.Array, term: tuple[jax.Array, jax.Array]):
            pair, weight = term
            return total + weight * self.sample(
                member_key(generation_key, pair), mean
            ), None

        zero = jnp.zeros_like(jax.eval_shape(self.sample, generation_key, mean))
        return unflatten(jax.lax.scan(add, zero, (pairs, weights))[0], mean)


def unflatten(vector: jax.Array, like: PyTree) -> PyTree:
    """Cuts a vector ``[|θ|]`` into leaves shaped like those of ``like``."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(vector, ends[:-1])
    return structure.unflatten(
        part.reshape(leaf.shape).astype(leaf.dtype)
        for part, leaf in zip(parts, leaves, strict=True)
    )
