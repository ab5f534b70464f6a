"""How many cores there are, and how many to use; imports nothing heavy."""

import os


def available_cores() -> int:
    """Returns the number of CPU cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone says which are this process'
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_cores(count: int) -> None:
    """Leaves this process ``count`` of its cores, before it starts threads.

    Only Linux can; elsewhere, and where there are no more, nothing changes.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
