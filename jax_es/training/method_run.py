"""A run by a method that has a state of its own: archives, niches."""

import abc
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from jax_es.checks import require
from jax_es.cli.progress import Layout, ending, opening
from jax_es.distributed.workers import Workers
from jax_es.rollout.evaluator import never
from jax_es.runs.changes import check_method, check_resumable
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import EXPERIMENT_FILE
from jax_es.runs.tracking import Callback
from jax_es.train_config import TrainConfig
from jax_es.training.build import for_run
from jax_es.training.parts import EvaluationParts
from jax_es.training.seeds import run_seeds
from jax_es.training.session import (
    Elapsed,
    OnStep,
    Step,
    run_session,
    session_progress,
    take_up,
)
from jax_es.training.train_policy import team_of
from jax_es.training.trained_mean import TrainedMean
from jax_es.training.warm_start import find_source, find_sources, provenance
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
    def state(self) -> PyTree:
        """Returns what a checkpoint holds, as it is now."""

    @abc.abstractmethod
    def restore(self, state: PyTree) -> None:
        """Takes up what a checkpoint holds, nested dictionaries of arrays."""

    def start_from(self, source: TrainedMean) -> None:
        """Takes another run's θ, before the first generation.

        Raises:
            ConfigError: θ could not act here as it did there.
        """
        raise NotImplementedError  # prepare rejects init for such a method

    def limits_reached(self) -> list[str]:
        """Says what ends the run, if anything does."""
        return self.config.limits_reached(
            self.generation, self.total_env_steps, self.best_evaluation_return
        )

    def finish(self, *_: Any, **__: Any) -> Step | None:
        """Returns nothing: what the generations keep is what counts."""
        return None


Trains = TypeVar("Trains", bound=MethodTraining)


class Kind(NamedTuple, Generic[Trains]):
    """What a method is, for those who run it."""

    prepare: Callable[[TrainConfig, Any], int]
    """Rejects a configuration that the method cannot use with such settings; returns
    how many members a generation has at most."""
    parts: Callable[..., EvaluationParts]
    """Builds what evaluates, of configuration, settings, what is called in between, the
    workers and how many episodes there are at most."""
    training: Callable[[Any, Any], Trains]
    """Of these parts and the settings, before its first generation."""
    begins: str
    """How a new run is called, as ``"Illuminating"``."""
    details: Callable[[Trains], str]
    """Says of a training what follows the task's name."""
    layout: Layout
    """Of progress."""
    result: Callable[[Trains], dict[str, float]]
    """Says what came out of a training, for an experiment's record."""


