"""Workers on Ray, started quietly on this machine or joined on a cluster."""

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from jax_es.checks import ConfigError, optional, require
from jax_es.distributed.folder import (
    end_agents_with_us,
    make_token,
    private_folder,
)
from jax_es.distributed.member import Patience
from jax_es.distributed.workers import ANSWER_SECONDS, Workers

OBJECT_STORE_BYTES = 2**29
"""Shared memory of a local session at most: θ and a few sums of its size lie there."""

_SILENCE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_ROTATION_MAX_BYTES": str(2**22),
    "RAY_ROTATION_BACKUP_COUNT": "1",
}


def _print_line(text: str) -> None:
    """Writes a line to standard error."""
    sys.stderr.write(text + "\n")


@contextlib.contextmanager
def open_workers(
    count: int | None = None,
    address: str | None = None,
    say: Callable[[str], None] = _print_line,
    patience: Patience | None = None,
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
        workers = Workers(ray, count, say, patience or Patience())
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
    for name, value in _SILENCE.items():
        os.environ.setdefault(name, value)
    with optional("--workers and --cluster need Ray", "distributed"):
        import ray
        from ray._private import worker as ray_worker
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    name, remedy = "--workers", "try again when the machine is less busy"
    if address is not None:
        _check_address(address)
        options["address"] = address
        name = f"--cluster {address}"
        remedy = "set RAY_AUTH_MODE (token or disabled) as where ray start ran"
    with contextlib.ExitStack() as stack:
        with warnings.catch_warnings(), _own_signals():
            warnings.simplefilter("ignore")
            # The raylet's messages come to standard output, whatever the options say.
            ray_worker._worker_logs_enabled = False  # pyright: ignore
            try:
                if address is None:
                    make_token()
                    folder = stack.enter_context(private_folder())
                    options |= _local_options(num_workers, folder)
                ray.init(**options)
            except Exception as error:  # this very class if Ray starts too slowly
                reason = textwrap.shorten(str(error), 300)
                raise ConfigError(
                    f"{name}: Ray does not start ({reason}); {remedy}, see "
                    "docs/guides/scaling.md."
                ) from error
        if address is None:
            stack.callback(end_agents_with_us().communicate)
        stack.callback(ray.shutdown)
        yield ray


def _local_options(num_workers: int | None, folder: str) -> dict[str, Any]:
    """Returns what ``ray.init`` is told of a session of our own."""
    return {
        "address": "local",
        "num_cpus": num_workers,
        "num_gpus": 0,
        "include_dashboard": False,
        "object_store_memory": _shared_memory(),
        "_temp_dir": folder,
    }


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
def _own_signals() -> Iterator[None]:
    """Restores the signal handlers, which ``ray.init`` replaces."""
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
