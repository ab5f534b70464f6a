"""The training loop: what a run does from its first generation to its last.

``run_training`` wraps the generations of ``generation.py`` in what a run needs on
disk. A run that is killed at any instant continues from its last checkpoint to the
same numbers.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence

from jax_es.checks import require
from jax_es.cli.progress import Progress
from jax_es.rollout.evaluator import RolloutProgress
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory, check_method
from jax_es.runs.method import OPENAI_ES
from jax_es.runs.metrics import MetricsWriter, check_own_records, read_metrics
from jax_es.runs.records import GenerationRecord, evaluation_record
from jax_es.runs.tracking import Callback
from jax_es.train_config import TrainConfig
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
from jax_es.training.parts import Parts
from jax_es.training.phases import border, enter_phase, follow, of_phase
from jax_es.training.result import TrainingResult
from jax_es.training.warm_start import find_source, first_state, provenance


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
    # Equality is allowed: the run may have been killed in its final evaluation.
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
        callbacks: told of each generation; one that returns ``True`` ends the run.

    Raises:
        Stopped: after a checkpoint of the last finished generation.
    """
    config, checkpoints = parts.config, Checkpoints(run.checkpoints)
    first = saved = int(state.es.generation)
    records: list[GenerationRecord] = []

    def on_step(step: RolloutProgress) -> None:
        check_stop()
        progress.tasks_done(step.num_done, step.num_tasks)

    def tell(record: GenerationRecord) -> bool:
        said = [each.on_generation(record, state) for each in callbacks]
        return True in said

    def save() -> None:
        nonlocal saved
        if int(state.es.generation) > saved:
            saved = int(state.es.generation)
            checkpoints.save(saved, state)

    built = contextlib.ExitStack()  # closes the parts of phases; the caller its own
    with MetricsWriter(run.path, first - 1) as writer, progress, built:
        try:
            parts = of_phase(parts, config, state, built, check_stop)
            is_ended = False
            while not (is_ended or limits_reached(config, state)):
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
                is_ended = tell(record)
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
        run.path,
        state,
        records,
        first_evaluation=math.nan if begun.generation else begun.evaluation_return_mean,
        final_evaluation=judged.score,
        best_evaluation=judged.state.best_evaluation_return,
    )


def limits_reached(config: TrainConfig, state: TrainState) -> list[str]:
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
    judged = judge(config, state, tasks, result)
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
        evaluation_fitness=judged.fitness,
        **record_fields(asks, judged.state.commands, judged.error),
    )
    return judged, record
