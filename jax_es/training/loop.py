"""The training loop: what a run does from its first generation to its last.

``run_training`` wraps the generations of ``generation.py`` in what a run needs on
disk. A run that is killed at any instant continues from its last checkpoint to the
same numbers.
"""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from jax_es.checks import require
from jax_es.cli.progress import Progress, ending, nothing_left, opening
from jax_es.distributed.workers import Workers, shown
from jax_es.phases import in_phase
from jax_es.rollout.evaluator import RolloutProgress
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory, check_method
from jax_es.runs.method import OPENAI_ES
from jax_es.runs.metrics import MetricsWriter, check_own_records, read_metrics
from jax_es.runs.records import GenerationRecord, evaluation_record
from jax_es.runs.tracking import Callback
from jax_es.runs.wording import significant
from jax_es.train_config import TrainConfig
from jax_es.training.build import for_run
from jax_es.training.custom_policy import AnyPolicy, with_policy
from jax_es.training.generation import (
    Judged,
    TrainState,
    judge,
    mean_tasks,
    place,
    run_generation,
    template_state,
    view,
)
from jax_es.training.load_policy import TrainedMean
from jax_es.training.objective import asked, record_fields
from jax_es.training.parts import Parts, build
from jax_es.training.phases import border, enter_phase, follow, of_phase, try_phases
from jax_es.training.warm_start import find_source, first_state, provenance


class TrainingResult(NamedTuple):
    """What a finished run returns."""

    state: TrainState
    """After the last generation."""
    records: list[GenerationRecord]
    """One per generation of this call."""
    first_evaluation: float
    """Mean evaluation return of the run's initial mean; NaN if its record is lost."""
    final_evaluation: float
    """Mean evaluation return of the final mean."""
    best_evaluation: float
    """The highest mean evaluation return of the run."""

    def __repr__(self) -> str:
        """Says how well it went; a state and its records would fill the screen."""
        return (
            f"TrainingResult(generation {int(self.state.es.generation)}, "
            f"{self.state.total_env_steps} environment steps; evaluation return "
            f"{self.first_evaluation:.6g} at the start, {self.final_evaluation:.6g} at "
            f"the end, {self.best_evaluation:.6g} at best)"
        )


def begin(
    parts: Parts,
    run: RunDirectory,
    resume: bool,
    preset: str,
    source: TrainedMean | None = None,
) -> TrainState:
    """Creates the run, or checks and takes up the one that is there.

    Call it, and train, inside ``run.lock()``.

    Args:
        parts: from :func:`build`; their configuration is the run's.
        run: the run's folder.
        resume: continue the run that is there.
        preset: recorded as where a new run's configuration comes from.
        source: of a new run, from :func:`find_source`.

    Raises:
        ValueError: (its subclasses for configurations, checkpoints and metrics) if
            the run cannot be created or continued; it is then as it was before.
    """
    config, checkpoints = parts.config, Checkpoints(run.checkpoints)
    if not resume:
        run.create(config, preset, **provenance(source))
        return _first_state(parts, checkpoints, source)
    check_method(run, OPENAI_ES)
    run.check_resumable(config)
    if checkpoints.steps():
        template = template_state(parts)
        if config.phases:
            stored = checkpoints.restore("last").state
            template = enter_phase(config, template, int(stored["phase"]["index"]))
        restored = checkpoints.restore("last", template)
        state = place(parts, restored.state)
    else:
        state = _first_state(parts, checkpoints, find_source(parts))
    finished, limit = int(state.es.generation), config.max_env_steps
    # As many are not too few: the run may have been killed in its final evaluation.
    require(
        finished <= config.num_generations,
        f"num_generations must be at least {finished}, the generations that {run.path} "
        f"has finished, got {config.num_generations}.",
    )
    # A higher limit than before may be passed: a run's last generation goes beyond it.
    require(
        limit is None
        or limit >= (run.config().max_env_steps or math.inf)
        or state.total_env_steps < limit,
        f"max_env_steps must be more than {state.total_env_steps}, the steps that "
        f"{run.path} has taken, got {limit}.",
    )
    check_own_records(
        run.path,
        finished - 1,
        total_env_steps=state.total_env_steps,
        best_evaluation_return=state.best_evaluation_return,
    )
    run.resume(config, finished)
    return state


def _first_state(
    parts: Parts, checkpoints: Checkpoints, source: TrainedMean | None
) -> TrainState:
    """Returns the state before the first generation.

    One that begins with another run's θ is saved: that run may be gone on a resume.
    """
    state = place(parts, enter_phase(parts.config, first_state(parts, source), 0))
    if source is not None:
        checkpoints.save(0, state)
    return state


