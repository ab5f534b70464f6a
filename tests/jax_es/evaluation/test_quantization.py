"""Rounded weights against formats written out from their definitions."""

import copy
import typing

import jax
import numpy as np
import pytest

from jax_es.evaluation.quantization import Precision, round_weights

PRECISIONS = typing.get_args(Precision)


def positive_values(exponent_bits, mantissa_bits, has_infinity):
    """Every finite value ≥ 0 of a binary format, from its definition; ascending."""
    bias = 2 ** (exponent_bits - 1) - 1
    exponents = np.arange(2**exponent_bits - has_infinity)[:, None]
    mantissas = np.arange(2**mantissa_bits) / 2**mantissa_bits
    normal = (1 + mantissas) * 2.0 ** (exponents - bias)
    values = np.where(exponents == 0, mantissas * 2.0 ** (1 - bias), normal).ravel()
    # Without infinities only the very last code is not a number.
    return values if has_infinity else values[:-1]


FORMATS = {
    "float16": positive_values(5, 10, has_infinity=True),
    "float8_e4m3": positive_values(4, 3, has_infinity=False),
}


def nearest(values, x):
    """The nearest of ``values``; of two, the one with an even code."""
    x64 = np.float64(x)
    above = np.searchsorted(values, np.abs(x64)).clip(1, len(values) - 1)
    low, high = values[above - 1], values[above]
    to_low, to_high = np.abs(x64) - low, high - np.abs(x64)
    up = (to_high < to_low) | ((to_high == to_low) & (above % 2 == 0))
    return np.copysign(np.where(up, high, low), x64).astype(np.float32)


def some_weights(seed=0):
    """Magnitudes from far below to above the small formats' range, and ties."""
    random = np.random.default_rng(seed)
    spread = random.normal(size=3000) * 2.0 ** random.integers(-30, 12, 3000)
    values = FORMATS["float8_e4m3"]
    ties = (values[1:] + values[:-1]) / 2
    return np.concatenate([spread, ties, -ties, values]).astype(np.float32)


@pytest.mark.parametrize("precision", FORMATS)
def test_real_formats_take_the_nearest_value(precision):
    weights = some_weights()
    expected = nearest(FORMATS[precision], weights)
    np.testing.assert_array_equal(round_weights(weights, precision), expected)


def test_bfloat16_keeps_sixteen_bits():
    weights = some_weights()
    bits = weights.view(np.uint32).astype(np.uint64)
    # Half a unit of the last kept bit, a little less if that bit is even.
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    expected = kept.astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(round_weights(weights, "bfloat16"), expected)


@pytest.mark.parametrize(
    ("precision", "largest"),
    [("float8_e4m3", 448.0), ("float16", 65504.0), ("bfloat16", 2.0**128 - 2.0**120)],
)
def test_what_is_too_large_becomes_the_largest(precision, largest):
    weights = np.array([3.4e38, -3.4e38], np.float32)
    expected = np.array([largest, -largest], np.float32)
    np.testing.assert_array_equal(round_weights(weights, precision), expected)


def test_integers_by_hand():
    kernel = np.array([[7.0, 0.3, 0.0], [-1.4, -0.7, 0.0], [3.5, 0.04, 0.0]])
    # Scales 1, 0.1 and, of a channel of zeros, any: 3.5 is a tie, 4 is even.
    expected = np.array([[7.0, 0.3, 0.0], [-1.0, -0.7, 0.0], [4.0, 0.0, 0.0]])
    np.testing.assert_allclose(round_weights(kernel, "int4"), expected, rtol=1e-6)
    # One scale for a vector, and for a matrix of one row.
    for weights in (np.array([7.0, 0.4, -0.6]), np.array([[7.0, 0.4, -0.6]])):
        rounded = round_weights(weights, "int4")
        np.testing.assert_array_equal(rounded.ravel(), [7.0, 0.0, -1.0])


@pytest.mark.parametrize(("precision", "largest"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("shape", [(40,), (1, 40), (30, 20), (3, 3, 4, 5)])
def test_integers_are_within_half_a_step_of_their_channels(precision, largest, shape):
    weights = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    rounded = round_weights(weights, precision)
    flat, got = (w.reshape(-1, shape[-1]) for w in (weights, rounded))
    # A row of its own is one channel, else each column is.
    axis = 0 if len(flat) > 1 else None
    np.testing.assert_array_equal(np.abs(got).max(axis), np.abs(flat).max(axis))
    scale = np.abs(np.float64(flat)).max(axis) / largest
    assert (np.abs(np.float64(flat) - got) <= scale / 2 * (1 + 1e-6)).all()
    np.testing.assert_allclose(got / scale, np.rint(got / scale), atol=1e-4)
    # Many weights share a level: nothing is left as it was.
    assert len(np.unique(np.rint(got[:, 0] / rounded.max() * 1e4))) < 256
    assert (rounded != weights).mean() > 0.5


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_every_precision_keeps(precision):
    tree = {
        "kernel": np.random.default_rng(2).normal(size=(50, 30)).astype(np.float32),
        "nest": {
            "bias": np.float32([0.0, np.inf, -np.inf, np.nan, 1.0, -0.3]),
            "zeros": np.zeros((4, 3), np.float32),
            "tiny": np.full((4, 3), 1e-45, np.float32),
        },
    }
    before = copy.deepcopy(tree)
    once = round_weights(tree, precision)
    assert {leaf.dtype for leaf in jax.tree.leaves(once)} == {np.dtype(np.float32)}
    jax.tree.map(np.testing.assert_array_equal, round_weights(once, precision), once)
    jax.tree.map(np.testing.assert_array_equal, tree, before)
    bias, zeros = once["nest"]["bias"], once["nest"]["zeros"]
    np.testing.assert_array_equal(bias[:4], [0, np.inf, -np.inf, np.nan])
    assert np.isfinite(bias[4:]).all() and not zeros.any()
