"""Physics alone: episodes end as each regime says, and are met at steady state."""

import numpy as np
import pytest

from jax_es.envs import physics
from jax_es.envs.mujoco_env import MujocoVectorEnv
from jax_es.envs.physics import EPISODE_LENGTHS, Humanoids, random_actions


def test_trained_episodes_end_by_their_length_alone():
    batch = Humanoids("trained", 4, 1)
    batch.left[:] = 1000, 60, 1000, 1000
    for _ in range(59):
        batch.step()
    assert (batch.height < 1).all()  # fallen, and going on
    batch.step()
    started = np.array([False, True, False, False])
    assert ((np.abs(batch.height - 1.4) < 0.02) == started).all()
    low, high = EPISODE_LENGTHS
    assert low <= batch.left[1] <= high
    assert (batch.left[~started] == 940).all()


def test_untrained_episodes_end_with_a_fall():
    batch = Humanoids("untrained", 4, 1)
    heights = []
    for _ in range(100):
        batch.step()
        heights.append(batch.height.copy())
    assert (np.array(heights) > 1).all()
    upright = np.abs(np.array(heights) - 1.4) < 0.011
    assert upright[1:].any(axis=0).all()  # each was reset


@pytest.mark.slow
def test_lengths_are_met_as_a_renewal_process_meets_them():
    """What is left of an episode met at random is E[L²]/2E[L] + ½ on average."""
    low, high = EPISODE_LENGTHS
    rng = np.random.default_rng(0)
    lengths = np.arange(low, high + 1)
    left = physics.remaining_lengths(rng, 100_000)
    expected = (lengths**2).mean() / (2 * lengths.mean()) + 0.5
    assert abs(left.mean() - expected) < 4 * left.std() / np.sqrt(len(left))
    drawn = physics.random_lengths(rng, 100_000)
    assert (drawn.min(), drawn.max()) == EPISODE_LENGTHS


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["trained", "untrained", "atari"])
def test_simulators_have_a_speed(regime, monkeypatch):
    monkeypatch.setitem(physics.ENVS_PER_CORE, regime, 2)
    assert 0 < physics.simulator_speed(regime, 0.01) < float("inf")


def test_random_actions_take_the_place_of_those_given():
    env = MujocoVectorEnv("Humanoid-v5", 2)
    env.reset(seed=0)
    still = np.zeros((2, 17), np.float32)
    with random_actions([env]):
        env.step(still)
        assert (env._task.ctrl != 0).any()
    env.step(still)
    assert (env._task.ctrl == 0).all()
