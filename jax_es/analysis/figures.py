"""Figures of runs: learning, populations, time, aggregates, conditions, searches.

Each function takes the runs of ``curves.group``, or evaluations, and returns a figure.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_es.analysis import aggregate
from jax_es.analysis.curves import AXES, Panels, band, measured
from jax_es.analysis.drawing import (
    Figure,
    add_legend,
    assign_looks,
    colour,
    draw_band,
    draw_lines,
    from_zero,
    label_x,
    make_log,
    style,
    subplots,
    with_seeds,
)

if TYPE_CHECKING:
    from jax_es.evaluation.conditions import Evaluation


TIMES = {
    "policy": ("seconds_policy", "0.35", ""),
    "environment": ("seconds_environment", "0.80", "///"),
    "noise": ("seconds_noise", "0.55", "..."),
    "update": ("seconds_update", "0.92", "xxx"),
    "other (bookkeeping on the host)": ("seconds_other", "1.00", ""),
}
"""Where a generation's time goes → record's field, shade of gray, hatching."""


@style()
def learning(panels: Panels, xs: Sequence[str], y: str = "evaluation") -> Figure:
    """Draws returns against each of ``xs``: median and quartiles over the seeds.

    One row a task if there are several x's, else one panel a task.
    """
    panes = [(task, x, *measured(y)) for task, x in itertools.product(panels, xs)]
    return draw_lines(panels, panes, len(xs) if len(xs) > 1 else None)


@style()
def population(panels: Panels, x: str = "generations") -> Figure:
    """Draws how the members' returns spread, one panel a task and variant.

    The members' mean, and the band that holds 95 % of them (2.5th to 97.5th
    percentile); over several seeds, the median of each. The evaluation of the mean
    policy lies over it; its last, of the closing evaluation, has no members.
    """
    cells = _cells(panels)
    figure, axes = subplots(len(cells))
    fields = ("return_mean", "return_p2_5", "return_p97_5", "evaluation_return_mean")
    for axis, (title, runs) in zip(axes, cells, strict=True):
        mean, low, high, theta = (band(runs, AXES[x][0], field) for field in fields)
        gray = {"facecolor": "0.9", "edgecolor": "0.6", "linewidth": 0.6}
        label = "95 % of the members"
        axis.fill_between(
            mean.x, low.median, high.median, hatch="///", label=label, **gray
        )
        axis.plot(mean.x, mean.median, color=colour(0), label="mean of the members")
        axis.plot(theta.x, theta.median, "--", color=colour(1), label="mean policy θ")
        axis.set(title=title, ylabel="episode return")
        label_x(axis, x)
        from_zero(axis)
    add_legend(figure, axes)
    return figure


@style()
def iteration(panels: Panels) -> Figure:
    """Draws the wall-clock time of each generation, one panel a task.

    On a logarithmic axis: compiling, and whatever halts a run, makes a few generations
    many times as long as the others.
    """
    shown = "generations", "seconds_total", "wall-clock per generation (s)"
    return draw_lines(panels, [(task, *shown) for task in panels], is_log=True)


@style()
def time(panels: Panels) -> Figure:
    """Draws where the time went, one bar a task and variant, over all generations."""
    cells = _cells(panels)
    figure, (axis,) = subplots(1, size=(7.2, 1.1 + 0.5 * len(cells)))
    left = np.zeros(len(cells))
    for name, (field, shade, hatch) in TIMES.items():
        share = np.array([_share(runs, field) for _, runs in cells])
        bars = axis.barh(
            range(len(cells)),
            share,
            left=left,
            height=0.62,
            label=name,
            facecolor=shade,
            edgecolor="black",
            hatch=hatch,
            linewidth=0.6,
        )
        texts = [f"{value:.0f} %" if value >= 6 else "" for value in share]
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
        axis.bar_label(bars, texts, label_type="center", fontsize=8, bbox=box)
        left += share
    axis.set_yticks(range(len(cells)), [title for title, _ in cells])
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set(xlabel="wall-clock time (%)", xlim=(0, 100.3))
    figure.legend(loc="outside upper center", ncols=len(TIMES))
    return figure


def _share(runs: list[list[Any]], field: str) -> float:
    """Returns which part of the runs' time a field of their records is, in percent."""
    records = [record for run in runs for record in run]
    # A closing evaluation, which is no generation, has none.
    total = np.nansum([record.seconds_total for record in records])
    part = np.nansum([getattr(record, field) for record in records])
    return float(100 * part / total) if total else 0.0


@style()
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
    looks = assign_looks({kind: kind for lines in panels.values() for kind in lines})
    figure, axes = subplots(len(xs) + 1, min(len(xs) + 1, 4))
    for axis, x in zip(axes, xs, strict=False):
        for kind, look in looks.items():
            means = aggregate.curve(panels, kind, AXES[x][0], measured(y)[0], scale)
            draw_band(axis, means, look)
        axis.set(title=f"{len(panels)} tasks", ylabel="normalised score (IQM)")
        label_x(axis, x)
        from_zero(axis)
    for row, (kind, look) in enumerate(looks.items()):
        end = aggregate.final(panels, kind, measured(y)[0], scale)
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
    from_zero(axes[-1], "x")
    add_legend(figure, axes[:-1])
    return figure


