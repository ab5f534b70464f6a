"""An archive's run: on disk a run like any other, whose checkpoints hold the archive.

Its θ is the best elite (or the policy that es improves): ``evaluate``, ``plot`` and
``load_policy`` take it as they take any run's. ``load_archive`` reads all elites.
"""

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_es.checks import require
from jax_es.cli.progress import Layout, named
from jax_es.distributed.workers import Workers
from jax_es.es.population import MaterializedPopulation
from jax_es.illumination.archive import Archive
from jax_es.illumination.generations import Illumination
from jax_es.illumination.settings import ArchiveConfig
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import EXPERIMENT_FILE
from jax_es.runs.records import GenerationRecord
from jax_es.runs.tracking import Callback
from jax_es.train_config import TrainConfig
from jax_es.training.build import for_run
from jax_es.training.method_run import (
    check_keeps_policies,
    check_needs_no_reference,
    run_method,
)
from jax_es.training.objective import reported_for
from jax_es.training.parts import EvaluationParts, build, build_evaluation
from jax_es.training.seeds import run_seeds
from jax_es.training.train_policy import team_of
from jax_es.types import PyTree


def illuminate_run(
    config: TrainConfig,
    settings: ArchiveConfig,
    path: str | os.PathLike[str],
    resume: bool = False,
    preset: str = "python",
    check_stop: Callable[[], None] = lambda: None,
    *,
    callbacks: Sequence[Callback] = (),
    workers: Workers | int | None = None,
    verbose: bool = True,
    label: str = "",
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
        callbacks: told of each generation; one that returns ``True`` ends the run.
            ``state.archive`` are the elites, ``state.es.mean`` the best.
        workers: who evaluates, as of :func:`jax_es.train_policy`.
        verbose: whether to show progress.
        label: what progress shows before the generation.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    run = RunDirectory(Path(path))
    config = _prepared(config, settings, run, resume, workers)
    with contextlib.ExitStack() as stack:
        team = stack.enter_context(team_of(workers))
        parts = build_parts(config, settings, check_stop, team)
        stack.callback(parts.close)
        illumination = Illumination(parts, settings)
        archive = illumination.archive
        axes = ", ".join(archive.axes.names)
        run_method(
            illumination,
            run,
            settings.method(),
            "Illuminating",
            f": {archive.num_cells:,} cells of {axes}",
            LAYOUT,
            resume=resume,
            preset=preset,
            team=team,
            check_stop=check_stop,
            callbacks=callbacks,
            verbose=verbose,
            label=label,
        )
    return illumination.archive


class ArchiveResult(NamedTuple):
    """What came out of one seed."""

    seed: int
    coverage: float
    """Share of the cells that have an elite."""
    qd_score: float
    best_fitness: float
    """Of the best elite."""


def illuminate_seeds(
    config: TrainConfig,
    settings: ArchiveConfig,
    num_seeds: int,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    workers: Workers | int | None = None,
    **what: Any,
) -> list[ArchiveResult]:
    """Fills an archive for each of several seeds, as ``--seeds`` does: an experiment.

    Args:
        config: of all runs; its ``seed`` is the first one's.
        settings: the archives, and what fills them.
        num_seeds: how many runs.
        path: the experiment's folder.
        resume: continue the experiment that is there: finished seeds are skipped, the
            unfinished one goes on, the rest begin.
        workers: who evaluates.
        **what: further arguments of :func:`illuminate_run`; ``callbacks`` may also be a
            function that returns those of a run by its folder.

    Returns:
        One result a seed, those of earlier calls included.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    folder = RunDirectory(Path(path), EXPERIMENT_FILE)
    config = _prepared(config, settings, folder, resume, workers)

    def check(config: TrainConfig, seeds: range) -> None:
        with contextlib.closing(build_parts(config, settings, num_tasks=1)) as parts:
            Illumination(parts, settings)

    def fill(config: TrainConfig, path: Path, **what: Any) -> dict[str, float]:
        archive = illuminate_run(config, settings, path, **what)
        best = float(archive.elites().fitness.max(initial=-math.inf))
        values = archive.coverage, archive.qd_score, best
        return dict(zip(ArchiveResult._fields[1:], values, strict=True))

    what |= {"workers": workers, "resume": resume, "method": settings.method()}
    found = run_seeds(folder, config, num_seeds, fill, check, **what)
    return [ArchiveResult(seed, **values) for seed, values in found.items()]


def _prepared(
    config: TrainConfig,
    settings: ArchiveConfig,
    run: RunDirectory,
    resume: bool,
    workers: Workers | int | None,
) -> TrainConfig:
    """Checks what an archive can be filled with, and fills in the machine."""
    check_keeps_policies(config, "an archive")
    require(
        config.es.objective == "return",
        f"es.objective {config.es.objective} has no meaning for an archive, whose "
        "policies are asked for nothing; leave it out.",
    )
    require(
        config.rollout.step_cap is None,
        f"rollout.step_cap {config.rollout.step_cap} has no meaning for an archive, "
        "whose elites are told by whole episodes; leave it out.",
    )
    num_members = settings.num_members(config.es.num_pairs)
    return for_run(config, run, resume, workers is not None, num_members)


def build_parts(
    config: TrainConfig,
    settings: ArchiveConfig,
    on_call: Callable[[], None] = lambda: None,
    workers: Workers | None = None,
    num_tasks: int | None = None,
) -> EvaluationParts:
    """Builds what evaluates, and for es the strategy; arguments are ``build``'s."""
    if settings.emitter == "es":
        require(
            config.es.strategy == "openai-es",
            f"es.strategy {config.es.strategy} has no meaning with emitter es, which "
            "is OpenAI-ES; leave it out.",
        )
        parts = build(config, on_call, num_tasks, workers)
    else:
        if workers is not None:
            num_tasks = 1  # here, only spaces and shapes are read
        count = settings.batch_size * config.es.episodes_per_member

        def population(mean: PyTree) -> MaterializedPopulation:
            many = jax.tree.map(
                lambda leaf: jnp.stack([leaf] * settings.batch_size), mean
            )
            return MaterializedPopulation(mean, many)

        parts = build_evaluation(
            config,
            num_tasks or count + config.evaluation.num_episodes,
            population,
            workers,
            reported_for(config.es),
            config.rollout.shard_size,
        )
    check_needs_no_reference(parts.policy, "an archive")
    return parts


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
