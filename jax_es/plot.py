"""Plots runs and experiments: ``python -m jax_es.plot PATH [PATH …]``.

Draws how they learned, how their populations spread, where the time went, and what
several tasks say together. The numbers behind it are printed as Markdown tables.
"""

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jax_es.analysis.curves import (
    RETURNS,
    Run,
    axes,
    read_runs,
    sorted_into_panels,
    table,
)
from jax_es.cli.options import input_errors, parse_options, run_program
from jax_es.config import ConfigError, require
from jax_es.runs.outputs import whole_file

FORMATS = (".png", ".svg")
"""What is written into a folder, of every figure."""

OF_POPULATIONS = ("population", "time", "iteration")
"""Figures of what only OpenAI-ES has."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Plots one or more runs or experiments."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs or of experiments (several seeds); a line is what has one task,
    method, policy, attention, noise, and whatever else differs."""
    figure: Literal[
        "learning", "population", "time", "iteration", "aggregate", "all"
    ] = "learning"
    """learning: returns, median and quartiles over the seeds. population: mean and 95 %
    of the members' returns. time: where it went. iteration: wall-clock of each
    generation. aggregate: interquartile mean over several tasks, normalised, with 95 %
    bootstrap intervals. all: each of them that the runs allow. Runs trained by
    gradients have learning and aggregate only."""
    output: Path | None = None
    """A file (.png, .svg, .pdf), or a folder for a .png and a .svg of each figure;
    plots/ in the run's folder if not given, or here for several."""
    x: Literal["env-steps", "generations", "seconds", "all"] | None = None
    """What returns are measured against, or a panel of learning for each; of
    populations generations, else environment steps if not given. Gradients know no
    generations."""
    y: Literal["evaluation", "population"] = "evaluation"
    """Return of the mean policy, or mean over the population."""
    reference: tuple[str, ...] = ()
    """TASK=RETURN, the return that counts as 1 in the aggregate; the best evaluation
    of the runs given if not said. The initial networks' count as 0."""


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with input_errors():
        arguments = parse_options(Arguments, argv, "plot")
        from jax_es.analysis import aggregate

        if not arguments.runs:
            raise ConfigError(
                "RUN is missing; give at least one folder of a run or an experiment."
            )
        output = _output(arguments)
        require(
            output.suffix == "" or arguments.figure != "all",
            f"--output must be a folder with --figure all, got {output}.",
        )
        runs = read_runs(arguments.runs)
        _check_measured(arguments, runs)
        panels = sorted_into_panels(runs)
        references = _references(arguments.reference)
        written = []
        for name, make in _figures(arguments, runs, references).items():
            written += save_all(make(), output, name)
    sys.stdout.write(table(panels) + "\n")
    if arguments.figure in ("aggregate", "all") and aggregate.is_comparable(panels):
        text = aggregate.table(panels, RETURNS[arguments.y][0], references)
        sys.stdout.write("\n" + text + "\n")
    sys.stderr.write("".join(f"{file}\n" for file in written))
    return 0


def _output(arguments: Arguments) -> Path:
    if arguments.output is not None:
        return arguments.output
    return (arguments.runs[0] if len(arguments.runs) == 1 else Path()) / "plots"


def _references(texts: tuple[str, ...]) -> dict[str, float]:
    """Reads ``TASK=RETURN``."""
    references = {}
    for text in texts:
        task, _, value = text.rpartition("=")
        with contextlib.suppress(ValueError):
            references[task] = float(value)
        require(
            task != "" and math.isfinite(references.get(task, math.nan)),
            f"--reference must be TASK=RETURN, as 'Hopper-v5=3000', got {text!r}.",
        )
    return references


def _check_measured(arguments: Arguments, runs: list[Run]) -> None:
    """Refuses to draw what a run that gradients trained does not have."""
    for option, value in (
        *(("--figure", figure) for figure in OF_POPULATIONS),
        ("--x", "generations"),
        ("--y", "population"),
    ):
        if getattr(arguments, option.removeprefix("--")) == value:
            for run in runs:
                require(
                    run.method.is_evolution,
                    f"{option} {value}: {run.path} was trained by {run.method.title}, "
                    "which has no generations and no population; leave that run or "
                    f"{option} out.",
                )


def _figures(
    arguments: Arguments, runs: list[Run], references: dict[str, float]
) -> dict[str, Callable[[], Any]]:
    """Returns what draws each figure that is asked for, by name."""
    from jax_es.analysis import aggregate, figures

    panels = sorted_into_panels(runs)
    evolved = sorted_into_panels(run for run in runs if run.method.is_evolution)
    xs = axes(runs) if arguments.x == "all" else (arguments.x or "env-steps",)
    along = "generations" if arguments.x in (None, "all") else arguments.x
    known: dict[str, Callable[[], Any]] = {
        "learning": lambda: figures.learning(panels, xs, arguments.y),
        "population": lambda: figures.population(evolved, along),
        "time": lambda: figures.time(evolved),
        "iteration": lambda: figures.iteration(evolved),
        "aggregate": lambda: figures.aggregated(panels, xs, arguments.y, references),
    }
    if arguments.figure != "all":
        return {arguments.figure: known[arguments.figure]}
    if not aggregate.is_comparable(panels):
        del known["aggregate"]
    if not evolved:
        known = {name: d for name, d in known.items() if name not in OF_POPULATIONS}
    return known


def save_all(figure: Any, output: Path, name: str) -> list[Path]:
    """Writes a figure: into the file ``output``, or as ``name`` into that folder.

    Returns:
        The files written.

    Raises:
        ConfigError: for an unknown ending or a folder that cannot be written.
    """
    files = [output] if output.suffix else [output / f"{name}{end}" for end in FORMATS]
    for file in files:
        save(figure, file)
    return files


def save(figure: Any, output: Path) -> None:
    """Writes the picture.

    Raises:
        ConfigError: for an unknown ending or a folder that cannot be written.
    """
    from jax_es.analysis import figures

    try:
        with figures.style(), whole_file(output) as draft:
            figure.savefig(draft)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{output} cannot be written ({error}); choose another --output."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
