"""One run on disk: ``runs/<name>/``, and who may write into it.

``config.json`` says what was run, with what and on what machine; next to it lie
``metrics.jsonl``, ``tensorboard/`` and ``checkpoints/``. An experiment is a folder of
one configuration's runs, ``seed-0/``, ``seed-1/`` …, with a record of its own.
"""

import contextlib
import copy
import dataclasses
import datetime
import errno
import functools
import os
import shlex
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jax_es.checks import ConfigError, check_types, require, spelled
from jax_es.runs.digests import ALWAYS, DIGESTS, DamageError, check_sealed, sealed
from jax_es.runs.files import (
    MOST_RECORDS,
    check_place,
    open_lock,
    read_record,
    state_of,
    write_record,
    writing,
)
from jax_es.runs.folders import (
    CONFIG_FILE,
    EVOLUTION_FILE,
    EXPERIMENT_FILE,
    STUDY_FILE,
    no_run,
    seed_folders,
    seed_of,
)
from jax_es.runs.machine import (
    git_commit,
    jax_settings,
    machine,
    versions,
)
from jax_es.runs.method import POET, Method
from jax_es.runs.metrics import METRICS_FILE
from jax_es.train_config import (
    TrainConfig,
    from_dict,
    imported,
    to_dict,
)

if TYPE_CHECKING:
    from jax_es.envs.faults import EnvironmentFailure

ERROR_FILE = "error.log"
"""The traceback of an environment that failed."""

OPTIONAL = {
    **dict.fromkeys(("versions", "machine", "data"), dict),
    **{"created": str, "git_commit": str | None},
}
"""Entries that a record may lack, and their types."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A run's folder, an experiment's or a study's.

    What reads the record raises ``ConfigError`` if the folder is no run, or its record
    cannot be read; what writes it, if nothing can be written.
    """

    path: Path
    """The folder."""
    file: str = CONFIG_FILE
    """Its record; ``EXPERIMENT_FILE`` makes it an experiment's, ``STUDY_FILE`` a
    study's, ``EVOLUTION_FILE`` that of :func:`jax_es.evolve`."""

    def __post_init__(self) -> None:
        """Checks that the system can have such a folder."""
        name = str(self.path)
        try:
            os.lstat(name)
        except OSError as error:  # others are reported by what reads or writes it
            require(
                error.errno != errno.ENAMETOOLONG,
                f"{name[:60]}… of {len(name)} characters is too long for a folder; "
                "choose a shorter --name.",
            )

    @property
    def checkpoints(self) -> Path:
        """Where Orbax's checkpoints lie."""
        return self.path / "checkpoints"

    @property
    def has_niches(self) -> bool:
        """Whether it is POET's with all its niches; an exported one has one policy."""
        return self.method().name == POET and self.checkpoints.exists()

    def exists(self) -> bool:
        """Returns whether the record is there."""
        return os.path.isfile(self.path / self.file)  # False for an impossible name

    def record(self) -> dict[str, Any]:
        """Returns what :meth:`create` and :meth:`update` wrote, a copy."""
        return copy.deepcopy(self._stored().record)

    def config(self) -> TrainConfig:
        """Returns the run's configuration."""
        return self._stored().config

    def _stored(self) -> "_Stored":
        """Reads the record, once as long as it stays as it is."""
        if not self.exists():
            raise ConfigError(no_run(self.path, self.file))
        file = self.path / self.file
        return _read(file, state_of(file))

    def method(self) -> Method:
        """Says how the run was trained."""
        record = self.record()
        if "method" in record:
            return Method.from_record(record["method"])
        return Method(self.config().es.strategy, {})

    def method_before(self) -> Method | None:
        """Says how the run was trained whose θ this one began with, if it did so."""
        record = self.record()
        if "init" not in record:
            return None
        return Method.from_record(record["init"]["method"])

    def check_new(self) -> None:
        """Raises ``ConfigError`` if a run, experiment or study, or a part, is there.

        A run that ended before its first generation did is none: another takes its
        place.
        """
        names = (EXPERIMENT_FILE, STUDY_FILE, EVOLUTION_FILE)
        if not self._is_blank():
            names = (CONFIG_FILE, *names, METRICS_FILE, "checkpoints")
        parts = [self.path / name for name in names] + seed_folders(self.path)
        there = next((part for part in parts if os.path.exists(part)), None)
        require(
            there is None,
            f"{self.path} holds a run already ({there}); continue it with --resume or "
            "choose another --name.",
        )

    def _is_blank(self) -> bool:
        """Returns whether a run was begun here, and nothing came of it."""
        metrics, checkpoints = self.path / METRICS_FILE, self.path / "checkpoints"
        is_empty = metrics.is_file() and metrics.stat().st_size == 0
        return is_empty and not (checkpoints.is_dir() and any(checkpoints.iterdir()))

    def create(self, config: TrainConfig, preset: str, **more: Any) -> None:
        """Makes the folder of a new run and writes the record.

        Args:
            config: the configuration.
            preset: where it comes from.
            **more: further entries, as JSON values; ``method``, a :class:`Method`,
                unless it is a strategy, and ``init``, where θ is from, of a run that
                begins with another one's (``warm_start.py``).
        """
        self.begin(config=to_dict(config), preset=preset, **more)

    def begin(self, **entries: Any) -> None:
        """Makes the folder and writes a record with these entries, as JSON values."""
        self.check_new()
        record = {
            "created": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
            "versions": versions(),
            "jax": jax_settings(),
            "git_commit": git_commit(),
            "machine": machine(),
            DIGESTS: ALWAYS,
        }
        self.write(record | entries)

    def update(self, **entries: Any) -> None:
        """Replaces entries of the record, or adds to them."""
        self.write({**self.record(), **entries})

    def write(self, record: dict[str, Any]) -> None:
        """Writes the whole record, with a digest of itself."""
        with self._writing():
            write_record(self.path / self.file, sealed(record))
        _read.cache_clear()  # a clock may not tell two writes apart

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return writing(self.path, "make it writable or choose another folder")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from writing this run; makes the folder.

        A program that creates, resumes or trains a run holds the lock from before it
        reads the run's state until it has written the last of it. The system releases
        the lock of a killed process. ``ConfigError`` if another process holds it, or
        nothing can be stored there (:func:`check_place`).
        """
        check_place(self.path)
        with self._writing():
            try:
                file = open_lock(self.path)
            except BlockingIOError as error:
                raise ConfigError(
                    f"{self.path} is being written by another process; wait for it, or "
                    "choose another name."
                ) from error
        with file:
            try:
                yield
            except Exception as error:
                # Late: it loads the simulators, and --help reads this file.
                from jax_es.envs.faults import EnvironmentFailure

                if isinstance(error, EnvironmentFailure) and self.file == CONFIG_FILE:
                    self._log_failure(error)
                raise

    def _log_failure(self, error: "EnvironmentFailure") -> None:
        """Writes the traceback down, and tells the user where."""
        if not self.exists():
            return
        log = self.path / ERROR_FILE
        with contextlib.suppress(OSError):
            report = error.report or "".join(traceback.format_exception(error))
            log.write_text(report)
            error.add_note(f"its traceback is in {log}")
        study = RunDirectory(self.path.parent.parent, STUDY_FILE)
        options = resume_options(study if study.exists() else self)
        error.add_note(spelled(f"mend it, then continue with {options}"))


class _Stored(NamedTuple):
    """What a record says; shared by all that read it."""

    record: dict[str, Any]
    config: Any
    """A ``TrainConfig``, unless the record is :func:`jax_es.evolve`'s."""


