"""Shared by the tests of ``models``."""

import functools

import jax
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def strict_shapes():
    """Our networks never rely on implicit rank promotion."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="session")
def init():
    """``policy.init``, compiled once for each policy."""
    return jax.jit(lambda policy, key: policy.init(key), static_argnums=0)


@pytest.fixture(scope="session")
def jittered_params(init):
    """Draws params whose every leaf is random: no zero bias, no unit scale.

    A mistake in a leaf that starts at zero or one would otherwise stay unseen.
    """

    @functools.cache
    def draw(policy, seed=0):
        random = np.random.default_rng(seed)
        return jax.tree.map(
            lambda leaf: leaf + np.float32(random.normal(0.0, 0.2, leaf.shape)),
            init(policy, jax.random.key(seed)),
        )

    return draw
