"""The rank tests: paired by block, and quiet where there is nothing to rank."""

import numpy as np
import pytest

from jax_es.evaluation.rank_test import rank_test


@pytest.mark.parametrize(
    ("columns", "name", "p_value"),
    [
        # Six blocks of which each ranks the columns alike: exp(−χ²/2) with χ² = 12.
        (3, "Friedman", np.exp(-6)),
        (2, "Wilcoxon signed-rank", 2 / 2**6),  # of all signs two are as far out
    ],
)
def test_the_test_is_that_of_the_number_of_conditions(columns, name, p_value):
    blocks = 10.0 * np.arange(6)[:, None]
    test = rank_test(blocks + np.arange(columns) * (1 + np.arange(6)[:, None]))
    assert (test.name, test.num_conditions, test.num_blocks) == (name, columns, 6)
    assert test.p_value == pytest.approx(p_value)
    assert test.meaning == "the return depends on it (level 0.05)"


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
