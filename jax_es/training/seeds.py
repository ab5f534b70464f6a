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
from typing import NamedTuple

from jax_es.checks import require
from jax_es.distributed.workers import Workers
from jax_es.rollout.devices import release_programs
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import EXPERIMENT_FILE
from jax_es.runs.metrics import records_so_far
from jax_es.runs.tracking import Callback
from jax_es.train_config import TrainConfig, differences, to_dict
from jax_es.training.build import with_machine
from jax_es.training.loop import TrainingResult, train_run
from jax_es.training.parts import build
from jax_es.training.shards import check_shards
from jax_es.training.warm_start import find_source


class SeedResult(NamedTuple):
    """What came out of one seed; evaluations as of :class:`TrainingResult`."""

    seed: int
    first_evaluation: float
    final_evaluation: float
    best_evaluation: float


def train_seeds(
    config: TrainConfig,
    num_seeds: int,
    path: str | os.PathLike[str],
    resume: bool = False,
    preset: str = "python",
    label: str = "",
    check_stop: Callable[[], None] = lambda: None,
    callbacks: Callable[[Path], Sequence[Callback]] = lambda path: (),
    workers: Workers | None = None,
) -> list[SeedResult]:
    """Trains an experiment, as ``python -m jax_es.train --seeds`` does.

    On a CPU call ``jax_es.configure_cpu_devices()`` before the first use of
    JAX, or one core computes all policies.

    Args:
        config: of all runs; its ``seed`` is the first one's.
        num_seeds: how many runs.
        path: the experiment's folder, usually ``runs/<name>``.
        resume: continue the experiment that is there: finished seeds are skipped,
            the unfinished one goes on, the rest begin.
        preset: recorded as where ``config`` comes from.
        label: what progress shows before the seed.
        check_stop: as :func:`~jax_es.training.loop.train_run`'s.
        callbacks: returns those of a run, by its folder.
        workers: as :func:`~jax_es.training.loop.train_run`'s.

    Returns:
        One result a seed, those of earlier calls included.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    require(num_seeds >= 1, f"--seeds must be at least 1, got {num_seeds}.")
    require(
        config.seed + num_seeds <= 2**31,
        f"seed plus --seeds must be at most 2^31, got {config.seed} + {num_seeds}.",
    )
    folder = RunDirectory(Path(path), EXPERIMENT_FILE)
    if resume:
        config = folder.with_stored_machine(config)
    has_workers = workers is not None
    if resume or not has_workers:
        check_shards(config, has_workers, str(folder.path))
    config = with_machine(config, has_workers)
    if not resume:
        folder.check_new()
        check_buildable(config, range(config.seed, config.seed + num_seeds))
    with folder.lock():
        if resume:
            _extend(folder, config, num_seeds)
        else:
            folder.create(config, preset, num_seeds=num_seeds, results={})
        experiment = Experiment(folder)
        for seed in experiment.unfinished():
            run, number = experiment.run(seed), seed - config.seed + 1
            result = train_run(
                _seed_config(config, run, seed),
                run.path,
                resume=run.exists(),
                preset=folder.record()["preset"],
                label=f"{label}  seed {seed}  run {number}/{num_seeds}".lstrip(),
                check_stop=check_stop,
                callbacks=callbacks(run.path),
                workers=workers,
            )
            experiment.finish(seed, result)
        return experiment.results()


class Experiment:
    """An experiment's folder."""

    def __init__(self, folder: RunDirectory) -> None:
        self._folder = folder

    @property
    def num_seeds(self) -> int:
        """How many runs there are, or shall be."""
        return self._folder.record()["num_seeds"]

    def seeds(self) -> range:
        """Returns all seeds."""
        first = self._folder.config().seed
        return range(first, first + self.num_seeds)

    def run(self, seed: int) -> RunDirectory:
        """Returns the folder of one seed's run, which may not have begun."""
        return RunDirectory(self._folder.path / f"seed-{seed}")

    def unfinished(self) -> list[int]:
        """Returns the seeds that are not trained to their end."""
        finished = self._folder.record()["results"]
        return [seed for seed in self.seeds() if str(seed) not in finished]

    def finish(self, seed: int, result: TrainingResult) -> None:
        """Records that a seed is trained to its end, and lets go of its programs."""
        values = {
            name: value if math.isfinite(value) else None  # as in metrics.jsonl
            for name, value in result._asdict().items()
            if name in SeedResult._fields
        }
        results = self._folder.record()["results"]
        self._folder.update(results={**results, str(seed): values})
        release_programs()

    def results(self) -> list[SeedResult]:
        """Returns what came out of the finished seeds, in their order."""
        finished = []
        for seed in self.seeds():
            values = self._folder.record()["results"].get(str(seed))
            if values is not None:
                numbers = {k: math.nan if v is None else v for k, v in values.items()}
                finished.append(SeedResult(seed, **numbers))
        return finished


def _seed_config(config: TrainConfig, run: RunDirectory, seed: int) -> TrainConfig:
    """Returns the configuration of one seed's run.

    A run that has taken more steps than a new limit, since its last generation went
    beyond the old one, keeps the old one: nothing is left to do.
    """
    records, limit = records_so_far(run.path), config.max_env_steps
    if limit and records and records[-1].total_env_steps >= limit:
        return run.config()
    return dataclasses.replace(config, seed=seed)


def check_buildable(config: TrainConfig, seeds: range) -> None:
    """Rejects what cannot begin, before there is a folder; one slot suffices."""
    with contextlib.closing(build(config, num_tasks=1)) as parts:
        for seed in seeds:
            one = dataclasses.replace(config, seed=seed)
            find_source(dataclasses.replace(parts, config=one))


def _extend(folder: RunDirectory, config: TrainConfig, num_seeds: int) -> None:
    """Takes over what a resume may change: longer runs, and more of them."""
    folder.check_resumable(config)
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
        check_buildable(config, added)
    # All of them before the first is trained, which may take hours.
    for seed in range(config.seed, config.seed + num_seeds):
        run = RunDirectory(folder.path / f"seed-{seed}")
        if run.exists():
            run.check_resumable(dataclasses.replace(config, seed=seed))
        else:
            run.check_new()
    changed = differences(stored, config)
    if {"num_generations", "max_env_steps", "stop_at_return"} & {*changed}:
        # Finished seeds may have to go further: each is looked at again.
        folder.update(config=to_dict(config), results={})
    elif changed:
        folder.update(config=to_dict(config))
    folder.update(num_seeds=num_seeds)
