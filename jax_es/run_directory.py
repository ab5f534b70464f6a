"""One run on disk: ``runs/<name>/``, and who may write into it.

``config.json`` says what was run, with what and on what machine; next to it lie
``metrics.jsonl``, ``tensorboard/`` and ``checkpoints/``.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_es.config import ConfigError
from jax_es.devices import available_cores
from jax_es.experiment import TrainConfig, differences, from_dict, to_dict
from jax_es.version import __version__

CONFIG_FILE = "config.json"
LOCK_FILE = ".lock"

PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "evosax", "numpy", "gymnasium", "mujoco",
    "ale-py", "orbax-checkpoint",
)  # fmt: skip

FREE_TO_CHANGE = (
    "num_generations",
    "max_env_steps",
    "checkpoint_every",
    "rollout.num_threads",
)
"""Fields that a resumed run may change: none of them changes a generation's numbers."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A run's folder."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Where Orbax's checkpoints lie."""
        return self.path / "checkpoints"

    def config(self) -> TrainConfig:
        """Reads the run's configuration.

        Raises:
            ConfigError: if the folder is no run, or its configuration cannot be read.
        """
        file = self.path / CONFIG_FILE
        if not file.is_file():
            raise ConfigError(_no_run(self.path))
        try:
            return from_dict(json.loads(file.read_text())["config"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file} is not the configuration of a run ({error}); restore it from "
                "a copy or choose another run."
            ) from error

    def create(self, config: TrainConfig, preset: str) -> None:
        """Makes the folder and writes ``config.json``.

        Raises:
            ConfigError: if a run is there already, or nothing can be written.
        """
        if (self.path / CONFIG_FILE).exists():
            raise ConfigError(
                f"{self.path} holds a run already; continue it with --resume or choose "
                "another --name."
            )
        record = {
            "config": to_dict(config),
            "preset": preset,
            "created": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
            "versions": versions(),
            "git_commit": git_commit(),
            "machine": machine(),
        }
        self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Renamed into place: a run either has its whole configuration or none.
            draft = self.path / f".{CONFIG_FILE}"
            draft.write_text(json.dumps(record, indent=2) + "\n")
            draft.replace(self.path / CONFIG_FILE)
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
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((self.path / LOCK_FILE).open("w"))
            except OSError as error:
                raise ConfigError(self._cannot_write(error)) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"{self.path} is being trained by another process; wait for it, or "
                    "choose another --name."
                ) from error
            yield

    def resume(self, config: TrainConfig) -> None:
        """Takes over what a resumed run may change: from now on it is the run's.

        Raises:
            ConfigError: if nothing can be written.
        """
        if differences(self.config(), config):
            record = json.loads((self.path / CONFIG_FILE).read_text())
            self._write({**record, "config": to_dict(config)})

    def with_stored_devices(self, config: TrainConfig) -> TrainConfig:
        """Fills in the devices that the run began with, where ``config`` has none."""
        if config.rollout.num_devices is not None:
            return config
        stored = self.config().rollout.num_devices
        rollout = dataclasses.replace(config.rollout, num_devices=stored)
        return dataclasses.replace(config, rollout=rollout)

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
    record = json.loads((run.path / CONFIG_FILE).read_text())
    began, now = record.get("versions", {}), versions()
    return {
        name: (began[name], now.get(name))
        for name in began
        if began[name] != now.get(name)
    }


def find_run(path: str | os.PathLike[str]) -> RunDirectory:
    """Opens an existing run.

    Raises:
        ConfigError: if there is none; it lists the newest ones.
    """
    run = RunDirectory(Path(path))
    if not (run.path / CONFIG_FILE).is_file():
        raise ConfigError(_no_run(run.path))
    return run


def find_runs(path: str | os.PathLike[str]) -> list[RunDirectory]:
    """Opens a run, or the runs of an experiment folder in the order of their seeds.

    An experiment folder holds runs of several seeds as ``seed-0``, ``seed-1``, ….

    Raises:
        ConfigError: if it is neither; it lists the newest runs.
    """
    directory = Path(path)
    seeds = {
        int(number): run
        for run in directory.glob("seed-*")
        if (number := run.name.removeprefix("seed-")).isdecimal()
        and (run / CONFIG_FILE).is_file()
    }
    if seeds and not (directory / CONFIG_FILE).is_file():
        return [RunDirectory(seeds[number]) for number in sorted(seeds)]
    return [find_run(directory)]


def runs_in(directory: Path) -> list[Path]:
    """Returns the runs in a folder, oldest first."""
    configs = list(directory.glob(f"*/{CONFIG_FILE}"))
    return [file.parent for file in sorted(configs, key=lambda f: f.stat().st_mtime)]


def _no_run(path: Path) -> str:
    known = [str(run) for run in runs_in(path.parent)][-5:]
    listed = f"Runs there: {', '.join(known)}." if known else "No run is there."
    return f"{path} is not a run (it has no {CONFIG_FILE}). {listed}"


def versions() -> dict[str, str | None]:
    """Returns the versions that may change a run's numbers; None if not installed."""
    found: dict[str, str | None] = {
        "jax-es": __version__,
        "python": platform.python_version(),
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
