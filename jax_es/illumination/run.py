"""An archive's run: on disk a run like any other, whose checkpoints hold the archive.

Its θ is the best elite (or the policy that es improves): ``evaluate``, ``plot`` and
``load_policy`` take it as they take any run's. ``load_archive`` reads all elites.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from jax_es.checks import require
from jax_es.cli.progress import (
    Layout,
    Progress,
    ending,
    named,
    nothing_left,
    opening,
)
from jax_es.es.population import MaterializedPopulation
from jax_es.illumination.archive import Archive
from jax_es.illumination.generations import Illumination
from jax_es.illumination.settings import ArchiveConfig
from jax_es.rollout.evaluator import RolloutProgress
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory, check_method
from jax_es.runs.metrics import MetricsWriter, check_own_records
from jax_es.runs.records import GenerationRecord
from jax_es.train_config import TrainConfig
from jax_es.training.build import with_machine
from jax_es.training.parts import EvaluationParts, build, build_evaluation
from jax_es.types import PyTree, needs_reference


def illuminate_run(
    config: TrainConfig,
    settings: ArchiveConfig,
    path: str | os.PathLike[str],
    resume: bool = False,
    preset: str = "python",
    check_stop: Callable[[], None] = lambda: None,
) -> Archive:
    """Fills an archive, as ``python -m jax_es.illuminate`` does.

    Args:
        config: task, policy, seed and length of the run.
        settings: the archive, and what fills it.
        path: the run's folder, usually ``runs/<name>``.
        resume: continue the run that is there.
        preset: recorded as where ``config`` comes from.
        check_stop: called often; raises an exception to end the run, after a checkpoint
            of the last finished generation.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    require(
        not config.rollout.observation_statistics,
        "rollout.observation_statistics must be off, or elites would act otherwise as "
        "they change; add --rollout.no-observation-statistics.",
    )
    require(
        config.es.objective == "return",
        f"es.objective {config.es.objective} has no meaning for an archive, whose "
        "policies are asked for nothing; leave it out.",
    )
    require(
        config.init is None,
        f"init {config.init} has no meaning for an archive; leave it out.",
    )
    require(not config.phases, "phases have no meaning for an archive; leave them out.")
    run = RunDirectory(Path(path))
    config = with_machine(run.with_stored_machine(config) if resume else config)
    with contextlib.ExitStack() as stack:
        parts = build_parts(config, settings, check_stop)
        stack.callback(parts.close)
        illumination = Illumination(parts, settings)
        stack.enter_context(run.lock())
        checkpoints = Checkpoints(run.checkpoints)
        if resume:
            check_method(run, settings.method())
            run.check_resumable(config)
            if checkpoints.steps():
                illumination.restore(checkpoints.restore("last").state)
            check_own_records(
                run.path,
                illumination.generation - 1,
                total_env_steps=illumination.total_env_steps,
                best_evaluation_return=illumination.best_evaluation_return,
            )
            run.resume(config, illumination.generation)
        else:
            run.create(config, preset, method=settings.method())
        _run(illumination, run, check_stop, resume)
    return illumination.archive


def build_parts(
    config: TrainConfig,
    settings: ArchiveConfig,
    on_call: Callable[[], None] = lambda: None,
) -> EvaluationParts:
    """Builds what evaluates, and for es the strategy."""
    if settings.emitter == "es":
        require(
            config.es.strategy == "openai-es",
            f"es.strategy {config.es.strategy} has no meaning with emitter es, which "
            "is OpenAI-ES; leave it out.",
        )
        parts = build(config, on_call)
    else:
        size = settings.batch_size * config.es.episodes_per_member

        def population(mean: PyTree) -> MaterializedPopulation:
            many = jax.tree.map(
                lambda leaf: jnp.stack([leaf] * settings.batch_size), mean
            )
            return MaterializedPopulation(mean, many)

        parts = build_evaluation(
            config, size + config.evaluation.num_episodes, population
        )
    require(
        not needs_reference(parts.policy),
        "policy.normalization virtual-batch cannot be kept in an archive; choose "
        "--policy.normalization none.",
    )
    return parts


def _run(
    illumination: Illumination,
    run: RunDirectory,
    check_stop: Callable[[], None],
    resume: bool,
) -> None:
    """Runs the generations to the end of the run; records and saves them."""
    config, archive = illumination.config, illumination.archive
    checkpoints = Checkpoints(run.checkpoints)
    first = saved = recorded = illumination.generation
    progress = Progress(
        config.num_generations,
        first,
        max_env_steps=config.max_env_steps,
        env_steps=illumination.total_env_steps,
        layout=LAYOUT,
    )
    axes = ", ".join(archive.axes.names)
    progress.message(
        opening(
            f"Resuming after generation {first}:" if resume else "Illuminating",
            config,
            illumination.mean,
            f": {archive.num_cells:,} cells of {axes}",
            run.path,
        )
    )

    def limits_reached() -> list[str]:
        return config.limits_reached(
            illumination.generation,
            illumination.total_env_steps,
            illumination.best_evaluation_return,
        )

    if resume and (limits := limits_reached()):
        progress.message(nothing_left(limits))

    def on_step(step: RolloutProgress) -> None:
        check_stop()
        progress.tasks_done(step.num_done, step.num_tasks)

    def save() -> None:
        nonlocal saved
        # Not a generation whose record could not be written.
        if saved < illumination.generation == recorded:
            checkpoints.save(illumination.generation, illumination.state())
            saved = illumination.generation

    with MetricsWriter(run.path, first - 1) as writer, progress:
        try:
            while not limits_reached():
                progress.generation_started(illumination.generation)
                record = illumination.advance(on_step, writer.elapsed)
                # The record first: a run killed before the checkpoint repeats the
                # generation, and its first record is dropped.
                writer.write(record)
                recorded = illumination.generation
                progress.generation_done(record)
                if record.num_left_out:
                    progress.message(
                        f"generation {recorded}: {record.num_left_out} policies were "
                        "left out: fitness or descriptor is NaN or infinite."
                    )
                if illumination.is_best:
                    best = illumination.state(whole=False)
                    checkpoints.save_best(illumination.generation, best)
                if illumination.generation % config.checkpoint_every == 0:
                    save()
        finally:
            save()
    progress.message(
        ending(limits_reached(), illumination.generation, illumination.total_env_steps)
    )


def _fields(record: GenerationRecord) -> list[str]:
    """Returns how full the archive is, and how good."""
    return [
        f"coverage {record.coverage:6.1%}",
        named("qd-score", record.qd_score, 11),
        named("best-fitness", record.best_fitness),
        named("evaluation-return", record.evaluation_return_mean),
        f"new {record.num_new_elites:4d}",
        f"better {record.num_better_elites:4d}",
        f"steps/s {record.env_steps_per_second:7.0f}",
    ]


LAYOUT = Layout("generation", "episode", _fields)
