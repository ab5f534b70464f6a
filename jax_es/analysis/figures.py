"""Figures of runs, drawn with matplotlib: learning, population, time, aggregates.

Each function takes the runs of ``curves.group``, or evaluations, and returns a figure.
Lines differ in colour and dashes, areas in hatching, so that they are told apart in
print. Axes begin at 0 where nothing lies below, and legends hide no data.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jax_es.analysis import aggregate
from jax_es.analysis.curves import AXES, RETURNS, Band, Panels, band, on_grid
from jax_es.config import ConfigError
from jax_es.evaluation.conditions import BASE, Condition, Evaluation

STYLE_FILE = Path(__file__).with_name("style.mplstyle")

LINE_STYLES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (9, 3)))

ROUND = (1, 2, 2.5, 5, 10)
"""Distances between ticks, up to a power of ten."""

TIMES = {
    "policy": ("seconds_policy", "0.35", ""),
    "environment": ("seconds_environment", "0.80", "///"),
    "noise": ("seconds_noise", "0.55", "..."),
    "update": ("seconds_update", "0.92", "xxx"),
    "other (bookkeeping on the host)": ("seconds_other", "1.00", ""),
}
"""Where a generation's time goes → record's field, shade of gray, hatching."""

Figure = Any
Axes = Any
Draw = TypeVar("Draw", bound=Callable[..., Figure])


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draws and saves in the package's style.

    Raises:
        ConfigError: if matplotlib is not installed.
    """
    try:
        import matplotlib.style
    except ImportError as error:
        raise ConfigError(
            f"plots need matplotlib ({error}); pip install -e '.[plot]'."
        ) from error
    with matplotlib.style.context(STYLE_FILE):
        yield


def _styled(draw: Draw) -> Draw:
    @wraps(draw)
    def styled(*args: Any, **options: Any) -> Figure:
        with style():
            return draw(*args, **options)

    return styled  # type: ignore[return-value]


@_styled
def learning(panels: Panels, xs: Sequence[str], y: str = "evaluation") -> Figure:
    """Draws returns against each of ``xs``: median and quartiles over the seeds.

    One row a task if there are several x's, else one panel a task.
    """
    y_field, y_label = RETURNS[y]
    columns = len(xs) if len(xs) > 1 else None
    figure, axes = _grid(len(panels) * len(xs), columns)
    looks = _looks(_with_seeds(panels))
    for axis, (task, x) in zip(axes, itertools.product(panels, xs), strict=True):
        for kind, runs in sorted(panels[task].items()):
            _draw_band(axis, band(runs, AXES[x][0], y_field), looks[kind])
        axis.set(title=task, ylabel=y_label)
        _label_x(axis, x)
        _from_zero(axis)
    _add_legend(figure, axes)
    return figure


@_styled
def population(panels: Panels, x: str = "generations") -> Figure:
    """Draws how the members' returns spread, one panel a task and variant.

    The members' mean, and the band that holds 95 % of them (2.5th to 97.5th
    percentile); over several seeds, the median of each. The evaluation of the mean
    policy lies over it.
    """
    cells = _cells(panels)
    figure, axes = _grid(len(cells))
    fields = ("return_mean", "return_p2_5", "return_p97_5", "evaluation_return_mean")
    for axis, (title, runs) in zip(axes, cells, strict=True):
        grid, *_ = on_grid(runs, AXES[x][0], fields[0])
        mean, low, high, evaluation = (
            np.median(on_grid(runs, AXES[x][0], field, grid)[1], axis=0)
            for field in fields
        )
        axis.fill_between(
            grid,
            low,
            high,
            facecolor="0.9",
            edgecolor="0.6",
            hatch="///",
            linewidth=0.6,
            label="95 % of the members",
        )
        axis.plot(grid, mean, color=_colour(0), label="mean of the members")
        axis.plot(grid, evaluation, "--", color=_colour(1), label="mean policy θ")
        axis.set(title=title, ylabel="episode return")
        _label_x(axis, x)
        _from_zero(axis)
    _add_legend(figure, axes)
    return figure


