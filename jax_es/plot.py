"""Plots learning curves: ``python -m jax_es.plot RUN [RUN …] --output curves.png``.

One panel per task, one line per kind of policy, attention and noise: the median over
the runs (the seeds), in a band from the lowest to the highest. The numbers behind it
are printed as a Markdown table.
"""

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from jax_es.command_line import input_errors, parse_options, run_program
from jax_es.config import ConfigError, EnvConfig, require
from jax_es.experiment import TrainConfig, policy_kind
from jax_es.metrics import GenerationRecord, read_metrics
from jax_es.run_directory import find_run

AXES = {
    "env-steps": ("total_env_steps", "environment steps"),
    "generations": ("generation", "generation"),
    "seconds": ("seconds_elapsed", "wall-clock time (s)"),
}

RETURNS = {
    "evaluation": ("evaluation_return_mean", "evaluation return"),
    "population": ("return_mean", "mean return of the population"),
}

# Told apart without colour, in print and by readers who see colours differently.
LINE_STYLES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Plots the learning curves of one or more runs."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders; a line is what has one task, policy, attention and noise."""
    output: Path = Path("learning_curves.png")
    """The picture; its ending (.png, .svg, .pdf) decides the format."""
    x: Literal["env-steps", "generations", "seconds"] = "env-steps"
    """What learning is measured against."""
    y: Literal["evaluation", "population"] = "evaluation"
    """Return of the mean policy, or mean over the population."""


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with input_errors():
        arguments = parse_options(Arguments, argv, prog="python -m jax_es.plot")
        require(
            arguments.output.suffix != "",
            f"--output must end in .png, .svg or .pdf, got {arguments.output}.",
        )
        if not arguments.runs:
            raise ConfigError("RUN is missing; give at least one run folder.")
        panels = group(arguments.runs)
        figure = draw(panels, arguments.x, arguments.y)
        save(figure, arguments.output)
    sys.stdout.write(table(panels) + "\n")
    sys.stderr.write(f"{arguments.output}\n")
    return 0


Panels = dict[str, dict[str, list[list[GenerationRecord]]]]
"""Task → variant → runs → records."""


def group(runs: tuple[Path, ...]) -> Panels:
    """Reads runs and sorts them by environment and variant.

    Raises:
        ValueError: for a folder that is no run, or has no finished generation.
    """
    panels: Panels = {}
    for path in runs:
        config = find_run(path).config()
        records = read_metrics(path)
        if not records:
            raise ConfigError(f"{path} has no finished generation to plot.")
        lines = panels.setdefault(_task(config.env), {})
        lines.setdefault(variant(config), []).append(records)
    return panels


def variant(config: TrainConfig) -> str:
    """Names what is compared: the kind of policy, and how it differs from the paper's.

    Example:
        >>> from jax_es.config import ESConfig
        >>> variant(TrainConfig(es=ESConfig(perturbation="low-rank", rank=4)))
        'decision-transformer, rank 4'
    """
    name = policy_kind(config.policy)
    attention = getattr(config.policy, "attention", "window")
    if attention != "window":
        name += f", {attention}"
    if config.es.perturbation == "low-rank":
        name += f", rank {config.es.rank}"
    return name


def _task(env: EnvConfig) -> str:
    """Names a task: runs with other limits on their episodes cannot be compared."""
    limit = env.max_episode_steps
    name = env.id if limit is None else f"{env.id}, {limit} steps"
    return name if env.terminate_when_unhealthy else f"{name}, falling allowed"


def band(
    runs: list[list[GenerationRecord]], x: str, y: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns x, and the median, lowest and highest y over the runs.

    Runs meet different x's where episodes differ in length; each is interpolated
    linearly onto a common grid, as far as all of them reach.
    """
    xs = [np.array([getattr(r, x) for r in records], float) for records in runs]
    ys = [np.array([getattr(r, y) for r in records], float) for records in runs]
    grid = np.linspace(max(v[0] for v in xs), min(v[-1] for v in xs), 200)
    values = np.stack([np.interp(grid, a, b) for a, b in zip(xs, ys, strict=True)])
    return grid, np.median(values, axis=0), values.min(axis=0), values.max(axis=0)


def table(panels: Panels) -> str:
    """Returns a Markdown table: how each line began, ended, and what it took.

    Returns are medians over the runs (lowest to highest in brackets) of the mean
    evaluation return, at the first and the last generation and at the best one.
    """
    rows = [
        "| environment | policy | seeds | first | last | best | env steps | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for env_id, lines in panels.items():
        for kind, runs in sorted(lines.items()):
            cells = [
                env_id,
                kind,
                str(len(runs)),
                _spread([run[0].evaluation_return_mean for run in runs]),
                _spread([run[-1].evaluation_return_mean for run in runs]),
                _spread([run[-1].best_evaluation_return for run in runs]),
                f"{np.median([run[-1].total_env_steps for run in runs]) / 1e6:.2f} M",
                f"{np.median([run[-1].seconds_elapsed for run in runs]) / 60:.1f}",
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def draw(panels: Panels, x: str, y: str) -> Any:
    """Draws the panels side by side; returns the matplotlib figure.

    Raises:
        ConfigError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            f"plots need matplotlib ({error}); pip install -e '.[plot]'."
        ) from error
    (x_field, x_label), (y_field, y_label) = AXES[x], RETURNS[y]
    figure = Figure(figsize=(4.6 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    # A variant looks the same in every panel.
    kinds = sorted({kind for lines in panels.values() for kind in lines})
    looks = {
        kind: {"color": f"C{i % 10}", "linestyle": style}
        for i, (kind, style) in enumerate(
            zip(kinds, itertools.cycle(LINE_STYLES), strict=False)
        )
    }
    for axis, (env_id, lines) in zip(axes, panels.items(), strict=True):
        for kind, runs in sorted(lines.items()):
            grid, median, low, high = band(runs, x_field, y_field)
            seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
            axis.plot(grid, median, label=f"{kind} ({seeds})", **looks[kind])
            alpha = 0.2 if len(lines) <= 3 else 0.08
            axis.fill_between(grid, low, high, alpha=alpha, color=looks[kind]["color"])
        axis.set(title=env_id, xlabel=x_label, ylabel=y_label)
        axis.grid(alpha=0.3)
    _add_legend(figure, axes)
    return figure


def _add_legend(figure: Any, axes: Any) -> None:
    """Names the lines in each panel; below all of them where it would hide curves."""
    if max(len(axis.get_lines()) for axis in axes) <= 3:
        for axis in axes:
            axis.legend()
        return
    named = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(named.values(), named, loc="outside lower center", ncols=len(axes))


def save(figure: Any, output: Path) -> None:
    """Writes the picture.

    Raises:
        ConfigError: for an unknown ending or a folder that cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{output} cannot be written ({error}); choose another --output."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
