"""Evaluates runs: ``python -m jax_es.evaluate RUN [RUN …]``.

Does a policy heed the return that it is asked for (``--target-returns``), and does it
survive rounded (``--weights``) and noisy weights (``--weight-noise``)? Each option is a
sweep of its own from the policy as it was trained. All conditions meet the same seeds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from jax_es.checks import require
from jax_es.cli.options import input_errors, parse_options, run_program
from jax_es.cli.workers import WorkerArguments
from jax_es.config import Precision
from jax_es.runs.files import check_writable
from jax_es.runs.find import find_runs

if TYPE_CHECKING:
    from jax_es.evaluation.conditions import Condition, Evaluation, SeedGroup
    from jax_es.rollout.evaluator import EpisodeResults


@dataclasses.dataclass(frozen=True)
class Arguments(WorkerArguments):
    """Evaluates the mean policies of runs."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, runs/NAME, or experiment folders with runs seed-0, seed-1, … in
    them. All must have the same environment. Runs that differ in their seeds alone are
    also summarised together, over their mean returns."""
    checkpoint: str = "best"
    """best (highest evaluation return in training), last, or a number of finished
    generations."""
    episodes: int = 100
    """Episodes to run, under each condition."""
    seed: int = 0
    """Seeds the episodes, alike under all conditions; training used others."""
    target_returns: tuple[float, ...] = ()
    """Also ask the policy (a decision-transformer) for each of these returns, in the
    environment's unit; with a rank test between them."""
    weights: tuple[Precision, ...] = ()
    """Also round all weights to each of these, and compute in float32 with the rounded
    values. Integers are symmetric with a scale per output channel; a bias or another
    vector has one scale."""
    weight_noise: tuple[float, ...] = ()
    """Also add normal noise of each of these standard deviations to every weight; each
    episode has a draw of its own, so statistics are over draws as well."""
    random_actions: bool = False
    """Also play the episodes with uniformly random actions, as a baseline."""
    trust: bool = False
    """Import the module that a run's environment names (module:id); it may run any
    code."""
    json: bool = False
    """Print one JSON object instead of a table."""
    csv: Path | None = None
    """Also write a row for each condition of each run into this file."""
    video: Path | None = None
    """Also record the first episode of the first run, as it was trained, into this file
    (.mp4 or .gif); of a game with sticky actions, another episode."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        from jax_es.evaluation.video import check_encoder

        require(self.runs != (), "RUN is required; give at least one run's folder.")
        require(
            self.episodes >= 1, f"--episodes must be at least 1, got {self.episodes}."
        )
        require(self.seed >= 0, f"--seed must be at least 0, got {self.seed}.")
        for value in self.target_returns:
            require(
                math.isfinite(value),
                f"--target-returns must be finite, got {value}; leave it out.",
            )
        for value in self.weight_noise:
            require(
                0 < value < math.inf,
                f"--weight-noise must be positive and finite, got {value}; the policy "
                "without noise is always evaluated.",
            )
        if self.video is not None:
            check_encoder(self.video)


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with contextlib.ExitStack() as stack:
        return _run(argv, stack)


def _run(argv: list[str], stack: contextlib.ExitStack) -> int:
    with input_errors():
        arguments = parse_options(Arguments, argv, "evaluate")
        from jax_es.evaluation.conditions import prepare, sweeps
        from jax_es.evaluation.tables import write_csv
        from jax_es.rollout.devices import configure_cpu_devices, use_compilation_cache

        conditions = sweeps(
            arguments.target_returns,
            arguments.weights,
            arguments.weight_noise,
            arguments.random_actions,
        )
        runs = [run for path in arguments.runs for run in find_runs(path)]
        # First, because reading a checkpoint starts JAX.
        counts = [run.config().rollout.num_devices for run in runs]
        configure_cpu_devices(max(filter(None, counts), default=None))
        use_compilation_cache()
        groups = prepare(
            runs,
            arguments.checkpoint,
            conditions,
            arguments.episodes,
            arguments.trust,
            arguments.open(stack),
        )
        check_writable("--csv", arguments.csv)
        if arguments.video is not None:
            # Before the episodes, since a machine may have no way to render.
            _record(arguments, groups[0], arguments.video)
    evaluated = _evaluate(groups, conditions, arguments)
    report = _json if arguments.json else _text
    sys.stdout.write(report(evaluated, arguments) + "\n")
    if arguments.csv is not None:
        write_csv(arguments.csv, evaluated, arguments.checkpoint, arguments.seed)
    return 0


def _record(arguments: Arguments, group: SeedGroup, file: Path) -> None:
    """Records the first of the episodes of the table."""
    from jax_es.evaluation.conditions import episode_tasks
    from jax_es.evaluation.video import record_video
    from jax_es.training.load_policy import load_policy

    path, trained = next(iter(group.trained.items()))
    # The seed decides the actions, too, of a policy that samples them.
    seed = int(episode_tasks(group.parts, 1, arguments.seed).seed[0])
    policy = load_policy(path, arguments.checkpoint, seed, arguments.trust)
    record_video(policy, trained.config.env, file, seed)


def _evaluate(
    groups: list[SeedGroup], conditions: list[Condition], arguments: Arguments
) -> list[list[Evaluation]]:
    """Evaluates everything; says how far it is where there is more than one thing."""
    from jax_es.evaluation.conditions import evaluate_experiment

    total = sum(len(group.trained) for group in groups) * len(conditions)
    done = itertools.count(1)

    def say(path: Path, condition: Condition, result: EpisodeResults) -> None:
        if total > 1:
            text = f"{path}, {condition}: {result.env_steps} environment steps"
            sys.stderr.write(f"{next(done)}/{total} {text}\n")

    return [
        evaluate_experiment(group, conditions, arguments.episodes, arguments.seed, say)
        for group in groups
    ]


def _json(evaluated: list[list[Evaluation]], arguments: Arguments) -> str:
    """Returns a run's report, or those of experiments for more than one run."""
    from jax_es.evaluation.tables import experiment_report

    origin = arguments.checkpoint, arguments.seed
    reports = [experiment_report(each, *origin) for each in evaluated]
    report: dict[str, Any] = {"experiments": reports}
    if sum(map(len, evaluated)) == 1:
        report = reports[0]["runs"][0]
    return json.dumps(report, indent=2, allow_nan=False)


def _text(evaluated: list[list[Evaluation]], arguments: Arguments) -> str:
    """Returns a table under a line that says of what."""
    from jax_es.evaluation.tables import table

    first = evaluated[0][0]
    heading = f"{first.trained.config.env.id}, checkpoint {arguments.checkpoint}"
    if sum(map(len, evaluated)) == 1:
        heading = f"{first.path}: {heading} (generation {first.trained.generation})"
    return f"{heading}, seed {arguments.seed}\n\n{table(evaluated)}"


if __name__ == "__main__":
    sys.exit(main())
