"""A generation's episodes: which ones there are, and what is recorded of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.streams import Purpose, stream
from jax_es.rollout.tasks import Tasks, tasks_of_mean
from jax_es.rollout.variations import varied
from jax_es.runs.records import evaluation_fields, return_statistics
from jax_es.train_config import TrainConfig
from jax_es.training.objective import Asked, population_commands
from jax_es.types import VectorEnv


def population_tasks(
    config: TrainConfig,
    generation: int,
    step_cap: int,
    size: int,
    asks: Asked | None = None,
    env: VectorEnv | None = None,
) -> Tasks:
    """Lists a generation's episodes: ``[P/2, episodes per member, 2]``, flattened.

    Two successive members share their environment's seed and variation and their
    command (common random numbers): an antithetic pair where there are pairs. The last
    of an odd number has no partner.

    Args:
        config: of the run.
        generation: which one.
        step_cap: the limit on each episode, in environment steps.
        size: P, the number of members.
        asks: for which returns episodes are asked, if they are.
        env: that knows variations by their names; needed if some are drawn.
    """
    episodes, num_pairs = config.es.episodes_per_member, -(-size // 2)
    rng = stream(config.seed, "population tasks", generation)
    groups = num_pairs if config.es.common_seeds == "pair" else 1
    seeds = rng.integers(2**31, size=(groups, episodes, 1), dtype=np.int32)
    members = np.arange(2 * num_pairs, dtype=np.int32).reshape(num_pairs, 1, 2)
    members, seeds = np.broadcast_arrays(members, seeds)
    exist = members < size
    total = size * episodes
    observed = np.zeros(total, bool)
    if config.rollout.observation_statistics:
        count = max(1, round(config.rollout.statistics_fraction * total))
        observed[rng.choice(total, count, replace=False)] = True
    command = None
    if asks is not None:
        commands = population_commands(asks, config.seed, generation, groups, episodes)
        command = np.broadcast_to(commands[:, :, None], members.shape)[exist]
    tasks = Tasks(
        member=members[exist],
        seed=seeds[exist],
        max_steps=np.full(total, step_cap, np.int32),
        observed=observed,
        command=command,
    )
    if env is None or not config.rollout.variation_range:
        return tasks
    rng = stream(config.seed, "variations", generation)
    values = {}
    for name, low, high in config.rollout.variation_range:
        drawn = rng.uniform(low, high, (groups, episodes, 1))
        values[name] = np.broadcast_to(drawn, members.shape)[exist]
    return varied(tasks, env, values)


def evaluation_tasks(
    seed: int,
    generation: int,
    num_episodes: int,
    max_steps: int,
    purpose: Purpose = "evaluation tasks",
) -> Tasks:
    """Lists episodes of the mean policy, on seeds of their own, never cut."""
    rng = stream(seed, purpose, generation)
    seeds = rng.integers(2**31, size=num_episodes, dtype=np.int32)
    return tasks_of_mean(seeds, max_steps)


def rollout_fields(
    population: EpisodeResults, evaluation: EpisodeResults, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Returns a record's fields about episodes, and about where the time went."""
    returns: dict[str, Any] = return_statistics(population.returns)._asdict()
    num_nonfinite = returns.pop("num_nonfinite")
    env_steps = population.env_steps + evaluation.env_steps
    return {
        "env_steps": env_steps,
        "num_episodes": len(population.returns),
        **{f"return_{name}": value for name, value in returns.items()},
        "num_nonfinite": num_nonfinite,
        "num_failed": int(population.failed.sum()),
        "episode_length_mean": float(population.lengths.mean()),
        "episode_length_max": int(population.lengths.max()),
        **evaluation_fields(evaluation.returns, evaluation.lengths),
        **{f"seconds_{name}": value for name, value in seconds.items()},
        "seconds_other": 2 * seconds["total"] - sum(seconds.values()),
        "env_steps_per_second": env_steps / seconds["total"],
    }
