"""An environment that shows its last steps at once, for learners without a memory."""

import math
from typing import Any

import gymnasium
import numpy as np


class HistoryObservation(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
    """Observes what a Decision Transformer reads, as one float32 vector.

    With K the context length, O numbers in an observation and A in an action, these
    parts in this order, each from the oldest step to the current one:

    - returns-to-go ``[K]``: what remains of ``target_return``, times ``reward_scale``;
    - observations ``[K, O]``;
    - actions ``[K − 1, A]`` in [-1, 1]: the current step has none yet;
    - timestep ``[1]`` of the current step, divided by ``max_timestep``.

    Steps before the episode's first are zeros, at the front. ``models/history.py``
    reads the vector.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        context_length: int,
        target_return: float,
        reward_scale: float,
        max_timestep: int,
    ) -> None:
        """Wraps an environment.

        Args:
            env: observes vectors and acts in vectors of bounded real numbers.
            context_length: K, in environment steps.
            target_return: the episode return asked for, in the reward's unit.
            reward_scale: factor from rewards to returns-to-go.
            max_timestep: what timesteps are divided by.
        """
        gymnasium.utils.RecordConstructorArgs.__init__(
            self,
            context_length=context_length,
            target_return=target_return,
            reward_scale=reward_scale,
            max_timestep=max_timestep,
        )
        gymnasium.Wrapper.__init__(self, env)
        acts: Any = env.action_space
        self._low, self._high = acts.low, acts.high
        observation_size = math.prod(env.observation_space.shape or ())
        action_size = math.prod(acts.shape)
        self._target = np.float32(target_return * reward_scale)
        self._reward_scale = np.float32(reward_scale)
        self._max_timestep = max_timestep
        self._returns_to_go = np.zeros(context_length, np.float32)
        self._observations = np.zeros((context_length, observation_size), np.float32)
        self._actions = np.zeros((context_length - 1, action_size), np.float32)
        self._timestep = 0
        size = self._vector().size
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,))

    def reset(self, **options) -> tuple[np.ndarray, dict]:
        """Starts an episode, and forgets the one before."""
        observation, info = self.env.reset(**options)
        for past in (self._returns_to_go, self._observations, self._actions):
            past[:] = 0.0
        self._timestep = 0
        self._returns_to_go[-1] = self._target
        self._observations[-1] = observation
        return self._vector(), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes a step; ``action`` is in the environment's own unit."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        scaled = 2.0 * (action - self._low) / (self._high - self._low) - 1.0
        remaining = self._returns_to_go[-1] - np.float32(reward) * self._reward_scale
        self._timestep += 1
        for past, newest in (
            (self._returns_to_go, remaining),
            (self._observations, observation),
            (self._actions, scaled),
        ):
            past[:-1] = past[1:]
            past[-1:] = newest  # a slice: of a context of one step no action is kept
        return self._vector(), float(reward), terminated, truncated, info

    def _vector(self) -> np.ndarray:
        parts = self._returns_to_go, self._observations, self._actions
        time = np.array([self._timestep / self._max_timestep], np.float32)
        return np.concatenate([*(part.ravel() for part in parts), time])
