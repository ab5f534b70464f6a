"""What is recorded of a generation's episodes."""

from collections.abc import Mapping
from typing import Any

from jax_es.rollout.evaluator import EpisodeResults
from jax_es.runs.records import evaluation_fields, return_statistics


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
