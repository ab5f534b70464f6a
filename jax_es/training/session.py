"""A session: what a run by generations does from its first to its last.

Training by evolution, archives and ``evolve`` are each a :class:`Training`, which
knows what a generation is. A session records and saves what they come to. A run that
is killed at any instant continues from its last checkpoint to the same numbers.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from jax_es.checks import require
from jax_es.cli.progress import Layout, Progress, nothing_left
from jax_es.distributed.workers import Workers, shown
from jax_es.rollout.evaluator import RolloutProgress, never
from jax_es.runs.changes import take_over
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import MetricsWriter, check_own_records
from jax_es.runs.records import GenerationRecord
from jax_es.runs.tracking import Callback
from jax_es.train_config import TrainConfig

OnStep = Callable[[RolloutProgress], None]
"""Called often; what it raises ends the generation."""

Elapsed = Callable[[], float]
"""Seconds since the run began."""


class Step(NamedTuple):
    """What a generation came to, or the evaluation after the last one."""

    record: GenerationRecord
    """What is written down of it."""
    state: Any
    """After it: what a checkpoint holds, and what callbacks are told."""
    best: tuple[int, Any] | None = None
    """Number and state of the checkpoint ``best``, if there is a new one."""
    says: Sequence[str] = ()
    """What the user is told of it."""


class Training(Protocol):
    """What goes on by generations."""

    @property
    def generation(self) -> int:
        """Generations done."""
        ...

    def limits_reached(self) -> list[str]:
        """Says what ends the run, if anything does."""
        ...

    def advance(self, on_step: OnStep, elapsed: Elapsed) -> Step:
        """Runs a generation."""
        ...

    def finish(self, on_step: OnStep, elapsed: Elapsed) -> Step | None:
        """Evaluates what the last generation came to, if no generation has.

        A resume to more generations does so again, and its record replaces this one.
        """
        ...


def run_session(
    training: Training,
    run: RunDirectory | None,
    progress: Progress,
    checkpoint_every: int = 1,
    check_stop: Callable[[], None] = never,
    callbacks: Sequence[Callback] = (),
) -> list[GenerationRecord]:
    """Goes on until a limit is reached, a callback ends the run, or something raises.

    Args:
        training: what goes on.
        run: where metrics and checkpoints go; hold its ``lock()``. Nothing is kept if
            None.
        progress: what the user sees.
        checkpoint_every: generations between checkpoints.
        check_stop: called often; raises an exception to end the run, after a checkpoint
            of the last finished generation.
        callbacks: told of each generation; one that returns ``True`` ends the run.

    Returns:
        One record per generation of this session.

    Raises:
        Stopped: after a checkpoint of the last finished generation.
    """
    recorded = saved = training.generation
    state: Any = None
    records: list[GenerationRecord] = []
    checkpoints = None if run is None else Checkpoints(run.checkpoints)

    def on_step(step: RolloutProgress) -> None:
        check_stop()
        progress.tasks_done(step.num_done, step.num_tasks)

    def write(step: Step) -> Step:
        if checkpoints is not None and step.best is not None:
            checkpoints.save_best(*step.best)
        # The record first: a run killed before the checkpoint repeats the generation,
        # and its first record is dropped.
        if writer is not None:
            step = step._replace(record=writer.write(step.record))
        return step

    def tell(step: Step) -> bool:
        said = [each.on_generation(step.record, step.state) for each in callbacks]
        return True in said

    def save() -> None:
        nonlocal saved
        if checkpoints is not None and recorded > saved:
            saved = recorded
            checkpoints.save(recorded, state)

    with contextlib.ExitStack() as stack:
        writer, elapsed = None, lambda: math.nan
        if run is not None:
            writer = stack.enter_context(MetricsWriter(run.path, recorded - 1))
            elapsed = writer.elapsed
        stack.enter_context(progress)
        try:
            is_ended = False
            while not (is_ended or training.limits_reached()):
                progress.generation_started(training.generation)
                step = training.advance(on_step, elapsed)
                step = write(step)
                recorded, state = training.generation, step.state
                records.append(step.record)
                progress.generation_done(step.record)
                for text in step.says:
                    progress.message(text)
                is_ended = tell(step)
                # After the first, too: whatever reads a run finds it from then on.
                if recorded % checkpoint_every == 0 or not saved:
                    save()
            last = training.finish(on_step, elapsed)
            if last is not None:
                tell(write(last))
        finally:
            save()
    return records


def session_progress(
    config: TrainConfig,
    training: Training,
    total_env_steps: int,
    says: Sequence[str],
    *,
    resume: bool,
    label: str = "",
    layout: Layout | None = None,
    team: Workers | None = None,
    verbose: bool = True,
) -> Progress:
    """Returns a session's progress, which has said what is about to run.

    Args:
        config: of the run.
        training: what goes on.
        total_env_steps: environment steps taken so far.
        says: lines that open it.
        resume: whether the run was there before.
        label: what stands before the generation.
        layout: what is shown of a generation.
        team: the workers, if they evaluate.
        verbose: whether to show anything.
    """
    progress = Progress(
        config.num_generations,
        training.generation,
        max_env_steps=config.max_env_steps,
        env_steps=total_env_steps,
        label=label,
        layout=layout,
        more=(lambda: shown(team)) if team else tuple,
        verbose=verbose,
    )
    for text in says:
        progress.message(text)
    if resume and (limits := training.limits_reached()):
        progress.message(nothing_left(limits))
    if team is not None:
        team.say = progress.message
    return progress


def take_up(
    run: RunDirectory, config: TrainConfig, finished: int, checkpoint: Any
) -> None:
    """Goes on with a run that is there, as far as its last checkpoint says.

    Args:
        run: the run; hold its ``lock()``.
        config: of the run from now on.
        finished: generations done.
        checkpoint: says ``total_env_steps`` and ``best_evaluation_return``.

    Raises:
        ConfigError: if it is beyond the configuration's limits, or its records are
            another run's; it is then as it was before.
    """
    # Equality is allowed: the run may have been killed in its final evaluation.
    require(
        finished <= config.num_generations,
        f"num_generations must be at least {finished}, the generations that {run.path} "
        f"has finished, got {config.num_generations}.",
    )
    # A higher limit than before may be passed: a run's last generation goes beyond it.
    limit, taken = config.max_env_steps, checkpoint.total_env_steps
    require(
        limit is None
        or limit >= (run.config().max_env_steps or math.inf)
        or taken < limit,
        f"max_env_steps must be more than {taken}, the steps that {run.path} has "
        f"taken, got {limit}.",
    )
    check_own_records(
        run.path,
        finished - 1,
        total_env_steps=taken,
        best_evaluation_return=checkpoint.best_evaluation_return,
    )
    take_over(run, config, finished)
