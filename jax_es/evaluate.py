"""Evaluates a run: ``python -m jax_es.evaluate RUN [--checkpoint best|last|N]``."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from jax_es.command_line import input_errors, parse_options, run_program
from jax_es.config import require
from jax_es.devices import configure_cpu_devices, use_compilation_cache
from jax_es.generation import Parts, build, evaluate_mean, evaluation_tasks
from jax_es.loading import TrainedMean, check_fits, load_mean, load_policy
from jax_es.rollout import RolloutResult
from jax_es.run_directory import find_run
from jax_es.video import check_format, record_video

SEED_STREAM = 2**20
"""Stands where training has the generation: evaluation meets episodes of its own."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Evaluates the mean policy of a run's checkpoint."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder, runs/NAME."""
    checkpoint: str = "best"
    """best (highest evaluation return in training), last, or a number of finished
    generations."""
    episodes: int = 100
    """Episodes to run."""
    seed: int = 0
    """Seeds the episodes; training used others."""
    json: bool = False
    """Print one JSON object instead of a table."""
    video: Path | None = None
    """Also record one episode into this file (.mp4 or .gif)."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        require(
            self.episodes >= 1, f"--episodes must be at least 1, got {self.episodes}."
        )
        require(self.seed >= 0, f"--seed must be at least 0, got {self.seed}.")
        if self.video is not None:
            check_format(self.video)


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with input_errors():
        arguments = parse_options(Arguments, argv, prog="python -m jax_es.evaluate")
        # First, because reading a checkpoint starts JAX.
        configure_cpu_devices(find_run(arguments.run).config().rollout.num_devices)
        use_compilation_cache()
        trained = load_mean(arguments.run, arguments.checkpoint)
        parts = build(_for_evaluation(trained, arguments.episodes))
        check_fits(trained, parts.policy)
    result = evaluate(parts, trained, arguments.episodes, arguments.seed)
    report = {
        "run": str(arguments.run),
        "env_id": trained.config.env.id,
        "checkpoint": arguments.checkpoint,
        "generation": trained.generation,
        "seed": arguments.seed,
        **summary(result),
    }
    text = json.dumps(report, indent=2) if arguments.json else _table(report)
    sys.stdout.write(text + "\n")
    if arguments.video is not None:
        with input_errors():
            policy = load_policy(arguments.run, arguments.checkpoint)
            seed = int(_tasks(parts, 1, arguments.seed).seed[0])
            record_video(policy, trained.config.env, arguments.video, seed)
    return 0


def evaluate(
    parts: Parts, trained: TrainedMean, num_episodes: int, seed: int
) -> RolloutResult:
    """Runs episodes of a trained mean policy, each to its own end."""
    tasks = _tasks(parts, num_episodes, seed)
    return evaluate_mean(
        parts, trained.mean, trained.statistics, tasks, trained.reference
    )


def _tasks(parts: Parts, num_episodes: int, seed: int):
    return evaluation_tasks(
        seed, SEED_STREAM, num_episodes, parts.env.max_episode_steps
    )


def _for_evaluation(trained: TrainedMean, num_episodes: int):
    """Returns the run's configuration with no more slots than episodes."""
    config = trained.config
    slots = min(config.rollout.num_slots, num_episodes)
    rollout = dataclasses.replace(config.rollout, num_slots=slots)
    return dataclasses.replace(config, rollout=rollout)


def summary(result: RolloutResult) -> dict[str, Any]:
    """Summarises episodes: returns and lengths, quartiles linearly interpolated.

    Episodes whose return is not finite are counted and left out of the statistics.
    """
    finite = np.isfinite(result.returns)
    returns = result.returns[finite]
    report: dict[str, Any] = {
        "episodes": len(result.returns),
        "nonfinite_returns": int((~finite).sum()),
        "length_mean": float(result.lengths.mean()),
        "length_min": int(result.lengths.min()),
        "length_max": int(result.lengths.max()),
    }
    if not len(returns):
        return report
    low, median, high = np.percentile(returns, [25, 50, 75])
    return report | {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_min": float(returns.min()),
        "return_quartile_1": float(low),
        "return_median": float(median),
        "return_quartile_3": float(high),
        "return_max": float(returns.max()),
    }


def _table(report: dict[str, Any]) -> str:
    width = max(map(len, report))
    return "\n".join(
        f"{name:<{width}}  {value:.2f}"
        if isinstance(value, float)
        else f"{name:<{width}}  {value}"
        for name, value in report.items()
    )


if __name__ == "__main__":
    sys.exit(main())
