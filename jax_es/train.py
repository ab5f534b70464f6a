"""Trains a policy: ``python -m jax_es.train [PRESET] [--policy KIND] [--options]``.

A preset is a whole configuration; options change single fields of it. ``--help``
after a preset shows its values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
import tyro

from jax_es.checks import require
from jax_es.cli.options import (
    input_errors,
    parse_options,
    run_errors,
    run_program,
    split_command_line,
)
from jax_es.cli.signals import Stopped, StopSignals, report_stopped_run
from jax_es.cli.train_program import RunArguments, start_jax, stored_run
from jax_es.cli.workers import WorkerArguments
from jax_es.config import STRATEGIES
from jax_es.presets import (
    DEFAULT_PRESET,
    PRESETS,
    check_init,
    preset,
    with_strategy,
)
from jax_es.runs.directory import (
    RunDirectory,
    check_method,
    resume_options,
    trust_option,
)
from jax_es.runs.find import how_to_use
from jax_es.runs.folders import EXPERIMENT_FILE, program_command
from jax_es.runs.method import OPENAI_ES
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.tracking import Callback, WandB, import_wandb
from jax_es.runs.trust import trust_source
from jax_es.train_config import POLICY_KINDS, CustomPolicyConfig, TrainConfig

if TYPE_CHECKING:
    from jax_es.training.seeds import SeedResult


DESCRIPTION = f"""Trains a policy with OpenAI-ES, or --strategy NAME.

PRESET: {", ".join(PRESETS)} (default: {DEFAULT_PRESET}).

