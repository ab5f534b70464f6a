"""Trains a policy: ``python -m jax_es.train [PRESET] [--policy KIND] [--options]``.

A preset is a whole configuration; options change single fields of it. ``--help``
after a preset shows its values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from jax_es.checks import require
from jax_es.cli.options import parse_options, program, split_command_line
from jax_es.cli.train_program import (
    Request,
    RunArguments,
    check_pretrained,
    preset_of,
    stored_run,
    train_program,
)
from jax_es.cli.workers import WorkerArguments
from jax_es.config import STRATEGIES
from jax_es.presets import DEFAULT_PRESET, PRESETS, for_fine_tuning, preset
from jax_es.runs.directory import RunDirectory, check_method, trust_option
from jax_es.runs.find import obedience_option
from jax_es.runs.folders import EXPERIMENT_FILE, program_command
from jax_es.runs.method import OPENAI_ES
from jax_es.runs.tracking import Callback, WandB, import_wandb
from jax_es.runs.trust import trust_source
from jax_es.runs.wording import spread
from jax_es.train_config import POLICY_KINDS, CustomPolicyConfig, TrainConfig

if TYPE_CHECKING:
    from jax_es.training.seeds import SeedResult


DESCRIPTION = f"""Trains a policy with OpenAI-ES, or --strategy NAME.

PRESET: {", ".join(PRESETS)} (default: {DEFAULT_PRESET}; with --env.id alone, one of
own-… that fits the task).

KIND: {", ".join(POLICY_KINDS)}, or module:Name for a network of your own (default: the
preset's).

--fine-tune: with --init RUN, the paper's settings for going on from a pretrained policy
(σ = learning rate = 0.01, no observation statistics).

NAME: {", ".join(STRATEGIES)}, or module:Name for one of your own. Its own
hyperparameters are --es.kwargs.HYPERPARAMETER VALUE; an unknown one lists the valid
ones.

--objective module:Name is what counts instead of the return.

The options' defaults below are those of the chosen preset."""


SEEDS_ARE_OVER = (
    "Nothing is left to train: all seeds are finished. Raise --seeds, or what ended "
    "them (num_generations, max_env_steps or stop_at_return), to go on."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(RunArguments, WorkerArguments):
    """The command line, after PRESET and KIND."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    seeds: int | None = None
    """Train this many runs, one after another, into one experiment NAME/seed-…; their
    seeds count up from --seed. A single run if not given."""
    track: Literal["wandb"] | None = None
    """Where curves are sent, besides metrics.jsonl and TensorBoard's events: wandb is
    Weights & Biases (extra track). Repeat it on a resume."""


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    train_program("train", argv, parse, _train)


def _train(request: Request, check_stop: Callable[[], None]) -> str | None:
    from jax_es.training.seeds import train_seeds
    from jax_es.training.train_policy import train_policy

    arguments, run = request.arguments, request.run

    def callbacks(path: Path) -> list[Callback]:
        return [WandB(path)] if arguments.track else []

    with contextlib.ExitStack() as stack:
        what: dict[str, Any] = {
            "path": run.path,
            "resume": arguments.resume,
            "preset": request.preset,
            "check_stop": check_stop,
            "workers": arguments.open(stack),
        }
        if run.file != EXPERIMENT_FILE:
            train_policy(request.config, callbacks=callbacks(run.path), **what)
            return None
        given, before = arguments.seeds, run.record() if arguments.resume else {}
        count = before["num_seeds"] if given is None else given
        results = train_seeds(request.config, count, callbacks=callbacks, **what)
        was_over = run.record()["results"] == before.get("results")
    text = _over_seeds(run, results)
    return f"{SEEDS_ARE_OVER}\n{text}" if was_over else text


def parse(argv: list[str]) -> Request:
    """Reads the command line."""
    line = split_command_line(argv)
    task = None if line.resumes_as_stored else line.environment()
    if line.resumes_as_stored:
        stored = stored_run(line, OPENAI_ES.name)
        default, preset_name, fine_tune = stored.config(), "resumed", False
    else:
        preset_name, fine_tune = preset_of(line)
        if task is not None:
            from jax_es.training.own_task import own_task

            preset_name, task = own_task(task, line.kind)
        default = preset(preset_name, line.kind)
        if task is not None:
            default = dataclasses.replace(default, env=task)
        if isinstance(default.policy, CustomPolicyConfig):
            from jax_es.training.custom_policy import with_options

            default = with_options(default)
    default = line.with_parts(default)
    fine_tune |= line.take_fine_tune()
    if fine_tune:
        default = for_fine_tuning(default)
    arguments = parse_options(
        Arguments,
        line.rest,
        "train",
        default=Arguments(config=default),
        description=DESCRIPTION,
    )
    from jax_es.training.build import check_cores, with_game

    given, seeds = arguments.config.env, arguments.seeds
    require(
        given.game is None or given.id == default.env.id,
        f"--env.game {given.game} and --env.id {given.id} name two environments; leave "
        "one of them out.",
    )
    config = with_game(arguments.config)
    if task is not None:  # with what it takes to train it
        config = dataclasses.replace(config, env=task)
    if arguments.resume:
        run = arguments.run_to_resume(config, line)
        check_method(run, OPENAI_ES)
        config = run.with_stored_machine(config)
        run.check_resumable(config)
        require(
            run.file == EXPERIMENT_FILE or seeds is None,
            f"--seeds: {run.path} is a single run, not an experiment; leave --seeds "
            "out, or start an experiment with another --name.",
        )
    else:
        check_cores(config.rollout)
        check_pretrained(fine_tune, config)
        what = f"seed{config.seed}" if seeds is None else f"{seeds}seeds"
        run = arguments.new_run(f"{preset_name}-{what}")
        if seeds is not None:
            run = RunDirectory(run.path, EXPERIMENT_FILE)
    if arguments.trust and config.init is not None:
        trust_source(config.init)
    if arguments.track:
        import_wandb()  # before any work
    devices = 1 if arguments.has_workers else config.rollout.num_devices
    return Request(arguments, config, preset_name, run, devices, "generations")


def _over_seeds(experiment: RunDirectory, results: list[SeedResult]) -> str:
    """Says what came out of an experiment, and where to look next."""
    first, final, best = (
        spread(values) for values in list(zip(*results, strict=True))[1:]
    )
    path = shlex.quote(str(experiment.path))
    return (
        f"Evaluation return over {len(results)} seeds, median and range: {first} at "
        f"the start, {final} at the end, {best} at best.\n"
        f"Runs: {experiment.path}/seed-… (TensorBoard: tensorboard --logdir {path})\n"
        f"Evaluate: {program_command('evaluate')} {path}"
        f"{obedience_option(experiment)}{trust_option(experiment)}\n"
        f"Plot: {program_command('plot')} {path}\n"
        f"Report: {program_command('report')} {path}"
    )


if __name__ == "__main__":
    sys.exit(main())
