"""A vector environment that hands over every episode that is played in it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jax_es.checks import require
from jax_es.streams import stream
from jax_es.types import VectorEnv


class RecordedEpisode(NamedTuple):
    """One whole episode of ``T`` steps."""

    seed: int
    """Of the environment's reset."""
    observations: np.ndarray
    """``[T + 1, …]``, the last one included."""
    actions: np.ndarray
    """``[T, …]``, as they were executed."""
    rewards: np.ndarray
    """``[T]`` float64."""
    terminations: np.ndarray
    """``[T]`` bool, true at most in the last step."""
    truncations: np.ndarray
    """``[T]`` bool, likewise."""

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are; they are not where a simulation failed."""
        parts = self.observations, self.actions, self.rewards
        return all(bool(np.isfinite(part).all()) for part in parts)


class _Playing(NamedTuple):
    """An episode under way, with the generator of its noise."""

    seed: int
    noise: np.random.Generator
    observations: list[np.ndarray]
    actions: list[np.ndarray]
    rewards: list[float]


class RecordingEnv:
    """An environment whose episodes are handed over as they end; halted ones are not.

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
        on_episode: Callable[[RecordedEpisode], None],
    ) -> None:
        self._env = env
        self.num_envs = env.num_envs
        self.single_observation_space = env.single_observation_space
        self.single_action_space = space = env.single_action_space
        self.max_episode_steps = env.max_episode_steps
        self.resets_at_once = getattr(env, "resets_at_once", 1)
        self.close = env.close
        bounds = [getattr(space, name, np.inf) for name in ("low", "high")]
        require(
            not action_noise or all(np.isfinite(bound).all() for bound in bounds),
            f"--action-noise is a share of the actions' range, and {space} has none; "
            "leave it out.",
        )
        self._action_noise, self._noise_seed = action_noise, noise_seed
        self._on_episode = on_episode
        self._playing: dict[int, _Playing] = {}

    @property
    def action_space(self) -> Any:
        """The action space of all environments together."""
        return self._env.action_space

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts episodes; see :class:`jax_es.types.VectorEnv`."""
        observation, info = self._env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for i in np.flatnonzero(mask).tolist():
            noise = stream(self._noise_seed, "action noise", seed[i])
            first = [observation[i].copy()]
            self._playing[i] = _Playing(int(seed[i]), noise, first, [], [])
        return observation, info

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Executes actions, noise added; see :class:`jax_es.types.VectorEnv`."""
        if self._action_noise:
            actions = self._with_noise(actions)
        result = self._env.step(actions)
        observation, reward, terminated, truncated, _ = result
        for i, episode in list(self._playing.items()):
            episode.observations.append(observation[i].copy())
            episode.actions.append(actions[i].copy())
            episode.rewards.append(float(reward[i]))
            if terminated[i] or truncated[i]:
                del self._playing[i]
                flags = np.zeros((2, len(episode.rewards)), bool)
                flags[:, -1] = terminated[i], truncated[i]
                parts = episode.observations, episode.actions, episode.rewards
                self._on_episode(
                    RecordedEpisode(episode.seed, *map(np.array, parts), *flags)
                )
        return result

    def halt(self, mask: np.ndarray) -> None:
        """Ends episodes from outside; they are not recorded."""
        self._env.halt(mask)
        for i in np.flatnonzero(mask).tolist():
            self._playing.pop(i, None)

    def _with_noise(self, actions: np.ndarray) -> np.ndarray:
        """Returns actions with noise, inside their range; each episode has its own."""
        space = self.single_action_space
        noise = np.zeros(actions.shape)
        for i, episode in self._playing.items():
            noise[i] = episode.noise.standard_normal(space.shape)
        noise *= self._action_noise * (space.high - space.low) / 2
        return np.clip(actions + noise, space.low, space.high).astype(actions.dtype)
