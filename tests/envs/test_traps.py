"""Our own tasks are one thing in Gymnasium and on threads, and their walls hold."""

import gymnasium
import numpy as np
import pytest

import envs
from envs.make import make
from envs.traps import PointTrap

IDS = ("PointFlat-v0", "PointTrap-v0", "AntTrap-v0", "HumanoidTrap-v0")


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_and_the_threads_play_the_same_episode(env_id):
    single, many = gymnasium.make(env_id), make(env_id, 3, num_threads=1)
    assert single.spec is not None
    assert many.max_episode_steps == single.spec.max_episode_steps
    assert envs.__doc__ is not None
    seen, _ = single.reset(seed=4)
    observations, _ = many.reset(seed=[1, 4, 9])
    np.testing.assert_array_equal(observations[1], seen)
    space, rng = many.single_action_space, np.random.default_rng(0)
    for _ in range(12):
        actions = rng.uniform(space.low, space.high, (3, *space.shape))
        actions = actions.astype(np.float32)
        seen, reward, terminated, _, _ = single.step(actions[1])
        observations, rewards, ended, _, _ = many.step(actions)
        np.testing.assert_array_equal(observations[1], seen)
        assert (rewards[1], ended[1]) == (reward, terminated)
    many.close()
    single.close()


@pytest.mark.parametrize(("env_id", "end"), [("AntTrap-v0", 5.4), ("Ant-v5", 20.0)])
def test_an_ant_that_is_thrown_ahead_is_stopped_by_the_walls_alone(env_id, end):
    env = make(env_id, 1, num_threads=1, terminate_when_unhealthy=False)
    env.reset(seed=0)
    env._task.qvel[0, 0] = 40.0  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(30):
        env.step(np.zeros((1, 8), np.float32))
    x = env._task.qpos[0, 0]  # pyright: ignore[reportAttributeAccessIssue]
    assert 3 < x < end if env_id == "AntTrap-v0" else x > 5.6
    env.close()


def test_going_ahead_ends_in_the_trap_and_a_detour_pays_more():
    env = make("PointTrap-v0", 2, num_threads=1, descriptor="position")
    env.reset(seed=0)
    returns, turns = np.zeros(2), iter([(-1, 0)] * 6 + [(0, 1)] * 8)
    for _ in range(env.max_episode_steps):
        detour = next(turns, (1, 0))
        _, rewards, *_ = env.step(np.array([(1, 0), detour], np.float32))
        returns += rewards
    front = PointTrap.walls[0]
    assert returns[0] < front.x - front.half_length and returns[1] > 2 * front.x
    np.testing.assert_allclose(env.descriptors()[:, 0], returns, atol=0.1)
    env.close()
