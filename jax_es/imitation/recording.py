"""A vector environment that keeps every episode that is played in it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jax_es.config import require
from jax_es.streams import stream
from jax_es.types import VectorEnv

FIRST_CAPACITY = 128
"""Steps of an episode that there is room for before buffers grow."""

NOT_RECORDING = -1


class Recording(NamedTuple):
    """One whole episode of ``T`` steps.

    Attributes:
        seed: of the environment's reset.
        observations: ``[T + 1, …]``, the last one included.
        actions: ``[T, …]``, as they were executed.
        rewards: ``[T]`` float64.
        terminations: ``[T]`` bool, true at most in the last step.
        truncations: ``[T]`` bool, likewise.
    """

    seed: int
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are; they are not where a simulation failed."""
        parts = self.observations, self.actions, self.rewards
        return all(bool(np.isfinite(part).all()) for part in parts)


class RecordingEnv:
    """An environment whose episodes are handed over as they end.

    Episodes that are halted are dropped. Memory is that of the episodes under way, at
    most doubled.

    Args:
        env: what is played; its resets must be given seeds.
        action_noise: standard deviation of the normal noise added to each action
            before it is executed, in halves of the action's range. The policy does not
            learn of it.
        noise_seed: with an episode's own seed, of its noise.
        on_episode: called with every episode that ended.

    Raises:
        ConfigError: if there is noise and actions have no range.
    """

    def __init__(
        self,
        env: VectorEnv,
        action_noise: float,
        noise_seed: int,
        on_episode: Callable[[Recording], None],
    ) -> None:
        self._env = env
        self.num_envs = env.num_envs
        self.single_observation_space = env.single_observation_space
        self.single_action_space = env.single_action_space
        self.resets_at_once = getattr(env, "resets_at_once", 1)
        if action_noise:
            check_noise(self.single_action_space)
        self._noise, self._noise_seed = action_noise, noise_seed
        self._generators: dict[int, np.random.Generator] = {}
        self._on_episode = on_episode
        self._seed = np.full(env.num_envs, NOT_RECORDING, np.int64)
        self._length = np.zeros(env.num_envs, np.int64)
        self._allocate(FIRST_CAPACITY)

    @property
    def action_space(self) -> Any:
        """The action space of all environments together."""
        return self._env.action_space

    @property
    def max_episode_steps(self) -> int:
        """The environment's own limit on an episode."""
        return self._env.max_episode_steps

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts episodes; see :class:`jax_es.types.VectorEnv`."""
        observation, info = self._env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        started = np.flatnonzero(mask)
        self._seed[started] = np.asarray(seed)[started]
        self._length[started] = 0
        self._observations[started, 0] = observation[started]
        if self._noise:
            for i in started.tolist():
                self._generators[i] = stream(
                    self._noise_seed, "action noise", self._seed[i]
                )
        return observation, info

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Executes actions, noise added; see :class:`jax_es.types.VectorEnv`."""
        live = np.flatnonzero(self._seed != NOT_RECORDING)
        if self._noise:
            actions = self._perturbed(actions, live)
        result = self._env.step(actions)
        observation, reward, terminated, truncated, _ = result
        at = self._length[live]
        if len(live) and at.max() + 1 == self._observations.shape[1]:
            self._allocate(2 * self._observations.shape[1])
        self._observations[live, at + 1] = observation[live]
        self._actions[live, at] = actions[live]
        self._rewards[live, at] = reward[live]
        self._length[live] += 1
        for i in live[(terminated | truncated)[live]].tolist():
            self._on_episode(self._recording(i, terminated[i], truncated[i]))
            self._seed[i] = NOT_RECORDING
        return result

    def halt(self, mask: np.ndarray) -> None:
        """Ends episodes from outside; they are not recorded."""
        self._env.halt(mask)
        self._seed[mask] = NOT_RECORDING

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _perturbed(self, actions: np.ndarray, live: np.ndarray) -> np.ndarray:
        """Returns actions with noise, inside their range; each episode has its own."""
        space = self.single_action_space
        half = (space.high - space.low) / 2
        noise = np.zeros(actions.shape)
        for i in live.tolist():
            noise[i] = self._generators[i].standard_normal(space.shape)
        noisy = np.clip(actions + self._noise * half * noise, space.low, space.high)
        return noisy.astype(actions.dtype)

    def _recording(self, i: int, *ended: np.ndarray) -> Recording:
        """Copies the episode of environment ``i``."""
        length = int(self._length[i])
        flags = np.zeros((2, length), bool)
        flags[:, -1] = ended
        return Recording(
            int(self._seed[i]),
            self._observations[i, : length + 1].copy(),
            self._actions[i, :length].copy(),
            self._rewards[i, :length].copy(),
            *flags,
        )

    def _allocate(self, capacity: int) -> None:
        """Makes room for ``capacity`` observations of each episode."""

        def room(shape: tuple[int, ...], dtype: Any, name: str) -> np.ndarray:
            buffer = np.zeros((self.num_envs, capacity, *shape), dtype)
            held = getattr(self, name, None)
            if held is not None:
                buffer[:, : held.shape[1]] = held
            return buffer

        space, action = self.single_observation_space, self.single_action_space
        self._observations = room(space.shape, space.dtype, "_observations")
        self._actions = room(action.shape, action.dtype, "_actions")
        self._rewards = room((), np.float64, "_rewards")


def check_noise(action_space: Any) -> None:
    """Raises ``ConfigError`` unless actions have a range, of which noise is a share."""
    bounds = [getattr(action_space, name, np.inf) for name in ("low", "high")]
    require(
        all(bool(np.isfinite(bound).all()) for bound in bounds),
        f"--action-noise is a share of the actions' range, and {action_space} has none;"
        " leave it out.",
    )