def run_method(
    kind: Kind[Trains],
    config: TrainConfig,
    settings: Any,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    preset: str = "python",
    callbacks: Sequence[Callback] = (),
    workers: Workers | int | None = None,
    verbose: bool = True,
    label: str = "",
    check_stop: Callable[[], None] = never,
) -> Trains:
    """Creates a run, or takes up the one that is there, and goes on to its end.

    Args:
        kind: how it is trained.
        config: task, policy, seed and length of the run.
        settings: the method's own.
        path: the run's folder, usually ``runs/<name>``.
        resume: continue the run that is there.
        preset: recorded as where ``config`` comes from.
        callbacks: told of each generation; one that returns ``True`` ends the run.
        workers: who evaluates, as of :func:`jax_es.train_policy`.
        verbose: whether to show progress.
        label: what progress shows before the generation.
        check_stop: called often; raises an exception to end the run, after a checkpoint
            of the last finished generation.

    Returns:
        The training after its last generation.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    run, method = RunDirectory(Path(path)), settings.method()
    config = _prepared(kind, config, settings, run, resume, workers)
    with contextlib.ExitStack() as stack:
        team = stack.enter_context(team_of(workers))
        parts = kind.parts(config, settings, check_stop, team)
        stack.callback(parts.close)
        training, begins = kind.training(parts, settings), kind.begins
        config, checkpoints = training.config, Checkpoints(run.checkpoints)
        of_source: dict[str, Any] = {}
        if config.init is not None and not (resume and checkpoints.steps()):
            source = find_source(config.init, parts)
            training.start_from(source)
            of_source = provenance(source)
        stack.enter_context(run.lock())
        if resume:
            check_method(run, method)
            check_resumable(run, config)
            if checkpoints.steps():
                training.restore(checkpoints.restore("last").state)
            take_up(run, config, training.generation, training)
            begins = f"Resuming after generation {training.generation}:"
        else:
            run.create(config, preset, method=method, **of_source)
        if of_source:  # the other run may be gone on a resume
            checkpoints.save(0, training.state())
        details = kind.details(training)
        progress = session_progress(
            config,
            training,
            training.total_env_steps,
            [opening(begins, config, training.mean, details, run.path)],
            resume=resume,
            label=label,
            layout=kind.layout,
            team=team,
            verbose=verbose,
        )
        every = config.checkpoint_every
        run_session(training, run, progress, every, check_stop, callbacks)
    limits, done = training.limits_reached(), training.generation
    progress.message(ending(limits, done, training.total_env_steps))
    return training


def run_method_seeds(
    kind: Kind,
    config: TrainConfig,
    settings: Any,
    num_seeds: int,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    workers: Workers | int | None = None,
    **how: Any,
) -> dict[int, dict[str, float]]:
    """Runs several seeds, as ``--seeds`` does: an experiment.

    Args:
        kind: how they are trained.
        config: of all runs; its ``seed`` is the first one's.
        settings: the method's own.
        num_seeds: how many runs.
        path: the experiment's folder.
        resume: continue the experiment that is there: finished seeds are skipped, the
            unfinished one goes on, the rest begin.
        workers: who evaluates.
        **how: as :func:`run_method`'s; ``callbacks`` may also be a function that
            returns those of a run by its folder.

    Returns:
        What came out of each seed, those of earlier calls included.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    folder = RunDirectory(Path(path), EXPERIMENT_FILE)
    config = _prepared(kind, config, settings, folder, resume, workers)

    def check(config: TrainConfig, seeds: range) -> None:
        with contextlib.closing(kind.parts(config, settings, num_tasks=1)) as parts:
            training = kind.training(parts, settings)
            for source in find_sources(parts, seeds):
                training.start_from(source)

    def train(config: TrainConfig, path: Path, **how: Any) -> dict[str, float]:
        return kind.result(run_method(kind, config, settings, path, **how))

    how |= {"workers": workers, "resume": resume, "method": settings.method()}
    return run_seeds(folder, config, num_seeds, train, check, **how)


def _prepared(
    kind: Kind,
    config: TrainConfig,
    settings: Any,
    run: RunDirectory,
    resume: bool,
    workers: Workers | int | None,
) -> TrainConfig:
    """Checks a configuration, and fills in the machine."""
    num_members = kind.prepare(config, settings)
    return for_run(config, run, resume, workers is not None, num_members)


def check_keeps_policies(config: TrainConfig, what: str) -> None:
    """Rejects a configuration whose policies act otherwise as others change.

    Args:
        config: of the run.
        what: keeps policies, as ``"an archive"``.

    Raises:
        ConfigError: for what has no meaning there.
    """
    require(
        not config.rollout.observation_statistics or config.init is not None,
        f"rollout.observation_statistics must be off for {what}, or policies would act "
        "otherwise as it changes; add --rollout.no-observation-statistics.",
    )
    require(not config.phases, f"phases have no meaning for {what}; leave them out.")


def check_needs_no_reference(policy: Policy, what: str) -> None:
    """Rejects a policy that cannot act without a reference batch."""
    require(
        not needs_reference(policy),
        f"policy.normalization virtual-batch cannot be kept in {what}; choose "
        "--policy.normalization none.",
    )
