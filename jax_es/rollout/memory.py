"""What a program would take of the memory, asked before it takes any.

The numbers are estimates, good to a factor of about two: they tell a size that cannot
be from one that can, before the operating system does so with a killed process.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import jax

from jax_es.checks import ConfigError
from jax_es.types import PyTree

TASK_BYTES = 150
"""What the host keeps of an episode that is to be run: its task, its place in the
queue, its result."""

ENV_BYTES = 2**16
"""What an environment takes at least; Humanoid and Atari's games take more."""

_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def memory_limit() -> int:
    """Returns the bytes that this process may ever have: the machine's or container's.

    What other processes take is left out of account: whether a run may begin shall not
    depend on the moment.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in map(Path, _CGROUP_LIMITS):
        text = file.read_text().strip() if file.is_file() else "max"
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)


def check_memory(
    needs: Mapping[str, int],
    limit: int | None = None,
    remedy: str = "choose a smaller value",
) -> None:
    """Rejects what cannot fit into memory.

    Args:
        needs: bytes, by the argument and its value that ask for them.
        limit: bytes that there are; :func:`memory_limit` if not given.
        remedy: what the user may do.

    Raises:
        ConfigError: naming the first argument with which it no longer fits.
    """
    limit, total = limit or memory_limit(), 0
    for argument, num_bytes in needs.items():
        total += num_bytes
        if total > limit:
            raise ConfigError(
                f"{argument} would take about {_gib(num_bytes)} of memory, and there "
                f"are {_gib(limit)} in all; {remedy}."
            )


def num_bytes(tree: PyTree) -> int:
    """Returns the bytes of arrays, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB"
