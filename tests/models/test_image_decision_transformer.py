"""The Decision Transformer on images: its contexts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.models import (
    BoxActions,
    DiscreteActions,
    ImageDecisionTransformerConfig,
    make_policy,
)
from jax_es.models.image_decision_transformer import ImageDecisionTransformerPolicy
from tests.models.perturbed import inputs_of, run

IMAGE = 2, 36, 36
CHOICE = DiscreteActions(3)
CONTEXT, NUM_STEPS = 3, 14


def make(attention, **fields):
    fields = {
        "width": 8,
        "num_heads": 2,
        "num_layers": 2,
        "context_length": CONTEXT,
        "max_timestep": 9,
        **fields,
    }
    config = ImageDecisionTransformerConfig(attention=attention, **fields)
    return ImageDecisionTransformerPolicy(config, IMAGE, CHOICE)


WINDOW, CACHE = make("window"), make("cache")


def episode(seed=0):
    random = np.random.default_rng(seed)
    frames = random.uniform(size=(NUM_STEPS, *IMAGE))
    return inputs_of(frames, random.normal(100.0, 300.0, size=NUM_STEPS))


def test_acting_in_a_window_equals_the_network_on_each_window(random_params):
    variables, inputs = {"params": random_params(WINDOW)}, episode()
    _, (outputs, actions) = run(WINDOW, variables, WINDOW.initial_carry(), inputs)
    paid = np.cumsum(np.float64(inputs[1])) - np.float64(inputs[1][0])
    remaining = WINDOW.config.target_return - paid
    remaining = jnp.float32(remaining * WINDOW.config.reward_scale)
    network = jax.jit(WINDOW.network.apply)
    for step in range(NUM_STEPS):
        window = slice(max(0, step - CONTEXT + 1), step + 1)
        expected = network(
            variables,
            remaining[window],
            inputs[0][window],
            actions[window],
            jnp.arange(NUM_STEPS)[window],
        )[-1]
        np.testing.assert_allclose(outputs[step], expected, rtol=1e-4, atol=2e-5)


def test_the_place_in_a_window_and_the_time_are_read(random_params):
    """A window's tokens are told their position in it and its last timestep."""
    params, inputs = random_params(WINDOW), episode()
    rest = inputs[0][:2], jnp.zeros(2, jnp.int32)
    returns = jnp.ones(2)

    network = jax.jit(WINDOW.network.apply)

    def outputs(params, timesteps):
        return network({"params": params}, returns, *rest, jnp.array(timesteps))

    usual = outputs(params, [3, 4])
    np.testing.assert_array_equal(usual, outputs(params, [0, 4]))  # the last one's
    assert np.abs(usual - outputs(params, [4, 5])).max() > 1e-3
    # Past the table's end all timesteps are one.
    np.testing.assert_array_equal(outputs(params, [7, 8]), outputs(params, [70, 80]))
    table = params["embed_position"]["embedding"]
    moved = {**params, "embed_position": {"embedding": jnp.roll(table, 1, axis=0)}}
    assert np.abs(usual - outputs(moved, [3, 4])).max() > 1e-3


def test_a_head_begins_as_small_as_asked():
    one, half, none = (
        make("cache", head_scale=scale).init(jax.random.key(0))["head"]
        for scale in (1.0, 0.5, 0.0)
    )
    np.testing.assert_allclose(half["kernel"], one["kernel"] / 2, rtol=1e-6)
    assert not np.any(none["kernel"])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"timestep_scale=0\.5 .* leave it out"):
        make("window", timestep_scale=0.5)
    with pytest.raises(ValueError, match=r"context_length=12 .* max_timestep=9"):
        make("window", context_length=12)
    config = ImageDecisionTransformerConfig()
    with pytest.raises(ValueError, match="among discrete actions"):
        make_policy(config, (4, 84, 84), BoxActions((-1.0,), (1.0,)))
    with pytest.raises(ValueError, match=r"36 × 36 pixels.*\(96, 96, 3\): put"):
        make_policy(config, (96, 96, 3), CHOICE)
