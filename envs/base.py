"""What every vector environment here shares: who is alive, and who stands still.

Gymnasium's vector environments either restart ended episodes by themselves or insist
that the caller does so at once. Continuous batching needs a third behaviour: an ended
environment stands still, at no cost, until its own next reset. That rule, episode
limits, halting and the checks of arguments live here; a subclass says how episodes
start and how live ones advance.
"""

import abc
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


class EpisodeVectorEnv(gymnasium.vector.VectorEnv, abc.ABC):
    """A ``gymnasium.vector.VectorEnv`` whose ended environments stand still.

    Autoreset is disabled. An environment that has terminated, been truncated or been
    halted ignores its actions, repeats its last observation and its flags, pays 0 and
    computes nothing, until :meth:`reset` names it.

    Returned observations are a buffer that the next call overwrites; flags and rewards
    are the caller's own.

    Args:
        num_envs: how many environments run side by side.
        observation_space: of one environment, a ``Box``.
        action_space: of one environment.
        max_episode_steps: environment steps after which an episode is truncated.
        descriptor: which numbers of an episode's last observation describe it.

    Raises:
        ValueError: a count is not a positive integer, or an observation has no such
            number.
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: gymnasium.spaces.Box,
        action_space: gymnasium.Space,
        max_episode_steps: int,
        descriptor: Sequence[int] = (),
    ) -> None:
        """Sets up spaces and bookkeeping; nothing lives before its first reset."""
        size = int(np.prod(observation_space.shape))
        is_indices = not isinstance(descriptor, str)
        if not (is_indices and all(0 <= index < size for index in descriptor)):
            raise ValueError(
                f"descriptor: got {descriptor!r}, expected indices from 0 to "
                f"{size - 1}, of numbers in an observation"
            )
        self._descriptor = list(descriptor)
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.num_envs = positive_int("num_envs", num_envs)
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self._max_episode_steps = positive_int("max_episode_steps", max_episode_steps)
        self._observations = np.zeros(
            (num_envs, *observation_space.shape), observation_space.dtype
        )
        self._terminated = np.zeros(num_envs, bool)
        self._truncated = np.ones(num_envs, bool)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._was_reset = False

    @property
    def max_episode_steps(self) -> int:
        """Environment steps after which an episode is truncated."""
        return self._max_episode_steps

    @property
    def descriptor_size(self) -> int:
        """B, how many numbers describe an episode."""
        return len(self._descriptor)

    def descriptors(self) -> np.ndarray:
        """Returns ``[num_envs, B]`` float64, what each episode did so far."""
        rows = self._observations.reshape(self.num_envs, -1)
        return rows[:, self._descriptor].astype(np.float64)

    def reset(
        self,
        *,
        seed: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts episodes in some or all environments.

        Args:
            seed: ``None`` (each environment's generator goes on), one integer
                (environment ``i`` gets ``seed + i``), or ``num_envs`` integers or
                ``None``; entries outside the mask are ignored.
            options: ``{"reset_mask": mask}``, ``[num_envs]`` bool, resets only those;
                all without it. Other entries are the subclass's. Never modified.

        Returns:
            Observations ``[num_envs, ...]``, those outside the mask unchanged, and an
            info dictionary.

        Raises:
            ValueError: the seed or the mask does not fit, or an option is unknown.
        """
        self._check_open()
        remaining = dict(options or {})
        mask = np.ones(self.num_envs, bool)
        if "reset_mask" in remaining:
            mask = bool_mask(
                "options['reset_mask']", remaining.pop("reset_mask"), self.num_envs
            )
        seeds = seeds_of(seed, mask)
        info = self._start(mask, seeds, remaining)
        self._terminated[mask] = False
        self._truncated[mask] = False
        self._elapsed[mask] = 0
        self._was_reset = True
        return self._observations, info

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Applies one action to every live environment.

        Args:
            actions: ``[num_envs, ...]`` as ``action_space``; rows of ended environments
                are ignored.

        Returns:
            Observations ``[num_envs, ...]``, rewards ``[num_envs]`` float64,
            terminated and truncated ``[num_envs]`` bool, info.

        Raises:
            ValueError: the actions have another shape.
            gymnasium.error.ResetNeeded: no episode was ever started.
        """
        self._check_open()
        if not self._was_reset:
            raise gymnasium.error.ResetNeeded("step() before reset(): call reset first")
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape:
            raise ValueError(
                f"actions: got shape {actions.shape}, expected "
                f"{self.action_space.shape}: one row per environment"
            )
        live = ~(self._terminated | self._truncated)
        rewards = np.zeros(self.num_envs)
        if not live.any():
            return *self._outcome(rewards), {}
        advanced, terminated, truncated, info = self._advance(actions, live)
        np.copyto(rewards, advanced, where=live)
        self._elapsed += live
        self._terminated |= live & terminated
        self._truncated |= live & (
            truncated | (self._elapsed >= self._max_episode_steps)
        )
        return *self._outcome(rewards), info

    def halt(self, mask: np.ndarray) -> None:
        """Ends episodes from outside; those environments wait for their next reset.

        Args:
            mask: ``[num_envs]`` bool. Live ones become truncated; those that had ended
                keep their flags.

        Raises:
            ValueError: the mask has another shape or type.
        """
        mask = bool_mask("mask", mask, self.num_envs)
        self._truncated |= mask & ~self._terminated

    @abc.abstractmethod
    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        """Starts the episodes of ``mask`` and writes their rows of observations.

        Args:
            mask: ``[num_envs]`` bool, possibly without a single True.
            seeds: one entry per True of ``mask``, in order.
            options: the caller's, without the mask.

        Returns:
            The info dictionary.
        """

    @abc.abstractmethod
    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | bool, dict[str, Any]]:
        """Applies actions where ``live`` and writes those rows of observations.

        Args:
            actions: ``[num_envs, ...]``, of the right shape.
            live: ``[num_envs]`` bool, at least one True.

        Returns:
            Rewards, terminated, truncated (other than by the limit on steps), each
            ``[num_envs]`` with any value where not live, and the info dictionary.
        """

    def _outcome(
        self, rewards: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What a step returns; flags are copied because :meth:`halt` writes them."""
        return (
            self._observations,
            rewards,
            self._terminated.copy(),
            self._truncated.copy(),
        )

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError(
                "this vector environment is closed: make a new one"
            )


