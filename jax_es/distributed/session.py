"""Workers on Ray, started quietly on this machine or joined on a cluster."""

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jax_es.checks import ConfigError, require
from jax_es.distributed.deadlines import PATIENCE, Patience
from jax_es.distributed.workers import Workers
from jax_es.runs.files import open_lock

ANSWER_SECONDS = 10.0
"""How long an address may take to answer."""

OBJECT_STORE_BYTES = 2**29
"""Shared memory of a local session at most: θ and a few sums of its size lie there."""

_SILENCE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_ROTATION_MAX_BYTES": str(2**22),
    "RAY_ROTATION_BACKUP_COUNT": "1",
}

_FOLDER = "jax-es-ray-"


def _import_ray() -> Any:
    """Imports Ray, which is optional.

    Raises:
        ConfigError: if it is not installed.
    """
    for name, value in _SILENCE.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"--workers and --cluster need Ray ({error}); "
            "pip install -e '.[distributed]'."
        ) from error
    return ray


def _print_line(text: str) -> None:
    """Writes a line to standard error."""
    sys.stderr.write(text + "\n")


@contextlib.contextmanager
def open_workers(
    count: int | None = None,
    address: str | None = None,
    say: Callable[[str], None] = _print_line,
    patience: Patience = PATIENCE,
) -> Iterator[Workers]:
    """Starts workers, on this machine or a cluster; they end with the block.

    Args:
        count: how many, each a process that uses one core; with an address one for
            every core of the cluster if not given.
        address: ``host:port`` of a Ray cluster's head; this machine if not given.
        say: prints a line for the user.
        patience: when something counts as lost.

    Raises:
        ConfigError: if Ray is not installed, or nobody answers at the address.
    """
    require(
        count is not None or address is not None,
        "--workers must be given without --cluster.",
    )
    require(count is None or count >= 1, f"--workers must be at least 1, got {count}.")
    if address is None and count is not None:
        cores = len(os.sched_getaffinity(0))
        if count > cores:
            say(
                f"warning: --workers {count} shares {cores} core{'s' * (cores > 1)}, "
                f"which is slower than --workers {cores}."
            )
    with ray_session(count, address) as ray:
        workers = Workers(ray, count, say, patience)
        try:
            yield workers
        finally:
            workers.close()


@contextlib.contextmanager
def ray_session(num_workers: int | None, address: str | None = None) -> Iterator[Any]:
    """Starts Ray for so many workers, or joins the cluster at an address.

    A session of our own ends with the block, and with this process however it ends.

    Args:
        num_workers: of a session of our own.
        address: ``host:port`` of a cluster's head.

    Raises:
        ConfigError: if Ray is not installed, or nobody answers at the address.
    """
    ray = _import_ray()
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with contextlib.ExitStack() as stack:
        if address is None:
            folder = stack.enter_context(_own_folder())
            options |= {
                "address": "local",
                "num_cpus": num_workers,
                "num_gpus": 0,
                "include_dashboard": False,
                "object_store_memory": _shared_memory(),
                "_temp_dir": str(folder),
            }
        else:
            _check_address(address)
            options["address"] = address
        with warnings.catch_warnings(), _own_signals():
            warnings.simplefilter("ignore")
            # The raylet's messages come to standard output, whatever the options say.
            vars(ray._private.worker)["_worker_logs_enabled"] = False
            try:
                ray.init(**options)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                name, remedy = "--workers", "see docs/guides/scaling.md"
                if address is not None:
                    name = f"--cluster {address}"
                    remedy = (
                        "set RAY_AUTH_MODE (token or disabled) as where ray start ran, "
                        + remedy
                    )
                reason = " ".join(str(error).split())
                raise ConfigError(
                    f"{name}: Ray does not start ({reason}); {remedy}."
                ) from error
        stack.callback(ray.shutdown)
        yield ray


def _check_address(address: str) -> None:
    """Checks that somebody answers."""
    host, colon, port = address.rpartition(":")
    require(
        bool(colon and host) and "/" not in address and port.isdecimal(),
        f"--cluster must be HOST:PORT, as ray start --head prints it, got {address}.",
    )
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--cluster {address}: nobody answers within {ANSWER_SECONDS:.0f} s "
            f"({error}); start the head there with ray start --head --port={port}."
        ) from error


def _shared_memory() -> int:
    """Returns the bytes for Ray's object store: not more than half of what is free."""
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 2**31
    return max(80 * 2**20, min(OBJECT_STORE_BYTES, free // 2))


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """Makes a folder for Ray's logs and sockets, and removes it at the end.

    What a killed process left is removed, too: nobody holds its lock, which processes
    of other containers see as well. The path is short: a socket's name has at most 107
    characters.
    """
    place = Path(tempfile.gettempdir())
    if len(str(place)) > 30:
        place = Path("/tmp")
    for old in place.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > 60:  # a new one is not locked yet
                with open_lock(old):
                    shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=place))
    try:
        with open_lock(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restores the signal handlers, which ``ray.init`` replaces."""
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
