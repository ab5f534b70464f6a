"""What may change a run's numbers beside its configuration.

Versions, JAX's settings, and the machine.
"""

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from jax_es import __version__

PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "evosax", "numpy", "gymnasium", "mujoco",
    "ale-py", "box2d", "orbax-checkpoint",
)  # fmt: skip

JAX_SETTINGS: dict[str, Any] = {
    # Random numbers.
    "jax_threefry_partitionable": True,
    "jax_default_prng_impl": "threefry2x32",
    "jax_random_seed_offset": 0,
    "jax_high_dynamic_range_gumbel": False,
    # Types, precision and rounding.
    "jax_enable_x64": False,
    "jax_default_matmul_precision": None,
    "jax_allow_f16_reductions": True,
    "jax_softmax_custom_jvp": False,
    "jax_disable_jit": False,
    "jax_disable_most_optimizations": False,
    "jax_optimization_level": "UNKNOWN",
    "jax_exec_time_optimization_effort": 0.0,
}
"""Settings of JAX that change numbers, and the values of runs that do not say theirs.

A variable of the environment sets each: ``JAX_THREEFRY_PARTITIONABLE=0``.
"""


def jax_settings() -> dict[str, Any]:
    """Returns JAX's settings that change numbers."""
    import jax  # late: --help reads this file

    # Other versions of JAX lack some; an attribute knows of ``with jax.enable_x64():``.
    known = {**JAX_SETTINGS, **jax.config.values}
    return {name: getattr(jax.config, name, known[name]) for name in JAX_SETTINGS}


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
    from jax_es.envs.base import available_cores  # late: it loads JAX

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