@_styled
def iteration(panels: Panels) -> Figure:
    """Draws the wall-clock time of each generation, one panel a task.

    Compiling, and whatever halts a run, makes a few generations many times as long as
    the others: they run off the top, where triangles mark them.
    """
    figure, axes = _grid(len(panels))
    looks = _looks(_with_seeds(panels))
    for axis, (task, lines) in zip(axes, panels.items(), strict=True):
        bands = {
            kind: band(runs, "generation", "seconds_total")
            for kind, runs in sorted(lines.items())
        }
        top = 1.3 * max(
            float(np.percentile(b.high[1:] if len(b.high) > 1 else b.high, 90))
            for b in bands.values()
        )
        for row, (kind, values) in enumerate(bands.items()):
            _draw_band(axis, values, looks[kind])
            _mark_above(axis, values, top, looks[kind]["color"], row)
        axis.set(title=task, ylabel="wall-clock per generation (s)")
        _label_x(axis, "generations")
        _from_zero(axis)
        axis.set_ylim(0, top)
    _add_legend(figure, axes)
    return figure


@_styled
def time(panels: Panels) -> Figure:
    """Draws where the time went, one bar a task and variant, over all generations."""
    cells = _cells(panels)
    figure, (axis,) = _grid(1, size=(7.2, 1.1 + 0.5 * len(cells)))
    shares = {name: [] for name in TIMES}
    for _, runs in cells:
        records = [record for run in runs for record in run]
        # A closing evaluation, which is no generation, has none.
        total = np.nansum([record.seconds_total for record in records])
        for name, (field, _, _) in TIMES.items():
            seconds = np.nansum([getattr(record, field) for record in records])
            shares[name].append(100 * seconds / total if total else 0.0)
    left = np.zeros(len(cells))
    for name, (_, shade, hatch) in TIMES.items():
        bars = axis.barh(
            range(len(cells)),
            shares[name],
            left=left,
            height=0.62,
            label=name,
            facecolor=shade,
            edgecolor="black",
            hatch=hatch,
            linewidth=0.6,
        )
        texts = [f"{share:.0f} %" if share >= 6 else "" for share in shares[name]]
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
        axis.bar_label(bars, texts, label_type="center", fontsize=8, bbox=box)
        left += shares[name]
    axis.set_yticks(range(len(cells)), [title for title, _ in cells])
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set(xlabel="wall-clock time (%)", xlim=(0, 100.3))
    figure.legend(loc="outside upper center", ncols=len(TIMES))
    return figure


@_styled
def aggregated(
    panels: Panels,
    xs: Sequence[str],
    y: str = "evaluation",
    references: dict[str, float] | None = None,
) -> Figure:
    """Draws the interquartile mean over all tasks, with its 95 % confidence interval.

    Scores are normalised as ``aggregate.scales`` says; the last panel shows the runs'
    last generations.

    Raises:
        ConfigError: if the runs cannot be compared over tasks.
    """
    aggregate.check_comparable(panels)
    scale = aggregate.scales(panels, references)
    looks = _looks({kind: kind for lines in panels.values() for kind in lines})
    figure, axes = _grid(len(xs) + 1, min(len(xs) + 1, 4))
    for axis, x in zip(axes, xs, strict=False):
        for kind, look in looks.items():
            grid, values = aggregate.curve(
                panels, kind, AXES[x][0], RETURNS[y][0], scale
            )
            _draw_band(axis, Band(grid, values.iqm, values.low, values.high), look)
        axis.set(title=f"{len(panels)} tasks", ylabel="normalised score (IQM)")
        _label_x(axis, x)
        _from_zero(axis)
    for row, (kind, look) in enumerate(looks.items()):
        end = aggregate.final(panels, kind, RETURNS[y][0], scale)
        axes[-1].errorbar(
            end.iqm,
            row,
            xerr=[[end.iqm - end.low], [end.high - end.iqm]],
            fmt="o",
            capsize=4,
            color=look["color"],
        )
    axes[-1].set_yticks(range(len(looks)), list(looks))
    axes[-1].set_ylim(len(looks) - 0.5, -0.5)
    axes[-1].set(title="last generation", xlabel="normalised score (IQM)")
    _from_zero(axes[-1], "x")
    _add_legend(figure, axes[:-1])
    return figure


