"""Trains a teacher: ``python -m jax_es.teacher [PRESET] [--policy KIND] [--options]``.

SAC, TD3 or PPO, by gradients, learn the task of a preset or of ``--env.id``. What they
leave is a run like any other: ``evaluate``, ``plot`` and ``load_policy`` take it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Annotated

import numpy as np
import tyro

from jax_es.checks import require
from jax_es.cli.options import CommandLine, parse_options, split_command_line
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
from jax_es.imitation.teacher_settings import TeacherSettings, settings_of
from jax_es.presets import PRESETS, for_teaching, preset, unknown
from jax_es.train_config import POLICY_KINDS, PolicyConfig, TrainConfig, policy_kind

DESCRIPTION = f"""Trains a teacher by gradients, with SAC, TD3 or PPO as SBX has them.

PRESET: {", ".join(PRESETS)}; its environment and transformer are taken. Or --env.id.

KIND: mlp (the default), or with --algo td3 decision-transformer.

The options' defaults below are those of the chosen preset."""


# As Gymnasium's wrappers normalise, by which it learns: they divide by the root of the
# variance and 1e-8, and leave no number out.
VIEWS = {
    "ppo": RolloutConfig(std_floor=1e-4, observation_clip=10.0, hide_constants=False)
}
"""Methods whose actor sees normalised observations → how."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(RunArguments):
    """The command line, after PRESET and KIND."""

    env: EnvConfig
    """The environment."""
    policy: PolicyConfig
    """The actor."""
    settings: Annotated[TeacherSettings, tyro.conf.arg(name="")]
    """The method."""
    evaluation: EvaluationConfig
    """Evaluation of the actor, without exploration."""
    seed: int = 0
    """Seeds the weights, the exploration and the environments."""


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    train_program("teacher", argv, parse, _train)


def parse(argv: list[str]) -> Request:
    """Reads the command line."""
    line = split_command_line(argv)
    if line.resumes_as_stored:
        stored = stored_run(line, "sac", "td3", "ppo")
        base, settings = stored.config(), settings_of(stored.method())
    else:
        base, settings = _default(line), TeacherSettings()
    default = Arguments(**shared_fields(base, Arguments), settings=settings)
    arguments = parse_options(
        Arguments, line.rest, "teacher", default=default, description=DESCRIPTION
    )
    from jax_es.training.build import with_game

    settings, given = arguments.settings, shared_fields(arguments, Arguments)
    rollout = VIEWS.get(settings.algo, RolloutConfig(observation_statistics=False))
    config = with_game(TrainConfig(rollout=rollout, **given))
    require(config.env.id != "", "a PRESET or --env.id is needed; --help lists them.")
    if arguments.resume:
        run = arguments.run_to_resume(config, line)
    else:
        task = line.preset or config.env.id.replace("/", "-")
        run = arguments.new_run(f"{settings.algo}-{task}-seed{config.seed}")
    check_trainable(settings.algo, config)
    # One device, whose matrix products use all cores.
    return Request(arguments, config, line.preset or config.env.id, run, 1)


def _default(line: CommandLine) -> TrainConfig:
    """Returns the options' defaults for a preset, if any, and a kind of policy."""
    kind = line.kind or "mlp"
    require(kind in POLICY_KINDS, unknown("policy", kind, POLICY_KINDS))
    if line.preset is None:
        config = TrainConfig(env=EnvConfig(id=""), policy=POLICY_KINDS[kind]())
    else:
        config = preset(preset_of(line)[0], kind)
    return for_teaching(config)


def check_trainable(algo: str, config: TrainConfig) -> None:
    """Checks that a method can train this actor on this task."""
    from jax_es.training.trained_mean import spaces

    kind, policy = policy_kind(config.policy), config.policy
    kinds = ["mlp", *(["decision-transformer"] if algo == "td3" else [])]
    require(
        kind in kinds,
        f"--policy {kind} cannot be trained by --algo {algo}; choose --policy "
        f"{' or '.join(kinds)}"
        + (", or --algo td3." if kind == "decision-transformer" else "."),
    )
    attention = getattr(policy, "attention", "window")
    require(
        attention == "window",
        f"--policy.attention {attention} cannot be trained by --algo {algo}, which "
        "stores windows of the last steps; choose --policy.attention window.",
    )
    require(
        policy.action_scale == "bounds",
        f"--policy.action-scale {policy.action_scale} is not possible: --algo {algo} "
        "acts within the bounds of the action space; choose bounds.",
    )
    require(
        policy.action_bins is None,
        f"--policy.action-bins {policy.action_bins} is not possible: --algo {algo} "
        "acts in real numbers; leave it out.",
    )
    observed, acted = spaces(config)
    bounds = [getattr(acted, name, np.inf) for name in ("low", "high")]
    require(
        len(observed.shape or ()) == 1 == len(acted.shape or ())
        and bool(np.isfinite(bounds).all()),
        f"--algo {algo} learns from observation vectors and acts in vectors of bounded "
        f"real numbers; {config.env.id} observes {observed} and acts in {acted}; "
        "choose another --env.id.",
    )


def _train(request: Request, check_stop: Callable[[], None]) -> None:
    from jax_es.imitation.teacher_run import teach

    arguments = request.arguments
    teach(
        request.config,
        arguments.settings,
        request.run,
        arguments.resume,
        request.preset,
        check_stop,
    )


if __name__ == "__main__":
    sys.exit(main())
