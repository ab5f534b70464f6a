import jax
import jax.numpy as jnp
import numpy as np

from models import BoxActions, LSTMConfig
from models.lstm import LSTMPolicy

POLICY = LSTMPolicy(LSTMConfig(width=6), 4, BoxActions((-1.0, -1.0), (1.0, 1.0)))
KEY = jax.random.key(0)


def test_agrees_with_numpy(random_params):
    params = random_params(POLICY)
    observations = np.random.default_rng(0).normal(size=(6, 4))
    first = np.array([True, False, False, True, False, False])

    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    weights = jax.tree.map(np.float64, params)
    expected = []
    for observation, starts in zip(observations, first, strict=True):
        if starts:
            cell, hidden = np.zeros(6), np.zeros(6)
        gates = (
            observation @ weights["input_gates"]["kernel"]
            + weights["input_gates"]["bias"]
            + hidden @ weights["hidden_gates"]["kernel"]
        )
        take, forget, new, give = gates.reshape(4, 6)
        cell = sigmoid(forget) * cell + sigmoid(take) * np.tanh(new)
        hidden = sigmoid(give) * np.tanh(cell)
        head = weights["head"]
        expected.append(np.tanh(hidden @ head["kernel"] + head["bias"]))

    def step(carry, inputs):
        return POLICY.apply({"params": params}, carry, inputs[0], 0.0, inputs[1], KEY)

    _, actions = jax.lax.scan(
        step, POLICY.initial_carry(), (jnp.float32(observations), jnp.array(first))
    )
    np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)
