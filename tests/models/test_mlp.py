import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import BoxActions, MLPConfig
from models.mlp import MLPPolicy

KEY = jax.random.key(0)


def num_params(policy):
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(policy.init, KEY)))


def test_humanoid_has_the_papers_parameters():
    policy = MLPPolicy(MLPConfig(), 376, BoxActions((-0.4,) * 17, (0.4,) * 17))
    assert num_params(policy) == (
        (376 * 256 + 256) + (256 * 256 + 256) + (256 * 17 + 17)
    )
    assert num_params(policy) == 166_673
    assert 166_673 - (256 + 256 + 17) == 166_144  # Salimans et al., without biases


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden_sizes", [(), (7, 5, 6)])
def test_agrees_with_numpy(hidden_sizes, activation, random_params):
    config = MLPConfig(hidden_sizes=hidden_sizes, activation=activation)
    function = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0.0)}[activation]
    policy = MLPPolicy(config, 4, BoxActions((-2.0, -2.0), (2.0, 2.0)))
    params = random_params(policy)
    observation = np.array([0.3, -1.2, 2.0, 0.1])

    x = observation
    for i in range(len(hidden_sizes)):
        layer = jax.tree.map(np.float64, params[f"hidden_{i}"])
        x = function(x @ layer["kernel"] + layer["bias"])
    head = jax.tree.map(np.float64, params["head"])
    expected = 2.0 * np.tanh(x @ head["kernel"] + head["bias"])

    _, action = policy.apply(
        {"params": params}, (), jnp.float32(observation), 0.0, True, KEY
    )
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-6)
