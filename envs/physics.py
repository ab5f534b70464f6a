"""How fast the simulators alone are: what every rollout here is compared with.

Humanoid is stepped by ``mujoco.batch`` under random actions, with its resets but
without observations, rewards or policies. Fallen bodies cost more than falling ones, so
there are two regimes: ``trained``, where only a limit of 20 to 1000 steps ends an
episode, as in a half-trained population, and ``untrained``, where a fall ends it after
some twenty steps. In the regime ``atari`` ale-py's own vector environment plays Hero.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import mujoco
import numpy as np
from mujoco.batch import Batch

from jax_es.envs.base import available_cores

Regime = Literal["trained", "untrained", "atari"]

EPISODE_LENGTHS = 20, 1000
"""Shortest and longest episode of the regime ``trained``, in environment steps."""

GAME_LENGTH = 600
"""Agent steps of a game of Hero played at random, roughly (451 and 626 measured)."""

WARM_UP_STEPS = {"trained": 40, "untrained": 40, "atari": 8}
"""Environment steps after which bodies that started upright have fallen."""

ENVS_PER_CORE = {"trained": 128, "untrained": 128, "atari": 16}
"""As many as the most slots, since the fixed costs of a step weigh on physics too; more
emulators are no faster."""


def simulator_speed(regime: Regime, seconds: float) -> float:
    """Measures environment steps/s (of games, agent steps of four frames) on all cores.

    Args:
        regime: what is simulated, and what ends an episode.
        seconds: how long to measure, at least; warming up comes before.
    """
    threads = available_cores()
    count = ENVS_PER_CORE[regime] * threads
    if regime == "atari":
        step = _emulators(count, threads)
    else:
        step = Humanoids(regime, count, threads).step
    for _ in range(WARM_UP_STEPS[regime]):
        step()
    return count * calls_per_second(step, seconds)


class Humanoids:
    """Humanoids under random actions, each started again when its episode ends.

    Attributes:
        left: ``[num_envs]``, steps until each is started again (``trained``).
    """

    def __init__(self, regime: Regime, num_envs: int, num_threads: int) -> None:
        assets = Path(str(gymnasium.__file__)).parent / "envs/mujoco/assets"
        model = mujoco.MjModel.from_xml_path(str(assets / "humanoid.xml"))
        self._regime = regime
        self._batch = Batch(model, num_envs, num_threads)
        self._start = self._batch.state[0].copy()
        self._moving = self._batch.bind("qpos"), self._batch.bind("qvel")
        self._ctrl = self._batch.bind("ctrl")
        self._rng = np.random.default_rng(0)
        low, high = model.actuator_ctrlrange.T
        shape = 64, num_envs, len(low)
        self._actions = itertools.cycle(self._rng.uniform(low, high, shape))
        self._reset(np.arange(num_envs))
        self.left = remaining_lengths(self._rng, num_envs)

    @property
    def height(self) -> np.ndarray:
        """``[num_envs]``, of the torsos, in metres."""
        return self._moving[0][:, 2]

    def step(self) -> None:
        """One environment step of every simulation, and the resets it calls for."""
        self._ctrl[:] = next(self._actions)
        self._batch.step(nstep=5)
        self.left -= 1
        has_fallen = ~((self.height > 1.0) & (self.height < 2.0))
        ended = self.left <= 0 if self._regime == "trained" else has_fallen
        if ended.any():
            ids = np.flatnonzero(ended)
            self._reset(ids)
            self.left[ids] = random_lengths(self._rng, len(ids))

    def _reset(self, ids: np.ndarray) -> None:
        self._batch.state[ids] = self._start
        for field in self._moving:
            field[ids] += self._rng.uniform(-0.01, 0.01, (len(ids), field.shape[1]))


@functools.cache  # starting an emulator takes 0.1 s
def _emulators(num_envs: int, num_threads: int) -> Callable[[], object]:
    """Returns what steps games of Hero on ale-py's own threads, in our protocol."""
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(
        "hero",
        num_envs,
        num_threads=num_threads,
        noop_max=0,
        use_fire_reset=False,
        repeat_action_probability=0.0,
        full_action_space=False,
    )
    env.reset()
    rng, size = np.random.default_rng(0), (64, num_envs)
    actions = rng.integers(env.single_action_space.n, size=size, dtype=np.int32)
    turns = itertools.cycle(actions)
    return lambda: env.step(next(turns))


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


@contextlib.contextmanager
def random_actions(envs: Sequence[Any]) -> Iterator[None]:
    """Lets vector environments apply random actions instead of those they are given.

    A fresh network's small actions let a body fall and lie still, in many contacts.
    That takes a quarter to a third more time than the random actions of
    :func:`simulator_speed`, and the two could not be compared.
    """
    for env in envs:
        rng, space = np.random.default_rng(0), env.single_action_space
        if isinstance(space, gymnasium.spaces.Box):
            shape = 64, env.num_envs, *space.shape
            actions = rng.uniform(space.low, space.high, shape)
        else:
            actions = rng.integers(space.n, size=(64, env.num_envs))
        turns, step = itertools.cycle(actions.astype(space.dtype)), env.step
        env.step = lambda _, step=step, turns=turns: step(next(turns))
    try:
        yield
    finally:
        for env in envs:
            del env.step


def calls_per_second(call: Callable[[], object], seconds: float) -> float:
    """Calls again and again for at least ``seconds``; returns the mean rate."""
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds or count == 0:
        call()
        count += 1
    return count / elapsed