@style()
def conditions(evaluations: Sequence[Evaluation], only: str | None = None) -> Figure:
    """Draws returns under changed conditions, one panel for each thing changed.

    A line is a run: the median and the quartiles of its episodes under each condition,
    first of all as it was trained.

    Args:
        evaluations: of the runs, under the same conditions.
        only: the one thing whose panel is drawn; of all that were changed if not given.
    """
    from jax_es.evaluation.conditions import BASE, Condition

    panels = {field.name: [BASE] for field in dataclasses.fields(Condition)}
    for condition in evaluations[0].results:
        for name, value in vars(condition).items():
            if value is not None:
                panels[name].append(condition)
    panels = {
        name: shown
        for name, shown in panels.items()
        if len(shown) > 1 and only in (None, name)
    }
    figure, axes = subplots(len(panels))
    looks = assign_looks({n: n for n in _short_names([e.path for e in evaluations])})
    for axis, (name, shown) in zip(axes, panels.items(), strict=True):
        for row, (evaluation, look) in enumerate(
            zip(evaluations, looks.values(), strict=True)
        ):
            returns = [evaluation.results[condition].returns for condition in shown]
            finite = [r[np.isfinite(r)] for r in returns]
            low, median, high = np.transpose(
                [np.percentile(r if len(r) else np.nan, [25, 50, 75]) for r in finite]
            )
            axis.errorbar(
                # Side by side, so that error bars do not hide each other.
                np.arange(len(shown)) + 0.1 * row,
                median,
                yerr=[median - low, high - median],
                marker="o",
                capsize=3,
                **look,
            )
        labels = [_value(getattr(condition, name)) for condition in shown]
        axis.set_xticks(range(len(shown)), labels, rotation=30, ha="right")
        axis.set(xlabel=name.replace("_", " "), ylabel="episode return")
        from_zero(axis, "y")
    add_legend(figure, axes)
    return figure


@style()
def obedience(reports: Sequence[dict[str, Any]]) -> Figure:
    """Draws the mean return and its standard deviation against the return asked for.

    Obedient policies lie on the diagonal. The reports are of runs, as
    ``evaluate --obedience LOW HIGH --json`` prints them.
    """
    names = _short_names([Path(report["run"]) for report in reports])
    figure, (axis,) = subplots(1)
    looks = assign_looks({name: name for name in names})
    for name, report in zip(names, reports, strict=True):
        rows = [
            (row["target_return"], row["return_mean"], row["return_std"])
            for row in report["conditions"]
            if row["target_return"] is not None and "return_mean" in row
        ]
        asked, mean, std = np.transpose(sorted(rows)) if rows else np.zeros((3, 0))
        axis.errorbar(asked, mean, yerr=std, marker="o", capsize=3, **looks[name])
    ends = axis.dataLim.intervalx
    axis.plot(ends, ends, color="0.6", linewidth=0.8, zorder=1, label="obedience")
    axis.set(
        title=", ".join(dict.fromkeys(report["env_id"] for report in reports)),
        xlabel="return asked for",
        ylabel="episode return",
    )
    add_legend(figure, [axis])
    return figure


@style()
def search(
    outcomes: Sequence[tuple[int, float]], importances: dict[str, float]
) -> Figure:
    """Draws a hyperparameter search: what its trials reached, and what mattered.

    An outcome is a trial's last budget in environment steps, and its value there;
    importances are the fields' shares.
    """
    figure, axes = subplots(2 if importances else 1)
    for row, budget in enumerate(sorted({steps for steps, _ in outcomes if steps})):
        reached = {
            number: value
            for number, (steps, value) in enumerate(outcomes)
            if steps == budget and math.isfinite(value)
        }
        axes[0].plot(
            [*reached],
            [*reached.values()],
            "osD^v"[row % 5],
            color=colour(row),
            label=f"ended after {budget:,} steps",
        )
    axes[0].set(title="trials", ylabel="best evaluation return")
    label_x(axes[0], "generations")
    axes[0].set_xlabel("trial")
    if importances:
        names = list(importances)[::-1]
        axes[1].barh(names, [importances[name] for name in names], color=colour(0))
        axes[1].set(title="importance at the first budget", xlabel="share")
    add_legend(figure, axes)
    return figure


def _cells(panels: Panels) -> list[tuple[str, list[Any]]]:
    """Returns a title and the runs of each task and variant."""
    return [
        (f"{task}\n{with_seeds({task: lines})[kind]}", lines[kind])
        for task, lines in panels.items()
        for kind in sorted(lines)
    ]


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Returns folders' names, from the last folder on that all of them are in."""
    shared = os.path.commonpath([path.absolute().parent for path in paths])
    return [os.path.relpath(path, shared) for path in paths]


def _value(value: Any) -> str:
    from jax_es.evaluation.conditions import described

    if value is None:
        return "as trained"
    if value is True:
        return "yes"
    return f"{value:g}" if isinstance(value, float) else described(value)


@style()
def scaling(simulated: dict[str, Any]) -> Figure:
    """Draws how many times faster ``benchmark --only scaling`` says more cores are."""
    figure, axes = subplots(len(simulated))
    for axis, (network, fields) in zip(axes, simulated.items(), strict=True):
        looks = assign_looks({name: name for name in fields["generations"]})
        for name, points in fields["generations"].items():
            cores = [point["cores"] for point in points]
            gained = [points[0]["seconds"] / point["seconds"] for point in points]
            look = {**looks[name], "label": name.replace("length-", "episodes of ")}
            axis.plot(cores, gained, marker="o", markerfacecolor="none", **look)
        axis.plot(cores, cores, color="0.7", linewidth=0.8)
        axis.set(title=network, xlabel="cores (simulated)")
        make_log(axis, "xy")
    axes[0].set_ylabel("times faster than one core")
    axes[0].legend(frameon=False)
    return figure
