"""The mean policy of a checkpoint: how it is read, and where it can act."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.config import EnvConfig
from jax_es.rollout.observation_statistics import (
    ObservationStatistics,
    View,
    initial_statistics,
    view_of,
)
from jax_es.runs.checkpoint import CheckpointError
from jax_es.runs.exported import local_folder, restore
from jax_es.runs.find import find_run
from jax_es.runs.method import OPENAI_ES, Method
from jax_es.runs.state_arrays import like_template
from jax_es.runs.trust import check_imports
from jax_es.train_config import TrainConfig, differences, in_own_physics, policy_kind
from jax_es.training.build import make_env, with_game
from jax_es.types import Policy, PyTree, needs_reference


class TrainedMean(NamedTuple):
    """The mean policy of a checkpoint, and how it sees observations."""

    config: TrainConfig
    """The run's configuration, without coarse physics."""
    mean: PyTree
    """θ, as the policy's ``"params"``; NumPy arrays."""
    statistics: ObservationStatistics | None
    """For normalising observations; None if the run used none."""
    generation: int
    """Updates that led to θ."""
    reference: PyTree = ()
    """``[R, …]``, of a policy that needs a reference batch; ``()`` for others."""
    method: Method = OPENAI_ES
    """How the run was trained."""
    path: Path = Path()
    """The run's folder, if it was read from one."""
    changed: Mapping[str, Any] = MappingProxyType({})
    """Where it acts elsewhere: what of its configuration is not the run's, by dotted
    name."""

    def state(self) -> PyTree:
        """Returns all that it acts with, laid out as in a checkpoint."""
        parts: dict[str, PyTree] = {
            "es": {"mean": self.mean, "generation": np.int32(self.generation)},
            "reference": self.reference,
        }
        if self.statistics is not None:
            parts["observation_statistics"] = self.statistics._asdict()
        return parts

    def in_environment(
        self, changed: Callable[[EnvConfig], EnvConfig]
    ) -> "TrainedMean":
        """Returns the policy, to act elsewhere; whether it can is not checked.

        What its episodes varied in training may not be there, and is left out.
        """
        env = changed(self.config.env)
        config = with_game(dataclasses.replace(self.config, env=env))
        new = {name: new for name, (_, new) in differences(self.config, config).items()}
        rollout = dataclasses.replace(config.rollout, variation_range=())
        return self._replace(
            config=dataclasses.replace(config, rollout=rollout), changed=new
        )

    def named_changes(self) -> str:
        """Returns what was changed about its environment, by dotted names."""
        return ", ".join(f"{name} {new}" for name, new in self.changed.items())

    @contextlib.contextmanager
    def blaming_changes(self) -> Iterator[None]:
        """Says of errors that the environment is not the run's own, if it is not."""
        try:
            yield
        except (CheckpointError, ConfigError) as error:
            if not self.changed:
                raise
            why = error.args[0].partition(";")[0].rpartition("fit: ")[2]
            raise ConfigError(
                f"{self.path} cannot act with {self.named_changes()} ({why}); choose "
                "an environment with the observations and actions that it was trained "
                "with."
            ) from error

    def view(self) -> View:
        """Returns how the policy sees observations."""
        return view_of(self.config, self.statistics, self.reference)


def load_mean(
    run: str | os.PathLike[str], checkpoint: str | int = "best", trust: bool = False
) -> TrainedMean:
    """Reads the mean policy of a run, to act in its task's own physics.

    Args:
        run: the run's folder, ``runs/<name>``, or an exported one.
        checkpoint: ``"best"`` (highest evaluation return), ``"last"`` or a number of
            finished generations.
        trust: whether the modules of its environment (``module:id``) and its policy
            may be imported.

    Raises:
        ConfigError: if the folder is no run, or names a module that is not trusted.
        CheckpointError: if the checkpoint is missing or damaged.
    """
    directory = find_run(local_folder(run))
    config, method = in_own_physics(directory.config()), directory.method()
    check_imports(config, directory.path, trust)
    restored = restore(directory, checkpoint)
    state, statistics = restored.state, None
    try:
        mean = state["es"]["mean"]
        if config.rollout.observation_statistics:
            statistics = ObservationStatistics(**state["observation_statistics"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"checkpoint {checkpoint} of {directory.path} is not a training state of "
            f"jax-es (no {error}); choose another checkpoint."
        ) from error
    reference, step = state.get("reference", ()), restored.step
    path = directory.path
    return TrainedMean(config, mean, statistics, step, reference, method, path)


def check_asked(policy: Policy, config: TrainConfig) -> None:
    """Raises ``ConfigError`` unless a policy can be asked for a return."""
    require(
        getattr(policy, "reads_command", False),
        f"policy {policy_kind(config.policy)} has no target return; choose a "
        "decision-transformer, or train another network with --policy.target-return.",
    )


def check_fits(
    trained: TrainedMean, policy: Policy, observation_space: gymnasium.Space
) -> None:
    """Checks that a checkpoint fits its network in an environment.

    Raises:
        CheckpointError: it does not: it was copied from another run.
        ConfigError: nor could it, since the environment is not the run's own.
    """
    with trained.blaming_changes():
        try:
            like_template(trained.mean, jax.eval_shape(policy.init, jax.random.key(0)))
        except ValueError as error:
            raise CheckpointError(
                f"the checkpoint is of another network than the run's config.json: it "
                f"{error}, or choose another checkpoint."
            ) from error
        shape = observation_space.shape or ()
        of_run = initial_statistics(math.prod(shape))
        if [*map(np.shape, trained.statistics or of_run)] != [*map(np.shape, of_run)]:
            raise CheckpointError(
                f"the observation statistics of {trained.path} are not of observations "
                f"of the shape {shape}, which {trained.config.env.id} gives; choose "
                "another checkpoint."
            )
        if needs_reference(policy):
            size = policy.reference_size
            if np.shape(trained.reference) != (size, *shape):
                raise CheckpointError(
                    f"{trained.path} has no reference batch of {size} observations of "
                    f"the shape {shape}, which its policy needs; choose another "
                    "checkpoint."
                )


def spaces(config: TrainConfig) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Returns the observation and action space of one environment."""
    with contextlib.closing(make_env(config.env, num_envs=1, num_threads=1)) as env:
        return env.single_observation_space, env.single_action_space
