"""The weights of every shaping rule, by hand, by NumPy and under transformations."""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.es.fitness import (
    SHAPINGS,
    pair_rank,
    shape_elites,
    standardize,
)

NAN, INF = float("nan"), float("inf")
FAILURES = [NAN, INF, -INF]

pytestmark = pytest.mark.usefixtures("strict_jax")


def numpy_ranks(values: np.ndarray) -> np.ndarray:
    """Counts, for each value, those below it and half of its other equals."""
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    return below + (equal - 1) / 2


def numpy_weights(shaping: str, returns: np.ndarray) -> np.ndarray:
    """The rules in float64 for finite returns, sharing no code with ours."""
    returns = np.asarray(returns, np.float64)
    plus, minus = returns[:, 0], returns[:, 1]
    num_pairs = len(returns)
    if shaping == "pair_rank":
        return -1 + 2 * numpy_ranks(plus - minus) / (num_pairs - 1)
    if shaping == "centered_rank":
        rank = numpy_ranks(np.concatenate([plus, minus])) / (2 * num_pairs - 1)
        return rank[:num_pairs] - rank[num_pairs:]
    mean = returns.sum() / returns.size
    std = np.sqrt(((returns - mean) ** 2).sum() / returns.size)
    return (plus - minus) / std


# Compiled, as ``tell`` runs them: what must be exact must survive XLA.
# As users compile it, and not as conftest.py has it: whether a tie is exactly 0 depends
# on how XLA fuses.
AS_USERS: dict[str, int | bool] = {"xla_backend_optimization_level": 3}
if version("jax").startswith("0.10."):  # later ones have no such option
    AS_USERS["xla_cpu_use_fusion_emitters"] = True
COMPILED = {
    name: jax.jit(rule, compiler_options=AS_USERS) for name, rule in SHAPINGS.items()
}


def weights(shaping: str, returns) -> np.ndarray:
    shaped = COMPILED[shaping](jnp.asarray(returns, jnp.float32))
    assert shaped.dtype == jnp.float32
    return np.asarray(shaped)


@pytest.fixture(params=list(SHAPINGS))
def shaping(request) -> str:
    return request.param


