"""An archive's run: on disk a run like any other, whose checkpoints hold the archive.

Its θ is the best elite (or the policy that es improves): ``evaluate``, ``plot`` and
``load_policy`` take it as they take any run's. ``load_archive`` reads all elites.
"""

import math
import os
from collections.abc import Callable
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
from jax_es.runs.records import GenerationRecord
from jax_es.train_config import TrainConfig
from jax_es.training.method_run import (
    Kind,
    check_keeps_policies,
    check_needs_no_reference,
    run_method,
    run_method_seeds,
)
from jax_es.training.objective import reported_for
from jax_es.training.parts import EvaluationParts, build, build_evaluation
from jax_es.types import PyTree


def illuminate_run(
    config: TrainConfig,
    settings: ArchiveConfig,
    path: str | os.PathLike[str],
    resume: bool = False,
    **how: Any,
) -> Archive:
    """Fills an archive, as ``python -m jax_es.illuminate`` does.

    Args:
        config: task, policy, seed and length of the run.
        settings: the archive, and what fills it.
        path: the run's folder, usually ``runs/<name>``.
        resume: continue the run that is there.
        **how: ``callbacks``, ``workers``, ``verbose``, ``preset``, ``label`` and
            ``check_stop``, as of :func:`jax_es.train_policy`. Callbacks are told
            elites (``state.archive``) and the best (``state.es.mean``).

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    return run_method(_ARCHIVES, config, settings, path, resume=resume, **how).archive


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
    **how: Any,
) -> list[ArchiveResult]:
    """Fills an archive for each of several seeds, as ``--seeds`` does: an experiment.

    Args:
        config: of all runs; its ``seed`` is the first one's.
        settings: the archives, and what fills them.
        num_seeds: how many runs.
        path: the experiment's folder.
        **how: as :func:`illuminate_run`'s; ``callbacks`` may also be a function that
            returns those of a run by its folder. With ``resume`` finished seeds are
            skipped, the unfinished one goes on, the rest begin.

    Returns:
        One result a seed, those of earlier calls included.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    found = run_method_seeds(_ARCHIVES, config, settings, num_seeds, path, **how)
    return [ArchiveResult(seed, **values) for seed, values in found.items()]


def _prepare(config: TrainConfig, settings: ArchiveConfig) -> int:
    """Checks what an archive can be filled with."""
    check_keeps_policies(config, "an archive")
    require(
        config.init is None,
        f"init {config.init} has no meaning for an archive; leave it out.",
    )
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
    return settings.num_members(config.es.num_pairs)


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


def _details(illumination: Illumination) -> str:
    archive = illumination.archive
    return f": {archive.num_cells:,} cells of {', '.join(archive.axes.names)}"


def _result(illumination: Illumination) -> dict[str, float]:
    archive = illumination.archive
    best = float(archive.elites().fitness.max(initial=-math.inf))
    values = archive.coverage, archive.qd_score, best
    return dict(zip(ArchiveResult._fields[1:], values, strict=True))


_ARCHIVES = Kind(
    prepare=_prepare,
    parts=build_parts,
    training=Illumination,
    begins="Illuminating",
    details=_details,
    layout=Layout("generation", "episode", _fields),
    result=_result,
)
