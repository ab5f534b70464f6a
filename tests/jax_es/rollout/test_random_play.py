"""Random play is the same for the same seed, in whatever environments."""

import gymnasium
import numpy as np
import pytest

from jax_es.envs.make import make as make_vector_env
from jax_es.rollout.random_play import play_at_random, reference_batch
from jax_es.rollout.streams import stream
from jax_es.training.episodes import evaluation_tasks


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


def test_episodes_of_random_play_equal_gymnasiums(env):
    """The baseline, one episode after the other, six episodes in four environments."""
    tasks = evaluation_tasks(0, 0, 6, 1000)
    result = play_at_random(env, tasks)
    assert result.env_steps == result.lengths.sum()
    single = gymnasium.make("InvertedPendulum-v5")
    for seed, total, length in zip(
        tasks.seed.tolist(), result.returns, result.lengths, strict=True
    ):
        single.reset(seed=seed)
        actions = stream(seed, "random actions").integers(2**31)
        single.action_space.seed(int(actions))
        expected, steps, done = 0.0, 0, False
        while not done:
            _, reward, terminated, truncated, _ = single.step(
                single.action_space.sample()
            )
            expected, steps = expected + float(reward), steps + 1
            done = terminated or truncated
        assert (total, length) == (expected, steps)
    single.close()
    assert len(set(result.lengths.tolist())) > 1
