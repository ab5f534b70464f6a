"""A vector environment that hands over every episode that is played in it."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from minari.data_collector import EpisodeBuffer

from jax_es.checks import require
from jax_es.rollout.streams import stream
from jax_es.types import VectorEnv

Recorded = Literal["executed", "chosen"]
"""Of actions with noise: those with it, or the policy's own."""


class RecordingEnv:
    """An environment whose episodes are handed over as they end.

    Args:
        env: what is played; its resets must be given seeds.
        action_noise: standard deviation of the normal noise added to each action
            before it is executed, in halves of the action's range. The policy does not
            learn of it.
        noise_seed: with an episode's own seed, of its noise.
        on_episode: takes T actions, T rewards and T + 1 observations.
        recorded: which actions; with the policy's own, a network that is cloned from
            them learns to find back to its path without learning the noise (DART,
            Laskey et al. 2017, arXiv 1703.09327).
        shown: the same task, whose observations are handed over instead of those that
            the policy acts on; it meets the same seeds and actions.

    Raises:
        ConfigError: if there is noise and actions have no range, or an episode differs
            in ``shown``.
    """

    def __init__(
        self,
        env: VectorEnv,
        action_noise: float,
        noise_seed: int,
        on_episode: Callable[[EpisodeBuffer], None],
        recorded: Recorded = "executed",
        shown: VectorEnv | None = None,
    ) -> None:
        self._shown = shown
        self._env, space = env, env.single_action_space
        bounds = [getattr(space, name, np.inf) for name in ("low", "high")]
        require(
            not action_noise or all(np.isfinite(bound).all() for bound in bounds),
            f"--action-noise is a share of the actions' range, and {space} has none; "
            "leave it out.",
        )
        self._action_noise, self._noise_seed = action_noise, noise_seed
        self._on_episode, self._recorded = on_episode, recorded
        # By the index of their environment: episodes under way, and their noise.
        self._playing: dict[int, Any] = {}
        self._noise: dict[int, np.random.Generator] = {}

    def __getattr__(self, name: str) -> Any:
        """Returns what is the environment's own, such as its spaces."""
        return getattr(self._env, name)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts episodes; see :class:`jax_es.types.VectorEnv`."""
        observation, info = self._env.reset(seed=seed, options=options)
        seen = observation
        if self._shown is not None:
            seen, _ = self._shown.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask", np.ones(self._env.num_envs, bool))
        for i in np.flatnonzero(mask).tolist():
            self._noise[i] = stream(self._noise_seed, "action noise", seed[i])
            self._playing[i] = EpisodeBuffer(
                seed=int(seed[i]),
                observations=[seen[i].copy()],
                actions=[],
                infos={},
            )
        return observation, info

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Executes actions, noise added; see :class:`jax_es.types.VectorEnv`."""
        executed = self._noisy(actions) if self._action_noise else actions
        recorded = actions if self._recorded == "chosen" else executed
        result = self._env.step(executed)
        seen, reward, terminated, truncated, _ = result
        if self._shown is not None:
            seen, *outcome, _ = self._shown.step(executed)
            self._check_same(result[1:4], outcome)
        for i, episode in list(self._playing.items()):
            episode.observations.append(seen[i].copy())
            episode.actions.append(recorded[i].copy())
            episode.rewards.append(float(reward[i]))
            episode.terminations.append(bool(terminated[i]))
            episode.truncations.append(bool(truncated[i]))
            if terminated[i] or truncated[i]:
                self._on_episode(self._playing.pop(i))
        return result

    def _check_same(self, played: Any, shown: Any) -> None:
        """Raises ``ConfigError`` unless rewards and ends are alike in both."""
        live = list(self._playing)
        require(
            all(
                np.array_equal(one[live], other[live])
                for one, other in zip(played, shown, strict=True)
            ),
            "an episode differs between the environment that is recorded and the one "
            "in which the policy acts, so the dataset would be wrong; leave the --env "
            "options out.",
        )

    def _noisy(self, actions: np.ndarray) -> np.ndarray:
        """Adds each episode's own noise to its action, inside the range."""
        space = self._env.single_action_space
        noise = np.zeros(actions.shape)
        for i in self._playing:
            noise[i] = self._noise[i].standard_normal(space.shape)
        noise *= self._action_noise * (space.high - space.low) / 2
        return np.clip(actions + noise, space.low, space.high).astype(actions.dtype)


def is_finite(episode: EpisodeBuffer) -> bool:
    """Returns whether all numbers are; they are not where a simulation failed."""
    parts: Any = episode.observations, episode.actions, episode.rewards
    return all(bool(np.isfinite(part).all()) for part in parts)
