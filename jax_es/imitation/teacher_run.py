"""A teacher's training as a run: it learns, and is evaluated and saved in between."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jax_es.checks import ConfigError, optional, require
from jax_es.cli.progress import Layout, Progress, named, nothing_left, opening
from jax_es.imitation.gradient_run import build_for_evaluation, gradient_run
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.digests import check_digests, recorded, replacing
from jax_es.runs.directory import RunDirectory
from jax_es.runs.records import GenerationRecord
from jax_es.runs.wording import significant
from jax_es.train_config import TrainConfig

if TYPE_CHECKING:
    from jax_es.imitation.sbx_teacher import Teacher

SBX_FOLDER = "sbx"
"""In the run's folder: what SBX has learned, for a resume, and its own file of it."""

UNNEEDED = "evaluate and load_policy do not need it."


def teach(
    config: TrainConfig,
    settings: TeacherSettings,
    run: RunDirectory,
    resume: bool,
    preset: str,
    check_stop: Callable[[], None] = lambda: None,
) -> None:
    """Trains a teacher to the end of its run, or until ``check_stop`` raises.

    Raises:
        ValueError: (a ``ConfigError`` or a ``CheckpointError``) if the run cannot be
            created or continued.
    """
    with optional("teachers need SBX", "pretraining"):
        from jax_es.imitation.sbx_teacher import Teacher
    folder, every = run.path / SBX_FOLDER, settings.evaluate_every
    state_file = folder / "state.npz"
    require(
        not resume
        or state_file.exists()
        or not any(Checkpoints(run.checkpoints).steps()),
        f"{run.path} cannot be continued: {state_file} is missing; start a new run "
        f"with another --name. {UNNEEDED}",
    )
    parts, method = build_for_evaluation(config), settings.method()
    with (
        contextlib.closing(Teacher(settings, config)) as teacher,
        gradient_run(run, parts, method, resume, preset) as taught,
    ):
        first = 0 if taught.restored is None else taught.restored.step
        if first:  # before the first one a teacher is what the seed makes it
            take_up(teacher, state_file, run, first)
        progress = Progress(
            -(-settings.steps // every), first // every, layout=EVALUATIONS
        )
        progress.message(
            opening(
                f"Resuming after {first} steps:" if resume else "Training",
                config,
                teacher.mean(),
                f" by {settings.algo.upper()}: {settings.steps:,} environment steps",
                run.path,
            )
        )

        if first == settings.steps:
            progress.message(nothing_left([f"steps {settings.steps:,}"]))

        def evaluate() -> None:
            mean, step = teacher.mean(), teacher.num_steps
            taught.statistics = teacher.statistics()
            result = taught.evaluate(mean, check_stop=check_stop)
            if step:
                draft = folder.with_name(f".unfinished-{SBX_FOLDER}")
                with replacing(folder, draft):
                    teacher.save(draft / state_file.name)
                    teacher.export(draft / "model.zip")
            record = taught.save(result, mean, step, step)
            if step:
                progress.generation_done(record)
            else:
                text = significant(record.evaluation_return_mean)
                progress.message(f"Evaluation return before the first step: {text}.")

        def on_step(taken: int) -> None:
            check_stop()
            progress.tasks_done(taken % every, every)
            if taken % every == 0 or taken == settings.steps:
                evaluate()

        with progress:
            # Killed between its two parts, a save is of an evaluation not recorded.
            if taught.num_evaluations == 0 or teacher.num_steps > first:
                evaluate()
            if teacher.num_steps < settings.steps:
                teacher.learn(on_step)


def take_up(teacher: "Teacher", file: Path, run: RunDirectory, step: int) -> None:
    """Continues from what was saved with the checkpoint of a step, or after it."""
    record = run.path / run.file
    try:
        check_digests(file.parent, recorded(record), record, step)
        teacher.restore(file)
    # NumPy documents no errors of what is no archive of arrays.
    except Exception as error:
        raise ConfigError(
            f"{run.path} cannot be continued: {file} cannot be read ({error}); start a "
            f"new run with another --name. {UNNEEDED}"
        ) from error
    require(
        teacher.num_steps >= step,
        f"{run.path} cannot be continued: {file} was saved after {teacher.num_steps} "
        f"steps, and the last checkpoint after {step}; start a new run with another "
        f"--name. {UNNEEDED}",
    )


def _fields(record: GenerationRecord) -> list[str]:
    return [
        f"steps {record.total_env_steps:9d}",
        named("evaluation", record.evaluation_return_mean),
        named("best", record.best_evaluation_return),
        f"length {record.evaluation_length_mean:5.0f}",
        f"steps/s {record.total_env_steps / record.seconds_elapsed:7.0f}",
    ]


EVALUATIONS = Layout("evaluation", "step", _fields)
