"""Where the θs of a novelty search ended: its archive, drawn on the task's walls."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from jax_es.analysis.drawing import Figure, style, subplots
from jax_es.checks import ConfigError
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.find import find_run


def archive(run: str | os.PathLike[str]) -> np.ndarray:
    """Reads the descriptors that a run of novelty search has archived.

    Returns:
        ``[m, B]`` float32, one row a generation, the oldest first.

    Raises:
        ConfigError: (a ``ValueError``) if the run has no archive.
    """
    path = find_run(run).path
    state = Checkpoints(path / "checkpoints").restore("last").state["es"]
    if "archive" not in state:
        raise ConfigError(f"{path} is no run of novelty search and has no archive.")
    rows, archived = np.asarray(state["archive"]), int(state["archived"])
    if archived <= len(rows):
        return rows[:archived]
    return np.roll(rows, -archived % len(rows), axis=0)


def area(points: np.ndarray, side: float = 1.0) -> float:
    """Returns the area of the squares, of this ``side``, that points ``[m, 2]`` lie in.

    Example:
        >>> area(np.array([[0.1, 0.2], [0.9, 0.9], [-0.1, 0.5]]))
        2.0
    """
    return len(np.unique(np.floor(points / side), axis=0)) * side**2


@style()
def positions(
    panels: Mapping[str, np.ndarray],
    walls: Sequence[tuple[float, float, float, float]] = (),
    columns: int | None = None,
) -> Figure:
    """Draws points of the plane, the later the darker, on the walls of a task.

    Args:
        panels: ``[m, 2]`` by title, in order of time.
        walls: boxes as of :mod:`jax_es.envs.traps`: centre, half length along x, half
            width along y.
        columns: panels side by side.
    """
    from matplotlib.patches import Rectangle

    figure, axes = subplots(len(panels), columns, size=(3.2, 3.0))
    for axis, (title, points) in zip(axes, panels.items(), strict=True):
        for x, y, length, width in walls:
            corner = x - length, y - width
            axis.add_patch(
                Rectangle(corner, 2 * length, 2 * width, color="0.35", zorder=3)
            )
        order = np.linspace(0.0, 1.0, len(points))
        axis.scatter(*points.T, c=order, cmap="viridis_r", s=7, linewidth=0)
        axis.plot(0, 0, "+", color="C1", markersize=9, zorder=4)  # the start
        axis.set(title=title, xlabel="x (m)", ylabel="y (m)")
    limits = [[getattr(a.dataLim, f"interval{n}") for a in axes] for n in "xy"]
    for axis in axes:  # alike, to be compared
        low, high = np.min(limits, axis=(1, 2)), np.max(limits, axis=(1, 2))
        axis.set(xlim=(low[0] - 1, high[0] + 1), ylim=(low[1] - 1, high[1] + 1))
        axis.set_aspect("equal")
    return figure
