import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import (
    BoxActions,
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
    LinearConfig,
    LSTMConfig,
    MLPConfig,
    make_policy,
)
from tests.models.perturbed import QUICKLY

CONTEXT = 4
NUM_STEPS = 11
OBSERVATION_SIZE = 5
CONFIG = DecisionTransformerConfig(
    context_length=CONTEXT, width=16, num_layers=2, num_heads=2
)
BOX = DecisionTransformerPolicy(
    CONFIG, OBSERVATION_SIZE, BoxActions((-1.0, -1.0), (1.0, 1.0))
)
HUMANOID = DecisionTransformerPolicy(
    DecisionTransformerConfig(), 376, BoxActions((-0.4,) * 17, (0.4,) * 17)
)
KEY = jax.random.key(0)


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def act(policy, params, observations, rewards, **collections):
    """Acts through one episode; returns the last carry and all actions."""

    def step(carry, inputs):
        return policy.apply({"params": params, **collections}, carry, *inputs, KEY)

    first = jnp.arange(len(observations)) == 0
    return jax.lax.scan(step, policy.initial_carry(), (observations, rewards, first))


def observations_and_rewards(seed=0):
    random = np.random.default_rng(seed)
    return (
        jnp.float32(random.normal(size=(NUM_STEPS, OBSERVATION_SIZE))),
        jnp.float32(random.normal(100.0, 300.0, size=NUM_STEPS)),
    )


# Size and start


def test_humanoid_has_the_papers_parameters():
    shapes = jax.eval_shape(HUMANOID.init, KEY)
    d = 128
    embeddings = (376 * d + d) + (17 * d + d) + (d + d) + 1000 * d + 2 * d
    block = 4 * d + (4 * d**2 + 4 * d) + (8 * d**2 + 5 * d)
    acting = embeddings + 3 * block + 2 * d + (d * 17 + 17)
    assert block == 198_272
    assert acting == 776_337
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == acting
    # The paper also perturbs heads that predict the state and the return, and a
    # token embedding; none of them ever acts, so we leave them out.
    never_used = (d * 376 + 376) + (d + 1) + d
    assert never_used == 48_504 + 129 + 128 == 48_761
    assert acting + never_used == 825_098


def test_initialisation():
    shallow = dataclasses.replace(HUMANOID.config, num_layers=1)
    policy = dataclasses.replace(HUMANOID, config=shallow)
    # This kind of key compiles faster than the default.
    params = jax.jit(policy.init)(jax.random.key(0, impl="unsafe_rbg"))
    block = params["blocks_0"]
    for name in ("query", "key", "value", "projection", "expand", "contract"):
        np.testing.assert_allclose(block[name]["kernel"].std(), 0.02, rtol=0.03)
        assert not block[name]["bias"].any()
    for name, fan_in in [("embed_state", 376), ("embed_action", 17), ("head", 128)]:
        for leaf in params[name].values():
            # The largest of n uniform draws comes within a few percent of the bound.
            assert 0.85 < float(jnp.abs(leaf).max()) * math.sqrt(fan_in) <= 1.0
    assert 0.9 < float(jnp.abs(params["embed_return"]["kernel"]).max()) <= 1.0
    table = params["embed_timestep"]["embedding"]
    np.testing.assert_allclose(table.std(), 1.0, rtol=0.01)
    for norm in (params["embed_norm"], params["final_norm"], block["mlp_norm"]):
        assert (norm["scale"] == 1.0).all()
        assert not norm["bias"].any()


def test_parallel_form_refuses_more_than_the_context():
    steps = jnp.zeros(8), jnp.zeros((8, 5)), jnp.zeros((8, 2)), jnp.arange(8)
    with pytest.raises(ValueError, match="8 steps exceeds context_length=4"):
        jax.eval_shape(BOX.network.init, KEY, *steps)


# Returns-to-go


def test_return_to_go_arithmetic(random_params):
    config = dataclasses.replace(CONFIG, target_return=7000.0, reward_scale=0.001)
    policy = dataclasses.replace(BOX, config=config)
    params = random_params(policy)
    carry, seen = policy.initial_carry(), []
    step = jax.jit(policy.apply, compiler_options=QUICKLY)
    # The reward on a first step belongs to the episode before and is not paid.
    for reward, first in [
        (123.0, True),
        (1000.0, False),
        (500.0, False),
        (-250.0, False),
        (99.0, True),
        (1.0, False),
    ]:
        observation = jnp.ones(OBSERVATION_SIZE)
        carry, _ = step({"params": params}, carry, observation, reward, first, KEY)
        seen.append((float(carry.return_to_go), int(carry.timestep)))
    expected = [(7.0, 1), (6.0, 2), (5.5, 3), (5.75, 4), (7.0, 1), (6.999, 2)]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


# Other targets from the same program


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        dataclasses.replace(CONFIG, attention="cache", film=True),
        MLPConfig(hidden_sizes=(8,), target_return=7000.0),
        LinearConfig(target_return=7000.0),
        LSTMConfig(width=8, target_return=7000.0),
    ],
    ids=["window", "cache-film", "mlp", "linear", "lstm"],
)
@pytest.mark.parametrize("target", [-1000.0, 1e5])
def test_a_command_acts_like_the_config_that_asks_for_it(random_params, config, target):
    other = dataclasses.replace(config, target_return=target)
    policy, other = (
        make_policy(each, OBSERVATION_SIZE, BOX.actions) for each in (config, other)
    )
    params = random_params(policy)
    episode = observations_and_rewards()
    expected = act(other, params, *episode)[1]
    command = {"target_return": jnp.float32(target)}
    got = act(policy, params, *episode, command=command)[1]
    # What is asked for, in units of the return-to-go, times float32's precision.
    atol = 2e-5 * max(1.0, abs(target) * config.reward_scale / 10)
    np.testing.assert_allclose(got, expected, atol=atol)
    assert np.abs(act(policy, params, *episode)[1] - expected).max() > 30 * atol
