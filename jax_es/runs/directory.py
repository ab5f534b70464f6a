"""One run on disk: ``runs/<name>/``, and who may write into it.

``config.json`` says what was run, with what and on what machine; next to it lie
``metrics.jsonl``, ``tensorboard/`` and ``checkpoints/``. An experiment is a folder of
one configuration's runs, ``seed-0/``, ``seed-1/`` …, with a record of its own.
"""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_es.config import ConfigError, check_types, require
from jax_es.runs.files import open_lock, read_json
from jax_es.runs.method import OPENAI_ES, Method
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.outputs import whole_file
from jax_es.train_config import TrainConfig, differences, from_dict, to_dict
from jax_es.version import __version__

if TYPE_CHECKING:
    from envs.faults import EnvironmentFailure

CONFIG_FILE = "config.json"
EXPERIMENT_FILE = "experiment.json"
STUDY_FILE = "study.json"
ERROR_FILE = "error.log"
"""The traceback of an environment that failed."""

PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "evosax", "numpy", "gymnasium", "mujoco",
    "ale-py", "orbax-checkpoint",
)  # fmt: skip

OPTIONAL = {
    **{"created": str, "versions": dict, "machine": dict, "method": list},
    **{"init": dict, "data": dict, "tuning": dict, "rungs": list},
}
"""Entries that a record may have beside ``config`` and ``preset``, and their types."""

RESULT = dict.fromkeys(
    ("first_evaluation", "final_evaluation", "best_evaluation"), float | None
)
"""What an experiment's record says of a finished seed (``seeds.py``)."""

FREE_TO_CHANGE = (
    "num_generations",
    "max_env_steps",
    "checkpoint_every",
    "rollout.num_threads",
    "rollout.vectorization_mode",
)
"""Fields that a resumed run may change: none of them changes a generation's numbers."""