def run_training(
    parts: Parts,
    state: TrainState,
    run: RunDirectory,
    progress: Progress,
    check_stop: Callable[[], None] = lambda: None,
    callbacks: Sequence[Callback] = (),
) -> TrainingResult:
    """Trains from ``state`` to the end of the run.

    Args:
        parts: from :func:`build`.
        state: from :func:`begin`.
        run: where metrics and checkpoints go; hold its ``lock()``.
        progress: what the user sees.
        check_stop: called often; raises an exception to end the run.
        callbacks: told of each generation.

    Raises:
        Stopped: after a checkpoint of the last finished generation.
    """
    config, checkpoints = parts.config, Checkpoints(run.checkpoints)
    first = saved = int(state.es.generation)
    records: list[GenerationRecord] = []

    def on_step(step: RolloutProgress) -> None:
        check_stop()
        progress.tasks_done(step.num_done, step.num_tasks)

    def tell(record: GenerationRecord) -> None:
        for callback in callbacks:
            callback.on_generation(record, state)

    def save() -> None:
        nonlocal saved
        if int(state.es.generation) > saved:
            saved = int(state.es.generation)
            checkpoints.save(saved, state)

    built = contextlib.ExitStack()  # closes the parts of phases; the caller its own
    with MetricsWriter(run.path, first - 1) as writer, progress, built:
        try:
            parts = of_phase(parts, config, state, built, check_stop)
            while not _limits_reached(config, state):
                progress.generation_started(int(state.es.generation))
                generation = run_generation(parts, state, on_step, writer.elapsed)
                record = generation.record
                if generation.best is not None:
                    best = generation.best
                    checkpoints.save_best(int(best.es.generation), best)
                # The record first: a run killed before the checkpoint repeats the
                # generation, and its first record is dropped.
                writer.write(record)
                state, why = follow(config, parts, generation)
                records.append(record)
                progress.generation_done(record)
                if why:
                    progress.message(border(config, state, why))
                if record.num_nonfinite or record.evaluation_num_nonfinite:
                    progress.message(_broken_returns(record))
                tell(record)
                if (record.generation + 1) % config.checkpoint_every == 0:
                    save()
                parts = of_phase(parts, config, state, built, check_stop)
            judged, record = _evaluate_final(parts, state, on_step, writer.elapsed)
            if state.phase:
                phase = min(state.phase.index + 1, len(config.phases))
                record = dataclasses.replace(record, phase=phase)
            if judged.is_best:
                checkpoints.save_best(int(state.es.generation), judged.state)
            writer.write(record)
            tell(record)
        finally:
            save()
    begun = read_metrics(run.path)[0]
    return TrainingResult(
        state,
        records,
        first_evaluation=math.nan if begun.generation else begun.evaluation_return_mean,
        final_evaluation=judged.score,
        best_evaluation=judged.state.best_evaluation_return,
    )


def _limits_reached(config: TrainConfig, state: TrainState) -> list[str]:
    """Says what ends the run, if anything does."""
    if state.phase and state.phase.index >= len(config.phases):
        return [f"the end of phase {len(config.phases)}"]
    return config.limits_reached(
        int(state.es.generation), state.total_env_steps, state.best_evaluation_return
    )


def _broken_returns(record: GenerationRecord) -> str:
    """Says how many returns of a generation are no numbers."""
    return (
        f"generation {record.generation + 1}: {record.num_nonfinite} returns of the "
        f"population ({record.num_failed} failed simulations) and "
        f"{record.evaluation_num_nonfinite} of the evaluation were NaN or infinite; "
        "they rank worst."
    )


def _evaluate_final(
    parts: Parts,
    state: TrainState,
    on_step: Callable[[RolloutProgress], None],
    elapsed: Callable[[], float],
) -> tuple[Judged, GenerationRecord]:
    """Evaluates the last update's mean, which no generation will.

    The episodes are those with which the next generation would begin. A resume to more
    generations has that one instead: its record replaces this one.
    """
    config, tasks = parts.config, mean_tasks(parts, state)
    population = parts.strategy.ask(state.es)
    result = parts.rollout.evaluate(population, tasks, view(config, state), on_step)
    judged = judge(config, state, tasks, result.returns)
    generation = int(state.es.generation)
    asks = asked(config.es, state.commands, generation)
    record = evaluation_record(
        generation,
        state.total_env_steps + result.env_steps,
        result.returns,
        result.lengths,
        judged.state.best_evaluation_return,
        elapsed(),
        env_steps=result.env_steps,
        **record_fields(asks, judged.state.commands, judged.error),
    )
    return judged, record


