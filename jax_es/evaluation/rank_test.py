"""Do conditions differ? A rank test over episodes that they share."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

SIGNIFICANCE = 0.05
"""Below it a p-value is called a difference."""


class RankTest(NamedTuple):
    """The outcome of :func:`rank_test`."""

    name: str
    statistic: float
    """0 where all conditions are equal in every block."""
    p_value: float
    num_conditions: int
    num_blocks: int
    """Blocks whose returns are all finite; the others are left out."""
    meaning: str
    """What was found, in words."""


def rank_test(returns: np.ndarray) -> RankTest:
    """Tests whether the returns depend on the condition.

    The conditions of a block share their environment seed, so their returns are no
    independent samples. If the condition does not matter, the returns of a block may be
    exchanged with each other; ranking within blocks needs this and no more. So it is
    the Friedman test, and for two conditions the Wilcoxon signed-rank test, which takes
    the size of the differences into account.

    Args:
        returns: ``[B, k]``, B blocks of k ≥ 2 conditions.

    Example:
        >>> rank_test(np.array([[1.0, 2.0, 3.0], [5.0, 7.0, 9.0], [1.0, 4.0, 6.0]]))[:2]
        ('Friedman', 6.0)
    """
    returns = returns[np.isfinite(returns).all(axis=1)]
    num_blocks, num_conditions = returns.shape
    name, test = "Friedman", stats.friedmanchisquare
    if num_conditions == 2:
        name, test = "Wilcoxon signed-rank", stats.wilcoxon
    statistic, p_value = 0.0, 1.0  # of nothing to rank, which SciPy answers with NaN
    if (returns != returns[:, :1]).any():
        outcome: Any = test(*returns.T)
        statistic, p_value = float(outcome.statistic), float(outcome.pvalue)
    found = "the return depends on it"
    if p_value >= SIGNIFICANCE:
        found = "no evidence that the return depends on it"
    meaning = f"{found} (level {SIGNIFICANCE:g})"
    return RankTest(name, statistic, p_value, num_conditions, num_blocks, meaning)