def positive_int(name: str, value: Any) -> int:
    """Returns ``value`` as an int, or raises a ``ValueError`` that names it."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least 1")
    return int(value)


def thread_count(num_threads: int | None) -> int:
    """Returns ``num_threads``, checked, or as many as there are cores for ``None``."""
    if num_threads is None:
        return available_cores()
    return positive_int("num_threads", num_threads)


def bool_mask(name: str, value: Any, num_envs: int) -> np.ndarray:
    """Returns ``value`` as a ``[num_envs]`` bool array, or raises a ``ValueError``."""
    mask = np.asarray(value)
    if mask.dtype != bool or mask.shape != (num_envs,):
        raise ValueError(
            f"{name}: got {mask.dtype} of shape {mask.shape}, expected bool of shape "
            f"({num_envs},): one entry per environment"
        )
    return mask


def seeds_of(seed: Any, mask: np.ndarray) -> list[int | None]:
    """Returns the seed of every environment in ``mask``.

    Args:
        seed: ``None``, one integer (environment ``i`` gets ``seed + i``), or one
            integer or ``None`` per environment.
        mask: ``[num_envs]`` bool.

    Returns:
        As many entries as ``mask`` has True, in order.

    Raises:
        ValueError: wrong number of seeds, or a needed one is no integer ≥ 0.
    """
    chosen = np.flatnonzero(mask).tolist()
    if seed is None:
        return [None] * len(chosen)
    if np.ndim(seed) == 0:
        first = _seed("seed", seed)
        return [first + i for i in chosen]
    if np.ndim(seed) != 1 or len(seed) != len(mask):
        raise ValueError(
            f"seed: got shape {np.shape(seed)}, expected ({len(mask)},): one seed per "
            "environment, or a single integer"
        )
    return [None if seed[i] is None else _seed(f"seed[{i}]", seed[i]) for i in chosen]


def _seed(name: str, value: Any) -> int:
    """Returns ``value`` as a Python int ≥ 0, which is what Gymnasium accepts."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < 0:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least 0")
    return int(value)


def is_atari(env_id: str) -> bool:
    """Returns whether an environment's id is that of a game."""
    return env_id.startswith("ALE/")


def available_cores() -> int:
    """Returns the number of CPU cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone says which are this process'
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_cores(count: int) -> None:
    """Leaves this process ``count`` of its cores, before it starts threads.

    Only Linux can; elsewhere, and where there are no more, nothing changes.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