ROUNDING_ALONE = (
    "rollout.num_slots",
    "rollout.slots_per_core",
    "rollout.num_groups",
    "rollout.num_devices",
)
"""Fields that change a run's numbers by rounding alone; they follow the machine."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A run's folder, an experiment's or a study's.

    Attributes:
        path: the folder.
        file: its record; ``EXPERIMENT_FILE`` makes it an experiment's, ``STUDY_FILE``
            a study's (``tuning.py``).
    """

    path: Path
    file: str = CONFIG_FILE

    def exists(self) -> bool:
        """Returns whether the record is there."""
        return (self.path / self.file).is_file()

    def record(self) -> dict[str, Any]:
        """Reads what :meth:`create` and :meth:`update` wrote.

        Raises:
            ConfigError: if the folder is no run, or its record cannot be read.
        """
        if not self.exists():
            raise ConfigError(_no_run(self.path))
        try:
            record = read_json(self.path / self.file)
            check_types(record, config=dict, preset=str)
            from_dict(record["config"])
            check_types(record, **{k: v for k, v in OPTIONAL.items() if k in record})
            methods = [record["method"]] if "method" in record else []
            if "init" in record:
                check_types(record["init"], run=str, checkpoint=int, method=list)
                methods.append(record["init"]["method"])
            for method in methods:
                check_types(Method(*method)._asdict(), name=str, settings=dict)
            if self.file == EXPERIMENT_FILE:
                check_types(record, num_seeds=int, results=dict)
                for result in record["results"].values():
                    if check_types(result, **RESULT).keys() != RESULT.keys():
                        raise TypeError(f"a result has {', '.join(result)}")
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{self.path / self.file} is not the configuration of a run "
                f"({str(error).rstrip('.')}); restore it from a copy or choose another "
                "run."
            ) from error
        return record

    @property
    def checkpoints(self) -> Path:
        """Where Orbax's checkpoints lie."""
        return self.path / "checkpoints"

    def config(self) -> TrainConfig:
        """Reads the run's configuration.

        Raises:
            ConfigError: if the folder is no run, or its configuration cannot be read.
        """
        return from_dict(self.record()["config"])

    def check_new(self) -> None:
        """Raises ``ConfigError`` if a run, experiment or study, or a part, is there."""
        files = (CONFIG_FILE, EXPERIMENT_FILE, STUDY_FILE)
        if any((self.path / file).exists() for file in files):
            raise ConfigError(
                f"{self.path} holds a run already; continue it with --resume or choose "
                "another --name."
            )
        left = dict.fromkeys(
            (run.path for run in seed_runs(self.path)), EXPERIMENT_FILE
        )
        left |= {self.path / METRICS_FILE: CONFIG_FILE, self.checkpoints: CONFIG_FILE}
        for part, file in left.items():
            require(
                not part.exists(),
                f"{part} is there, and {self.path / file}, to which it belongs, is "
                "missing; restore that from a copy, or choose another --name.",
            )

    def method(self) -> Method:
        """Says how the run was trained.

        Raises:
            ConfigError: if the folder is no run, or its record cannot be read.
        """
        record = self.record()
        return Method(*record["method"]) if "method" in record else OPENAI_ES

    def method_before(self) -> Method | None:
        """Says how the run was trained whose θ this one began with, if it did so.

        Raises:
            ConfigError: if the folder is no run, or its record cannot be read.
        """
        record = self.record()
        return Method(*record["init"]["method"]) if "init" in record else None

    def create(self, config: TrainConfig, preset: str, **more: Any) -> None:
        """Makes the folder and writes the record.

        Args:
            config: the configuration.
            preset: where it comes from.
            **more: further entries, as JSON values; ``method``, a :class:`Method`,
                unless it is OpenAI-ES, and ``init``, where θ is from, of a run that
                begins with another one's (``fine_tuning.py``).

        Raises:
            ConfigError: if a run is there already, or nothing can be written.
        """
        self.check_new()
        record = {
            "config": to_dict(config),
            "preset": preset,
            "created": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
            "versions": versions(),
            "git_commit": git_commit(),
            "machine": machine(),
            **more,
        }
        self._write(record)

    def update(self, **entries: Any) -> None:
        """Replaces entries of the record, or adds to them.

        Raises:
            ConfigError: if nothing can be written.
        """
        self._write({**self.record(), **entries})

    def _write(self, record: dict[str, Any]) -> None:
        try:
            with whole_file(self.path / self.file) as draft:
                draft.write_text(json.dumps(record, indent=2) + "\n")
        except OSError as error:
            raise ConfigError(self._cannot_write(error)) from error

    def _cannot_write(self, error: OSError) -> str:
        return (
            f"{self.path} cannot be written ({error.strerror}); make it writable or "
            "choose another --runs-dir."
        )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from training this run; a killed one lets go of it.

        Whoever creates, resumes or trains a run holds the lock from before it reads
        the run's state until it has written the last of it. Makes the folder.

        Raises:
            ConfigError: if another process is training it now, or nothing can be
                written.
        """
        try:
            file = open_lock(self.path)
        except BlockingIOError as error:
            raise ConfigError(
                f"{self.path} is being trained by another process; wait for it, or "
                "choose another --name."
            ) from error
        except OSError as error:
            raise ConfigError(self._cannot_write(error)) from error
        with file:
            try:
                yield
            except Exception as error:
                # Late: it loads the simulators, and --help reads this file.
                from envs.faults import EnvironmentFailure

                if isinstance(error, EnvironmentFailure):
                    self._log_failure(error)
                raise

    def _log_failure(self, error: "EnvironmentFailure") -> None:
        """Writes the traceback down, and tells the user where."""
        if self.file != CONFIG_FILE or not self.exists():
            return
        with contextlib.suppress(OSError):
            log = self.path / ERROR_FILE
            with whole_file(log) as draft:
                report = error.report or "".join(traceback.format_exception(error))
                draft.write_text(report)
            error.add_note(f"its traceback is in {log}")
        study = RunDirectory(self.path.parent.parent, STUDY_FILE)
        options = resume_options(study if study.exists() else self)
        error.add_note(f"mend it, then continue with {options}")

    def resume(self, config: TrainConfig) -> None:
        """Takes over what a resumed run may change: from now on it is the run's.

        Raises:
            ConfigError: if nothing can be written.
        """
        warn_of_changed_versions(self)
        if differences(self.config(), config):
            self.update(config=to_dict(config))

    def with_stored_machine(self, config: TrainConfig) -> TrainConfig:
        """Fills in devices and slots that the run began with, where none are given."""
        given, stored = config.rollout, self.config().rollout
        if given.num_devices is None:
            given = dataclasses.replace(given, num_devices=stored.num_devices)
        if given.num_slots is None:
            given = dataclasses.replace(
                given,
                num_slots=stored.num_slots,
                slots_per_core=stored.slots_per_core,
            )
        return dataclasses.replace(config, rollout=given)

    def check_resumable(self, config: TrainConfig) -> None:
        """Checks that ``config`` continues this run to the same numbers.

        Raises:
            ConfigError: naming each field that differs, with both values.
        """
        changed = {
            name: values
            for name, values in differences(self.config(), config).items()
            if name not in FREE_TO_CHANGE
        }
        if changed:
            listed = "; ".join(
                f"{name} was {stored!r}, now {given!r}"
                for name, (stored, given) in changed.items()
            )
            raise ConfigError(
                f"--resume would change the run in {self.path}: {listed}. Leave these "
                "as they were, or start a new run with another --name."
            )


def changed_versions(run: RunDirectory) -> dict[str, tuple[object, object]]:
    """Returns packages whose version is not the one the run began with: (then, now)."""
    began, now = run.record().get("versions", {}), versions()
    return {
        name: (began[name], now.get(name))
        for name in began
        if began[name] != now.get(name)
    }


def warn_of_changed_versions(run: RunDirectory) -> None:
    """Warns of packages that changed since the run began; for a resume."""
    changed = changed_versions(run)
    if changed:
        listed = ", ".join(f"{k} {then} → {now}" for k, (then, now) in changed.items())
        warnings.warn(
            f"{run.path} began with other versions ({listed}); its numbers may differ "
            "from an uninterrupted run's.",
            stacklevel=2,
        )


def find_run(path: str | os.PathLike[str]) -> RunDirectory:
    """Opens an existing run.

    Raises:
        ConfigError: if there is none; it lists the newest ones.
    """
    run = RunDirectory(Path(path))
    if not run.exists():
        raise ConfigError(_no_run(run.path))
    return run


def find_runs(path: str | os.PathLike[str]) -> list[RunDirectory]:
    """Opens a run, or the runs of an experiment in the order of their seeds.

    Raises:
        ConfigError: if neither is there, or no run of the experiment has begun.
    """
    run = RunDirectory(Path(path))
    if run.exists():
        return [run]
    runs = seed_runs(run.path)
    if not runs and RunDirectory(run.path, EXPERIMENT_FILE).exists():
        raise ConfigError(
            f"{path} is an experiment in which no run has begun; continue it with "
            f"{program_command('train')} --resume --name {run.path.name}."
        )
    if not runs:
        raise ConfigError(_no_run(run.path))
    return runs


def find_run_or_experiment(path: str | os.PathLike[str]) -> RunDirectory:
    """Opens what can be resumed: an experiment as a whole, or one run.

    Raises:
        ConfigError: if neither is there.
    """
    experiment = RunDirectory(Path(path), EXPERIMENT_FILE)
    return experiment if experiment.exists() else find_run(path)


def experiment_of(run: RunDirectory) -> RunDirectory | None:
    """Returns the experiment that a run is part of, if it is."""
    experiment = RunDirectory(run.path.parent, EXPERIMENT_FILE)
    return experiment if experiment.exists() and _seed(run.path) is not None else None


def check_name(name: str | None) -> None:
    """Checks what a command line gives as ``--name``.

    Raises:
        ConfigError: if it is no name of a folder.
    """
    require(
        name is None or (name not in ("", ".", "..") and Path(name).name == name),
        f"--name must be the name of a folder in --runs-dir, got {name!r}; "
        "give the path with --runs-dir.",
    )


def path_to_resume(runs_dir: Path, name: str | None) -> Path:
    """Returns the folder that ``--resume --name NAME`` means.

    Raises:
        ConfigError: without a name, where it lists the newest runs, or for one that is
            no name of a folder.
    """
    if name is None:
        raise ConfigError(
            "--resume needs --name NAME, the run to continue. "
            f"Runs in {runs_dir}: {list_runs(runs_dir)}."
        )
    check_name(name)
    return runs_dir / name


def resume_options(run: RunDirectory) -> str:
    """Returns the options that continue a run, or the experiment it is part of."""
    path = (experiment_of(run) or run).path
    where = "" if path.parent == Path("runs") else f" --runs-dir {path.parent}"
    return f"--resume --name {path.name}{where}{trust_option(run)}"


def trust_option(run: RunDirectory) -> str:
    """Returns `` --trust`` if a run's environment imports a module (``trust.py``)."""
    return " --trust" if run.exists() and ":" in run.config().env.id else ""


