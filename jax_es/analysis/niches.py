"""Figures of POET's niches: whose child each is, what moved, how many were solved."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jax_es.analysis.curves import Panels, Run
from jax_es.analysis.drawing import (
    Figure,
    add_legend,
    colour,
    draw_lines,
    style,
    subplots,
)

MEASURES = {
    "annecs": "ANNECS (novel terrains created and solved)",
    "num_solved": "niches ever solved",
}
"""Fields of a record that say how far the search is, and their labels."""


class Niches(NamedTuple):
    """The niches of a run; generations are counted from 0, and −1 is never."""

    title: str
    generations: int
    """How many the run had."""
    parent: np.ndarray
    """``[n]``, numbers of niches; −1 for the first."""
    created: np.ndarray
    solved: np.ndarray
    retired: np.ndarray
    transfers: np.ndarray
    """``[t, 3]``: generation, niche that a policy came from, niche that it went to."""
    terrains: list[str]
    """What each is, in words."""


def read_niches(run: Run) -> Niches:
    """Reads the niches of a run of POET from its last checkpoint.

    Raises:
        ValueError: (its subclasses) if it cannot be read.
    """
    from jax_es.niches.saved import terrains_of  # late: it loads JAX
    from jax_es.runs.checkpoint import Checkpoints
    from jax_es.runs.find import find_run

    restored = Checkpoints(find_run(run.path).checkpoints).restore("last")
    stored, none = restored.state["niches"], np.zeros((0, 3), int)
    return Niches(
        title=f"{run.task}, {run.variant}, seed {run.config.seed}",
        generations=int(restored.state["es"]["generation"]),
        parent=stored["parent"],
        created=stored["created"],
        solved=stored["solved"],
        retired=stored["retired"],
        transfers=restored.state.get("transfers", none),
        terrains=terrains_of(run.method, run.config, stored),
    )


@style()
def annecs(panels: Panels) -> Figure:
    """Draws what was created and solved against environment steps; a row a task."""
    every = itertools.product(panels, MEASURES.items())
    panes = [(task, "env-steps", *measure) for task, measure in every]
    return draw_lines(panels, panes, columns=len(MEASURES))


@style()
def tree(runs: Sequence[Niches]) -> Figure:
    """Draws niches as lines over the generations in which they were active.

    A line begins at its parent's, is thick from when the niche was first solved, and
    ends where it retired. Arrows are policies that moved to another niche. What it is
    stands beside its end.
    """
    most = max(len(run.parent) for run in runs)
    figure, axes = subplots(len(runs), 1, size=(9.6, 1.2 + 0.24 * most))
    for axis, run in zip(axes, runs, strict=True):
        for number, parent in enumerate(run.parent.tolist()):
            begun, solved = int(run.created[number]), int(run.solved[number])
            end = int(run.retired[number]) if run.retired[number] >= 0 else None
            until = run.generations if end is None else end
            if parent >= 0:
                axis.plot([begun, begun], [parent, number], color="0.75", zorder=1)
            axis.plot([begun, until], [number, number], color="0.45", linewidth=0.9)
            if solved >= 0:
                span, row = [solved, until], [number, number]
                axis.plot(span, row, color=colour(0), linewidth=3, label="solved")
            text = f" {number}: {run.terrains[number]}".removesuffix(": ")
            look = {"fontsize": 7, "va": "center", "color": "0.5" if end else "black"}
            axis.text(until, number, text, **look)
        for when, source, target in run.transfers.tolist():
            look = {"arrowstyle": "->", "color": colour(1), "shrinkA": 0, "shrinkB": 0}
            axis.annotate("", (when, target), (when, source), arrowprops=look)
        if len(run.transfers):
            axis.plot([], [], color=colour(1), label="transfer of a policy")
        axis.set(title=run.title, xlabel="generation", ylabel="niche")
        # The words at the ends need a third of the width.
        axis.set(xlim=(0, 1.5 * max(run.generations, 1)), ylim=(most - 0.5, -0.5))
        axis.locator_params(axis="y", integer=True)
        axis.grid(visible=False)
    add_legend(figure, axes)
    return figure
