"""Several seeds of one configuration, trained one after another: an experiment.

``runs/<name>/seed-0/``, ``seed-1/`` … are ordinary runs; ``experiment.json`` beside
them says how many there shall be, and what came out of the finished ones.

All seeds train in one process. They have the same number of devices, which JAX fixes
once a process; it starts once, and one stop signal ends them all. Each is built again
and its programs are freed (70 MiB a seed of the quickstart), so that memory stays level
and a seed's numbers are those of a run of its own. Whatever ends the process, a resume
begins a new one.
"""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_es.checks import require
from jax_es.distributed.workers import Workers
from jax_es.rollout.evaluator import never
from jax_es.runs.changes import check_method, check_resumable
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import EXPERIMENT_FILE, new_folder
from jax_es.runs.method import OPENAI_ES, Method
from jax_es.runs.records import nulled
from jax_es.runs.tracking import Callback
from jax_es.train_config import TrainConfig, differences, to_dict
from jax_es.training.build import for_run
from jax_es.training.custom import AnyPart, AnyPolicy, with_parts
from jax_es.training.parts import build
from jax_es.training.phases import try_phases
from jax_es.training.train_policy import named_config, team_of, train_policy
from jax_es.training.warm_start import find_sources


class SeedResult(NamedTuple):
    """What came out of one seed; evaluations as of :class:`TrainingResult`."""

    seed: int
    first_evaluation: float
    final_evaluation: float
    best_evaluation: float


