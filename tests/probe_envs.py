"""Probe environments: exact arithmetic, known optimum, any episode length."""

from collections.abc import Mapping

import gymnasium
import numpy as np

BREAKS_AT = 1
"""The timestep at which the broken episodes of a probe environment break."""


class TargetEnv:
    """Hit a target drawn from the seed; the return is −Σ‖action − target‖².

    Observations are ``[target, timestep]`` in exact binary fractions, and an episode
    lasts ``min_steps + seed % (max_steps − min_steps + 1)`` steps, so a task's return
    can be computed by hand. The optimum is 0: the action equal to the target.

    Args:
        num_envs: how many environments.
        min_steps: of the shortest episode.
        max_steps: of the longest episode.
        broken: by seed, what goes wrong at timestep ``BREAKS_AT``: the reward is
            ``"nan"``, ``"inf"`` or ``"-inf"``, the next observation is NaN
            (``"observation"``), or the simulation fails (``"failed"``).

    Attributes:
        started: the seeds of all episodes so far, in order.
        steps_of_live_envs: steps that were not idle.
    """

    def __init__(
        self,
        num_envs: int,
        min_steps: int = 2,
        max_steps: int = 9,
        broken: Mapping[int, str] | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.min_steps = min_steps
        self.max_episode_steps = max_steps
        self.single_observation_space = gymnasium.spaces.Box(-8, 8, (3,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.broken = dict(broken or {})
        self.started: list[int] = []
        self.steps_of_live_envs = 0
        self._seed = np.zeros(num_envs, int)
        self._target = np.zeros((num_envs, 2))
        self._length = np.ones(num_envs, int)
        self._step = np.zeros(num_envs, int)
        self._ended = np.ones(num_envs, bool)
        self._halted = np.zeros(num_envs, bool)
        self._observation = np.zeros((num_envs, 3), np.float32)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seed = np.asarray(seed)
        for env in np.flatnonzero(mask):
            self._seed[env] = seed[env]
            self._target[env] = self.target(seed[env])
            self._length[env] = self.length(seed[env])
            self.started.append(int(seed[env]))
        self._step[mask] = 0
        self._ended[mask] = False
        self._halted[mask] = False
        # Others keep theirs, broken or not.
        self._observation[mask] = self._observe()[mask]
        return self._observation.copy(), {}

    def step(self, actions):
        live = ~self._ended
        self.steps_of_live_envs += int(live.sum())
        reward = np.where(live, self._pay(np.asarray(actions)), 0.0)
        breaks = np.array([self.broken.get(s, "") for s in self._seed.tolist()])
        breaks[~live | (self._step != BREAKS_AT)] = ""
        for kind in ("nan", "inf", "-inf"):
            reward[breaks == kind] = float(kind)
        failed = breaks == "failed"
        reward[failed] = np.nan
        self._step[live] += 1
        self._ended |= failed | (self._step >= self._length)
        terminated = self._ended & ~self._halted
        self._observation = self._observe()
        self._observation[breaks == "observation"] = np.nan
        info = {"simulation_failed": failed} if failed.any() else {}
        observation = self._observation.copy()
        return observation, reward, terminated, self._halted.copy(), info

    def halt(self, mask):
        self._halted |= mask & ~self._ended
        self._ended |= mask

    def close(self):
        pass

    def target(self, seed: int) -> np.ndarray:
        """The target of an episode, ``[2]`` in [−0.75, 0.75]."""
        return np.random.default_rng(seed).integers(-6, 7, 2) / 8

    def length(self, seed: int) -> int:
        """The steps of an episode that nobody cuts."""
        return int(
            self.min_steps + seed % (self.max_episode_steps - self.min_steps + 1)
        )

    def _pay(self, actions: np.ndarray) -> np.ndarray:
        return -np.square(actions.astype(np.float64) - self._target).sum(axis=1)

    def _observe(self) -> np.ndarray:
        time = self._step[:, None] / 8
        return np.concatenate([self._target, time], axis=1).astype(np.float32)
