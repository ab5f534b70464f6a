"""Our own tasks are one thing in Gymnasium and on threads, and their walls hold."""

import gymnasium
import numpy as np
import pytest

from jax_es.envs.make import make
from jax_es.envs.traps import PointTrap
from tests.envs.following import follow

IDS = ("PointFlat-v0", "PointTrap-v0", "AntTrap-v0", "HumanoidTrap-v0")


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_and_the_threads_play_the_same_episode(env_id):
    singles = [gymnasium.make(env_id) for _ in range(3)]
    env = make(env_id, 3, num_threads=1)
    assert singles[0].spec is not None
    assert env.max_episode_steps == singles[0].spec.max_episode_steps
    follow(env, singles, 30)
    env.close()


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
