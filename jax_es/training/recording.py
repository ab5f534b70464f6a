"""What is recorded of a generation."""

import math

from jax_es.runs.records import GenerationRecord, return_statistics
from jax_es.training.generation import Generation


def generation_record(generation: Generation, elapsed: float) -> GenerationRecord:
    """Summarises a generation for people and plots.

    Args:
        generation: the outcome.
        elapsed: seconds since the run began.
    """
    population, evaluation = generation.population, generation.evaluation
    returns = return_statistics(population.returns)
    evaluated = return_statistics(evaluation.returns)
    env_steps = population.env_steps + evaluation.env_steps
    seconds = generation.seconds
    other = seconds["total"] - sum(v for k, v in seconds.items() if k != "total")
    return GenerationRecord(
        generation=int(generation.state.es.generation) - 1,
        env_steps=env_steps,
        total_env_steps=generation.state.total_env_steps,
        num_episodes=len(population.returns),
        return_mean=returns.mean,
        return_std=returns.std,
        return_min=returns.min,
        return_max=returns.max,
        return_p2_5=returns.p2_5,
        return_p97_5=returns.p97_5,
        fitness_mean=return_statistics(generation.fitness).mean,
        num_nonfinite=returns.num_nonfinite,
        num_failed=int(population.failed.sum()),
        episode_length_mean=float(population.lengths.mean()),
        episode_length_max=int(population.lengths.max()),
        step_cap=generation.step_cap,
        evaluation_return_mean=evaluated.mean,
        evaluation_return_std=evaluated.std,
        evaluation_return_min=evaluated.min,
        evaluation_return_max=evaluated.max,
        evaluation_num_nonfinite=evaluated.num_nonfinite,
        evaluation_length_mean=float(evaluation.lengths.mean()),
        best_evaluation_return=generation.state.best_evaluation_return,
        **generation.about_commands,
        gradient_norm=float(getattr(generation.info, "gradient_norm", math.nan)),
        novelty_mean=float(getattr(generation.info, "novelty_mean", math.nan)),
        fitness_weight=float(getattr(generation.info, "fitness_weight", math.nan)),
        num_nonfinite_descriptors=getattr(
            generation.info, "num_nonfinite_descriptors", 0
        ),
        update_norm=float(generation.info.update_norm),
        mean_norm=float(generation.info.mean_norm),
        slot_utilization=generation.slot_utilization,
        seconds_policy=seconds["policy"],
        seconds_environment=seconds["environment"],
        seconds_noise=seconds["noise"],
        seconds_update=seconds["update"],
        seconds_other=other,
        seconds_total=seconds["total"],
        env_steps_per_second=env_steps / seconds["total"],
        seconds_elapsed=elapsed,
    )
