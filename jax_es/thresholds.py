"""How many environment steps it takes to reach a return, beside published figures.

A return counts as *reached* in the first generation whose mean evaluation return, over
that generation's evaluation episodes of θ (ten by default), is at least it; a later
fall back does not undo it. The steps counted are all that the run has made by the end
of that generation, members' and evaluations' alike.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_es.config import ConfigError
from jax_es.runs.metrics import GenerationRecord


class Threshold(NamedTuple):
    """A return, and what others needed for it.

    Attributes:
        percent: of what TRPO learned in 5 million steps.
        value: the return.
        es: environment steps of Salimans et al.'s evolution strategies.
        trpo: environment steps of their TRPO.
    """

    percent: int
    value: float
    es: float
    trpo: float


def read_thresholds(file: Path) -> dict[str, list[Threshold]]:
    """Reads the published figures: environment id → thresholds.

    Raises:
        ConfigError: if the file does not hold them.
    """
    try:
        tasks: dict[str, Any] = json.loads(file.read_text())["thresholds"]
        return {
            task: [Threshold(t["percent"], t["return"], t["es"], t["trpo"]) for t in ts]
            for task, ts in tasks.items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file} does not hold published thresholds ({error!r}); restore it."
        ) from error


def steps_to_reach(records: Sequence[GenerationRecord], value: float) -> int | None:
    """Returns the steps that a run made until it reached a return; None if it did not.

    Args:
        records: of the run, in order.
        value: the return.
    """
    reached = (r.total_env_steps for r in records if r.evaluation_return_mean >= value)
    return next(reached, None)


def over_seeds(steps: Sequence[int | None]) -> str:
    """Says how many of several seeds reached a return, and when.

    Args:
        steps: of each seed; None where it did not get there.

    Returns:
        The median with lowest and highest if all did, else the steps of those that did:
        a median over them alone would flatter the rest.

    Example:
        >>> over_seeds([150_000, 90_000, 1_200_000])
        '3/3: 150 k (90 k to 1.20 M)'
        >>> over_seeds([None, 90_000])
        '1/2: 90 k'
        >>> over_seeds([None, None])
        '0/2: not reached'
    """
    found = sorted(step for step in steps if step is not None)
    count = f"{len(found)}/{len(steps)}"
    if not found:
        return f"{count}: not reached"
    if len(found) < len(steps) or len(found) == 1:
        return f"{count}: {', '.join(map(in_words, found))}"
    middle = in_words(statistics.median(found))
    return f"{count}: {middle} ({in_words(found[0])} to {in_words(found[-1])})"


def in_words(steps: float) -> str:
    """Returns a number of steps in thousands or millions.

    Example:
        >>> in_words(62_500), in_words(37_900_000)
        ('62 k', '37.90 M')
    """
    return f"{steps / 1e3:.0f} k" if steps < 999_500 else f"{steps / 1e6:.2f} M"
