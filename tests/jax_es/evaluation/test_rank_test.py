"""The rank tests against hand-computed statistics and against permutations."""

import itertools
import math

import numpy as np
import pytest

from jax_es.evaluation.rank_test import rank_test


def ranks(row):
    """Average ranks from 1, by counting."""
    return [sum(b < a for b in row) + (sum(b == a for b in row) + 1) / 2 for a in row]


def friedman_by_hand(returns):
    """Textbook formula, with the correction for ties."""
    n, k = returns.shape
    table = np.array([ranks(row) for row in returns])
    sums = table.sum(axis=0)
    between = 12 * (sums**2).sum() / (n * k * (k + 1)) - 3 * n * (k + 1)
    tied = 0
    for row in returns:
        counts = np.unique(row, return_counts=True)[1]
        tied += (counts**3 - counts).sum()
    return between / (1 - tied / (n * k * (k**2 - 1)))


def test_friedman_by_hand():
    returns = np.random.default_rng(0).integers(0, 5, (12, 4)).astype(float)
    test = rank_test(returns)
    assert test.name == "Friedman"
    assert (test.num_conditions, test.num_blocks) == (4, 12)
    assert test.statistic == pytest.approx(friedman_by_hand(returns))
    # A χ² of three degrees of freedom, from the error function.
    x = test.statistic
    tail = math.erfc(math.sqrt(x / 2)) + math.sqrt(2 * x / math.pi) * math.exp(-x / 2)
    assert test.p_value == pytest.approx(tail)


def test_two_conditions_by_all_their_signs():
    """The exact p-value of the signed-rank test: every sign is as likely."""
    returns = np.array([[1.0, 3.0], [5.0, 4.5], [2.0, 9.0], [0.0, 1.0], [4.0, 8.0]])
    differences = returns[:, 1] - returns[:, 0]
    magnitudes = np.array(ranks(np.abs(differences)))
    centre = magnitudes.sum() / 2
    seen = abs(magnitudes[differences > 0].sum() - centre)
    sums = [
        abs(magnitudes[np.array(signs, bool)].sum() - centre)
        for signs in itertools.product([0, 1], repeat=5)
    ]
    test = rank_test(returns)
    assert test.name == "Wilcoxon signed-rank"
    assert test.p_value == pytest.approx(np.mean(np.array(sums) >= seen))


def test_blocks_are_paired():
    """A small effect under large differences between blocks: pairing finds it."""
    random = np.random.default_rng(1)
    blocks = random.normal(0, 1000, (30, 1))
    for k in (2, 5):
        returns = blocks + np.arange(k) + random.normal(0, 0.5, (30, k))
        assert rank_test(returns).p_value < 1e-3
        shuffled = random.permuted(blocks + random.normal(size=(30, k)), axis=1)
        assert rank_test(shuffled).p_value > 0.05


def test_a_block_with_a_return_that_is_not_finite_is_left_out():
    returns = np.random.default_rng(3).normal(size=(20, 3))
    whole = rank_test(returns[2:])
    returns[0, 1], returns[1, 2] = np.nan, -np.inf
    assert rank_test(returns) == whole
    assert whole.num_blocks == 18


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("num_blocks", [0, 1, 9])
def test_equal_conditions_are_no_evidence(k, num_blocks):
    returns = np.repeat(np.arange(num_blocks, dtype=float)[:, None], k, axis=1)
    test = rank_test(returns)
    assert (test.statistic, test.p_value) == (0, 1)
    assert test.meaning.startswith("no evidence")
