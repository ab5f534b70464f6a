"""What may change a run's numbers beside its configuration: versions and machine."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from jax_es.version import __version__

PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "evosax", "numpy", "gymnasium", "mujoco",
    "ale-py", "orbax-checkpoint",
)  # fmt: skip


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
