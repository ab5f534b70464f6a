"""How fast Atari emulators alone are: the limit of every rollout of a game.

ale-py's own vector environment plays Hero at random on all threads, frames and the
restarts of ended games included, without policies and without seeds.
"""

import functools
from typing import Any

import numpy as np

from envs.atari_env import AtariOptions, make_batch, rom_name
from envs.base import thread_count
from envs.physics import calls_per_second

GAME = "hero"

MEAN_LENGTH = 600
"""Agent steps of a game played at random, roughly (451 and 626 were measured)."""


def emulation_speed(
    num_envs: int, seconds: float, num_threads: int | None = None
) -> float:
    """Measures agent steps/s (four frames each) of ``AtariVectorEnv`` alone.

    Args:
        num_envs: emulators side by side; starting one takes 0.1 s, once a process.
        seconds: how long to measure, at least.
        num_threads: threads that step them; one per available CPU if not given.
    """
    env = _emulators(num_envs, thread_count(num_threads))
    rng = np.random.default_rng(0)
    size = 64, num_envs
    actions = rng.integers(env.single_action_space.n, size=size, dtype=np.int32)
    steps = iter(range(2**62))

    def step() -> None:
        env.step(actions[next(steps) % len(actions)])

    for _ in range(8):
        step()
    return num_envs * calls_per_second(step, seconds)


@functools.cache
def _emulators(num_envs: int, num_threads: int) -> Any:
    """Returns ale-py's vector environment in the protocol of ``atari_env.py``."""
    return make_batch(rom_name(GAME), num_envs, AtariOptions(), num_threads)
