"""Observation statistics against NumPy, with the sums of a long run."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.rollout.observation_statistics import (
    STD_FLOOR,
    ObservationStatistics,
    View,
    constant_entries,
    hidden_entries,
    initial_statistics,
    mean_and_std,
    merge,
    normalized,
    observe,
    scaled,
)

ROWS = np.array([[2.0, 5.0, 0.0], [2.0, -0.1, 1.0]])


def observations(count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal([0, 5, -300], [1, 0.5, 40], (count, 3))


def same(first: ObservationStatistics, second: ObservationStatistics) -> None:
    for one, two in zip(first, second, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13)


def test_mean_and_std_equal_numpys():
    batch = observations(1000)
    mean, std = mean_and_std(observe(initial_statistics(3), batch))
    np.testing.assert_allclose(mean, batch.mean(axis=0), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(std, batch.std(axis=0), rtol=1e-6)
    assert mean.dtype == std.dtype == np.float32


def test_no_observation_leaves_observations_alone():
    mean, std = mean_and_std(initial_statistics(3))
    assert (mean.tolist(), std.tolist()) == ([0] * 3, [1] * 3)
    assert mean.dtype == std.dtype == np.float32


def test_merged_is_observed_together():
    batch = observations(90)
    parts = [observe(initial_statistics(3), part) for part in np.split(batch, [7, 50])]
    together = observe(initial_statistics(3), batch)
    same(merge(merge(parts[0], parts[1]), parts[2]), together)
    same(merge(parts[2], merge(parts[1], parts[0])), together)
    one_by_one = initial_statistics(3)
    for row in batch:
        one_by_one = observe(one_by_one, row[None])
    same(one_by_one, together)


def test_floor_and_bound_may_be_chosen():
    batch = np.array([[2.0, 0.0], [2.0, 0.1]])
    mean, std = mean_and_std(observe(initial_statistics(2), batch), std_floor=0.01)
    assert std.tolist() == pytest.approx([0.01, 0.05])
    seen = normalized(jnp.array([2.5, 0.1]), mean, std, clip=10.0)
    np.testing.assert_allclose(seen, [10.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(normalized(batch[0], mean, std), [0.0, -1.0], rtol=1e-6)


def test_the_floor_of_bytes_is_in_grey_levels():
    frames = np.array([[100], [100]], np.uint8)
    statistics = observe(initial_statistics(1), scaled(frames))
    for dtype, expected in ((np.uint8, 0.1 / 255), (np.float32, 0.1)):
        _, std = mean_and_std(statistics, 0.1, np.dtype(dtype))
        assert std.tolist() == pytest.approx([expected])


def test_constant_entry_never_has_a_negative_variance():
    # E[o²] − E[o]² of a constant is ± the last digit.
    for value in (0.1, 1e5 / 3, -7e7 / 3):
        batch = np.full((999, 2), value)
        mean, std = mean_and_std(observe(initial_statistics(2), batch))
        np.testing.assert_allclose(mean, value, rtol=1e-6)
        assert np.isfinite(std).all()
        if abs(value) < 1e6:
            assert std.tolist() == [np.float32(STD_FLOOR)] * 2


def test_accuracy_with_counts_of_a_long_run():
    # 3·10⁷ copies of ten observations, summed exactly.
    copies = 3 * 10**7
    batch = np.float32(np.random.default_rng(2).normal(200, 0.3, 10)).astype(float)
    exact = [Fraction(value) for value in batch]
    statistics = ObservationStatistics(
        np.float64(10 * copies),
        np.array([float(copies * sum(exact))]),
        np.array([float(copies * sum(value**2 for value in exact))]),
    )
    mean, std = mean_and_std(statistics)
    np.testing.assert_allclose(mean, batch.mean(), rtol=1e-7)
    np.testing.assert_allclose(std, batch.std(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_sums_do_not_take_the_observations_type(dtype):
    # The paper's code squares uint8 frames in uint8.
    batch = np.full((300, 2), 250, dtype)
    statistics = observe(initial_statistics(2), batch)
    assert statistics.sum.tolist() == [75_000] * 2
    assert statistics.sum_of_squares.tolist() == [300 * 62_500] * 2
    assert {leaf.dtype for leaf in map(np.asarray, statistics)} == {np.dtype(float)}


@pytest.mark.parametrize(
    ("hidden", "entries"),
    [
        (["2"], [2]),
        (["-1", "0"], [0, 4]),
        (["1:3"], [1, 2]),
        (["-2:", ":1"], [0, 3, 4]),
        ([], []),
    ],
)
def test_hidden_entries_are_written_as_in_python(hidden, entries):
    assert np.flatnonzero(hidden_entries(hidden, (5,))).tolist() == entries


@pytest.mark.parametrize("hidden", ["5", "-6", "3:3", "7:"])
def test_hidden_entries_that_are_not_there(hidden):
    with pytest.raises(ConfigError, match=f"hide_observation {hidden} names nothing"):
        hidden_entries([hidden], (5,))
    with pytest.raises(ConfigError, match="that observes vectors"):
        hidden_entries(["0"], (3, 84, 84))


@pytest.mark.parametrize("statistics", [None, observe(initial_statistics(3), ROWS)])
def test_policies_read_0_for_what_is_hidden(statistics):
    view = View(statistics, clip=10.0, hidden=("1",))
    seen = normalized(ROWS, *view.normalizer((3,), np.float32))
    whole = normalized(ROWS, *view._replace(hidden=()).normalizer((3,), np.float32))
    assert (seen[:, 1] == 0).all() and (whole[:, 1] != 0).all()
    np.testing.assert_array_equal(seen[:, [0, 2]], whole[:, [0, 2]])


def test_policies_read_0_for_what_has_not_varied():
    # Constants of any size; a large number that varies by a ten-thousandth of itself,
    # which a floor would call constant, counts.
    constants = np.broadcast_to([0.0, 1e-9, -7e6 / 3], (500, 3))
    rows = np.column_stack([constants, 1e-7 * observations(500, seed=3)[:, 0]])
    rows = np.column_stack([rows, 1000 + 0.1 * observations(500, seed=4)[:, 0]])
    statistics = observe(initial_statistics(5), rows.astype(np.float32))
    assert constant_entries(statistics).tolist() == [True] * 3 + [False] * 2
    another_body = np.float32([1, 1, -7e6, 3e-7, 1000.5])
    view = View(statistics, hide_constants=True)
    seen = normalized(another_body, *view.normalizer((5,), np.float32))
    read = normalized(
        another_body,
        *view._replace(hide_constants=False).normalizer((5,), np.float32),
    )
    assert seen[:3].tolist() == [0] * 3 and (read[:3] != 0).all()
    np.testing.assert_array_equal(seen[3:], read[3:])
    # A number that begins to vary counts from then on.
    later = observe(statistics, np.float32([[0.1, 1e-9, -7e6 / 3, 0, 1000]]))
    assert constant_entries(later).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_constant_before_there_are_two_observations(count):
    statistics = observe(initial_statistics(3), observations(2)[:count])
    assert not constant_entries(statistics).any()
    assert not constant_entries(initial_statistics(3)).any()
