"""Does a policy return what it is asked for? Measures over a grid of commands.

c is a command, the return that an episode is asked for; R is the return it has.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from jax_es.evaluation.conditions import Evaluation
from jax_es.runs.records import nulled
from jax_es.runs.wording import significant, spread

_in_returns_unit = functools.partial(significant, decimals=2)

COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "rank correlation": ("spearman", "{:.2f}".format),
    "mean error": ("mean_absolute_error", _in_returns_unit),
    "of the range reached": ("error_of_reached", "{:.0%}".format),
    "of that asked for": ("error_of_asked", "{:.0%}".format),
    "slope": ("slope", "{:.2f}".format),
    "intercept": ("intercept", _in_returns_unit),
    "lowest mean": ("reached_lowest", _in_returns_unit),
    "highest mean": ("reached_highest", _in_returns_unit),
}
"""A table's: head → measure and how it is written."""


class Obedience(NamedTuple):
    """How far returns follow commands, over all episodes under all commands."""

    spearman: float
    """Spearman's rank correlation of c and R; 0 if all R are equal."""
    slope: float
    """Of the least-squares line R = slope · c + intercept."""
    intercept: float
    mean_absolute_error: float
    """Mean of \\|R − c\\|."""
    reached_lowest: float
    """The lowest of the commands' mean returns: the reachable range begins here."""
    reached_highest: float
    """The highest: it ends here."""
    error_of_reached: float
    """Mean absolute error divided by the reachable range; ∞ where that is 0."""
    error_of_asked: float
    """Mean absolute error divided by the range of the commands."""
    error: float
    """The larger of the two: neither wide commands nor returns that overshoot them
    make it smaller."""


def levels(low: float, high: float, count: int) -> tuple[float, ...]:
    """Returns ``count`` commands from ``low`` to ``high``, evenly spaced.

    Example:
        >>> levels(0.0, 3.0, 3)
        (0.0, 1.5, 3.0)
    """
    return tuple(np.linspace(low, high, count).tolist())


def obedience(returns: Mapping[float, np.ndarray]) -> Obedience:
    """Measures how far returns follow commands.

    Args:
        returns: of the episodes ``[E]`` under each command. Those that are not finite
            are left out; all measures are NaN unless two commands have others.
    """
    finite = {command: r[np.isfinite(r)] for command, r in returns.items()}
    finite = {command: r for command, r in finite.items() if len(r)}
    if len(finite) < 2:
        return Obedience(*[np.nan] * len(Obedience._fields))
    means = [r.mean() for r in finite.values()]
    reached, asked = np.ptp(means), np.ptp([*finite])
    c = np.repeat([*finite], [len(r) for r in finite.values()])
    all_returns = np.concatenate([*finite.values()])
    error = np.abs(all_returns - c).mean()
    line: Any = stats.linregress(c, all_returns)
    rank: Any = stats.spearmanr(c, all_returns) if np.ptp(all_returns) else None
    values = (
        # Without two different returns SciPy warns, and answers with NaN.
        0.0 if rank is None else rank.statistic,
        line.slope,
        line.intercept,
        error,
        min(means),
        max(means),
        error / reached if reached else np.inf,
        error / asked,
        error / min(reached, asked) if reached else np.inf,
    )
    return Obedience(*map(float, values))


def measured(evaluation: Evaluation) -> Obedience | None:
    """Measures the obedience of a run; None if it was not asked for several returns."""
    returns = {
        condition.target_return: result.returns
        for condition, result in evaluation.results.items()
        if condition.target_return is not None
    }
    return obedience(returns) if len(returns) > 1 else None


def over_runs(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Returns each measure's median and range over runs, as JSON; {} without any."""
    found = [m for each in evaluations if (m := measured(each)) is not None]
    if not found:
        return {}
    parts = {"median": np.median, "lowest": np.min, "highest": np.max}
    return {
        name: nulled(Obedience(*part(found, axis=0).tolist())._asdict())
        for name, part in parts.items()
    }


def rows(evaluations: Sequence[Evaluation], name: str) -> list[dict[str, str]]:
    """Returns a table's row for each run, and for several one under their ``name``."""
    found = {str(e.path): [m] for e in evaluations if (m := measured(e)) is not None}
    if len(found) > 1:
        found[name] = [m for (m,) in found.values()]
    table = []
    for run, each in found.items():
        row = {"run": run}
        for head, (measure, form) in COLUMNS.items():
            row[head] = spread([getattr(m, measure) for m in each], form)
        table.append(row)
    return table