@pytest.mark.parametrize(
    ("rule", "returns", "expected"),
    [
        # Differences 2, 0, −3, −½ have ranks 3, 2, 0, 1 of 3.
        ("pair_rank", [[3, 1], [0, 0], [1, 4], [5, 5.5]], [1, 1 / 3, -1, -1 / 3]),
        # The two equal differences share ranks 1 and 2 of 2.
        ("pair_rank", [[2, 1], [7, 6], [0, 2]], [0.5, 0.5, -1]),
        # Ranks of differences: a pair that differs by 0 need not have weight 0.
        ("pair_rank", [[1, 0], [2, 0], [5, 5]], [0, 1, -1]),
        # Sorted 0 0 1 1 3 4: ranks 4 − 2½, ½ − ½, 2½ − 5, each of 5.
        ("centered_rank", [[3, 1], [0, 0], [1, 4]], [0.3, 0, -0.5]),
        ("centered_rank", [[10, -10]], [1]),
        # Mean 2, standard deviation 1; mean 1, variance (1 + 1 + 1 + 9) / 4 = 3.
        ("standardize", [[3, 1], [1, 3]], [2, -2]),
        ("standardize", [[0, 0], [0, 4]], [0, -4 / np.sqrt(3)]),
    ],
)
def test_weights_by_hand(rule, returns, expected):
    np.testing.assert_allclose(weights(rule, returns), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("num_pairs", [2, 7, 300])
def test_agrees_with_numpy(shaping, num_pairs):
    random = np.random.default_rng(num_pairs)
    continuous = random.normal(40, 12, (num_pairs, 2)).astype(np.float32)
    # Few distinct values: most members are tied with others.
    tied = random.integers(0, 5, (num_pairs, 2)).astype(np.float32)
    for returns in (continuous, tied):
        np.testing.assert_allclose(
            weights(shaping, returns),
            numpy_weights(shaping, returns),
            rtol=2e-5,
            atol=1e-6,
        )


@pytest.mark.parametrize("value", [0.1, -1e9, NAN])
@pytest.mark.parametrize("num_pairs", [2, 40])
def test_equal_returns_pull_nowhere(shaping, num_pairs, value):
    # Exactly zero: θ would otherwise drift on a plateau, in the order of indices.
    assert not weights(shaping, np.full((num_pairs, 2), value)).any()


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    ("offset", "spread"),
    [(0, 0), (0, 1e9), (1e9, 64), (5, 1e-30)],
)
def test_failed_member_ranks_worst(shaping, failure, offset, spread):
    random = np.random.default_rng(0)
    returns = np.float32(offset + spread * random.uniform(-1, 1, (8, 2)))
    returns[0, 0] = returns[5, 0] = failure
    returns[3, 1] = failure
    shaped = weights(shaping, returns)
    assert np.isfinite(shaped).all()
    # θ moves away from the failed member in every pair that has one.
    assert max(shaped[0], shaped[5]) < 0 < shaped[3]
    others = np.delete(shaped, [0, 3, 5])
    if shaping == "centered_rank":
        # A weight depends on the partner too; the failed member is just the lowest.
        lowest = returns[np.isfinite(returns)].min()
        replaced = np.where(np.isfinite(returns), returns, lowest - 1e12)
        np.testing.assert_allclose(
            shaped, numpy_weights(shaping, replaced), rtol=1e-5, atol=1e-6
        )
    else:
        # A failure is a larger difference than any between two finite returns.
        assert max(shaped[0], shaped[5]) < others.min()
        assert shaped[3] > others.max()


def test_pair_of_two_failures_counts_as_a_tie():
    returns = [[1, 0], [NAN, -INF], [0, 1]]
    assert weights("pair_rank", returns).tolist() == [1, 0, -1]
    assert weights("centered_rank", returns)[1] == 0
    assert weights("standardize", returns)[1] == 0


@pytest.mark.parametrize("power", [-80, 20, 110])
def test_any_magnitude_gives_the_same_weights_to_the_bit(shaping, power):
    """Squares of returns above 1e19 are more than float32 holds."""
    returns = np.random.default_rng(9).normal(size=(20, 2)).astype(np.float32)
    expected = weights(shaping, returns)
    assert (weights(shaping, returns * np.float32(2.0) ** power) == expected).all()
    assert np.abs(expected).max() > 0.5


def test_weights_are_finite_at_the_end_of_float32(shaping):
    returns = [[3e38, -3e38], [1.0, 0.0], [NAN, 2e38], [-1e19, INF]]
    shaped = weights(shaping, returns)
    assert np.isfinite(shaped).all()
    assert shaped[0] > shaped[1] > shaped[2]


def test_elites_equal_ars_on_random_returns():
    """Mania et al. 2018: Σ over the b best of (r⁺ − r⁻) δ / (b · their std)."""
    rng = np.random.default_rng(0)
    returns, deltas = rng.normal(size=(20, 2)), rng.normal(size=(20, 3))
    best = np.argsort(-returns.max(axis=1))[:6]
    kept = returns[best]
    expected = (kept[:, 0] - kept[:, 1]) @ deltas[best] / (6 * kept.std())
    weights = shape_elites(standardize, jnp.asarray(returns), 0.3)
    np.testing.assert_allclose(weights @ deltas / 20, expected, rtol=1e-4)


def test_members_that_failed_are_no_elites():
    returns = jnp.array([[jnp.nan, 5.0], [jnp.nan, jnp.inf], [4.0, 3.0], [2.0, 1.0]])
    weights = shape_elites(pair_rank, returns, 0.5)
    np.testing.assert_array_equal(np.flatnonzero(weights), [0, 2])
