"""Probe environments: exact arithmetic, known optimum, any episode length."""

import gymnasium
import numpy as np


class TargetEnv:
    """Hit a target drawn from the seed; the return is −Σ‖action − target‖².

    Observations are ``[target, timestep]`` in exact binary fractions, and an episode
    lasts ``min_steps + seed % (max_steps − min_steps + 1)`` steps, so a task's return
    can be computed by hand. The optimum is 0: the action equal to the target.
    """

    def __init__(self, num_envs: int, min_steps: int = 2, max_steps: int = 9) -> None:
        self.num_envs = num_envs
        self.min_steps = min_steps
        self.max_episode_steps = max_steps
        self.single_observation_space = gymnasium.spaces.Box(-8, 8, (3,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self._target = np.zeros((num_envs, 2))
        self._length = np.ones(num_envs, int)
        self._step = np.zeros(num_envs, int)
        self._ended = np.ones(num_envs, bool)
        self._halted = np.zeros(num_envs, bool)
        self.steps_of_live_envs = 0

    def _observe(self) -> np.ndarray:
        time = self._step[:, None] / 8
        return np.concatenate([self._target, time], axis=1).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seed = np.asarray(seed)
        spread = self.max_episode_steps - self.min_steps + 1
        for env in np.flatnonzero(mask):
            draws = np.random.default_rng(seed[env]).integers(-6, 7, 2)
            self._target[env] = draws / 8
            self._length[env] = self.min_steps + seed[env] % spread
        self._step[mask] = 0
        self._ended[mask] = False
        self._halted[mask] = False
        return self._observe(), {}

    def step(self, actions):
        live = ~self._ended
        self.steps_of_live_envs += live.sum()
        error = np.asarray(actions, np.float64) - self._target
        reward = np.where(live, -np.square(error).sum(axis=1), 0.0)
        self._step[live] += 1
        self._ended |= self._step >= self._length
        terminated = self._ended & ~self._halted
        return self._observe(), reward, terminated, self._halted.copy(), {}

    def halt(self, mask):
        self._halted |= mask & ~self._ended
        self._ended |= mask

    def close(self):
        pass
