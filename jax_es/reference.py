"""The reference batch of virtual batch normalisation: observations of random play.

It is gathered once, before the first generation, and then belongs to the run: it is
part of every checkpoint. Source: Salimans et al. 2016, arXiv 1606.03498, §3.5.
"""

import numpy as np

from jax_es.types import VectorEnv

STEPS_BETWEEN = 16
"""Steps of play between two observations of one environment that are kept."""


def reference_batch(env: VectorEnv, size: int, seed: int) -> np.ndarray:
    """Plays at random and keeps an observation now and then.

    Args:
        env: played in all its environments; their number is part of what decides the
            result.
        size: R.
        seed: seeds the actions and the episodes.

    Returns:
        ``[R, …]``, of the observations' own type.
    """
    random = np.random.default_rng([seed, 2])
    env.action_space.seed(int(random.integers(2**31)))

    def seeds() -> np.ndarray:
        return random.integers(2**31, size=env.num_envs)

    observations, _ = env.reset(seed=seeds())
    kept = np.zeros((size, *observations.shape[1:]), observations.dtype)
    for first in range(0, size, env.num_envs):
        for _ in range(STEPS_BETWEEN):
            observations, _, terminated, truncated, _ = env.step(
                env.action_space.sample()
            )
            ended = terminated | truncated
            if ended.any():
                observations, _ = env.reset(seed=seeds(), options={"reset_mask": ended})
        part = kept[first : first + env.num_envs]
        part[:] = observations[: len(part)]
    return kept
