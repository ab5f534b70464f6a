"""One number over several tasks: the interquartile mean of normalised scores.

After Agarwal et al. 2021, *Deep Reinforcement Learning at the Edge of the Statistical
Precipice* (arXiv 2108.13264): with few seeds, means follow outliers and medians waste
data; the mean of the middle half of all runs does neither. Its uncertainty comes from
a stratified bootstrap, which draws seeds again within each task.
"""

import contextlib
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jax_es.analysis.curves import Band, Panels, common_grid, on_grid
from jax_es.checks import ConfigError, require
from jax_es.runs.wording import markdown, significant


class Scale(NamedTuple):
    """What counts as 0 and as 1 on a task, in the environment's unit."""

    zero: float
    """Median over all runs of the initial mean's evaluation return."""
    one: float
    """The reference that was given, or the best evaluation of any run."""

    def scores(self, returns: np.ndarray) -> np.ndarray:
        """Normalises returns."""
        return (returns - self.zero) / (self.one - self.zero)


class Interval(NamedTuple):
    """Interquartile means ``[…]`` with the ends of their 95 % intervals."""

    iqm: np.ndarray
    low: np.ndarray
    high: np.ndarray


def scales(
    panels: Panels, references: dict[str, float] | None = None
) -> dict[str, Scale]:
    """Returns each task's scale.

    Raises:
        ConfigError: for a reference (the return that counts as 1) of another task, or
            one that is not above the initial network.
    """
    references = references or {}
    for task in references:
        require(
            task in panels,
            f"--reference {task}: no run of that task is given; tasks: "
            f"{'; '.join(panels)}.",
        )
    found = {}
    for task, lines in panels.items():
        runs = [run for variant in lines.values() for run in variant]
        zero = float(np.median([run[0].evaluation_return_mean for run in runs]))
        best = max(run[-1].best_evaluation_return for run in runs)
        one = references.get(task, best)
        require(
            one > zero,
            f"{task} cannot be normalised: 1 stands for {significant(one)}, which is "
            f"not above the initial networks' {significant(zero)}; give --reference "
            f"'{task}=RETURN'.",
        )
        found[task] = Scale(zero, one)
    return found


def check_comparable(panels: Panels) -> None:
    """Raises ``ConfigError`` unless every variant was run on each of several tasks."""
    require(
        len(panels) > 1,
        f"aggregate needs runs of at least two tasks, got {'; '.join(panels)}; one "
        "task's runs are compared by --figure learning.",
    )
    kinds = dict.fromkeys(kind for lines in panels.values() for kind in lines)
    for (task, lines), kind in itertools.product(panels.items(), kinds):
        runs = len(lines.get(kind, ()))
        require(
            runs > 1,
            "aggregate needs at least 2 seeds of every variant on every task, but "
            f"{kind} on {task} has {runs}; leave one of them out.",
        )


def is_comparable(panels: Panels) -> bool:
    """Returns whether the runs can be compared over tasks."""
    with contextlib.suppress(ConfigError):
        check_comparable(panels)
        return True
    return False


def curve(panels: Panels, kind: str, x: str, y: str, scale: dict[str, Scale]) -> Band:
    """Returns a variant's interquartile mean, with its interval, along x."""
    runs = {task: lines[kind] for task, lines in panels.items()}
    grid = common_grid([run for of_task in runs.values() for run in of_task], x, y)
    values = {task: on_grid(r, x, y, grid)[1].T for task, r in runs.items()}
    scores = [scale[task].scores(v) for task, v in values.items()]
    return Band(grid, *interval(scores))


def final(panels: Panels, kind: str, y: str, scale: dict[str, Scale]) -> Interval:
    """Returns a variant's interquartile mean at its runs' last generations."""
    values = {
        task: np.array([getattr(run[-1], y) for run in lines[kind]])
        for task, lines in panels.items()
    }
    return interval([scale[task].scores(v) for task, v in values.items()])


def interval(samples: Sequence[np.ndarray]) -> Interval:
    """Returns the interquartile mean of all runs with a stratified bootstrap interval.

    ``samples`` has an array ``[…, R]`` a task: its R ≥ 2 runs' normalised scores.

    Example:
        >>> interval([np.array([9.0, -100.0]), np.array([1.0, 2.0])]).iqm
        np.float64(1.5)
    """
    from scipy import stats  # late: it takes long

    def interquartile_mean(*tasks: np.ndarray, axis: int) -> np.ndarray:
        return stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)

    # Each sample is resampled by itself: that is the stratification.
    result = stats.bootstrap(
        samples,
        interquartile_mean,
        axis=-1,
        method="percentile",
        confidence_level=0.95,
        n_resamples=2000,
        batch=250,
        rng=np.random.default_rng(0),
    )
    ends = result.confidence_interval
    return Interval(interquartile_mean(*samples, axis=-1), ends.low, ends.high)


def table(panels: Panels, y: str, references: dict[str, float] | None = None) -> str:
    """Returns Markdown tables: each variant's final score, and each task's scale."""
    scale = scales(panels, references)
    rows: list[list[str]] = []
    for kind in sorted({kind for lines in panels.values() for kind in lines}):
        end = final(panels, kind, y, scale)
        count = sum(len(lines[kind]) for lines in panels.values())
        score = f"{end.iqm:.2f} ({end.low:.2f} to {end.high:.2f})"
        rows.append([kind, str(count), score])
    ends = [[task, *map(significant, ends)] for task, ends in scale.items()]
    return "\n\n".join(
        [
            markdown(["policy", "runs", "IQM (95 % interval)"], rows),
            markdown(["environment", "score 0", "score 1"], ends),
        ]
    )