@functools.lru_cache(MOST_RECORDS)
def _read(file: Path, state: tuple[int, ...]) -> _Stored:
    """Reads and checks a record that is in this state (:func:`state_of`)."""
    del state  # it tells results apart
    try:
        stored = _checked(read_record(file), file.name)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{file} is not the configuration of a run "
            f"({str(error).rstrip('.')}); restore it from a copy or choose another "
            "run."
        ) from error
    try:
        check_sealed(stored.record)
    except DamageError as error:
        raise ConfigError(
            f"{file} is damaged or was edited ({error}); restore it from a copy, "
            f"or delete its entry {DIGESTS!r} to use it unchecked."
        ) from error
    return stored


def _checked(record: Any, file: str) -> _Stored:
    """Returns a run's record if programs can read its entries.

    Raises:
        ValueError, TypeError: naming the entry.
    """
    if file == EVOLUTION_FILE:
        return _Stored(check_types(record, config=dict, fitness=str), None)
    needed = {"config": dict, "preset": str}
    if file == EXPERIMENT_FILE:
        needed |= {"num_seeds": int, "results": dict}
    check_types(record, **needed)
    check_types(record, **{name: OPTIONAL[name] for name in OPTIONAL if name in record})
    config = from_dict(record["config"])
    if "method" in record:
        Method.from_record(record["method"])
    if "init" in record:
        init = check_types(record["init"], run=str, checkpoint=int)
        Method.from_record(init.get("method"))
    return _Stored(record, config)


def experiment_of(run: RunDirectory) -> RunDirectory | None:
    """Returns the experiment that a run is part of, if it is."""
    experiment = RunDirectory(run.path.parent, EXPERIMENT_FILE)
    return experiment if experiment.exists() and seed_of(run.path) is not None else None


def seed_runs(experiment: Path) -> list[RunDirectory]:
    """Returns the begun runs in an experiment's folder, by seed."""
    return [RunDirectory(path) for path in seed_folders(experiment)]


def resume_options(run: RunDirectory) -> str:
    """Returns the options that continue a run, or the experiment it is part of."""
    path = (experiment_of(run) or run).path
    name, parent = shlex.quote(path.name), shlex.quote(str(path.parent))
    where = "" if parent == "runs" else f" --runs-dir {parent}"
    workers = ""
    if run.exists() and run.config().rollout.shard_size is not None:
        from jax_es.envs.base import available_cores  # late: it loads JAX

        workers = f" --workers {available_cores()}"  # any number gives the same
    return f"--resume --name {name}{where}{trust_option(run)}{workers}"


def trust_option(run: RunDirectory) -> str:
    """Returns `` --trust`` if a run imports a module of the user's (``trust.py``)."""
    return " --trust" if run.exists() and imported(run.config()) else ""
