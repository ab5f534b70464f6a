"""The reference batch: random play, the same for the same seed."""

import numpy as np
import pytest

from envs.make import make as make_vector_env
from jax_es.reference import STEPS_BETWEEN, reference_batch


@pytest.fixture
def env():
    env = make_vector_env("InvertedPendulum-v5", 4, num_threads=1)
    yield env
    env.close()


def test_observations_of_random_play(env):
    batch = reference_batch(env, 10, seed=3)
    assert batch.shape == (10, 4)
    assert batch.dtype == env.single_observation_space.dtype
    # An untouched pole falls within some dozen steps: episodes began anew, and every
    # environment's states are its own.
    assert np.isfinite(batch).all()
    assert len(np.unique(batch, axis=0)) == 10
    assert np.abs(batch[:, 1]).max() < 0.4
    assert np.abs(batch[:, 3]).std() > 0.1


def test_the_seed_decides_it(env):
    first = reference_batch(env, 6, seed=3)
    other = reference_batch(env, 6, seed=4)
    np.testing.assert_array_equal(first, reference_batch(env, 6, seed=3))
    assert np.abs(first - other).max() > 0.01
    # A larger one begins with it.
    np.testing.assert_array_equal(first, reference_batch(env, 9, seed=3)[:6])


def test_observations_lie_apart(env):
    """A batch of neighbours would be one observation many times."""
    steps, step = 0, env.step

    def counted(actions):
        nonlocal steps
        steps += 1
        return step(actions)

    env.step = counted
    reference_batch(env, 9, seed=0)
    assert steps == 3 * STEPS_BETWEEN
