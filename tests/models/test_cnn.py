"""Salimans' convolutional policy: its normalisation and its perturbations."""

import jax
import numpy as np
import pytest

from jax_es.es.noise import LowRankNoise
from jax_es.types import needs_reference
from models import CNNConfig, DiscreteActions, make_policy
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


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"policy.reference_size=1 .* at least 2"):
        CNNConfig(reference_size=1)
    with pytest.raises(ValueError, match=r"policy.normalization='batch' .* choose"):
        CNNConfig(normalization="batch")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"20 × 20 pixels.*\(96, 96, 3\): put"):
        make_policy(CNNConfig(), (96, 96, 3), CHOICE)
    with pytest.raises(ValueError, match=r"takes images .* shape \(17,\)"):
        make_policy(CNNConfig(), 17, CHOICE)
