"""Shared by the tests of ``models``."""

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_shapes():
    """Our networks never rely on implicit rank promotion."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def jittered_params():
    """Draws params whose every leaf is random: no zero bias, no unit scale.

    A mistake in a leaf that starts at zero or one would otherwise stay unseen.
    """

    def draw(policy, seed=0):
        init_key, jitter_key = jax.random.split(jax.random.key(seed))
        leaves, treedef = jax.tree.flatten(policy.init(init_key))
        keys = jax.random.split(jitter_key, len(leaves))
        jittered = [
            leaf + 0.2 * jax.random.normal(key, leaf.shape)
            for leaf, key in zip(leaves, keys, strict=True)
        ]
        return jax.tree.unflatten(treedef, jittered)

    return draw
