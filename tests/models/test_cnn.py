"""Salimans' convolutional policy: its normalisation and its perturbations."""

import jax
import numpy as np
import pytest

from jax_es.es.noise import LowRankNoise
from jax_es.models import CNNConfig, DiscreteActions, make_policy
from jax_es.types import needs_reference
from tests.models.perturbed import inputs_of, perturbed, random_member, run

IMAGE = 2, 28, 24
CHOICE = DiscreteActions(3)
NUM_STEPS = 4
NORMALISED = make_policy(
    CNNConfig(hidden_size=12, reference_size=6, normalization="virtual-batch"),
    IMAGE,
    CHOICE,
)
PLAIN = make_policy(CNNConfig(hidden_size=12, normalization="none"), IMAGE, CHOICE)


def frames(count, seed):
    return np.float32(np.random.default_rng(seed).uniform(size=(count, *IMAGE)))


REFERENCE = frames(6, seed=1)
EPISODE = inputs_of(frames(NUM_STEPS, seed=2), np.zeros(NUM_STEPS))


def outputs_of(policy, variables):
    """The network's outputs ``[T, A]`` on :data:`EPISODE`, prepared if need be."""
    if needs_reference(policy):
        prepared = jax.jit(policy.prepare)(variables, REFERENCE)
        variables = {**variables, **prepared}
    return np.asarray(run(policy, variables, (), EPISODE)[1][0])


def convolved(images, kernel, stride):
    """``[B, H, W, c]`` → ``[B, H', W', d]``, one output place at a time."""
    size = kernel.shape[0]
    rows, columns = (
        range(0, n - size + 1, stride) for n in (images.shape[1], images.shape[2])
    )
    return np.stack(
        [
            np.stack(
                [
                    np.tensordot(images[:, i : i + size, j : j + size], kernel, 3)
                    for j in columns
                ],
                axis=1,
            )
            for i in rows
        ],
        axis=1,
    )


def by_numpy(params, images, reference):
    """The network, written from its definition, in float64.

    With a reference, it goes through the layers beside the images; its own mean and
    variance normalise both.
    """
    params = jax.tree.map(np.float64, params)
    batch = np.moveaxis(np.float64(np.concatenate([images, reference])), 1, -1)
    count = len(images)

    def normalised(layer, x):
        if len(reference) == 0:
            return x
        weights = params[f"norms_{layer}"]
        axes = tuple(range(x.ndim - 1))
        mean, variance = x[count:].mean(axis=axes), x[count:].var(axis=axes)
        standard = (x - mean) / np.sqrt(variance + 1e-5)
        return weights["scale"] * standard + weights["bias"]

    for layer, stride in enumerate((4, 2)):
        weights = params[f"convolutions_{layer}"]
        batch = convolved(batch, weights["kernel"], stride) + weights.get("bias", 0)
        batch = np.maximum(normalised(layer, batch), 0)
    weights = params["hidden"]
    batch = batch.reshape(len(batch), -1) @ weights["kernel"] + weights.get("bias", 0)
    batch = np.maximum(normalised(2, batch), 0)
    return batch[:count] @ params["head"]["kernel"] + params["head"]["bias"]


@pytest.mark.parametrize(
    ("policy", "atol"),
    [(NORMALISED, 1e-3), (PLAIN, 1e-4)],
    ids=["normalised", "plain"],
)
def test_it_equals_numpys(policy, atol, random_params):
    """θ and a member, whose statistics are those of its own weights, too."""
    mean = random_params(policy)
    member = random_member(LowRankNoise(1), mean, 0.3)
    written_out = perturbed(mean, member["perturbation"])
    reference = REFERENCE if policy is NORMALISED else REFERENCE[:0]
    of_mean, of_member = (
        by_numpy(params, EPISODE[0], reference) for params in (mean, written_out)
    )
    actual = outputs_of(policy, {"params": mean})
    np.testing.assert_allclose(actual, of_mean, rtol=1e-3, atol=atol)
    assert np.ptp(of_mean, axis=0).min() > 0.01
    actual = outputs_of(policy, {"params": mean, **member})
    np.testing.assert_allclose(actual, of_member, rtol=2e-3, atol=2e-3)
    assert np.abs(of_member - of_mean).max() > 0.05


def test_features_are_settings():
    config = CNNConfig(features=(16,), hidden_size=64, normalization="none")
    params = jax.eval_shape(
        make_policy(config, (4, 10, 10), CHOICE).init, jax.random.key(0)
    )
    shapes = {name: layer["kernel"].shape for name, layer in params.items()}
    assert shapes == {  # as MinAtar's
        "convolutions_0": (3, 3, 4, 16),
        "hidden": (8 * 8 * 16, 64),
        "head": (64, 3),
    }
    with pytest.raises(ValueError, match=r"policy.features=\(\).* one or two"):
        CNNConfig(features=())


@pytest.mark.parametrize(
    ("shape", "normalization"),
    [
        ((7, 7, 3), "virtual-batch"),
        ((3, 19, 30), "none"),
        ((2, 2, 2), "none"),
        ((1, 1, 9), "none"),
        ((96, 80, 3), "none"),
    ],
)
def test_images_of_any_size_have_a_network(shape, normalization, random_params):
    """Small ones, and those whose channels come last; each pixel counts."""
    config = CNNConfig(hidden_size=8, reference_size=6, normalization=normalization)
    policy = make_policy(config, shape, CHOICE)
    params = random_params(policy)
    images = np.float32(np.random.default_rng(0).uniform(0.2, 1, (6, *shape)))
    variables: dict = {"params": params}
    if needs_reference(policy):
        variables |= jax.jit(policy.prepare)(variables, images)

    @jax.jit
    @jax.grad
    def slope(image):
        return (policy.network.apply(variables, image) ** 2).sum()

    assert (np.abs(slope(images[0])) > 0).mean() > 0.8


def test_where_the_channels_are_changes_nothing(random_params):
    """The same image, the same kernels; only the layer that reads them flat differs."""
    first, last = (
        make_policy(CNNConfig(normalization="none"), shape, CHOICE)
        for shape in ((3, 24, 28), (24, 28, 3))
    )
    params = random_params(first)
    image = frames(1, seed=4)[0]
    image = np.resize(image, (3, 24, 28))
    np.testing.assert_array_equal(
        first.network.apply({"params": params}, image),
        last.network.apply({"params": params}, np.moveaxis(image, 0, -1)),
    )


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"policy.reference_size=1 .* at least 2"):
        CNNConfig(reference_size=1)
    with pytest.raises(ValueError, match=r"policy.normalization='batch' .* choose"):
        CNNConfig(normalization="batch")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"takes images .* shape \(17,\)"):
        make_policy(CNNConfig(), 17, CHOICE)
