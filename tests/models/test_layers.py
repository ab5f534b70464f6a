"""Perturbed layers against Linen's own layers with the weights written out."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.models.layers import Conv, Dense, Embed, LayerNorm, fan_in_dense
from tests.models.perturbed import perturbed, random_perturbation


def linen_conv(features, kernel_size, stride, use_bias=True):
    return nn.Conv(
        features, (kernel_size,) * 2, stride, padding="VALID", use_bias=use_bias
    )


# Ours, Linen's, the layer's arguments, and the shape of its input.
CASES = {
    "dense": (Dense, nn.Dense, {"features": 6}, (7,)),
    "dense-no-bias": (Dense, nn.Dense, {"features": 6, "use_bias": False}, (3, 7)),
    "dense-from-two": (Dense, nn.Dense, {"features": 6}, (3, 2)),
    "embed": (Embed, nn.Embed, {"num_embeddings": 9, "features": 5}, "indices"),
    # Two rows: a table of two must not be taken for a pair of factors.
    "embed-two": (Embed, nn.Embed, {"num_embeddings": 2, "features": 5}, "indices"),
    "norm": (LayerNorm, functools.partial(nn.LayerNorm, epsilon=1e-5), {}, (3, 8)),
    "conv": (
        Conv,
        linen_conv,
        {"features": 5, "kernel_size": 4, "stride": 2},
        (8, 6, 3),
    ),
    # Neither side is a whole number of strides; leading axes.
    "conv-batch": (
        Conv,
        linen_conv,
        {"features": 4, "kernel_size": 6, "stride": 2},
        (2, 9, 11, 2),
    ),
    "conv-apart": (
        Conv,
        linen_conv,
        {"features": 3, "kernel_size": 2, "stride": 2},
        (2, 2, 5, 4, 2),
    ),
}
FORMS = {"rank-1": 1, "rank-3": 3, "full": None}


def inputs(layer, shape, seed=0):
    random = np.random.default_rng(seed)
    if shape == "indices":
        return np.int32(random.integers(layer.num_embeddings, size=(2, 4)))
    return np.float32(random.normal(0.5, 1.5, size=shape))


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    """Our layer, Linen's, random params and an input."""
    ours, theirs, arguments, shape = request.param
    layer = ours(**arguments)
    x = inputs(layer, shape)
    shapes = jax.eval_shape(layer.init, jax.random.key(0), x)["params"]
    random = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: np.float32(random.normal(0.2, 1.0, size=leaf.shape)), shapes
    )
    return layer, theirs(**arguments), params, x


@functools.partial(jax.jit, static_argnums=0)
def forward(layer, params, perturbation, x):
    return layer.apply({"params": params, "perturbation": perturbation}, x)


@functools.partial(jax.jit, static_argnums=0)
def plain(layer, params, x):
    return layer.apply({"params": params}, x)


@pytest.mark.parametrize("rank", FORMS.values(), ids=FORMS.keys())
def test_members_equal_the_written_out_weights(case, rank):
    """One program for three members and inputs; Linen's layer for one at a time."""
    layer, theirs, params, x = case
    members = [random_perturbation(params, rank, seed) for seed in range(3)]
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *members)
    xs = np.stack([x, np.flip(x, axis=0), x])
    actual = jax.vmap(forward, (None, None, 0, 0))(layer, params, together, xs)
    assert actual.dtype == jnp.float32
    for i, member in enumerate(members):
        expected = plain(theirs, perturbed(params, member), xs[i])
        np.testing.assert_allclose(actual[i], expected, rtol=2e-5, atol=2e-5)
        # The perturbation is no rounding error.
        assert np.abs(expected - plain(theirs, params, xs[i])).max() > 0.02


def test_without_a_perturbation_it_is_linens_layer(case):
    layer, theirs, params, x = case
    # The differences: ours computes the variance from centred numbers, and a
    # convolution by products of matrices.
    tolerance = 2e-6 if isinstance(layer, LayerNorm | Conv) else 0.0
    actual, expected = plain(layer, params, x), plain(theirs, params, x)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    # The same weights: names, shapes and types.
    own, others = (
        jax.eval_shape(module.init, jax.random.key(0), x) for module in (layer, theirs)
    )
    assert own == others


@pytest.mark.parametrize(
    ("kernel_size", "rows", "message"),
    [
        (3, 9, "stride must divide kernel_size, got 2 and 3"),
        (4, 3, r"kernel_size = 4 high .* \(3, 9, 1\)"),
    ],
)
def test_kernels_that_do_not_fit_are_named(kernel_size, rows, message):
    layer = Conv(4, kernel_size=kernel_size, stride=2)
    with pytest.raises(ValueError, match=message):
        layer.init(jax.random.key(0), jnp.zeros((rows, 9, 1)))


def test_layer_norm_survives_a_large_mean():
    # E[x²] − E[x]² would lose all digits here: x is 30 000 ± 1.
    params = {"scale": jnp.ones(4), "bias": jnp.zeros(4)}
    x = jnp.array([30_001.0, 29_999.0, 30_001.0, 29_999.0])
    actual = plain(LayerNorm(), params, x)
    np.testing.assert_allclose(actual, [1.0, -1.0, 1.0, -1.0], rtol=1e-4)


def test_embed_builds_no_table():
    """Looking up one row of A Bᵀ must not cost the whole table."""
    layer, size = Embed(5000, 64), 5000 * 64 * 4
    params = {"embedding": jax.ShapeDtypeStruct((5000, 64), jnp.float32)}
    factors = (
        jax.ShapeDtypeStruct((5000, 3), jnp.float32),
        jax.ShapeDtypeStruct((64, 3), jnp.float32),
    )
    index = jax.ShapeDtypeStruct((3,), jnp.int32)
    program = forward.lower(layer, params, {"embedding": factors}, index).compile()
    assert program.memory_analysis().temp_size_in_bytes < size / 50


def test_fan_in_dense_starts_as_in_pytorch():
    params = fan_in_dense(400, 300).init(jax.random.key(0), jnp.zeros(400))["params"]
    bound = 1.0 / 20.0  # 1/sqrt(400)
    for name, tolerance in [("kernel", 0.01), ("bias", 0.15)]:
        draws = np.asarray(params[name])
        assert np.abs(draws).max() <= bound
        # A uniform variable on ±b has standard deviation b/sqrt(3).
        np.testing.assert_allclose(draws.std(), bound / np.sqrt(3.0), rtol=tolerance)
        assert abs(draws.mean()) < 4.0 * bound / np.sqrt(3.0 * draws.size)
