"""Agreement with independent implementations in NumPy, float64.

They share no code with ``models`` and know the names of the weights only. That of the
Decision Transformer recomputes everything from the episode's history at every step, and
has no padding, no window and no cache.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.models import (
    BoxActions,
    DecisionTransformerConfig,
    DiscreteActions,
    LSTMConfig,
    MLPConfig,
    make_policy,
)
from tests.models.perturbed import inputs_of, random_inputs, run

OBSERVATION_SIZE = 5
NUM_STEPS = 11
BOX = BoxActions((-0.4, -3.0), (0.4, 1.0))
CHOICE = DiscreteActions(3, start=2)


def act(policy, params, inputs):
    """The actions of an episode."""
    return run(policy, {"params": params}, policy.initial_carry(), inputs)[1][1]


def dense(weights, x):
    return x @ weights["kernel"] + weights["bias"]


def layer_norm(weights, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * weights["scale"] + weights["bias"]


def relu(x):
    return np.maximum(x, 0.0)


def gelu(x):
    return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / np.sqrt(2.0)))


def attention(weights, x, num_heads, num_steps):
    """One query at a time, reading no later token and at most ``num_steps`` steps."""
    queries, keys, values = (
        np.split(dense(weights[name], x), num_heads, axis=1)
        for name in ("query", "key", "value")
    )
    result = np.zeros((len(x), 0))
    for head in range(num_heads):
        rows = []
        for i, query in enumerate(queries[head]):
            # Three tokens a step, of which this query's is the last that is read.
            visible = slice(max(0, 3 * (i // 3 - num_steps + 1)), i + 1)
            scores = keys[head][visible] @ query / np.sqrt(len(query))
            probabilities = np.exp(scores - scores.max())
            rows.append(
                probabilities / probabilities.sum() @ values[head][visible],
            )
        result = np.concatenate([result, np.array(rows)], axis=1)
    return dense(weights["projection"], result)


def network_outputs(params, config, returns_to_go, observations, actions, timesteps):
    """The outputs at the last state token of R s a R s a ... R s."""
    table = params["embed_timestep"]["embedding"]
    tokens = []
    for i, timestep in enumerate(timesteps):
        time = table[min(timestep, config.max_timestep - 1)]
        tokens.append(dense(params["embed_return"], returns_to_go[i : i + 1]) + time)
        tokens.append(dense(params["embed_state"], observations[i]) + time)
        if i < len(actions):
            embed = params["embed_action"]
            if "embedding" in embed:
                tokens.append(embed["embedding"][actions[i]] + time)
            else:
                tokens.append(dense(embed, actions[i]) + time)
    x = layer_norm(params["embed_norm"], np.array(tokens))
    for layer in range(config.num_layers):
        block = params[f"blocks_{layer}"]
        x = x + attention(
            block,
            layer_norm(block["attention_norm"], x),
            config.num_heads,
            config.context_length,
        )
        hidden = dense(block["expand"], layer_norm(block["mlp_norm"], x))
        hidden = {"relu": relu, "gelu": gelu}[config.activation](hidden)
        x = x + dense(block["contract"], hidden)
    return dense(params["head"], layer_norm(params["final_norm"], x))[-1]


def reference_actions(policy, params, observations, rewards, keys):
    config, num_past = policy.config, policy.config.context_length - 1
    params = jax.tree.map(np.float64, params)
    returns_to_go = config.target_return - np.concatenate([[0], np.cumsum(rewards[1:])])
    returns_to_go = returns_to_go * config.reward_scale
    chosen, emitted = [], []
    for t in range(len(observations)):
        # A window is cut out of the episode; a cache's tokens have seen what left it.
        start = max(0, t - num_past) if config.attention == "window" else 0
        outputs = network_outputs(
            params,
            config,
            returns_to_go[start : t + 1],
            observations[start : t + 1],
            chosen[start:t],
            range(start, t + 1),
        )
        if isinstance(policy.actions, BoxActions):
            chosen.append(np.tanh(outputs))
            low, high = np.array(policy.actions.low), np.array(policy.actions.high)
            emitted.append(low + (chosen[-1] + 1.0) / 2.0 * (high - low))
        else:
            if config.sample_actions:
                index = int(jax.random.categorical(keys[t], jnp.float32(outputs)))
            else:
                index = int(np.argmax(outputs))
            chosen.append(index)
            emitted.append(policy.actions.start + index)
    return np.array(emitted)


@pytest.mark.parametrize(
    ("fields", "actions"),
    [
        ({}, BOX),
        ({"num_heads": 4, "activation": "gelu"}, BOX),
        ({"context_length": 1}, BOX),
        ({"context_length": 20, "num_layers": 1}, BOX),
        ({"max_timestep": 6, "target_return": -150.0, "reward_scale": 0.1}, BOX),
        ({"max_timestep": 1}, BOX),
        ({}, CHOICE),
        ({"num_heads": 2, "sample_actions": True}, CHOICE),
        ({"attention": "cache", "context_length": 2, "num_heads": 2}, BOX),
        ({"attention": "cache", "context_length": 1, "max_timestep": 6}, BOX),
        ({"attention": "cache", "context_length": 2, "num_layers": 3}, CHOICE),
    ],
    ids=lambda value: (
        "-".join(f"{k}={v}" for k, v in value.items())
        if isinstance(value, dict)
        else type(value).__name__
    ),
)
def test_a_decision_transformer_agrees(fields, actions, random_params):
    fields = {
        "context_length": 4,
        "width": 16,
        "num_layers": 2,
        "target_return": 900.0,
        **fields,
    }
    config = DecisionTransformerConfig(**fields)
    policy = make_policy(config, OBSERVATION_SIZE, actions)
    params = random_params(policy)
    inputs = random_inputs(NUM_STEPS, OBSERVATION_SIZE, seed=1)
    actual = act(policy, params, inputs)
    observations, rewards, _, keys = inputs
    expected = reference_actions(policy, params, observations, rewards, keys)
    if isinstance(actions, DiscreteActions):
        assert len(set(expected.tolist())) > 1
        np.testing.assert_array_equal(actual, expected)
    else:
        assert np.abs(np.diff(expected, axis=0)).max() > 0.01
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden_sizes", [(), (7, 5, 6)])
def test_an_mlp_agrees(hidden_sizes, activation, random_params):
    config = MLPConfig(hidden_sizes=hidden_sizes, activation=activation)
    policy = make_policy(config, OBSERVATION_SIZE, BoxActions((-2.0,) * 2, (2.0,) * 2))
    params = random_params(policy)
    inputs = random_inputs(3, OBSERVATION_SIZE)
    function = {"tanh": np.tanh, "relu": relu}[activation]
    x, weights = np.float64(inputs[0]), jax.tree.map(np.float64, params)
    for i in range(len(hidden_sizes)):
        x = function(dense(weights[f"hidden_{i}"], x))
    expected = 2.0 * np.tanh(dense(weights["head"], x))
    actual = act(policy, params, inputs)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_an_lstm_agrees(random_params):
    config, actions = LSTMConfig(width=6), BoxActions((-1.0,) * 2, (1.0,) * 2)
    policy = make_policy(config, OBSERVATION_SIZE, actions)
    params = random_params(policy)
    observations, rewards, *_ = random_inputs(6, OBSERVATION_SIZE)
    first = np.array([True, False, False, True, False, False])

    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    weights = jax.tree.map(np.float64, params)
    expected = []
    for observation, starts in zip(observations, first, strict=True):
        if starts:
            cell, hidden = np.zeros(6), np.zeros(6)
        gates = dense(weights["input_gates"], observation)
        gates += hidden @ weights["hidden_gates"]["kernel"]
        take, forget, new, give = gates.reshape(4, 6)
        cell = sigmoid(forget) * cell + sigmoid(take) * np.tanh(new)
        hidden = sigmoid(give) * np.tanh(cell)
        expected.append(np.tanh(dense(weights["head"], hidden)))
    actual = act(policy, params, inputs_of(observations, rewards, first))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
