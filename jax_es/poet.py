"""Grows niches: ``python -m jax_es.poet [PRESET] [--policy KIND] [--mutate …]``.

POET pairs terrains with policies. Terrains that their policies master have children,
which are a little different; policies that do better elsewhere move there. What it
leaves is a run like any other: ``evaluate``, ``plot`` and ``load_policy`` take it, and
``load_niches`` reads all niches.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import tyro

from jax_es.cli.options import parse_options, split_command_line
from jax_es.cli.program import program
from jax_es.cli.train_program import (
    Request,
    SeedArguments,
    preset_of,
    stored_run,
    train_program,
    train_runs,
)
from jax_es.niches.settings import PRESET_SETTINGS, PoetConfig, settings_of
from jax_es.presets import PRESETS
from jax_es.runs.method import POET
from jax_es.runs.wording import spread
from jax_es.train_config import POLICY_KINDS, TrainConfig
from jax_es.training.method_request import preset_of_method, request_of_method

DEFAULT_PRESET = "bipedal-terrain"

DESCRIPTION = f"""Grows terrains and policies together (POET).

PRESET: {", ".join(PRESET_SETTINGS)} (default: {DEFAULT_PRESET}; with --env.id the
own-… that fits the task), or any other with --mutate whose environment has variations:
{", ".join(PRESETS)}.

KIND: {", ".join(POLICY_KINDS)} (default: the preset's).

The options' defaults below are those of the chosen preset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(SeedArguments):
    """The command line, after PRESET and KIND."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    poet: Annotated[PoetConfig, tyro.conf.arg(name="")]


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    train_program("poet", argv, parse, _train)


def parse(argv: list[str]) -> Request:
    """Reads the command line."""
    line = split_command_line(argv)
    name, _ = preset_of(line, DEFAULT_PRESET)
    task = None if line.resumes_as_stored else line.environment()
    if task is not None:
        from jax_es.training.own_task import own_task

        name, task = own_task(task, line.kind)
    if line.resumes_as_stored:
        stored = stored_run(line, POET)
        config, poet = stored.config(), settings_of(stored.method())
    else:
        config = preset_of_method(line, name)
        poet = PRESET_SETTINGS.get(name, PoetConfig())
        es = dataclasses.replace(
            config.es, interactions_per_generation=None, max_num_pairs=None
        )
        config = dataclasses.replace(config, es=es)
        if task is not None:
            config = dataclasses.replace(config, env=task)
    config = line.with_parts(config)
    arguments = parse_options(
        Arguments,
        line.rest,
        "poet",
        default=Arguments(config=config, poet=poet),
        description=DESCRIPTION,
    )
    if task is not None:  # with what it takes to train it
        config = dataclasses.replace(arguments.config, env=task)
        arguments = dataclasses.replace(arguments, config=config)
    return request_of_method(arguments, line, name, arguments.poet.method())


def _train(request: Request, check_stop: Callable[[], None]) -> str | None:
    from jax_es.niches.run import poet_run, poet_seeds

    what = request.config, request.arguments.poet
    one, several = (functools.partial(each, *what) for each in (poet_run, poet_seeds))
    return train_runs(request, check_stop, one, several, _over_seeds)


def _over_seeds(results: Sequence[tuple]) -> str:
    """Says what came out of an experiment."""
    niches, solved, annecs = list(zip(*results, strict=True))[1:]
    return (
        f"Over {len(results)} seeds, median and range: niches {spread(niches)}, of "
        f"which solved {spread(solved)}; ANNECS {spread(annecs)}."
    )


if __name__ == "__main__":
    sys.exit(main())