@_styled
def conditions(evaluations: Sequence[Evaluation]) -> Figure:
    """Draws returns under changed conditions, one panel for each thing changed.

    A line is a run: the median and the quartiles of its episodes under each condition,
    first of all as it was trained.

    Args:
        evaluations: of runs under the same conditions.
    """
    swept = {
        field.name: [
            c for c in evaluations[0].results if getattr(c, field.name) is not None
        ]
        for field in dataclasses.fields(Condition)
    }
    panels = {name: [BASE, *changed] for name, changed in swept.items() if changed}
    figure, axes = _grid(len(panels))
    looks = _looks({n: n for n in _disambiguated([e.path for e in evaluations])})
    for axis, (name, shown) in zip(axes, panels.items(), strict=True):
        for row, (evaluation, look) in enumerate(
            zip(evaluations, looks.values(), strict=True)
        ):
            low, median, high = np.transpose(
                [_quartiles(evaluation.results[c].returns) for c in shown]
            )
            axis.errorbar(
                # Side by side, so that error bars do not hide each other.
                np.arange(len(shown)) + 0.12 * (row - (len(evaluations) - 1) / 2),
                median,
                yerr=[median - low, high - median],
                marker="o",
                capsize=3,
                **look,
            )
        labels = [_value(getattr(condition, name)) for condition in shown]
        axis.set_xticks(range(len(shown)), labels, rotation=30, ha="right")
        axis.set(xlabel=name.replace("_", " "), ylabel="episode return")
        _from_zero(axis, "y")
    _add_legend(figure, axes)
    return figure


@_styled
def search(
    outcomes: Sequence[tuple[int, float]], importances: dict[str, float]
) -> Figure:
    """Draws a hyperparameter search: what its trials reached, and what mattered.

    Args:
        outcomes: each trial's last budget in environment steps, and its value there.
        importances: the fields' shares; without any there is no panel of them.
    """
    figure, axes = _grid(2 if importances else 1)
    for row, budget in enumerate(sorted({steps for steps, _ in outcomes if steps})):
        reached = [
            (number, value)
            for number, (steps, value) in enumerate(outcomes)
            if steps == budget and math.isfinite(value)
        ]
        axes[0].plot(
            *zip(*reached, strict=True) if reached else ((), ()),
            "osD^v"[row % 5],
            color=_colour(row),
            label=f"ended after {budget:,} steps",
        )
    axes[0].set(title="trials", ylabel="best evaluation return")
    _label_x(axes[0], "generations")
    axes[0].set_xlabel("trial")
    if importances:
        names = list(importances)[::-1]
        axes[1].barh(names, [importances[name] for name in names], color=_colour(0))
        axes[1].set(title="importance at the first budget", xlabel="share")
    _add_legend(figure, axes)
    return figure


def _disambiguated(paths: Sequence[Path]) -> list[str]:
    """Returns folders' names, with those of the folders above where they are alike."""
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    shared = os.path.commonpath([path.absolute().parent for path in paths])
    return [os.path.relpath(path, shared) for path in paths]


def _quartiles(returns: np.ndarray) -> np.ndarray:
    """Returns the quartiles of those returns that are finite; NaN without any."""
    finite = returns[np.isfinite(returns)]
    return np.percentile(finite, [25, 50, 75]) if len(finite) else np.full(3, np.nan)


def _value(value: Any) -> str:
    if value is None:
        return "as trained"
    if value is True:
        return "yes"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _grid(
    count: int, columns: int | None = None, size: tuple[float, float] = (4.4, 3.3)
) -> tuple[Figure, list[Axes]]:
    """Returns a figure with ``count`` panels of ``size`` inches each."""
    from matplotlib.figure import Figure

    columns = columns or (2 if count == 4 else min(3, count))
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.remove()
    return figure, list(axes[:count])


