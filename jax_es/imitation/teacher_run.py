"""A teacher's training as a run: it learns, and is evaluated and saved in between."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from jax_es.checks import optional, require
from jax_es.cli.progress import Layout, Progress, opening
from jax_es.imitation.gradient_run import GradientRun, begin, build_for_evaluation
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.records import GenerationRecord
from jax_es.train_config import TrainConfig

if TYPE_CHECKING:
    from jax_es.imitation.sbx_teacher import Teacher

SBX_FOLDER = "sbx"
"""In the run's folder: what SBX has learned, for a resume, and its own file of it."""


def teach(
    config: TrainConfig,
    settings: TeacherSettings,
    run: RunDirectory,
    resume: bool,
    preset: str,
    check_stop: Callable[[], None] = lambda: None,
) -> None:
    """Trains a teacher to the end of its run.

    Args:
        config: environment, actor, evaluation and seed.
        settings: the method and its hyperparameters.
        run: the run's folder.
        resume: continue the run that is there.
        preset: recorded as where ``config`` comes from.
        check_stop: called often; raises an exception to end the run, which then goes on
            from its last evaluation.

    Raises:
        ValueError: (a ``ConfigError`` or a ``CheckpointError``) if the run cannot be
            created or continued; it is then as it was before.
    """
    with optional("teachers need SBX", "pretraining"):
        from jax_es.imitation import sbx_teacher
    parts = build_for_evaluation(config)
    teacher: Teacher = sbx_teacher.Teacher(settings, config, settings.steps)
    folder = run.path / SBX_FOLDER
    state_file, method = folder / "state.npz", settings.method()
    every = settings.evaluate_every

    def evaluate() -> None:
        mean, step = teacher.mean(), teacher.num_steps
        result = gradient_run.evaluate(mean, on_step=lambda _: check_stop())
        if step:
            teacher.save(state_file)
            teacher.export(folder / "model.zip")
        record = gradient_run.save(result, mean, step, step)
        if step:
            progress.generation_done(record)
        else:
            text = f"{record.evaluation_return_mean:.1f}"
            progress.message(f"Evaluation return before the first step: {text}.")

    def on_step(taken: int) -> None:
        check_stop()
        progress.tasks_done(taken % every, every)
        if taken % every == 0 or taken == settings.steps:
            evaluate()

    with contextlib.closing(teacher), run.lock():
        num_evaluations = begin(run, config, method, resume, preset)
        first = max(Checkpoints(run.checkpoints).steps(), default=0)
        require(
            settings.steps >= first,
            f"steps must be at least {first}, the steps that {run.path} has taken, got "
            f"{settings.steps}.",
        )
        if first:  # before the first one a teacher is what the seed makes it
            require(
                state_file.exists(),
                f"{run.path} cannot be continued: {state_file} is missing; start a new "
                "run with another --name. evaluate and load_policy do not need it.",
            )
            teacher.restore(state_file)
        if resume:
            run.resume(config)
            run.update(method=method)
        with GradientRun(run, parts, None, num_evaluations) as gradient_run:
            count = -(-settings.steps // every)
            progress = Progress(count, first // every, layout=EVALUATIONS)
            progress.message(
                opening(
                    f"Resuming after {first} steps:" if resume else "Training",
                    config,
                    teacher.mean(),
                    f" by {settings.algo.upper()}: {settings.steps:,} environment "
                    "steps",
                    run.path,
                )
            )
            with progress:
                # Killed between its two parts, a save is of an evaluation not recorded.
                if num_evaluations == 0 or teacher.num_steps > first:
                    evaluate()
                if teacher.num_steps < settings.steps:
                    teacher.learn(settings.steps, on_step)


def _fields(record: GenerationRecord) -> list[str]:
    return [
        f"steps {record.total_env_steps:9d}",
        f"evaluation {record.evaluation_return_mean:9.1f}",
        f"best {record.best_evaluation_return:9.1f}",
        f"length {record.evaluation_length_mean:7.1f}",
        f"steps/s {record.total_env_steps / record.seconds_elapsed:7.0f}",
    ]


EVALUATIONS = Layout("evaluation", "step", _fields)
