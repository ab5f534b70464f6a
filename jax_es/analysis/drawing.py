"""What the figures share: style, panels, looks of lines, axes, legends.

Lines differ in colour and dashes, areas in hatching, so that they differ in print, too.
Axes begin at 0 where nothing lies below, and legends hide no data.
"""

import contextlib
import datetime
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_es.analysis.curves import AXES, Band, Panels, band, series
from jax_es.checks import ConfigError, optional
from jax_es.runs.files import whole_file

STYLE_FILE = Path(__file__).with_name("style.mplstyle")

LINE_STYLES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (9, 3)))

Figure = Any
Axes = Any


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draws and saves in the package's style; also a decorator.

    Raises:
        ConfigError: if matplotlib is not installed.
    """
    with optional("plots need matplotlib", "plot"):
        import matplotlib.style
    with matplotlib.style.context(STYLE_FILE):
        yield


def subplots(
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


def assign_looks(labels: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Gives each variant one look and its label, the same in every panel."""
    return {
        kind: {
            "label": labels[kind],
            "color": colour(index),
            "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
        }
        for index, kind in enumerate(sorted(labels))
    }


def with_seeds(panels: Panels) -> dict[str, str]:
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


def colour(index: int) -> str:
    """Returns a colour of the style, as a figure keeps it wherever it is shown."""
    from matplotlib.colors import to_hex

    return to_hex(f"C{index % 7}")


def draw_lines(
    panels: Panels,
    panes: Sequence[tuple[str, str, str, str]],
    columns: int | None = None,
    is_log: bool = False,
) -> Figure:
    """Draws each variant's median and quartiles over its seeds, pane by pane.

    A pane is a task, an x of :data:`AXES`, a field of a record and the field's label.
    Where seeds go on beyond the line, which ends with the first of them, a dot each
    says where they ended.
    """
    figure, axes = subplots(len(panes), columns)
    looks = assign_looks(with_seeds(panels))
    for axis, (task, x, field, label) in zip(axes, panes, strict=True):
        for kind, runs in sorted(panels[task].items()):
            line = band(runs, AXES[x][0], field)
            draw_band(axis, line, looks[kind])
            ends = np.array([one[:, -1] for one in series(runs, AXES[x][0], field)])
            if ends[:, 0].max() > line.x[-1]:
                axis.plot(*ends.T, "o", color=looks[kind]["color"], markersize=3)
        axis.set(title=task, ylabel=label)
        label_x(axis, x)
        from_zero(axis, "x" if is_log else "xy")
        if is_log:
            make_log(axis, "y")
    add_legend(figure, axes)
    return figure


def draw_band(axis: Axes, values: Band, look: dict[str, Any]) -> None:
    """Draws a line and the area around it."""
    # A single point has no line to be seen by.
    axis.plot(values.x, values.median, marker="o" if len(values.x) == 1 else "", **look)
    axis.fill_between(
        values.x, values.low, values.high, color=look["color"], linewidth=0, alpha=0.1
    )


def from_zero(axis: Axes, names: str = "xy") -> None:
    """Lets axes reach 0, and begin or end there if nothing lies beyond."""
    for name in names:
        low, high = getattr(axis.dataLim, f"interval{name}")
        if low >= 0:
            axis.set(**{f"{name}lim": (0, None)})
        elif high <= 0:
            axis.set(**{f"{name}lim": (None, 0)})


def make_log(axis: Axes, names: str) -> None:
    """Makes axes logarithmic, with plain numbers: our style knows no formulas."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Plain(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    for name in names:
        axis.set(**{f"{name}scale": "log"})
        ticks = getattr(axis, f"{name}axis")
        ticks.set_major_formatter(Plain())
        ticks.set_minor_formatter(Plain(labelOnlyBase=False))


def label_x(axis: Axes, x: str) -> None:
    """Names the x axis with its unit, in numbers of a readable size."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

    label, steps = AXES[x][1], (1, 2, 2.5, 5, 10)  # up to a power of ten
    if x == "env-steps":
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    elif x.endswith("seconds"):
        steps = (1, 1.2, 1.8, 3, 6, 10)  # in whole minutes
        clock = FuncFormatter(lambda s, _: str(datetime.timedelta(seconds=round(s))))
        axis.xaxis.set_major_formatter(clock)
    axis.xaxis.set_major_locator(MaxNLocator(6, steps=steps, integer=x != "env-steps"))
    axis.set_xlabel(label)


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
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


def save(figure: Any, output: Path, name: str) -> list[Path]:
    """Writes a figure into the file ``output``, or twice as ``name`` into that folder.

    Returns:
        The files written.

    Raises:
        ConfigError: for an unknown ending or a folder that cannot be written.
    """
    both = [output / f"{name}.png", output / f"{name}.svg"]
    files = [output] if output.suffix else both
    for file in files:
        try:
            with style(), whole_file(file) as draft:
                figure.savefig(draft)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{file} cannot be written ({error}); choose another --output."
            ) from error
    return files
