"""Trains a policy: ``python -m jax_es.train [PRESET] [--policy KIND] [--options]``.

A preset is a whole configuration; options change single fields of it. ``--help``
after a preset shows its values.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

import tyro

from jax_es.checks import is_own, option, require
from jax_es.cli.options import is_typed, parse_options, split_command_line
from jax_es.cli.program import program
from jax_es.cli.train_program import (
    Request,
    SeedArguments,
    check_pretrained,
    preset_of,
    stored_run,
    train_program,
    train_runs,
)
from jax_es.config import STRATEGIES
from jax_es.presets import DEFAULT_PRESET, PRESETS, for_fine_tuning, preset
from jax_es.runs.method import OPENAI_ES
from jax_es.runs.trust import trust_source
from jax_es.runs.wording import spread
from jax_es.train_config import POLICY_KINDS, CustomPolicyConfig, TrainConfig

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(SeedArguments):
    """The command line, after PRESET and KIND."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    train_program("train", argv, parse, _train)


def _train(request: Request, check_stop: Callable[[], None]) -> str | None:
    from jax_es.training.seeds import train_seeds
    from jax_es.training.train_policy import train_policy

    one = functools.partial(train_policy, request.config)
    several = functools.partial(train_seeds, request.config)
    evaluated = "fitness" if is_own(request.config.es.objective) else "return"
    over_seeds = functools.partial(_over_seeds, evaluated)
    return train_runs(request, check_stop, one, several, over_seeds)


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

    given = arguments.config.env
    require(
        given.game is None or given.id == default.env.id,
        f"--env.game {given.game} and --env.id {given.id} name two environments; leave "
        "one of them out.",
    )
    config = with_game(arguments.config)
    if task is not None:  # with what it takes to train it
        config = dataclasses.replace(config, env=task)
    if arguments.resume:
        run, config = arguments.runs_to_resume(config, line, OPENAI_ES)
    else:
        check_cores(config.rollout)
        check_pretrained(fine_tune, config)
        _warn_of_phases(preset_name, config)
        run = arguments.new_runs(preset_name, config.seed)
    if arguments.trust and config.init is not None:
        trust_source(config.init)
    devices = arguments.devices(config)
    return Request(arguments, config, preset_name, run, devices, "generations")


def _warn_of_phases(preset_name: str, config: TrainConfig) -> None:
    """Warns of what was typed and is not so in all of the preset's phases."""
    changed = {name for phase in config.phases for name in phase.changes}
    again = sorted(option(name) for name in changed if is_typed(name))
    if again and not is_typed("phases"):
        warnings.warn(
            f"phases of {preset_name} change {', '.join(again)} again; --phases None "
            "leaves them out.",
            stacklevel=2,
        )


def _over_seeds(evaluated: str, results: Sequence[tuple]) -> str:
    """Says what came out of an experiment."""
    first, final, best = (
        spread(values) for values in list(zip(*results, strict=True))[1:]
    )
    return (
        f"Evaluation {evaluated} over {len(results)} seeds, median and range: {first} "
        f"at the start, {final} at the end, {best} at best."
    )


if __name__ == "__main__":
    sys.exit(main())
