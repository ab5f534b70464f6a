"""The gradient of a smoothed function, against what is known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es import es_gradient
from jax_es.checks import ConfigError

MEAN = {"a": jnp.array([0.5, -1.0]), "b": jnp.array([[2.0]])}


def cubic(x):
    return jnp.sum(x["a"] ** 3) + x["b"][0, 0] ** 2


def test_it_is_unbiased_for_the_smoothed_function():
    """E f(θ + σε) has the gradient 3θ² + 3σ² and 2θ; four standard errors."""
    sigma, keys = 0.4, jax.random.split(jax.random.key(0), 4000)
    estimates = jax.jit(
        jax.vmap(lambda k: es_gradient(cubic, MEAN, k, sigma=sigma, num_pairs=4))
    )(keys)
    expected = {
        "a": 3 * np.array([0.5, -1.0]) ** 2 + 3 * sigma**2,
        "b": np.array([[4.0]]),
    }
    for name, values in estimates.items():
        error = np.std(values, axis=0) / np.sqrt(len(keys))
        assert np.all(np.abs(np.mean(values, axis=0) - expected[name]) < 4 * error)
        assert np.all(error < 0.2)


def test_of_a_constant_it_is_zero():
    gradient = es_gradient(
        lambda x: jnp.float32(7.0), MEAN, jax.random.key(1), sigma=0.1, num_pairs=3
    )
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient))
    assert jax.tree.map(jnp.shape, gradient) == jax.tree.map(jnp.shape, MEAN)


def test_whole_numbers_are_refused():
    """Steps of less than 1 would be cut off."""
    with pytest.raises(ConfigError, match=r"weights of int.*jnp.float32\(weights\)"):
        es_gradient(cubic, np.array([3, 2]), jax.random.key(0), sigma=1.0, num_pairs=2)


def test_bad_numbers_are_named():
    for bad, name in (({"sigma": 0.0}, "sigma"), ({"num_pairs": 0}, "num_pairs")):
        given = {"sigma": 0.1, "num_pairs": 2, **bad}
        with pytest.raises(ConfigError, match=name):
            es_gradient(cubic, MEAN, jax.random.key(0), **given)