KIND: {", ".join(POLICY_KINDS)}, or module:Name for a network of your own (default: the
preset's).

NAME: {", ".join(STRATEGIES)}. Its own hyperparameters are --es.kwargs.HYPERPARAMETER
VALUE; with one that it does not have the error lists those that it has.

The options' defaults below are those of the chosen preset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(RunArguments, WorkerArguments):
    """The command line, after PRESET and KIND."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    seeds: int | None = None
    """Train this many runs, one after another, into one experiment NAME/seed-…; their
    seeds count up from --seed. A single run if not given."""
    track: Literal["wandb"] | None = None
    """Where curves are sent, besides metrics.jsonl and TensorBoard's events: wandb is
    Weights & Biases (extra track). To be said again on a resume."""


class Request(NamedTuple):
    """What the user asked for."""

    config: TrainConfig
    """Of the run, or of an experiment's first run."""
    preset: str
    """Where it comes from."""
    run: RunDirectory
    """The run's folder, or the experiment's."""
    resume: bool
    """Whether to continue what is there."""
    num_seeds: int | None
    """How many runs; None for a single run, which is no experiment."""
    track: str | None
    """Where curves are sent, besides the run's folder."""
    who: WorkerArguments
    """Who evaluates."""

    def callbacks(self, path: Path) -> list[Callback]:
        """Returns those of the run in a folder."""
        return [WandB(path)] if self.track else []


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with StopSignals() as signals, contextlib.ExitStack() as stack:
        with input_errors():
            request = parse(argv)
            if request.track:
                import_wandb()  # before any work
            from jax_es.training.loop import train_run
            from jax_es.training.seeds import train_seeds

            config, preset_name, run, resume, num_seeds, _, who = request
            workers = who.open(stack)
            start_jax(1 if workers else config.rollout.num_devices)
            how_to_continue = resume_options(run)
        what = run.path, resume, preset_name
        try:
            with run_errors(run.path, how_to_continue):
                if num_seeds is None:
                    train_run(
                        config,
                        *what,
                        check_stop=signals.check,
                        callbacks=request.callbacks(run.path),
                        workers=workers,
                    )
                    text = _where_to_look(run)
                else:
                    results = train_seeds(
                        config,
                        num_seeds,
                        *what,
                        check_stop=signals.check,
                        callbacks=request.callbacks,
                        workers=workers,
                    )
                    text = _over_seeds(run, results)
        except Stopped as stop:
            return _report_stop(stop, run)
    sys.stderr.write(text + "\n")
    return 0


def parse(argv: list[str]) -> Request:
    """Reads the command line.

    Raises:
        ConfigError: for unknown names and impossible values.
    """
    line = split_command_line(argv)
    if line.resumes_as_stored:
        default, preset_name = stored_run(line).config(), "resumed"
    else:
        preset_name = DEFAULT_PRESET if line.preset is None else line.preset
        default = preset(preset_name, line.kind)
        if isinstance(default.policy, CustomPolicyConfig):
            from jax_es.training.custom_policy import with_options

            default = with_options(default)
    default = with_strategy(default, line.take_strategy())
    arguments = parse_options(
        Arguments,
        line.rest,
        "train",
        default=Arguments(config=default),
        description=DESCRIPTION,
        learning_rate="--es.learning-rate",
    )
    from jax_es.training.build import check_cores, with_game
    from jax_es.training.seeds import Experiment

    given = arguments.config.env
    require(
        given.game is None or given.id == default.env.id,
        f"--env.game {given.game} and --env.id {given.id} name two environments; leave "
        "one of them out.",
    )
    config = with_game(arguments.config)
    if arguments.resume:
        run = arguments.run_to_resume()
        check_method(run, OPENAI_ES)
        config = run.with_stored_machine(config)
        run.check_resumable(config)
        arguments.check_imports(config, run, line)
        is_experiment = run.file == EXPERIMENT_FILE
        require(
            is_experiment or arguments.seeds is None,
            f"--seeds: {run.path} is a single run, not an experiment; leave --seeds "
            "out, or start an experiment with another --name.",
        )
        num_seeds = arguments.seeds
        if is_experiment and num_seeds is None:
            num_seeds = Experiment(run).num_seeds
    else:
        check_cores(config.rollout)
        check_init(preset_name, config)
        num_seeds = arguments.seeds
        what = f"seed{config.seed}" if num_seeds is None else f"{num_seeds}seeds"
        run = arguments.new_run(f"{preset_name}-{what}")
    if arguments.trust and config.init is not None:
        trust_source(config.init)
    return Request(
        config,
        preset_name,
        run,
        arguments.resume,
        num_seeds,
        arguments.track,
        arguments,
    )


def _where_to_look(run: RunDirectory) -> str:
    """Says what can be done with a finished run."""
    path = run.path
    return (
        f"Metrics: {path / METRICS_FILE} (TensorBoard: tensorboard --logdir {path})\n"
        f"{how_to_use(run)}"
    )


def _over_seeds(experiment: RunDirectory, results: list[SeedResult]) -> str:
    """Says what came out of an experiment, and where to look next."""
    first, final, best = (
        f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
        for values in list(zip(*results, strict=True))[1:]
    )
    path = experiment.path
    return (
        f"Evaluation return over {len(results)} seeds, median and range: {first} at "
        f"the start, {final} at the end, {best} at best.\n"
        f"Runs: {path}/seed-… (TensorBoard: tensorboard --logdir {path})\n"
        f"Evaluate: {program_command('evaluate')} {path}{trust_option(experiment)}\n"
        f"Plot: {program_command('plot')} {path}\n"
        f"Report: {program_command('report')} {path}"
    )


def _report_stop(stop: Stopped, run: RunDirectory) -> int:
    """Says what is saved; returns the exit code."""
    from jax_es.runs.checkpoint import Checkpoints
    from jax_es.training.seeds import Experiment

    seeds, folder = "", RunDirectory(run.path, EXPERIMENT_FILE)
    if folder.exists():
        experiment = Experiment(folder)
        unfinished = experiment.unfinished()
        finished = experiment.num_seeds - len(unfinished)
        seeds = f"{finished} of {experiment.num_seeds} seeds are finished, "
        run = experiment.run(unfinished[0])
    steps = Checkpoints(run.checkpoints).steps()
    saved = f"{seeds}{steps[-1] if steps else 0} finished generations are saved"
    return report_stopped_run(stop, "train", run, saved)


if __name__ == "__main__":
    sys.exit(main())
