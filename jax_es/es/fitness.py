"""Fitness shaping: the returns of antithetic pairs → one weight per pair.

Every rule maps returns ``[N, 2]`` (θ+σε first, θ−σε second) to weights ``[N]``, the
``w`` of g = 1/(2Nσ) Σ wᵢ εᵢ. Larger returns are better. The rule for members whose
return is not a number is stated once, in :func:`replace_nonfinite`.

Ties share the mean of their ranks, so members that cannot be told apart pull
nowhere. (Ranks by ``argsort``, as in the papers' codes, would order them by index.)
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jax_es.config import Shaping

LARGEST = 1e37
"""Returns beyond ±this count as this."""


def check_shape(fitness: jax.Array, population_size: int) -> None:
    """Raises ``ValueError`` unless fitness is ``[P]``."""
    if jnp.shape(fitness) != (population_size,):
        raise ValueError(
            f"fitness must have shape [population_size] = ({population_size},), got "
            f"{jnp.shape(fitness)}; one number per member, in ask's order."
        )


def replace_nonfinite(returns: jax.Array) -> jax.Array:
    """Puts NaN and ±∞ below every finite return, by at least the finite range.

    The distance makes them worst for rules that rank returns *and* for rules that
    rank the differences within pairs. A pair of two such members has difference 0.

    Args:
        returns: any shape.
    """
    finite = jnp.isfinite(returns)
    # So far from float32's end that no difference of two overflows.
    returns = jnp.clip(returns, -LARGEST, LARGEST)
    # 0 stands in when nothing is finite: all members are then equally bad.
    lowest = jnp.min(returns, initial=jnp.inf, where=finite)
    highest = jnp.max(returns, initial=-jnp.inf, where=finite)
    lowest = jnp.where(finite.any(), lowest, 0.0)
    highest = jnp.where(finite.any(), highest, 0.0)
    # Relative to the magnitude as well, or rounding would swallow the distance.
    distance = jnp.maximum(highest - lowest, 1e-3 * jnp.abs(lowest)) * 1.001 + 1.0
    return jnp.where(finite, returns, lowest - distance)


def ranks(values: jax.Array) -> jax.Array:
    """Ranks ``[M]`` values from 0 to M − 1; equal values get their mean rank.

    Example:
        >>> ranks(jnp.array([10.0, 30.0, 10.0])).tolist()
        [0.5, 2.0, 0.5]
    """
    ordered = jnp.sort(values)
    below = jnp.searchsorted(ordered, values, side="left")
    not_above = jnp.searchsorted(ordered, values, side="right")
    return (below + not_above - 1) / 2.0


def pair_rank(returns: jax.Array) -> jax.Array:
    """Ranks the differences F⁺ − F⁻ and scales the ranks linearly to [−1, 1].

    The rule of Lorenc & Neruda's code (arXiv 2501.13883).

    Args:
        returns: ``[N, 2]`` with N ≥ 2.
    """
    returns = replace_nonfinite(returns)
    last = returns.shape[0] - 1
    # Centred before it is scaled: a tie of all pairs is then exactly 0, whereas XLA's
    # fused 2r/last − 1 leaves 1e-8, which Adam would blow up to full steps.
    return (2.0 * ranks(returns[:, 0] - returns[:, 1]) - last) / last


def centered_rank(returns: jax.Array) -> jax.Array:
    """Ranks all 2N returns in [−½, ½]; a pair's weight is rank⁺ − rank⁻.

    Salimans et al. 2017 (arXiv 1703.03864), section 2.1.

    Args:
        returns: ``[N, 2]``.
    """
    returns = replace_nonfinite(returns)
    rank = ranks(returns.ravel()) / (returns.size - 1) - 0.5
    return rank[0::2] - rank[1::2]


def standardize(returns: jax.Array) -> jax.Array:
    """Z-scores over all 2N returns; a pair's weight is z⁺ − z⁻.

    Args:
        returns: ``[N, 2]``.
    """
    returns = replace_nonfinite(returns)
    # To at most 1, or squares would overflow; by a power of two, which rounds nothing.
    _, exponent = jnp.frexp(jnp.abs(returns).max())
    returns = jnp.ldexp(returns, -exponent)
    spread = jnp.std(returns)
    # Equal returns carry no information: weight 0, not 0/0.
    scale = jnp.where(spread > 0, 1.0 / jnp.where(spread > 0, spread, 1.0), 0.0)
    return (returns[:, 0] - returns[:, 1]) * scale


def shape_elites(
    shaping: Callable[[jax.Array], jax.Array], returns: jax.Array, fraction: float
) -> jax.Array:
    """Applies a rule to the best pairs alone; the others weigh 0.

    A pair is as good as its better member. The elites' weights are divided by their
    share of the pairs, so that Σ wᵢ εᵢ / N is their mean (ARS, Mania et al. 2018,
    arXiv 1803.07055, algorithm 2).

    Args:
        shaping: one of :data:`SHAPINGS`.
        returns: ``[N, 2]``.
        fraction: share of the pairs that are elites, in (0, 1]; at least two are.
    """
    num_pairs = returns.shape[0]
    num_elites = min(num_pairs, max(2, math.ceil(fraction * num_pairs)))
    if num_elites == num_pairs:
        return shaping(returns)
    better = replace_nonfinite(returns).max(axis=1)
    elites = jnp.argsort(better, descending=True, stable=True)[:num_elites]
    weights = shaping(returns[elites]) * (num_pairs / num_elites)
    return jnp.zeros(num_pairs, weights.dtype).at[elites].set(weights)


SHAPINGS: dict[Shaping, Callable[[jax.Array], jax.Array]] = {
    "pair_rank": pair_rank,
    "centered_rank": centered_rank,
    "standardize": standardize,
}