def program_command(program: str) -> str:
    """Returns what starts another program, as this one was started."""
    is_script = Path(sys.argv[0]).name == "jax-es"
    return f"jax-es {program}" if is_script else f"python -m jax_es.{program}"


def how_to_use(run: RunDirectory) -> str:
    """Says what can be done with a trained run."""
    path, trust = run.path, trust_option(run)
    return (
        f"Evaluate: {program_command('evaluate')} {path}{trust}\n"
        f"From Python: jax_es.load_policy({str(path)!r}{', trust=True' * bool(trust)})"
    )


def list_runs(directory: Path) -> str:
    """Names the newest runs in a folder, for a message."""
    return ", ".join(run.name for run in runs_in(directory)[-5:]) or "none"


def runs_in(directory: Path) -> list[Path]:
    """Returns the runs and experiments in a folder, oldest first."""
    records = [
        record
        for file in (CONFIG_FILE, EXPERIMENT_FILE)
        for record in directory.glob(f"*/{file}")
    ]
    return [file.parent for file in sorted(records, key=lambda f: f.stat().st_mtime)]


def seed_runs(experiment: Path) -> list[RunDirectory]:
    """Returns the begun runs in an experiment's folder, by seed."""
    seeds = {_seed(path): path for path in experiment.glob("seed-*")}
    runs = [RunDirectory(seeds[s]) for s in sorted(s for s in seeds if s is not None)]
    return [run for run in runs if run.exists()]


