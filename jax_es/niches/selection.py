"""Who has children, which of them are admitted, which policies move: POET's rules.

Sources: Wang et al. 2019 (arXiv 1901.01753) and, for PATA-EC, the transfers' threshold
and ANNECS, Wang et al. 2020 (arXiv 2003.08536). Scores are mean returns of a policy in
a terrain; one that is NaN meets nothing.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.es.fitness import ranks

RECENT = 5
"""Last scores of a niche, the best of which a transfer must beat."""


def meets_criterion(score: np.ndarray, low: float, high: float) -> np.ndarray:
    """Returns whether scores are neither too low nor too high (minimal criterion)."""
    return (low <= score) & (score <= high)


def pata_ec(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """Returns how policies rank in each terrain, ``[C, A]`` from −½ to ½.

    Performance of all transferred agents environment characterisation: scores count as
    the nearest of the criterion's bounds outside of them, and equal ones share the mean
    of their ranks. Terrains are alike if they order the policies alike.

    Args:
        scores: ``[A, C]``, of A policies in C terrains.
        low: of the criterion.
        high: of the criterion.

    Example:
        >>> scores = np.array([[10.0, 300.0], [100.0, 100.0], [20.0, 400.0]])
        >>> pata_ec(scores, 25.0, 340.0).tolist()
        [[-0.25, 0.5, -0.25], [0.0, -0.5, 0.5]]
    """
    bounded = np.clip(np.nan_to_num(scores, nan=low), low, high).T
    count = bounded.shape[1]
    if count == 1:
        return np.zeros_like(bounded)
    ranked = jax.vmap(ranks)(jnp.asarray(bounded, jnp.float32))
    return np.asarray(ranked, float) / (count - 1) - 0.5


def worth_a_step(scores: np.ndarray, recent: Sequence[float]) -> np.ndarray:
    """Returns which policies of other niches shall take a step in one.

    Args:
        scores: ``[A]``, theirs in this niche.
        recent: the niche's own last scores.

    Example:
        >>> worth_a_step(np.array([5.0, 7.0, np.nan]), [1.0, 6.0, np.nan]).tolist()
        [False, True, False]
    """
    return scores > np.nan_to_num(recent, nan=-np.inf).max()


def best_of(scores: np.ndarray) -> int:
    """Returns whose score is the highest, the first of equal ones; NaN is below all."""
    return int(np.nan_to_num(scores, nan=-np.inf).argmax())


def retiring(numbers: Sequence[int], most: int) -> list[int]:
    """Returns which niches retire: the oldest ones beyond ``most``.

    Example:
        >>> retiring([2, 5, 6, 9], most=3)
        [2]
    """
    return sorted(numbers)[: max(len(numbers) - most, 0)]
