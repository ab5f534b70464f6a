import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.models import (
    BoxActions,
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
    LinearConfig,
    LSTMConfig,
    MLPConfig,
    make_policy,
)
from tests.models.perturbed import random_inputs, run

CONFIG = DecisionTransformerConfig(
    context_length=4, width=16, num_layers=2, num_heads=2
)
BOX = BoxActions((-1.0, -1.0), (1.0, 1.0))


def test_initialisation():
    config = DecisionTransformerConfig(num_layers=1)
    policy = make_policy(config, 376, BoxActions((-0.4,) * 17, (0.4,) * 17))
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
    network = DecisionTransformerPolicy(CONFIG, 5, BOX).network
    steps = jnp.zeros(8), jnp.zeros((8, 5)), jnp.zeros((8, 2)), jnp.arange(8)
    with pytest.raises(ValueError, match="8 steps exceeds context_length=4"):
        jax.eval_shape(network.init, jax.random.key(0), *steps)


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
    policy, other = (make_policy(each, 5, BOX) for each in (config, other))
    variables, inputs = {"params": random_params(policy)}, random_inputs(11, 5)
    command = {"command": {"target_return": jnp.float32(target)}}
    expected, got, without = (
        run(each, collections, each.initial_carry(), inputs)[1][1]
        for each, collections in (
            (other, variables),
            (policy, variables | command),
            (policy, variables),
        )
    )
    # What is asked for, in units of the return-to-go, times float32's precision.
    atol = 2e-5 * max(1.0, abs(target) * config.reward_scale / 10)
    np.testing.assert_allclose(got, expected, atol=atol)
    assert np.abs(np.subtract(without, expected)).max() > 30 * atol
