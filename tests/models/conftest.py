"""Shared by the tests of ``models``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def strict_shapes():
    """Our networks never rely on implicit rank promotion."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="session")
def random_params():
    """Draws params whose every leaf is random: no zero bias, no unit scale.

    A mistake in a leaf that starts at zero or one would otherwise stay unseen. (Also,
    compiling ``init`` takes longer than most of the tests.)
    """

    @functools.cache
    def draw(policy, seed=0):
        random = np.random.default_rng(seed)

        def draw_leaf(path, leaf):
            centre = 1.0 if path[-1].key == "scale" else 0.0
            return jnp.float32(random.normal(centre, 0.25, leaf.shape))

        shapes = jax.eval_shape(policy.init, jax.random.key(0))
        return jax.tree.map_with_path(draw_leaf, shapes)

    return draw
