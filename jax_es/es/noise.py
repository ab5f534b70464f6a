"""Perturbations: key → ε, regenerated wherever it is needed and stored nowhere.

A *noise family* decides what ε looks like and how a member carries it. The
estimator, the rollout and the update know only :class:`Noise`; ``full`` is the
reference family, ``low-rank`` the cheap one.

Pair ``i`` of a generation draws its ε from ``member_key(generation_key, i)``, hence
the same ε on whichever device, in whichever order and however often it is asked for.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.config import ESConfig
from jax_es.types import PyTree, Variables


def member_key(generation_key: jax.Array, pair: jax.Array | int) -> jax.Array:
    """Returns the key of one antithetic pair's ε in one generation."""
    return jax.random.fold_in(generation_key, pair)


class Noise(Protocol):
    """A family of perturbations with E[ε εᵀ] = I, or diagonal.

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

    ε is kept flat, in the order of ``jax.tree.leaves``: one draw instead of one per
    leaf compiles many times faster, and sums in one fused loop.

    Args:
        factors: what ε is multiplied by where a weight's name begins so, as
            ``ESConfig.sigma_factor``.
    """

    factors: tuple[tuple[str, float], ...] = ()

    def sample(self, key: jax.Array, mean: PyTree) -> jax.Array:
        """Draws one normal per weight, and a few that fill up the last row."""
        sizes = [leaf.size for leaf in jax.tree.leaves(mean)]
        factors = leaf_factors(self.factors, mean)
        return _scaled(normals(key, sum(sizes)), sizes, factors)

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


