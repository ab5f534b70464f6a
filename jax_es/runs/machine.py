"""What may change a run's numbers beside its configuration: versions and machine."""

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from jax_es.version import __version__

PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "evosax", "numpy", "gymnasium", "mujoco",
    "ale-py", "box2d", "orbax-checkpoint",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Returns the versions of installed packages, and what JAX computes on."""
    import jax  # late: --help reads this file

    found = {
        "jax-es": __version__,
        "python": platform.python_version(),
        "platform": jax.default_backend(),
    }
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def git_commit() -> str | None:
    """Returns the commit of the source tree, with ``+`` if it was changed since."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always"]
    command += ["--exclude=*", "--abbrev=40", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """Describes the machine: processor, cores in use, memory in GiB."""
    from envs.cores import available_cores  # late: it loads JAX

    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    model = None
    with contextlib.suppress(OSError):
        cores = Path("/proc/cpuinfo").read_text()
        model = re.search(r"^model name\s*: (.*)$", cores, re.MULTILINE)
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": model[1] if model else platform.processor(),
        "cores": available_cores(),
        "memory_gib": round(memory, 1),
    }