def _seed(path: Path) -> int | None:
    match = re.fullmatch(r"seed-(0|[1-9]\d*)", path.name)
    return int(match[1]) if match else None


def _no_run(path: Path) -> str:
    seeds = [str(run.path) for run in seed_runs(path)]
    if seeds:
        return (
            f"{path} is an experiment of several seeds, where one run is needed; "
            f"choose one of {', '.join(seeds)}."
        )
    known = [str(run) for run in runs_in(path.parent)][-5:]
    listed = f"Runs there: {', '.join(known)}." if known else "No run is there."
    return f"{path} is not a run (it has no {CONFIG_FILE}). {listed}"


def versions() -> dict[str, str | None]:
    """Returns what may change a run's numbers: versions, and what JAX computes on.

    A package that is not installed has None.
    """
    import jax  # late: --help reads this file

    found: dict[str, str | None] = {
        "jax-es": __version__,
        "python": platform.python_version(),
        "platform": jax.default_backend(),
    }
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def git_commit() -> str | None:
    """Returns the commit of the source tree, with ``+`` if it was changed since."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *args], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine() -> dict[str, Any]:
    """Describes the machine: processor, cores in use, memory in GiB."""
    from envs.cores import available_cores  # late: it loads JAX

    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": available_cores(),
        "memory_gib": round(memory, 1),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def check_method(run: RunDirectory, method: Method) -> None:
    """Checks that a run was begun by this method with these settings.

    Raises:
        ConfigError: naming what differs.
    """
    stored = run.method()
    require(
        stored.name == method.name,
        f"--resume: {run.path} was trained by {stored.title}, not by {method.title}; "
        f"continue it with {program_command(stored.program.removeprefix('jax_es.'))}.",
    )
    changed = [
        f"{name} was {stored.settings.get(name)!r}, now {value!r}"
        for name, value in method.settings.items()
        if stored.settings.get(name) != value
    ]
    require(
        not changed,
        f"--resume would change the run in {run.path}: {'; '.join(changed)}. Leave "
        "these as they were, or start a new run with another --name.",
    )
