"""Random play: the reference batch of virtual batch normalisation, and a baseline.

The reference batch is gathered once, before the first generation, and then belongs to
the run: it is part of every checkpoint. Source: Salimans et al. 2017, arXiv 1703.03864,
§2.2.
"""

import copy

import numpy as np

from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.streams import stream
from jax_es.rollout.tasks import Tasks
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
    rng = stream(seed, "reference batch")
    env.action_space.seed(int(rng.integers(2**31)))

    def seeds() -> np.ndarray:
        return rng.integers(2**31, size=env.num_envs)

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


def play_at_random(env: VectorEnv, tasks: Tasks) -> EpisodeResults:
    """Runs episodes with actions drawn uniformly from the action space.

    An episode's actions depend on its own seed alone.

    Args:
        env: runs ``num_envs`` episodes at a time.
        tasks: the episodes; of each, the seed and the most steps.
    """
    num_tasks, space = len(tasks.seed), env.single_action_space
    result = EpisodeResults.empty(num_tasks)
    actions = np.zeros((env.num_envs, *space.shape), space.dtype)
    for first in range(0, num_tasks, env.num_envs):
        here = np.arange(first, min(first + env.num_envs, num_tasks))
        spaces = [copy.deepcopy(space) for _ in here]
        for own, seed in zip(spaces, tasks.seed[here].tolist(), strict=True):
            own.seed(int(stream(seed, "random actions").integers(2**31)))
        live = np.arange(env.num_envs) < len(here)
        seeds = np.resize(tasks.seed[here], env.num_envs)
        env.halt(~live)
        env.reset(seed=seeds, options={"reset_mask": live})
        while live.any():
            for i in np.flatnonzero(live):
                actions[i] = spaces[i].sample()
            _, reward, terminated, truncated, info = env.step(actions)
            at = here[live[: len(here)]]
            result.returns[at] += reward[live]
            result.lengths[at] += 1
            if "simulation_failed" in info:
                result.failed[at] |= info["simulation_failed"][live]
            live[: len(here)] &= result.lengths[here] < tasks.max_steps[here]
            live &= ~(terminated | truncated)
    steps = int(result.lengths.sum())
    return result._replace(env_steps=steps, computed_steps=steps)