def _looks(labels: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Gives each variant one look and its label, the same in every panel."""
    return {
        kind: {
            "label": labels[kind],
            "color": _colour(index),
            "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
        }
        for index, kind in enumerate(sorted(labels))
    }


def _with_seeds(panels: Panels) -> dict[str, str]:
    """Labels each variant with the number of its seeds on the panels' tasks."""
    counts: dict[str, list[int]] = {}
    for lines in panels.values():
        for kind, runs in lines.items():
            counts.setdefault(kind, []).append(len(runs))
    return {
        kind: textwrap.fill(
            f"{kind} ({' or '.join(map(str, sorted({*found})))} "
            f"seed{'s' if max(found) > 1 else ''})",
            48,
        )
        for kind, found in counts.items()
    }


def _cells(panels: Panels) -> list[tuple[str, list[Any]]]:
    """Returns a title and the runs of each task and variant."""
    return [
        (f"{task}\n{_with_seeds({task: lines})[kind]}", lines[kind])
        for task, lines in panels.items()
        for kind in sorted(lines)
    ]


def _colour(index: int) -> str:
    """Returns a colour of the style, as a figure keeps it wherever it is shown."""
    from matplotlib.colors import to_hex

    return to_hex(f"C{index % 7}")


def _draw_band(axis: Axes, values: Band, look: dict[str, Any]) -> None:
    # A single point has no line to be seen by.
    axis.plot(values.x, values.median, marker="o" if len(values.x) == 1 else "", **look)
    axis.fill_between(
        values.x, values.low, values.high, color=look["color"], linewidth=0, alpha=0.1
    )


def _mark_above(axis: Axes, values: Band, top: float, colour: str, row: int) -> None:
    """Marks the generations above ``top``, and says how far the highest is."""
    over = values.x[values.median > top]
    if not len(over):
        return
    marks = np.full(len(over), top)
    axis.plot(over, marks, "^", color=colour, clip_on=False, zorder=3)
    axis.annotate(
        f"up to {values.median.max():.3g} s",
        (values.x[values.median.argmax()], top),
        (7, -4 - 11 * row),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )


def _from_zero(axis: Axes, names: str = "xy") -> None:
    """Lets axes reach 0, and begin or end there if nothing lies beyond."""
    for name in names:
        low, high = getattr(axis.dataLim, f"interval{name}")
        if low >= 0:
            axis.set(**{f"{name}lim": (0, None)})
        elif high <= 0:
            axis.set(**{f"{name}lim": (None, 0)})


def _label_x(axis: Axes, x: str) -> None:
    """Names the x axis with its unit, in numbers of a readable size."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

    label = AXES[x][1]
    if x == "env-steps":
        axis.xaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    elif x == "generations":
        axis.xaxis.set_major_locator(MaxNLocator(6, steps=ROUND, integer=True))
    else:
        divisor, unit = _time_unit(axis.get_xlim()[1])
        label = f"{label} ({unit})"
        axis.xaxis.set_major_locator(_multiples(divisor))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda s, _: f"{s / divisor:g}"))
    axis.set_xlabel(label)


def _time_unit(seconds: float) -> tuple[float, str]:
    """Returns the unit in which so many seconds are a small number: (seconds, name)."""
    if seconds < 300:
        return 1.0, "s"
    return (60.0, "min") if seconds < 4 * 3600 else (3600.0, "h")


def _multiples(unit: float) -> Any:
    """Returns a locator of ticks at round numbers of a unit."""
    from matplotlib.ticker import MaxNLocator

    class Multiples(MaxNLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            return np.asarray(super().tick_values(vmin / unit, vmax / unit)) * unit

    return Multiples(6, steps=ROUND)


def _add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Names the lines of all panels, once, above them."""
    named = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    # A letter takes about 0.07 inches, a line's sample and the gaps 0.8.
    letters = max(len(line) for name in named for line in name.splitlines())
    entry = 0.8 + 0.07 * letters
    columns = min(len(named), max(1, int(figure.get_figwidth() / entry)))
    # The legend adds to the figure's height, not to take it from the panels.
    rows = math.ceil(sum(len(name.splitlines()) for name in named) / columns)
    figure.set_figheight(figure.get_figheight() + 0.18 * rows)
    figure.legend(named.values(), named, loc="outside upper center", ncols=columns)
