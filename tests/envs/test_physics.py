"""Physics alone: episodes end as each regime says, and are met at steady state."""

import numpy as np
import pytest

from envs import physics
from envs.mujoco_env import MujocoVectorEnv
from envs.physics import (
    EPISODE_LENGTHS,
    RegimeEnv,
    physics_speed,
    vector_env_speed,
)


def simulations(regime, num_envs):
    return physics._Simulations(regime, num_envs, 1, seed=0)


def test_trained_episodes_end_by_their_length_alone():
    batch = simulations("trained", 4)
    batch._left[:] = 1000, 60, 1000, 1000
    for _ in range(59):
        batch.step()
    assert (batch._qpos[:, 2] < 1).all()  # fallen, and going on
    batch.step()
    started = np.array([False, True, False, False])
    assert ((np.abs(batch._qpos[:, 2] - 1.4) < 0.02) == started).all()
    low, high = EPISODE_LENGTHS
    assert low <= batch._left[1] <= high
    assert (batch._left[~started] == 940).all()


def test_untrained_episodes_end_with_a_fall():
    batch = simulations("untrained", 4)
    heights = []
    for _ in range(100):
        batch.step()
        heights.append(batch._qpos[:, 2].copy())
    assert (np.array(heights) > 1).all()
    upright = np.abs(np.array(heights) - 1.4) < 0.011
    assert upright[1:].any(axis=0).all()  # each was reset


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


@pytest.mark.parametrize("regime", ["trained", "untrained"])
def test_physics_has_a_speed(regime):
    assert 0 < physics_speed(regime, 2, seconds=0.01) < float("inf")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vector_envs_have_a_speed(kind):
    assert 0 < vector_env_speed(kind, 1, seconds=0.01) < float("inf")


def test_a_regime_decides_on_endings_and_actions_are_random():
    env = MujocoVectorEnv("Humanoid-v5", 2)
    regime_env = RegimeEnv(env)
    still = np.zeros((2, 17), np.float32)
    for regime in ("trained", "untrained"):
        regime_env.enter(regime)
        regime_env.reset(seed=0)
        ended = np.zeros(2, bool)
        for _ in range(200):
            ended |= regime_env.step(still)[2]
        assert (env._task.ctrl != 0).any(), "the given actions, not random ones"
        assert ended.all() == (regime == "untrained")
    assert regime_env.num_envs == 2
    regime_env.enter("untrained", own_actions=True)
    regime_env.reset(seed=0)
    regime_env.step(still)
    assert (env._task.ctrl == 0).all()
