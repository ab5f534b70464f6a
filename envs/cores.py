"""How many cores there are: the one function that asks; imports nothing heavy."""

import os


def available_cores() -> int:
    """Returns the number of CPU cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone says which are this process'
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
