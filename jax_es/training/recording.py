"""What is recorded of a generation."""

from typing import Any

from jax_es.runs.records import (
    GenerationRecord,
    evaluation_fields,
    return_statistics,
)
from jax_es.training.generation import Generation


def generation_record(generation: Generation, elapsed: float) -> GenerationRecord:
    """Summarises a generation for people and plots.

    Args:
        generation: the outcome.
        elapsed: seconds since the run began.
    """
    population, evaluation = generation.population, generation.evaluation
    returns: dict[str, Any] = return_statistics(population.returns)._asdict()
    num_nonfinite = returns.pop("num_nonfinite")
    info = generation.info._asdict()
    info.pop("num_nonfinite", None)  # of members, where the record counts episodes
    env_steps = population.env_steps + evaluation.env_steps
    seconds: dict[str, Any] = generation.seconds
    other = 2 * seconds["total"] - sum(seconds.values())
    return GenerationRecord(
        generation=int(generation.state.es.generation) - 1,
        env_steps=env_steps,
        total_env_steps=generation.state.total_env_steps,
        num_episodes=len(population.returns),
        **{f"return_{name}": value for name, value in returns.items()},
        fitness_mean=return_statistics(generation.fitness).mean,
        num_nonfinite=num_nonfinite,
        num_failed=int(population.failed.sum()),
        episode_length_mean=float(population.lengths.mean()),
        episode_length_max=int(population.lengths.max()),
        step_cap=generation.step_cap,
        **evaluation_fields(evaluation.returns, evaluation.lengths),
        best_evaluation_return=generation.state.best_evaluation_return,
        **generation.about_commands,
        **info,
        slot_utilization=generation.slot_utilization,
        **{f"seconds_{name}": value for name, value in seconds.items()},
        seconds_other=other,
        env_steps_per_second=env_steps / seconds["total"],
        seconds_elapsed=elapsed,
    )
