"""A run by a method that has a state of its own: archives, niches."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

from jax_es.checks import require
from jax_es.cli.progress import Layout, ending, opening
from jax_es.distributed.workers import Workers
from jax_es.runs.changes import check_method, check_resumable
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import Method
from jax_es.runs.tracking import Callback
from jax_es.train_config import TrainConfig
from jax_es.training.session import (
    Elapsed,
    OnStep,
    Step,
    run_session,
    session_progress,
    take_up,
)
from jax_es.types import Policy, PyTree, needs_reference


class MethodTraining(abc.ABC):
    """A :class:`~jax_es.training.session.Training` that takes up what it saved."""

    generation: int
    config: TrainConfig
    mean: PyTree
    """θ, whose size is told."""
    total_env_steps: int
    best_evaluation_return: float

    @abc.abstractmethod
    def advance(self, on_step: OnStep, elapsed: Elapsed) -> Step:
        """Runs a generation."""

    @abc.abstractmethod
    def restore(self, state: PyTree) -> None:
        """Takes up what a checkpoint holds, nested dictionaries of arrays."""

    def limits_reached(self) -> list[str]:
        """Says what ends the run, if anything does."""
        return self.config.limits_reached(
            self.generation, self.total_env_steps, self.best_evaluation_return
        )

    def finish(self, *_: Any, **__: Any) -> Step | None:
        """Returns nothing: what the generations keep is what counts."""
        return None


def run_method(
    training: MethodTraining,
    run: RunDirectory,
    method: Method,
    begins: str,
    details: str,
    layout: Layout,
    *,
    resume: bool,
    preset: str,
    team: Workers | None,
    check_stop: Callable[[], None],
    callbacks: Sequence[Callback],
    verbose: bool,
    label: str,
) -> None:
    """Creates the run, or takes up the one that is there, and goes on to its end.

    Args:
        training: before its first generation.
        run: the run's folder.
        method: recorded with its settings; a resume must have the same.
        begins: how a new run is called, as ``"Illuminating"``.
        details: what follows the task's name.
        layout: of progress.
        resume: continue the run that is there.
        preset: recorded as where the configuration comes from.
        team: the workers, if they evaluate.
        check_stop: called often; raises an exception to end the run.
        callbacks: told of each generation.
        verbose: whether to show progress.
        label: what progress shows before the generation.

    Raises:
        ConfigError: if the run cannot be created or continued.
    """
    config = training.config
    with run.lock():
        if resume:
            check_method(run, method)
            check_resumable(run, config)
            checkpoints = Checkpoints(run.checkpoints)
            if checkpoints.steps():
                training.restore(checkpoints.restore("last").state)
            take_up(run, config, training.generation, training)
            begins = f"Resuming after generation {training.generation}:"
        else:
            run.create(config, preset, method=method)
        progress = session_progress(
            config,
            training,
            training.total_env_steps,
            [opening(begins, config, training.mean, details, run.path)],
            resume=resume,
            label=label,
            layout=layout,
            team=team,
            verbose=verbose,
        )
        every = config.checkpoint_every
        run_session(training, run, progress, every, check_stop, callbacks)
    limits, done = training.limits_reached(), training.generation
    progress.message(ending(limits, done, training.total_env_steps))


def check_keeps_policies(config: TrainConfig, what: str) -> None:
    """Rejects a configuration whose policies act otherwise as others change.

    Args:
        config: of the run.
        what: keeps policies, as ``"an archive"``.

    Raises:
        ConfigError: for what has no meaning there.
    """
    require(
        not config.rollout.observation_statistics,
        f"rollout.observation_statistics must be off for {what}, or policies would act "
        "otherwise as it changes; add --rollout.no-observation-statistics.",
    )
    require(
        config.init is None,
        f"init {config.init} has no meaning for {what}; leave it out.",
    )
    require(not config.phases, f"phases have no meaning for {what}; leave them out.")


def check_needs_no_reference(policy: Policy, what: str) -> None:
    """Rejects a policy that cannot act without a reference batch."""
    require(
        not needs_reference(policy),
        f"policy.normalization virtual-batch cannot be kept in {what}; choose "
        "--policy.normalization none.",
    )