def train_run(
    config: TrainConfig,
    path: str | os.PathLike[str],
    resume: bool = False,
    preset: str = "python",
    label: str = "",
    check_stop: Callable[[], None] = lambda: None,
    callbacks: Sequence[Callback] = (),
    workers: Workers | None = None,
    policy: AnyPolicy = None,
    verbose: bool = True,
) -> TrainingResult:
    """Trains one run from Python, as ``python -m jax_es.train`` does.

    On a CPU call ``jax_es.configure_cpu_devices()`` before the first use of
    JAX, or one core computes all policies.

    Args:
        config: the run, for instance ``jax_es.preset("half-cheetah")``.
        path: the run's folder, usually ``runs/<name>``.
        resume: continue the run that is there.
        preset: recorded in ``config.json`` as where ``config`` comes from.
        label: what progress shows before the generation.
        check_stop: called often; raises an exception to end the run, after a checkpoint
            of the last finished generation.
        callbacks: told of each generation, for instance ``[jax_es.WandB(path)]``.
        workers: who evaluates, from :func:`jax_es.open_workers`; this process if not
            given.
        policy: instead of the configuration's: settings, a network of your own, or a
            kind (``"mlp"``) at its defaults.
        verbose: whether to show progress.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    config = with_policy(config, policy)
    run = RunDirectory(Path(path))
    config = for_run(config, run, resume, workers is not None)
    with contextlib.ExitStack() as stack:
        parts = build(config, check_stop, workers=workers)
        stack.callback(parts.close)
        # Before there is a folder.
        try_phases(config)
        source = None if resume else find_source(parts)
        with run.lock():
            state = begin(parts, run, resume, preset, source)
            progress = Progress(
                config.num_generations,
                int(state.es.generation),
                max_env_steps=config.max_env_steps,
                env_steps=state.total_env_steps,
                label=label,
                more=(lambda: shown(workers)) if workers else tuple,
                verbose=verbose,
            )
            progress.message(_opening(parts, state, run, resume))
            if resume and (limits := _limits_reached(config, state)):
                progress.message(nothing_left(limits))
            if workers is not None:
                workers.say = progress.message
            result = run_training(parts, state, run, progress, check_stop, callbacks)
    first = result.first_evaluation
    began = "" if math.isnan(first) else f"{significant(first)} at the start, "
    progress.message(
        f"Evaluation return: {began}{significant(result.final_evaluation)} at the end, "
        f"{significant(result.best_evaluation)} at best. "
        + ending(
            _limits_reached(config, result.state),
            int(result.state.es.generation),
            result.state.total_env_steps,
        )
    )
    return result


def _opening(parts: Parts, state: TrainState, run: RunDirectory, resume: bool) -> str:
    """Says what is about to run, and with whose θ it began if not with its own."""
    config, generation, phase = parts.config, int(state.es.generation), ""
    if state.phase:
        number = min(state.phase.index + 1, len(config.phases))
        phase = f". Phase {number} of {len(config.phases)}"
        config = in_phase(config, state.phase.index)
    source, method = run.record().get("init"), run.method_before()
    who, start = f"{config.es.num_pairs:,} pairs", ""
    if config.es.strategy != "openai-es":
        who = f"{2 * config.es.num_pairs:,} members of {run.method().title}"
    if source is not None and method is not None:
        whose = f"{method.title}, checkpoint {source['checkpoint']}"
        start = f" from {source['run']} ({whose})"
    return opening(
        f"Resuming after generation {generation}:" if resume else "Training",
        config,
        state.es.mean,
        f"{start}: {who} a generation, "
        f"{_machines(parts)}. A slot runs one episode at a time; busy is the share of "
        f"slots at work{phase}",
        run.path,
    )


def _machines(parts: Parts) -> str:
    """Says who evaluates."""
    if parts.workers is None:
        devices = parts.devices
        return f"{parts.num_slots} slots on {devices.count} {devices.platform} devices"
    status, rollout = parts.workers.status(), parts.config.rollout
    nodes = "1 node" if status.nodes == 1 else f"{status.nodes} nodes"
    return (
        f"workers: {status.workers} on {nodes}, each with {rollout.num_slots} slots "
        f"and {rollout.shard_size} episodes at a time"
    )
