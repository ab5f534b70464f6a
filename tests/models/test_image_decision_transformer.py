"""The Decision Transformer on images: its size, its contexts, its perturbations."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.es.noise import LowRankNoise
from models import (
    BoxActions,
    DiscreteActions,
    ImageDecisionTransformerConfig,
    make_policy,
)
from models.image_decision_transformer import ImageDecisionTransformerPolicy
from tests.models.perturbed import QUICKLY, inputs_of, perturbed, random_member, run

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


def returns_to_go(policy, rewards):
    paid = np.cumsum(np.asarray(rewards, np.float64)) - np.float64(rewards[0])
    remaining = policy.config.target_return - paid
    return jnp.float32(remaining * policy.config.reward_scale)


def num_params(tree):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def test_the_papers_numbers_of_parameters():
    config = ImageDecisionTransformerConfig()
    policy = make_policy(config, (4, 84, 84), DiscreteActions(18))
    params = jax.eval_shape(policy.init, jax.random.key(0))
    acting = num_params(params)
    assert acting == 2_966_048
    assert num_params(params["encode_state"]) == 479_520
    assert num_params(params["embed_return"]) == 256
    assert num_params(params["embed_action"]) == 18 * 128 == 2_304
    assert num_params(params["embed_position"]) == 91 * 128
    assert num_params(params["embed_timestep"]) == 10_001 * 128
    # The paper's code has a token table besides, which nothing reads.
    in_code = acting + 2_304
    assert in_code == 2_968_352
    # The paper counts what the code had before these three were added.
    assert in_code - 479_520 - 256 - 2_304 == 2_486_272
    cached = make_policy(
        dataclasses.replace(config, attention="cache"), (4, 84, 84), DiscreteActions(18)
    )
    cached_params = jax.eval_shape(cached.init, jax.random.key(0))
    assert num_params(cached_params) == acting - 91 * 128


def test_acting_in_a_window_equals_the_network_on_each_window(random_params):
    variables, inputs = {"params": random_params(WINDOW)}, episode()
    _, (outputs, actions) = run(WINDOW, variables, WINDOW.initial_carry(), inputs)
    remaining = returns_to_go(WINDOW, inputs[1])
    network = jax.jit(WINDOW.network.apply, compiler_options=QUICKLY)
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

    network = jax.jit(WINDOW.network.apply, compiler_options=QUICKLY)

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


@pytest.mark.parametrize("policy", [WINDOW, CACHE], ids=["window", "cache"])
def test_a_member_acts_as_its_written_out_weights(policy, random_params):
    """Low-rank noise goes through the convolutions, too."""
    noise, mean, inputs = LowRankNoise(1), random_params(policy), episode()
    member = random_member(noise, mean, 0.3)
    written_out = {"params": perturbed(mean, member["perturbation"])}
    variables = {**noise.shared(mean), **member}
    carry = policy.initial_carry()
    actual = run(policy, variables, carry, inputs)[1][0]
    expected = run(policy, written_out, carry, inputs)[1][0]
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)
    unperturbed = run(policy, {"params": mean}, carry, inputs)[1][0]
    assert np.abs(np.subtract(expected, unperturbed)).max() > 0.01


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"context_length=12 .* max_timestep=9"):
        make("window", context_length=12)
    config = ImageDecisionTransformerConfig()
    with pytest.raises(ValueError, match="among discrete actions"):
        make_policy(config, (4, 84, 84), BoxActions((-1.0,), (1.0,)))
    with pytest.raises(ValueError, match=r"36 × 36 pixels.*\(96, 96, 3\): put"):
        make_policy(config, (96, 96, 3), CHOICE)
