"""Clones recorded behaviour: ``python -m jax_es.pretrain [PRESET] --dataset DATASET``.

The preset says which environment and which network; options change single fields of it,
as in ``python -m jax_es.train``. The run is one like any other: ``evaluate``, ``plot``,
``load_policy`` and ``train --init`` take it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Annotated, Any

import tyro

from jax_es.checks import from_json, require
from jax_es.cli.options import parse_options, split_command_line
from jax_es.cli.program import program
from jax_es.cli.train_program import (
    Request,
    RunArguments,
    preset_of,
    shared_fields,
    stored_run,
    train_program,
)
from jax_es.config import EnvConfig, EvaluationConfig, RolloutConfig
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.presets import DEFAULT_PRESET, PRESETS, for_cloning, preset
from jax_es.runs.changes import with_stored_machine
from jax_es.runs.folders import program_command
from jax_es.runs.method import CLONING
from jax_es.train_config import POLICY_KINDS, PolicyConfig

DESCRIPTION = f"""Clones recorded behaviour: a network learns to act as in --dataset.

PRESET: {", ".join(PRESETS)} (default: {DEFAULT_PRESET}).

KIND: {", ".join(POLICY_KINDS)} (default: the preset's); not lstm.

The options' defaults below are those of the chosen preset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(RunArguments):
    """The command line, after PRESET and KIND."""

    env: EnvConfig
    """The environment."""
    policy: PolicyConfig
    """The network and how its outputs become actions."""
    rollout: RolloutConfig
    """How evaluation episodes are run. With observation statistics, the network sees
    observations normalised by those of the whole dataset."""
    evaluation: EvaluationConfig
    """Evaluation after every epoch, for each target return."""
    cloning: Annotated[CloningConfig, tyro.conf.arg(name="")]
    dataset: str | None = None
    """Minari dataset: its id, or its folder. Not needed with --online-episodes."""
    init: str | None = None
    """Begin with the θ of this run, or, of a folder of runs seed-0, seed-1, …, of the
    one with the same seed; with initial weights if not given."""
    init_checkpoint: str = "best"
    """The checkpoint of init's run: best, last or a number; read with init only."""
    target_returns: tuple[float, ...] = ()
    """Returns that evaluations ask for besides policy.target-return (which decides the
    best checkpoint); the best return in the dataset if not given."""
    seed: int = 0
    """Seeds the weights, the windows, the dropout and the environments."""


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    train_program("pretrain", argv, parse, _train)


def parse(argv: list[str]) -> Request:
    """Reads the command line."""
    line = split_command_line(argv)
    preset_name, _ = preset_of(line)
    if line.resumes_as_stored:
        stored = stored_run(line, CLONING)
        base, settings = stored.config(), dict(stored.method().settings)
        own: dict[str, Any] = {
            "dataset": settings.pop("dataset"),
            "target_returns": tuple(settings.pop("target_returns", ())),
            "cloning": from_json(CloningConfig, settings),
        }
    else:
        base = for_cloning(preset(preset_name, line.kind))
        own = {"cloning": CloningConfig()}
    default = Arguments(**shared_fields(base, Arguments), **own)
    arguments = parse_options(
        Arguments, line.rest, "pretrain", default=default, description=DESCRIPTION
    )
    from jax_es.training.build import check_cores, with_game

    given = shared_fields(arguments, Arguments)
    config = with_game(dataclasses.replace(base, **given))
    require(
        bool(arguments.dataset) or arguments.cloning.online_episodes > 0,
        "--dataset is required: the id or the folder of a Minari dataset; "
        f"{program_command('collect')} records one. Without one add "
        "--online-episodes 10.",
    )
    if arguments.resume:
        run = arguments.run_to_resume(config, line)
        config = with_stored_machine(run, config)
    else:
        check_cores(config.rollout)
        run = arguments.new_run(f"{preset_name}-cloning-seed{config.seed}")
    return Request(arguments, config, preset_name, run, config.rollout.num_devices)


def _train(request: Request, check_stop: Callable[[], None]) -> None:
    from jax_es.imitation.clone_run import pretrain_run

    arguments = request.arguments
    pretrain_run(
        request.config,
        arguments.cloning,
        arguments.dataset,
        request.run.path,
        arguments.resume,
        request.preset,
        arguments.target_returns,
        check_stop,
    )


if __name__ == "__main__":
    sys.exit(main())
