"""How fast physics alone is: the limit of every rollout on this machine.

``mujoco.batch`` steps Humanoid under random actions, with its resets but without
observations, rewards or policies. Fallen bodies cost more than falling ones, so there
are two regimes:

- ``trained``: nothing but a limit ends an episode, drawn from 20 to 1000 steps, about
  what a half-trained population shows. Most steps are a fallen body's.
- ``untrained``: an episode ends when the body falls, after some twenty steps.

What moves a body matters as much: one that a fresh network's small actions let fall
and lie still, in many contacts, takes a quarter to a third more time than one that
random actions throw about. Rollouts that are compared with physics therefore step
:class:`RegimeEnv`, which moves its bodies by the same random actions.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from mujoco.batch import Batch

from envs.base import EpisodeVectorEnv, thread_count
from envs.mujoco_env import MujocoVectorEnv

Regime = Literal["trained", "untrained", "atari"]
VectorEnvKind = Literal["sync", "async"]

EPISODE_LENGTHS = 20, 1000
"""Shortest and longest episode of the regime ``trained``, in environment steps."""

WARM_UP_STEPS = 40
"""Environment steps after which bodies that started upright have fallen."""

_NUM_SUBSTEPS = 5
_RESET_NOISE = 0.01
_NUM_ACTIONS = 64  # drawn before the clock runs, then used in turn


def random_lengths(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draws ``count`` episode lengths of the regime ``trained``."""
    low, high = EPISODE_LENGTHS
    return rng.integers(low, high, count, endpoint=True)


def remaining_lengths(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draws what is left of ``count`` such episodes, met at a random time.

    Long episodes are met more often, each at any of its steps alike.
    """
    low, high = EPISODE_LENGTHS
    lengths = np.arange(low, high + 1)
    met = rng.choice(lengths, count, p=lengths / lengths.sum())
    return rng.integers(1, met, endpoint=True)


def physics_speed(
    regime: Regime,
    num_envs: int,
    seconds: float,
    num_threads: int | None = None,
    seed: int = 0,
) -> float:
    """Measures environment steps/s of ``mujoco.batch`` alone, at steady state.

    Args:
        regime: what ends an episode.
        num_envs: simulations side by side.
        seconds: how long to measure, at least; warming up comes before.
        num_threads: threads that step them; one per available CPU if not given.
        seed: of starts, actions and lengths.
    """
    simulations = _Simulations(regime, num_envs, thread_count(num_threads), seed)
    for _ in range(WARM_UP_STEPS):
        simulations.step()
    return num_envs * calls_per_second(simulations.step, seconds)


class _Simulations:
    """Humanoids under random actions, each restarted when its episode ends."""

    def __init__(
        self,
        regime: Regime,
        num_envs: int,
        num_threads: int,
        seed: int,
    ) -> None:
        assets = Path(str(gymnasium.__file__)).parent / "envs/mujoco/assets"
        model = mujoco.MjModel.from_xml_path(str(assets / "humanoid.xml"))
        self._batch = Batch(model, num_envs, num_threads)
        self._qpos, self._qvel, self._ctrl = map(
            self._batch.bind, ("qpos", "qvel", "ctrl")
        )
        self._regime = regime
        self._rng = np.random.default_rng(seed)
        self._start = self._batch.state[0].copy()
        self._actions = _random_actions(
            self._rng, num_envs, *model.actuator_ctrlrange.T
        )
        self._num_steps = 0
        self._left = np.zeros(num_envs, int)
        self._reset(np.arange(num_envs))
        self._left = remaining_lengths(self._rng, num_envs)

    def step(self) -> None:
        """One environment step of every simulation, and the resets it calls for."""
        self._ctrl[:] = self._actions[self._num_steps % _NUM_ACTIONS]
        self._batch.step(nstep=_NUM_SUBSTEPS)
        self._num_steps += 1
        self._left -= 1
        if self._regime == "trained":
            ended = self._left <= 0
        else:
            height = self._qpos[:, 2]
            ended = ~((height > 1.0) & (height < 2.0))
        if ended.any():
            self._reset(np.flatnonzero(ended))

    def _reset(self, ids: np.ndarray) -> None:
        self._batch.state[ids] = self._start
        for field in (self._qpos, self._qvel):
            field[ids] += self._rng.uniform(
                -_RESET_NOISE, _RESET_NOISE, (len(ids), field.shape[1])
            )
        self._left[ids] = random_lengths(self._rng, len(ids))


def _random_actions(
    rng: np.random.Generator, num_envs: int, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Draws actions from the whole control range, for some steps to use in turn."""
    return rng.uniform(low, high, (_NUM_ACTIONS, num_envs, len(low)))


class RegimeEnv:
    """A vector environment under a regime: what a rollout steps in the benchmark.

    In ``trained`` falling ends nothing; games (``atari``) end by themselves. The
    actions it is given are replaced by random ones, as those of :func:`physics_speed`
    are: the policy's own would let bodies fall and lie in another way, and the two
    could not be compared.

    Args:
        env: the environment; everything but :meth:`step` is its own.
        seed: of the random actions.
    """

    def __init__(self, env: EpisodeVectorEnv, seed: int = 0) -> None:
        self._env = env
        rng, space = np.random.default_rng(seed), env.single_action_space
        if isinstance(space, gymnasium.spaces.Box):
            actions = _random_actions(rng, env.num_envs, space.low, space.high)
        else:
            actions = rng.integers(space.n, size=(_NUM_ACTIONS, env.num_envs))
        self._actions = actions.astype(space.dtype)
        self._num_steps = 0
        self._own_actions = False

    def __getattr__(self, name: str) -> Any:
        """Whatever else the environment has."""
        return getattr(self._env, name)

    def enter(self, regime: Regime, own_actions: bool = False) -> None:
        """Changes the regime; call it between episodes.

        Args:
            regime: what ends an episode.
            own_actions: apply the actions that are given after all.
        """
        self._own_actions = own_actions
        if isinstance(self._env, MujocoVectorEnv):
            self._env.terminate_when_unhealthy = regime == "untrained"

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Applies random actions instead of those given."""
        if not self._own_actions:
            actions = self._actions[self._num_steps % _NUM_ACTIONS]
            self._num_steps += 1
        return self._env.step(actions)


def vector_env_speed(kind: VectorEnvKind, num_envs: int, seconds: float) -> float:
    """Measures environment steps/s of Gymnasium's own vector environments.

    Humanoid-v5 under random actions; episodes end when the body falls.

    Args:
        kind: one after the other in this process, or each in its own process.
        num_envs: environments side by side.
        seconds: how long to measure, at least.
    """
    makers: list[Callable[[], gymnasium.Env]] = [
        lambda: gymnasium.make("Humanoid-v5")
    ] * num_envs
    # The default mode would spend a step of each episode on its reset alone.
    mode = AutoresetMode.SAME_STEP
    if kind == "sync":
        env = SyncVectorEnv(makers, autoreset_mode=mode)
    else:
        # Never fork: the caller's threads would not survive it.
        env = AsyncVectorEnv(makers, autoreset_mode=mode, context="spawn")
    rng = np.random.default_rng(0)
    actions = rng.uniform(env.action_space.low, env.action_space.high)
    actions = actions.astype(np.float32)
    env.reset(seed=0)
    try:
        return num_envs * calls_per_second(lambda: env.step(actions), seconds)
    finally:
        env.close()


def calls_per_second(call: Callable[[], object], seconds: float) -> float:
    """Calls again and again for at least ``seconds``; returns the mean rate."""
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds or count == 0:
        call()
        count += 1
    return count / elapsed
