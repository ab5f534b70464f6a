"""A teacher's training as a run: it learns and is evaluated in turn, and is saved.

An evaluation leaves a record, a checkpoint of θ, and all that the next stretch depends
on. So a run that is stopped or killed goes on from its last evaluation to the numbers
of a run that was never stopped.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jax_es.checks import ConfigError, require
from jax_es.cli.progress import StepProgress
from jax_es.imitation.gradient_run import GradientRun
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory, warn_of_changed_versions
from jax_es.train_config import TrainConfig

if TYPE_CHECKING:
    from jax_es.imitation.sbx_teacher import Teacher

SBX_FOLDER = "sbx"
"""In the run's folder: what SBX has learned, for a resume, and its own file of it."""

NUM_SAVED = 2
"""Steps at which it is kept: one is written while the other is what a resume needs."""


def sbx_states(run: RunDirectory) -> Checkpoints:
    """Returns where a run keeps what its teacher goes on from."""
    return Checkpoints(run.path / SBX_FOLDER, NUM_SAVED)


def begin(
    run: RunDirectory,
    teacher: "Teacher",
    settings: TeacherSettings,
    config: TrainConfig,
    resume: bool,
    preset: str,
) -> int:
    """Creates the run, or takes up the one that is there; call it in ``run.lock()``.

    Returns how many evaluations are behind it.

    Raises:
        ValueError: (a ``ConfigError`` or a ``CheckpointError``) if it cannot be created
            or continued.
    """
    if not resume:
        run.create(config, preset, method=settings.method())
        return 0
    checkpoints, states = Checkpoints(run.checkpoints), sbx_states(run)
    steps = checkpoints.steps()
    step, num_evaluations = 0, 0
    if steps:
        step = steps[-1]
        num_evaluations = int(checkpoints.restore(step).state["num_evaluations"])
    require(
        settings.steps >= step,
        f"--steps must be at least {step}, the steps that {run.path} has taken, got "
        f"{settings.steps}.",
    )
    if step:  # before the first one a teacher is what the seed makes it
        require(
            step in states.steps(),
            f"{run.path} cannot be continued, since {run.path / SBX_FOLDER} has "
            "nothing that this version reads; start a new run with another --name. "
            "evaluate and load_policy do not need it.",
        )
        try:
            teacher.restore(states.restore(step).state)
        except ConfigError as error:
            raise ConfigError(f"{run.path / SBX_FOLDER}: {error}") from error
    warn_of_changed_versions(run)
    if run.method() != settings.method():
        run.update(method=settings.method())
    return num_evaluations


def train(
    run: RunDirectory,
    teacher: "Teacher",
    settings: TeacherSettings,
    gradient_run: GradientRun,
    progress: StepProgress,
    check_stop: Callable[[], None] = lambda: None,
) -> None:
    """Evaluates, then learns and evaluates in turn to the end of the run.

    ``check_stop`` is called often and raises an exception to end the run; what went
    before the last evaluation is saved then.
    """
    states = sbx_states(run)

    def evaluate() -> None:
        mean, step = teacher.mean(), teacher.num_steps
        result = gradient_run.evaluate(mean, on_step=lambda _: check_stop())
        record = gradient_run.record(result, mean, None, step, step)
        # A resume needs both, so the last of the two makes the step count.
        if step:
            states.save(step, teacher.state())
            teacher.export(Path(run.path, SBX_FOLDER, "model.zip"))
        gradient_run.save(mean, None, step)
        progress.report(
            evaluation=f"{record.evaluation_return_mean:9.1f}",
            best=f"{record.best_evaluation_return:9.1f}",
            length=f"{record.evaluation_length_mean:7.1f}",
        )

    def on_step(taken: int) -> None:
        check_stop()
        progress.steps_done(taken)

    if gradient_run.num_evaluations == 0:
        evaluate()
    while (taken := teacher.num_steps) < settings.steps:
        until = (taken // settings.evaluate_every + 1) * settings.evaluate_every
        teacher.learn(min(until, settings.steps) - taken, on_step)
        evaluate()
