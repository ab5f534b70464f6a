"""One worker: a process of one thread, which holds an engine that a recipe made.

Nothing heavy is imported here: what says how many threads XLA and the libraries start
is set first. The operating system places them, beside whatever else the cores do.
"""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

THREADS = ("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that say how many threads XLA and the libraries start."""


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


class Worker:
    """An actor; it does what the head asks, one thing after the other."""

    def __init__(self) -> None:
        self._engine: Any = None

    def place(self) -> Place:
        """Confines the worker to one thread and the CPU, and says where it is."""
        import ray

        os.environ |= {"JAX_PLATFORMS": "cpu", **dict.fromkeys(THREADS, "1")}
        node = ray.get_runtime_context().get_node_id()
        address = ray.util.get_node_ip_address()
        return Place(node, address, os.getpid(), processes_here())

    def build(
        self, make: Callable[[], Any], jax_settings: dict[str, Any]
    ) -> dict[str, str]:
        """Makes the engine with the head's JAX; returns what may change its numbers."""
        import jax

        from jax_es.rollout.devices import configure_cpu_devices, use_compilation_cache

        for name, value in jax_settings.items():
            if name in jax.config.values:  # another version is refused afterwards
                jax.config.update(name, value)

        configure_cpu_devices(1)
        use_compilation_cache()
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        self._engine = make()
        return versions_here()

    def call(self, method: str, shared: Any, *arguments: Any) -> Any:
        """Calls a method of the engine with what all jobs share, and the job's own."""
        try:
            return getattr(self._engine, method)(shared, *arguments)
        except Exception as error:
            # An environment's failure is shown with the traceback of this process.
            if getattr(error, "report", None) == "":
                vars(error)["report"] = traceback.format_exc()
            raise


def versions_here() -> dict[str, str]:
    """Returns what all must have alike: with other versions, numbers are others."""
    from jax_es.runs.machine import git_commit, versions

    found = versions() | {"commit": git_commit() or ""}
    del found["platform"]  # workers compute on the CPU
    return found


def processes_here() -> str:
    """Names the machine and the container whose processes this one sees."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"
