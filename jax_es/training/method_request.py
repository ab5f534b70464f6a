"""What command lines of methods share whose policies are kept: archives, niches.

It imports nothing heavy, so that ``--help`` needs no JAX.
"""

import dataclasses
from typing import Any

from jax_es.cli.options import CommandLine
from jax_es.cli.train_program import Request
from jax_es.presets import preset
from jax_es.runs.method import Method
from jax_es.train_config import CustomPolicyConfig, TrainConfig


def preset_of_method(line: CommandLine, name: str) -> TrainConfig:
    """Returns a preset as a method takes it whose policies are kept beside others.

    They see observations as they are, and the run has no phases and varies nothing of
    its own.
    """
    config = preset(name, line.kind)
    rollout = dataclasses.replace(
        config.rollout, observation_statistics=False, variation_range=()
    )
    config = dataclasses.replace(config, rollout=rollout, phases=())
    if isinstance(config.policy, CustomPolicyConfig):
        from jax_es.training.custom_policy import with_options  # late: it loads JAX

        config = with_options(config)
    return config


def request_of_method(
    arguments: Any, line: CommandLine, name: str, method: Method
) -> Request:
    """Returns what a command line asks a method for.

    Args:
        arguments: a :class:`SeedArguments` with a ``config``.
        line: the command line.
        name: of the preset.
        method: with the settings that were typed.
    """
    from jax_es.training.build import check_cores, with_game

    config = with_game(arguments.config)
    if arguments.resume:
        run, config = arguments.runs_to_resume(config, line, method)
    else:
        check_cores(config.rollout)
        run = arguments.new_runs(name, config.seed)
    devices = arguments.devices(config)
    return Request(arguments, config, name, run, devices, "generations")