@dataclasses.dataclass(frozen=True)
class LowRankNoise:
    """ε of a matrix ``[a, b]`` is A Bᵀ/√r; ε of a vector is a vector.

    A ``[a, r]`` and B ``[b, r]`` are standard normal, so every entry of ε has mean 0
    and variance 1 and no two are correlated, though it is not normal (rank 1: a product
    of two normals). r(a + b) numbers are drawn instead of ab. All members share one
    copy of θ and bring their factors: the collection ``"perturbation"`` of
    ``models/layers.py``. Source: EGGROLL, arXiv 2511.16652.

    A weight with more than two axes is the matrix of its last axis against all others.
    Where factors would be no smaller than the matrix, its ε is full.

    ε is kept flat, as in :class:`FullNoise`: for each leaf A and then B, or the vector.

    Args:
        rank: r, at least 1.
        factors: as of :class:`FullNoise`.
    """

    rank: int = 1
    factors: tuple[tuple[str, float], ...] = ()

    def sample(self, key: jax.Array, mean: PyTree) -> jax.Array:
        """Draws the factors and vectors of one ε, flat."""
        leaves = jax.tree.leaves(mean)
        epsilon = normals(key, sum(map(self._num_normals, leaves)))
        sizes, factors = [], []
        for leaf, factor in zip(leaves, leaf_factors(self.factors, mean), strict=True):
            whole = self._num_normals(leaf)
            scaled = whole  # of A and B, A alone
            if self._is_factored(leaf):
                scaled = self.rank * _matrix_shape(leaf)[0]
            sizes += [scaled, whole - scaled]
            factors += [factor, 1.0]
        return _scaled(epsilon, sizes, factors)

    def shared(self, mean: PyTree) -> Variables:
        """Returns θ, which all members read."""
        return {"params": mean}

    def member(self, mean: PyTree, epsilon: jax.Array, scale: jax.Array) -> Variables:
        """Returns the member's perturbation ``scale``·ε, in factors."""

        def perturbation(leaf: jax.Array, part: jax.Array) -> PyTree:
            if not self._is_factored(leaf):
                return scale * part.reshape(leaf.shape)
            a, b = self._factors(leaf, part)
            return scale / math.sqrt(self.rank) * a, b

        return {"perturbation": self._map(perturbation, mean, epsilon)}

    def weighted_sum(
        self,
        generation_key: jax.Array,
        pairs: jax.Array,
        weights: jax.Array,
        mean: PyTree,
    ) -> PyTree:
        """Sums a block of pairs at once: for a matrix Σ wᵢ Aᵢ Bᵢᵀ is one product."""

        def add(total: PyTree, block: tuple[jax.Array, jax.Array]):
            pairs, weights = block
            keys = jax.vmap(member_key, in_axes=(None, 0))(generation_key, pairs)
            epsilons = jax.vmap(self.sample, in_axes=(0, None))(keys, mean)

            def block_sum(leaf: jax.Array, part: jax.Array) -> jax.Array:
                if not self._is_factored(leaf):
                    return (weights @ part).reshape(leaf.shape)
                a, b = jax.vmap(self._factors, in_axes=(None, 0))(leaf, part)
                a = weights[:, None, None] / math.sqrt(self.rank) * a
                return jnp.einsum("iar,ibr->ab", a, b).reshape(leaf.shape)

            part = self._map(block_sum, mean, epsilons)
            return jax.tree.map(jnp.add, total, part), None

        blocks = _blocks(pairs, weights, _PAIRS_PER_PRODUCT)
        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, mean), blocks)[0]

    def _is_factored(self, leaf: jax.Array) -> bool:
        if leaf.ndim < 2:
            return False
        a, b = _matrix_shape(leaf)
        return self.rank * (a + b) < a * b

    def _num_normals(self, leaf: jax.Array) -> int:
        if not self._is_factored(leaf):
            return leaf.size
        return self.rank * sum(_matrix_shape(leaf))

    def _factors(self, leaf: jax.Array, part: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Cuts a matrix' numbers ``[r(a + b)]`` into A ``[a, r]`` and B ``[b, r]``."""
        a, b = _matrix_shape(leaf)
        first, second = jnp.split(part, [self.rank * a])
        return first.reshape(a, self.rank), second.reshape(b, self.rank)

    def _map(
        self,
        function: Callable[[jax.Array, jax.Array], PyTree],
        mean: PyTree,
        epsilon: jax.Array,
    ) -> PyTree:
        """Applies ``function(leaf of θ, its part of ε)``; ε is ``[…, normals]``."""
        leaves, structure = jax.tree.flatten(mean)
        parts = cut(epsilon, [self._num_normals(leaf) for leaf in leaves])
        return structure.unflatten(map(function, leaves, parts))


def make_noise(config: ESConfig, mean: PyTree = None) -> Noise:
    """Builds the noise family of a configuration.

    Raises:
        ConfigError: ``mean``, if it is given, has no weights of these names.
    """
    if mean is not None:
        leaf_factors(config.sigma_factor, mean)
    match config.perturbation:
        case "full":
            return FullNoise(config.sigma_factor)
        case "low-rank":
            return LowRankNoise(config.rank, config.sigma_factor)


_PAIRS_PER_PRODUCT = 64
"""Pairs that one product of ``LowRankNoise.weighted_sum`` sums: bounds its memory."""


def _matrix_shape(leaf: jax.Array) -> tuple[int, int]:
    """Returns the sizes of all axes but the last together, and of the last."""
    return math.prod(leaf.shape[:-1]), leaf.shape[-1]


def _blocks(
    pairs: jax.Array, weights: jax.Array, size: int
) -> tuple[jax.Array, jax.Array]:
    """Cuts ``[B]`` into ``[number of blocks, size]``, the last one filled up with 0."""
    size = min(size, len(pairs))
    missing = -len(pairs) % size

    def fill(x: jax.Array) -> jax.Array:
        return jnp.pad(x, (0, missing)).reshape(-1, size)

    return fill(pairs), fill(weights)


def leaf_factors(factors: tuple[tuple[str, float], ...], mean: PyTree) -> list[float]:
    """Returns what ε is multiplied by, of each leaf in the order of ``tree.leaves``.

    Raises:
        ConfigError: a name is no weight's begin, or nothing is left to perturb.
    """
    if not factors:
        return [1.0] * len(jax.tree.leaves(mean))
    paths, _ = jax.tree_util.tree_flatten_with_path(mean)
    spelled = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
    names = [spelled(path) for path, _ in paths]
    parts = ", ".join(dict.fromkeys(name.partition("/")[0] for name in names))
    remedy = f"choose of {parts}, or a path in one of them" if parts else "leave it out"
    for begin, factor in factors:
        require(
            any(name.startswith(begin) for name in names),
            f"es.sigma_factor {begin} {factor:g}: no weight's name begins so; "
            f"{remedy}.",
        )
    longest = sorted(factors, key=lambda each: -len(each[0]))
    found = [
        next((factor for begin, factor in longest if name.startswith(begin)), 1.0)
        for name in names
    ]
    require(
        any(found),
        "es.sigma_factor is 0 for all weights, and nothing would be perturbed; leave "
        "it out.",
    )
    return found


def _scaled(epsilon: jax.Array, sizes: list[int], factors: list[float]) -> jax.Array:
    """Multiplies parts of a flat ε, of which a rest stays as it is."""
    if all(factor == 1.0 for factor in factors):
        return epsilon
    *parts, rest = jnp.split(epsilon, np.cumsum(sizes))
    parts = [f * part for f, part in zip(factors, parts, strict=True)]
    return jnp.concatenate([*parts, rest])


def normals(key: jax.Array, count: int) -> jax.Array:
    """Draws ``count`` standard normals, float32, and a few that fill up the last row.

    XLA's CPU code for threefry is five times faster on multiples of 16 (measured: 208
    instead of 42 million a second on two cores), so the count is rounded up to one.
    """
    return jax.random.normal(key, (-(-count // 16) * 16,), jnp.float32)


def unflatten(vector: jax.Array, like: PyTree) -> PyTree:
    """Cuts a vector into leaves shaped like those of ``like``; a rest is dropped."""
    leaves, structure = jax.tree.flatten(like)
    parts = cut(vector, [leaf.size for leaf in leaves])
    return structure.unflatten(
        part.reshape(leaf.shape).astype(leaf.dtype)
        for part, leaf in zip(parts, leaves, strict=True)
    )


def cut(vector: jax.Array, sizes: list[int]) -> list[jax.Array]:
    """Cuts ``[…, n]`` into parts of the given sizes; a rest is dropped."""
    return jnp.split(vector, np.cumsum(sizes), axis=-1)[:-1]
