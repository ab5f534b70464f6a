"""The last steps in one vector: what a transformer reads, for learners of vectors."""

import gymnasium
import numpy as np
import pytest

from jax_es.envs.history import HistoryObservation


class Counting(gymnasium.Env):
    """Observes [t, -t], pays t + 1 for step t, acts in [0, 4] × [-1, 1]."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(
        np.array([0.0, -1.0], np.float32), np.array([4.0, 1.0], np.float32)
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observed(), {"seed": seed}

    def step(self, action):
        self.t += 1
        return self._observed(), float(self.t), self.t == 5, False, {"a": action}

    def _observed(self):
        return np.array([self.t, -self.t], np.float64)


def wrapped(context_length=3):
    return HistoryObservation(
        Counting(), context_length, target_return=20.0, reward_scale=0.1, max_timestep=8
    )


def test_by_hand():
    env = wrapped()
    first, info = env.reset(seed=7)
    assert info == {"seed": 7}
    # Returns-to-go [3], observations [3, 2], actions [2, 2], time.
    expected = [0, 0, 2.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(first, expected)

    second, reward, terminated, truncated, _ = env.step(np.float32([4.0, -1.0]))
    assert (reward, terminated, truncated) == (1.0, False, False)
    expected = [0, 2.0, 1.9, 0, 0, 0, 0, 1, -1, 0, 0, 1, -1, 1 / 8]
    np.testing.assert_allclose(second, expected, rtol=1e-6)

    env.step(np.float32([1.0, 0.5]))
    fourth, *_ = env.step(np.float32([2.0, 0.0]))
    expected = [1.9, 1.7, 1.4, 1, -1, 2, -2, 3, -3, -0.5, 0.5, 0, 0, 3 / 8]
    np.testing.assert_allclose(fourth, expected, rtol=1e-6)
    # What was handed out before is the caller's own, and the next episode's alike.
    np.testing.assert_allclose(first[:3], [0, 0, 2.0])
    np.testing.assert_array_equal(env.reset()[0], first)


@pytest.mark.parametrize("context_length", [1, 2, 5])
def test_fits_its_space(context_length):
    env = wrapped(context_length)
    observation, _ = env.reset(seed=0)
    size = context_length * 3 + (context_length - 1) * 2 + 1
    assert env.observation_space.shape == observation.shape == (size,)
    for _ in range(4):
        observation, *_ = env.step(env.action_space.sample())
        assert observation in env.observation_space
        assert observation.dtype == np.float32
    assert env.action_space == Counting.action_space