def train_seeds(
    config: TrainConfig | str,
    num_seeds: int,
    path: str | os.PathLike[str] | None = None,
    *,
    policy: AnyPolicy = None,
    objective: AnyPart = None,
    strategy: AnyPart = None,
    env: AnyPart = None,
    callbacks: Sequence[Callback] | Callable[[Path], Sequence[Callback]] = (),
    workers: Workers | int | None = None,
    resume: bool = False,
    verbose: bool = True,
    preset: str | None = None,
    label: str = "",
    check_stop: Callable[[], None] = never,
) -> list[SeedResult]:
    """Trains an experiment, as ``python -m jax_es.train --seeds`` does.

    Args:
        config: of all runs; its ``seed`` is the first one's.
        num_seeds: how many runs.
        path: the experiment's folder; as
            :func:`~jax_es.training.train_policy.train_policy`'s, and so are the others
            but the next two.
        policy: instead of the configuration's.
        objective: instead of the configuration's.
        strategy: instead of the configuration's.
        env: instead of the configuration's.
        callbacks: told of each generation of all runs, or a function that returns those
            of a run by its folder.
        workers: who evaluates.
        resume: continue the experiment that is there: finished seeds are skipped,
            the unfinished one goes on, the rest begin.
        verbose: whether to show progress.
        preset: recorded as where ``config`` comes from.
        label: what progress shows before the seed.
        check_stop: called often; raises an exception to end the experiment.

    Returns:
        One result a seed, those of earlier calls included.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    config, preset = named_config(config, preset)
    config = with_parts(config, policy, objective, strategy, env)
    require(
        not resume or path is not None,
        "--resume needs a path, the folder of the experiment to continue.",
    )
    if path is None:
        path = new_folder(f"{preset}-{num_seeds}seeds")
    folder = RunDirectory(Path(path), EXPERIMENT_FILE)
    config = for_run(config, folder, resume, workers is not None)

    def train(*run: Any, **what: Any) -> dict[str, float]:
        result = train_policy(*run, **what)
        return {name: getattr(result, name) for name in SeedResult._fields[1:]}

    found = run_seeds(
        folder,
        config,
        num_seeds,
        train,
        check_buildable,
        callbacks=callbacks,
        workers=workers,
        resume=resume,
        preset=preset,
        label=label,
        check_stop=check_stop,
        verbose=verbose,
    )
    return [SeedResult(seed, **values) for seed, values in found.items()]


def run_seeds(
    folder: RunDirectory,
    config: TrainConfig,
    num_seeds: int,
    train: Callable[..., dict[str, float]],
    check: Callable[[TrainConfig, range], None],
    *,
    callbacks: Sequence[Callback] | Callable[[Path], Sequence[Callback]] = (),
    workers: Workers | int | None = None,
    resume: bool = False,
    preset: str = "python",
    label: str = "",
    method: Method | None = None,
    **what: Any,
) -> dict[int, dict[str, float]]:
    """Trains the runs of an experiment that are not finished.

    Args:
        folder: the experiment's.
        config: from :func:`~jax_es.training.build.for_run`; of all runs.
        num_seeds: how many runs.
        train: of a run's configuration and folder, and further arguments as
            :func:`~jax_es.training.train_policy.train_policy`'s; returns what came out.
        check: rejects seeds of a configuration that cannot begin.
        callbacks: as :func:`train_seeds`'; so are the others but the last two.
        workers: who evaluates.
        resume: continue the experiment that is there.
        preset: recorded as where ``config`` comes from.
        label: what progress shows before the seed.
        method: how the runs are trained, unless by a strategy.
        **what: further arguments of ``train``.

    Returns:
        What came out of each seed.
    """
    require(num_seeds >= 1, f"--seeds must be at least 1, got {num_seeds}.")
    require(
        config.seed + num_seeds <= 2**31,
        f"seed plus --seeds must be at most 2^31, got {config.seed} + {num_seeds}.",
    )
    seeds = range(config.seed, config.seed + num_seeds)
    if not resume:
        folder.check_new()
        check(config, seeds)
    with folder.lock(), team_of(workers) as team:
        if resume:
            check_method(folder, method or OPENAI_ES)
            _extend(folder, config, num_seeds, check)
        else:
            entries = {"method": method} if method else {}
            folder.create(config, preset, num_seeds=num_seeds, results={}, **entries)
        for number, seed in enumerate(seeds, start=1):
            if str(seed) in folder.record()["results"]:
                continue
            run = RunDirectory(folder.path / f"seed-{seed}")
            values = train(
                dataclasses.replace(config, seed=seed),
                run.path,
                resume=run.exists(),
                preset=folder.record()["preset"],
                label=f"{label}  seed {seed}  run {number}/{num_seeds}".lstrip(),
                callbacks=callbacks(run.path) if callable(callbacks) else callbacks,
                workers=team,
                **what,
            )
            results = folder.record()["results"]
            folder.update(results={**results, str(seed): nulled(values)})
        return {
            seed: {k: math.nan if v is None else v for k, v in values.items()}
            for seed in seeds
            for values in [folder.record()["results"][str(seed)]]
        }


def check_buildable(config: TrainConfig, seeds: range) -> None:
    """Rejects what cannot begin, before there is a folder; one slot suffices."""
    try_phases(config)
    with contextlib.closing(build(config, num_tasks=1)) as parts:
        for _ in find_sources(parts, seeds):
            pass  # each is checked


def _extend(
    folder: RunDirectory,
    config: TrainConfig,
    num_seeds: int,
    check: Callable[[TrainConfig, range], None],
) -> None:
    """Takes over what a resume may change: longer runs, and more of them."""
    check_resumable(folder, config)
    stored = folder.config()
    before = folder.record()["num_seeds"]
    for name, old, new in (
        ("--seeds", before, num_seeds),
        ("num_generations", stored.num_generations, config.num_generations),
        ("max_env_steps", stored.max_env_steps, config.max_env_steps),
        ("stop_at_return", stored.stop_at_return, config.stop_at_return),
    ):
        require(
            (math.inf if new is None else new) >= (math.inf if old is None else old),
            f"{name} must be at least {'no limit' if old is None else old}, as "
            f"{folder.path} began, got {new}: some seeds may have got there. Leave "
            "it out, or start a new experiment with another --name.",
        )
    added = range(config.seed + before, config.seed + num_seeds)
    if config.init is not None and added:
        check(config, added)
    # All of them before the first is trained, which may take hours.
    for seed in range(config.seed, config.seed + num_seeds):
        run = RunDirectory(folder.path / f"seed-{seed}")
        if run.exists():
            check_resumable(run, dataclasses.replace(config, seed=seed))
        else:
            run.check_new()
    record: dict[str, Any] = {"config": to_dict(config), "num_seeds": num_seeds}
    limits = {"num_generations", "max_env_steps", "stop_at_return"}
    if limits & {*differences(stored, config)}:
        record["results"] = {}  # finished seeds may have to go further: look again
    folder.update(**record)
