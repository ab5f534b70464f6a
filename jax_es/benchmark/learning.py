"""Generations as runs learn by them, beside their environment alone.

Where physics is cheap, what surrounds it counts: resets, bookkeeping, tails, updates. A
row is one generation of a preset with θ's own episodes and its update. Its episodes
last as long as those of a policy that has left its start. Before and after it the same
vector environment runs alone, with such lengths and its resets. Policies are computed,
but bodies move by random actions in both, so that both simulate the same.
"""

import contextlib
import itertools
import statistics
import time
from typing import Any

import jax
import numpy as np

from jax_es.benchmark.rows import LEARNING, Row, Work
from jax_es.envs.physics import EPISODE_LENGTHS, random_actions
from jax_es.presets import preset
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.tasks import Tasks
from jax_es.train_config import TrainConfig
from jax_es.training.build import with_machine
from jax_es.training.episodes import population_tasks
from jax_es.training.generation import (
    TrainState,
    guided_by,
    initial_state,
    mean_tasks,
    view,
)
from jax_es.training.parts import Parts, build

REPETITIONS = 3
"""Generations of a row; the median counts."""


def learning(row: Row, work: Work) -> dict[str, Any]:
    """Measures a row; returns its fields, as JSON values."""
    mean_length = LEARNING[row.network].mean_length
    parts = build(config_of(row.network, work))
    for env in parts.envs:  # only a limit ends an episode
        with contextlib.suppress(ValueError):  # the task has no such option
            env.terminate_when_unhealthy = False  # type: ignore
    with contextlib.closing(parts), random_actions(parts.envs):
        state = initial_state(parts)
        tasks = generation_tasks(parts, state, mean_length)
        run(parts, state, tasks)  # compiles
        alone, speeds, shares = [], [], []
        for _ in range(REPETITIONS):
            alone.append(steps_alone(parts, mean_length, work.seconds))
            started = time.perf_counter()
            result, spent = run(parts, state, tasks)
            seconds = time.perf_counter() - started
            speeds.append(result.env_steps / seconds)
            shares.append({name: part / seconds for name, part in spent.items()})
        alone.append(steps_alone(parts, mean_length, work.seconds))
        ratios = [
            speed / statistics.mean(beside)
            for speed, beside in zip(speeds, itertools.pairwise(alone), strict=True)
        ]
        middle = {name: statistics.median(s[name] for s in shares) for name in spent}
        return {
            "steps_per_second": statistics.median(speeds),
            "ratio_to_physics": statistics.median(ratios),
            "shares": {**middle, "other": max(0.0, 1 - sum(middle.values()))},
            "slot_utilization": result.slot_utilization,
            "seconds": seconds,
            "num_slots": parts.num_slots,
            "num_pairs": parts.config.es.pairs_after(mean_length),
            "physics_steps_per_second": statistics.median(alone),
        }


def config_of(name: str, work: Work) -> TrainConfig:
    """Returns the configuration of one of :data:`LEARNING`."""
    chosen = LEARNING[name]
    changes = {
        "phases": (),
        "rollout.num_groups": work.num_groups,
        **chosen.changes,
        **work.slots(),
    }
    tuned = preset(chosen.preset, chosen.policy, chosen.strategy)
    config = tuned.replace(changes)
    return with_machine(config, num_tasks=config.tasks_of_long_episodes)


def generation_tasks(parts: Parts, state: TrainState, mean_length: int) -> Tasks:
    """Lists θ's episodes and then the population's, each with its length."""
    pairs = parts.config.es.pairs_after(mean_length)
    tasks = mean_tasks(parts, state).followed_by(
        population_tasks(parts.config, 0, mean_length, 2 * pairs)
    )
    lengths = falls(np.random.default_rng(0), mean_length, len(tasks.member))
    return tasks._replace(max_steps=lengths.astype(np.int32))


def run(
    parts: Parts, state: TrainState, tasks: Tasks
) -> tuple[EpisodeResults, dict[str, float]]:
    """Runs a generation; returns what came of it, and seconds by activity."""
    config = parts.config
    population = parts.strategy.ask(state.es)
    if parts.guidance is not None:
        tasks = parts.guidance.recording(tasks)
    result = parts.rollout.evaluate(population, tasks, view(config, state))
    started = time.perf_counter()
    told = result.returns[config.evaluation.num_episodes :]
    updated, _ = jax.block_until_ready(parts.strategy.tell(state.es, told))
    guided_by(parts, state._replace(es=updated), result)
    return result, {**result.seconds, "update": time.perf_counter() - started}


def steps_alone(parts: Parts, mean_length: int, seconds: float) -> float:
    """Measures the steps/s of a vector environment with its resets."""
    env, rng = parts.env, np.random.default_rng(0)
    actions = np.zeros(env.action_space.shape or (), env.action_space.dtype)
    env.reset(seed=0)
    # Met in the midst of their episodes.
    left = rng.integers(falls(rng, mean_length, env.num_envs)) + 1
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        env.step(actions)
        count += env.num_envs
        left -= 1
        if (ended := left == 0).any():
            seed = rng.integers(2**31, size=env.num_envs)
            env.reset(seed=seed, options={"reset_mask": ended})
            left[ended] = falls(rng, mean_length, int(ended.sum()))
    return count / elapsed


def falls(rng: np.random.Generator, mean: int, count: int) -> np.ndarray:
    """Draws lengths: after the first steps bodies fall at any one alike, or never."""
    fall, longest = EPISODE_LENGTHS
    if mean == longest:
        return np.full(count, longest)
    return np.minimum(fall + rng.geometric(1 / (mean - fall), count), longest)
