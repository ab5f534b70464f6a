"""One worker: a process of one core, which holds an engine that a recipe made.

Nothing heavy is imported here: the process is bound to its core first, so that XLA and
the simulators start as many threads as they find cores, which is one.
"""

import contextlib
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where a worker runs."""

    node: str
    """Ray's name of the node."""
    address: str
    """The node's address."""
    pid: int
    """The process."""
    processes: str
    """Among which processes that number means something."""
    cores: tuple[int, ...]
    """Cores that the node lets it use."""


class Worker:
    """An actor; it does what the head asks, one thing after the other."""

    def __init__(self) -> None:
        self._engine: Any = None

    def place(self) -> Place:
        """Says where the worker is."""
        import ray

        cores = tuple(sorted(os.sched_getaffinity(0)))
        node = ray.get_runtime_context().get_node_id()
        address = ray.util.get_node_ip_address()
        return Place(node, address, os.getpid(), processes_here(), cores)

    def build(self, core: int, make: Callable[[], Any]) -> dict[str, str]:
        """Makes the engine on one core; returns what may change its numbers.

        Args:
            core: which, of :class:`Place`.
            make: returns the engine.
        """
        _bind(core)
        from jax_es.rollout.devices import (
            configure_cpu_devices,
            release_programs,
            use_compilation_cache,
        )
        from jax_es.runs.machine import git_commit, machine, versions

        configure_cpu_devices(1)
        use_compilation_cache()
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            release_programs()
        self._engine = make()
        commit = {"commit": git_commit() or "", "processor": machine()["processor"]}
        return versions() | commit

    def call(self, method: str, shared: Any, *arguments: Any) -> Any:
        """Calls a method of the engine with what all jobs share, and the job's own."""
        try:
            return getattr(self._engine, method)(shared, *arguments)
        except Exception as error:
            # An environment's failure is shown with the traceback of this process.
            if getattr(error, "report", None) == "":
                vars(error)["report"] = traceback.format_exc()
            raise


def processes_here() -> str:
    """Names the machine and the container whose processes this one sees."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _bind(core: int) -> None:
    """Binds the process to a core, and computations to the CPU."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    for thread in Path("/proc/self/task").iterdir():
        # Ray's own threads end now and then.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {core})
