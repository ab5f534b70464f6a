"""A teacher's training as a run: it learns and is evaluated in turn, and is saved.

An evaluation leaves a record, a checkpoint of θ, and all that the next stretch depends
on. So a run that is stopped or killed goes on from its last evaluation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_es.checks import ConfigError, require
from jax_es.cli.progress import StepProgress, opening
from jax_es.imitation.gradient_run import GradientRun, begin, build_for_evaluation
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.rollout.devices import compilation_clock
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
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
        check_stop: called often; raises an exception to end the run. What went before
            the last evaluation is saved then.

    Raises:
        ValueError: (a ``ConfigError`` or a ``CheckpointError``) if the run cannot be
            created or continued; it is then as it was before.
    """
    sbx_teacher = _import_sbx()
    parts = build_for_evaluation(config)
    teacher: Teacher = sbx_teacher.Teacher(settings, config, settings.steps)
    folder = run.path / SBX_FOLDER

    def on_step(taken: int) -> None:
        check_stop()
        progress.steps_done(taken)

    def evaluate() -> None:
        mean, step = teacher.mean(), teacher.num_steps
        result = gradient_run.evaluate(mean, on_step=lambda _: check_stop())
        if step:
            teacher.save(_state_file(folder, step))
            teacher.export(folder / "model.zip")
        # A resume needs both, so the last of the two makes the step count.
        record = gradient_run.save(result, mean, step, step)
        for file in folder.glob("*.npz"):
            if file != _state_file(folder, step):
                file.unlink()
        progress.report(
            evaluation=f"{record.evaluation_return_mean:9.1f}",
            best=f"{record.best_evaluation_return:9.1f}",
            length=f"{record.evaluation_length_mean:7.1f}",
        )

    try:
        with run.lock():
            method = settings.method()
            step = begin(run, config, method, resume, preset)
            first, num_evaluations = step or 0, 0
            require(
                settings.steps >= first,
                f"--steps must be at least {first}, the steps that {run.path} has "
                f"taken, got {settings.steps}.",
            )
            if step is not None:
                state = Checkpoints(run.checkpoints).restore(step).state
                num_evaluations = int(state["num_evaluations"])
            if first:  # before the first one a teacher is what the seed makes it
                teacher.restore(_state_file(folder, first))
                run.resume(config)
                run.update(method=method)
            with GradientRun(run, parts, None, num_evaluations) as gradient_run:
                clock = compilation_clock()
                progress = StepProgress(settings.steps, first, clock=clock)
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
                    if num_evaluations == 0:
                        evaluate()
                    every = settings.evaluate_every
                    while (taken := teacher.num_steps) < settings.steps:
                        until = min((taken // every + 1) * every, settings.steps)
                        teacher.learn(until - taken, on_step)
                        evaluate()
    finally:
        teacher.close()


def _import_sbx() -> Any:
    try:
        from jax_es.imitation import sbx_teacher
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"teachers need SBX, and {error.name} is not installed: "
            "pip install -e '.[pretraining]'."
        ) from error
    return sbx_teacher


def _state_file(folder: Path, step: int) -> Path:
    return folder / f"{step}.npz"
