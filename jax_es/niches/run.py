"""A run of POET: on disk a run like any other, whose checkpoints hold the niches.

Its θ is the foremost niche's: ``evaluate``, ``plot`` and ``load_policy`` take it as
they take any run's. ``load_niches`` reads all niches.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jax_es.checks import require
from jax_es.cli.progress import Layout, named
from jax_es.distributed.workers import Workers
from jax_es.niches.generations import Poet
from jax_es.niches.niche import NEVER, Niche, annecs
from jax_es.niches.settings import PoetConfig
from jax_es.rollout.memory import check_memory, num_bytes
from jax_es.runs.records import GenerationRecord
from jax_es.train_config import TrainConfig
from jax_es.training.method_run import (
    Kind,
    check_keeps_policies,
    check_needs_no_reference,
    run_method,
    run_method_seeds,
)
from jax_es.training.parts import Parts, build


def poet_run(
    config: TrainConfig,
    settings: PoetConfig,
    path: str | os.PathLike[str],
    resume: bool = False,
    **how: Any,
) -> list[Niche]:
    """Grows niches, as ``python -m jax_es.poet`` does.

    Args:
        config: task, policy, strategy, seed and length of the run.
        settings: what mutates, and how niches are chosen.
        path: the run's folder, usually ``runs/<name>``.
        resume: continue the run that is there.
        **how: ``callbacks``, ``workers``, ``verbose``, ``preset``, ``label`` and
            ``check_stop``, as of :func:`jax_es.train_policy`. Callbacks are told arrays
            of all niches (``state.niches``) and the foremost one's θ
            (``state.es.mean``).

    Returns:
        All niches, those that have retired included.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    return run_method(_POET, config, settings, path, resume=resume, **how).niches


class PoetResult(NamedTuple):
    """What came out of one seed."""

    seed: int
    num_niches: int
    """That were ever admitted."""
    num_solved: int
    """Of them."""
    annecs: int
    """Accumulated number of novel environments created and solved."""


def poet_seeds(
    config: TrainConfig,
    settings: PoetConfig,
    num_seeds: int,
    path: str | os.PathLike[str],
    **how: Any,
) -> list[PoetResult]:
    """Grows niches for each of several seeds, as ``--seeds`` does: an experiment.

    Args:
        config: of all runs; its ``seed`` is the first one's.
        settings: what mutates, and how niches are chosen.
        num_seeds: how many runs.
        path: the experiment's folder.
        **how: as :func:`poet_run`'s; ``callbacks`` may also be a function that returns
            those of a run by its folder. With ``resume`` finished seeds are skipped,
            the unfinished one goes on, the rest begin.

    Returns:
        One result a seed, those of earlier calls included.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    found = run_method_seeds(_POET, config, settings, num_seeds, path, **how)
    return [
        PoetResult(seed, *(int(values[name]) for name in PoetResult._fields[1:]))
        for seed, values in found.items()
    ]


def _prepare(config: TrainConfig, settings: PoetConfig) -> int:
    """Checks what niches can be made of."""
    check_keeps_policies(config, "POET")
    es = config.es
    require(
        es.strategy == "openai-es",
        f"es.strategy {es.strategy} has no meaning with POET, whose niches each have "
        "OpenAI-ES; choose --strategy openai-es.",
    )
    require(
        not es.is_commanded,
        f"es.objective {es.objective} has no meaning with POET, whose policies are "
        "asked for nothing; leave it out.",
    )
    require(
        es.interactions_per_generation is None,
        "es.interactions_per_generation has no meaning with POET, whose niches have "
        "equally many pairs; leave it out.",
    )
    require(
        not config.rollout.variation_range,
        "rollout.variation_range has no meaning with POET, whose niches say what "
        "varies; leave it out.",
    )
    require(
        bool(settings.mutate) or not settings.mutate_every,
        "--mutate is needed: which numbers of the environment's variations children "
        "change; add --mutate NAME STEP LOW HIGH.",
    )
    require(
        config.stop_at_return is None,
        f"stop_at_return {config.stop_at_return} has no meaning with POET, whose "
        "niches' returns are of different terrains; leave it out.",
    )
    return settings.max_niches * 2 * es.num_pairs


def build_parts(
    config: TrainConfig,
    settings: PoetConfig,
    on_call: Callable[[], None] = lambda: None,
    workers: Workers | None = None,
    num_tasks: int | None = None,
) -> Parts:
    """Builds what trains all niches; arguments are ``build``'s."""
    es = config.es
    of_each = 2 * es.num_pairs * es.episodes_per_member + config.evaluation.num_episodes
    num_tasks = num_tasks or settings.max_niches * of_each
    parts = build(config, on_call, num_tasks, workers)
    check_needs_no_reference(parts.policy, "a niche")
    # θ and the two moments that Adam has, of each.
    shapes = jax.eval_shape(parts.policy.init, jax.random.key(0, impl="threefry2x32"))
    size = 3 * settings.max_niches * num_bytes(shapes)
    check_memory({f"max_niches {settings.max_niches}, each with its policy,": size})
    return parts


def _fields(record: GenerationRecord) -> list[str]:
    """Returns how many niches there are, and how good."""
    return [
        f"niches {record.num_niches:3d}",
        f"annecs {record.annecs:3d}",
        f"solved {record.num_solved:3d}",
        named("evaluation", record.evaluation_return_mean),
        named("mean", record.return_mean),
        f"steps/s {record.env_steps_per_second:6.0f}",
    ]


def _details(poet: Poet) -> str:
    names = ", ".join(name for name, *_ in poet.settings.mutate)
    return f": up to {poet.settings.max_niches}, by {names or 'nothing'}"


def _result(poet: Poet) -> dict[str, float]:
    solved = sum(niche.solved != NEVER for niche in poet.niches)
    values = len(poet.niches), solved, annecs(poet.niches)
    return dict(zip(PoetResult._fields[1:], values, strict=True))


_POET = Kind(
    prepare=_prepare,
    parts=build_parts,
    training=Poet,
    begins="Growing niches of",
    details=_details,
    layout=Layout("generation", "episode", _fields),
    result=_result,
)
