"""Figures of archives: heat maps of elites, how they grew, how robots recovered."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_es.analysis.curves import Band, Panels, Run
from jax_es.analysis.drawing import (
    Axes,
    Figure,
    add_legend,
    assign_looks,
    colour,
    draw_band,
    draw_lines,
    from_zero,
    style,
    subplots,
)
from jax_es.illumination.settings import RULES

if TYPE_CHECKING:
    from jax_es.illumination.adaptation import Recovery
    from jax_es.illumination.archive import Archive

MEASURES = {
    "coverage": "coverage (share of cells)",
    "qd_score": "QD-score",
    "best_fitness": "fitness of the best elite",
}
"""Fields of a record that say how an archive grew, and their labels."""


def by_title(runs: Sequence[Run]) -> dict[str, Archive]:
    """Reads the archives of runs; titles say task, variant and seed.

    Raises:
        ValueError: (its subclasses) if one cannot be read.
    """
    from jax_es.illumination.repertoire import read_archive  # late: it loads JAX

    titles = [f"{run.task}, {run.variant}, seed {run.config.seed}" for run in runs]
    archives = [read_archive(run.path).archive for run in runs]
    return dict(zip(titles, archives, strict=True))


@style()
def growth(panels: Panels) -> Figure:
    """Draws coverage, QD-score and best fitness; a row a task."""
    every = itertools.product(panels, MEASURES.items())
    panes = [(task, "env-steps", *measure) for task, measure in every]
    return draw_lines(panels, panes, columns=len(MEASURES))


@style()
def elites(archives: Mapping[str, Archive]) -> Figure:
    """Draws a map of each archive: where it has elites, and how good they are.

    Two axes of a grid are the map's own. More are nested, as in Cully et al. 2015: the
    third and fourth divide each of the cells that the first two make. Of a CVT the
    elites' own places are shown, along the first two axes.
    """
    figure, axes = subplots(len(archives), size=(5.2, 4.2))
    for axis, (title, archive) in zip(axes, archives.items(), strict=True):
        drawn = _draw(axis, archive)
        title = f"{title}\n{archive.coverage:.0%} of the cells"
        axis.set(title=title, **_names(archive))
        if drawn is not None:
            figure.colorbar(drawn, ax=axis, label="fitness")
    return figure


def _draw(axis: Axes, archive: Archive) -> Any:
    """Draws a map; returns what its colours mean, if it has some."""
    found, bounds = archive.elites(), archive.axes
    extent = np.stack([bounds.low, bounds.high], axis=1).ravel().tolist()
    if len(bounds.low) == 1:
        axis.plot(found.descriptors[:, 0], found.fitness, ".", color=colour(0))
        axis.set(xlim=extent)
        return None
    if archive.centroids.size:
        places = found.descriptors[:, :2].T
        axis.set(xlim=extent[:2], ylim=extent[2:4])
        return axis.scatter(*places, c=found.fitness, s=14, cmap="viridis")
    sizes = bounds.cells
    values = np.full(archive.num_cells, np.nan)
    values[found.cell] = found.fitness
    x_axes, y_axes = range(0, len(sizes), 2), range(1, len(sizes), 2)
    nested = values.reshape(sizes).transpose(*y_axes, *x_axes)
    rows = int(np.prod([sizes[i] for i in y_axes]))
    options = {"origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    drawn = axis.imshow(
        nested.reshape(rows, -1), extent=extent[:4], cmap="viridis", **options
    )
    if len(sizes) > 2:
        for line, low, high, count in (
            (axis.axvline, *extent[:2], sizes[0]),
            (axis.axhline, *extent[2:4], sizes[1]),
        ):
            for edge in np.linspace(low, high, count + 1)[1:-1]:
                line(edge, color="0.4", linewidth=0.6)
    return drawn


def _names(archive: Archive) -> dict[str, str]:
    """Returns the labels of a map's axes, the nested ones after a comma."""
    names = archive.axes.names
    if len(names) == 1:
        return {"xlabel": names[0], "ylabel": "fitness"}
    if archive.centroids.size:
        return {"xlabel": names[0], "ylabel": names[1]}
    labels = (", within it ".join(names[first::2]) for first in (0, 1))
    return dict(zip(("xlabel", "ylabel"), labels, strict=True))


@style()
def recovery(recoveries: Sequence[Recovery]) -> Figure:
    """Draws the best trial so far against trials; a panel a damage, a line a rule.

    Median and quartiles over the seeds. A search that ended keeps what it found.
    """
    damages = list(dict.fromkeys(recovery.damage for recovery in recoveries))
    rules = list(dict.fromkeys(recovery.rule for recovery in recoveries))
    figure, axes = subplots(len(damages))
    looks = assign_looks(
        {rule: title for rule, title in RULES.items() if rule in rules}
    )
    for axis, damage in zip(axes, damages, strict=True):
        robots = [each for each in recoveries if each.damage == damage]
        longest = max(len(robot.fitness) for robot in robots)
        for rule in rules:
            best = [
                [max(robot.fitness[:t]) for t in range(1, longest + 1)]
                for robot in robots
                if robot.rule == rule
            ]
            low, median, high = np.percentile(best, [25, 50, 75], axis=0)
            trials = np.arange(1, longest + 1)
            draw_band(axis, Band(trials, median, low, high), looks[rule])
        intact, limit = robots[0].intact, robots[0].limit
        axis.axhline(intact, color="0.3", linestyle=":", label="undamaged, its best")
        axis.axhline(0.7 * intact, color="0.6", linestyle=":", label="70 % of that")
        if limit is not None:
            axis.axhline(
                limit, color=colour(5), linestyle="--", label="best of all elites"
            )
        axis.set(title=damage, xlabel="trial", ylabel="best fitness so far")
        from_zero(axis)
    add_legend(figure, axes)
    return figure
