"""Plots runs and experiments: ``python -m jax_es.plot PATH [PATH …]``.

Draws how they learned, how their populations spread, where the time went, and what
several tasks say together. The numbers behind it are printed as Markdown tables.
"""

import contextlib
import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jax_es.analysis import aggregate, archives, drawing, figures, niches
from jax_es.analysis.curves import (
    AXES,
    RETURNS,
    Run,
    measured,
    read_runs,
    sorted_into_panels,
    table,
)
from jax_es.checks import require
from jax_es.cli.options import parse_options
from jax_es.cli.program import input_errors, program
from jax_es.runs.folders import program_command
from jax_es.runs.method import MAP_ELITES, POET
from jax_es.runs.records import OWN

OF_POPULATIONS = ("population", "time", "iteration")
"""Figures of what only OpenAI-ES has."""

OF_METHODS = {
    MAP_ELITES: ("archive", "illuminate", ("growth", "elites")),
    POET: ("niches", "poet", ("annecs", "niches")),
}
"""Method → what only its runs have, the program that makes it, figures of it."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Plots one or more runs or experiments."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs or of experiments (several seeds); a line is what has one task,
    method, policy, attention, noise, and whatever else differs."""
    figure: Literal[
        "learning",
        "population",
        "time",
        "iteration",
        "aggregate",
        "growth",
        "elites",
        "annecs",
        "niches",
        "all",
    ] = "learning"
    """learning: returns, median and quartiles over the seeds. population: mean and 95 %
    of the members' returns. time: where it went. iteration: wall-clock of each
    generation. aggregate: interquartile mean over several tasks, normalised, with 95 %
    bootstrap intervals. growth: coverage, QD-score and best fitness of archives.
    elites: maps of them. annecs: novel terrains that POET created and solved. niches:
    the tree of its terrains, and which policies moved. all: each of them that the runs
    allow. Runs trained by gradients have learning and aggregate only."""
    output: Path | None = None
    """A file (.png, .svg, .pdf), or a folder for a .png and a .svg of each figure;
    plots/ in the run's folder if not given, or here for several."""
    x: Literal["env-steps", "generations", "seconds", "cpu-seconds", "all"] | None = (
        None
    )
    """What returns are measured against, or a panel of learning for each; of
    populations generations, else environment steps if not given. Gradients know no
    generations; cpu-seconds leave out workers'."""
    y: str = "evaluation"
    """evaluation: return of the mean policy. population: mean over the population.
    fitness: what an objective of your own says of the mean policy. command-error: the
    mean policy's error where it is asked for returns. strategy/NAME: a number that a
    strategy of your own reports."""
    reference: tuple[str, ...] = ()
    """TASK=RETURN, the return that counts as 1 in the aggregate; the best evaluation
    of the runs given if not said. The initial networks' count as 0."""

    def __post_init__(self) -> None:
        require(
            self.runs != (),
            "RUN is missing; give at least one folder of a run or an experiment.",
        )
        require(
            self.folder.suffix == "" or self.figure != "all",
            f"--output must be a folder with --figure all, got {self.output}.",
        )
        require(
            self.y in RETURNS or self.y.startswith(OWN),
            f"--y must be {', '.join(RETURNS)} or {OWN}NAME, got {self.y!r}.",
        )

    @property
    def folder(self) -> Path:
        """Where figures are written, or the file of the only one."""
        own = self.runs[0] if len(self.runs) == 1 else Path()
        return own / "plots" if self.output is None else self.output

    @property
    def references(self) -> dict[str, float]:
        """The return that counts as 1, by task."""
        found = {}
        for text in self.reference:
            task, _, value = text.rpartition("=")
            with contextlib.suppress(ValueError):
                found[task] = float(value)
            require(
                task != "" and math.isfinite(found.get(task, math.nan)),
                f"--reference must be TASK=RETURN, as 'Hopper-v5=3000', got {text!r}.",
            )
        return found


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    with input_errors():
        arguments = parse_options(Arguments, argv, "plot")
        references = arguments.references
        runs = read_runs(arguments.runs)
        _check_measured(arguments, runs)
        panels = sorted_into_panels(runs)
        written = [
            file
            for name, figure in _figures(arguments, runs).items()
            for file in drawing.save(figure, arguments.folder, name)
        ]
    sys.stdout.write(table(panels) + "\n")
    if arguments.figure in ("aggregate", "all") and aggregate.is_comparable(panels):
        text = aggregate.table(panels, measured(arguments.y)[0], references)
        sys.stdout.write("\n" + text + "\n")
    sys.stderr.write("".join(f"{file}\n" for file in written))


def _check_measured(arguments: Arguments, runs: list[Run]) -> None:
    """Rejects what a run does not have."""
    asked = {"--figure": arguments.figure, "--x": arguments.x, "--y": arguments.y}
    of_evolution = (*OF_POPULATIONS, "generations", "population", "command-error")
    y, is_return = measured(arguments.y)[0], arguments.y in ("evaluation", "population")
    require(
        is_return or arguments.figure not in ("aggregate", "all"),
        f"--y {arguments.y} is no return, which --figure {arguments.figure} needs; add "
        "--figure learning.",
    )
    for run in runs:
        for option, value in asked.items():
            require(
                run.method.is_evolution or value not in of_evolution,
                f"{option} {value}: {run.path} was trained by {run.method.title}, "
                "which has no generations and no population; leave that run or "
                f"{option} out.",
            )
        own = [f"{OWN}{name}" for name in run.records[0].strategy]
        require(
            not y.startswith(OWN) or y in own,
            f"--y {y}: {run.path} has no such number; it has "
            f"{', '.join(own) or 'none of a strategy of your own'}.",
        )
        for method, (what, made_by, shown) in OF_METHODS.items():
            require(
                run.method.name == method or arguments.figure not in shown,
                f"--figure {arguments.figure}: {run.path} was trained by "
                f"{run.method.title} and has no {what}; leave it out, or choose a run "
                f"of {program_command(made_by)}.",
            )


def _figures(arguments: Arguments, runs: list[Run]) -> dict[str, Any]:
    """Draws what was asked for; returns the figures by name."""
    for run in runs:
        require(
            arguments.x != "cpu-seconds"
            or not any(math.isnan(record.cpu_seconds) for record in run.records),
            f"--x cpu-seconds: {run.path} began with a version that did not count "
            "them; choose --x seconds.",
        )
    panels = sorted_into_panels(runs)
    evolved = sorted_into_panels(run for run in runs if run.method.is_evolution)
    xs, along = (arguments.x or "env-steps",), arguments.x or "generations"
    if arguments.x == "all":
        is_evolution = all(run.method.is_evolution for run in runs)
        unread = () if is_evolution else ("generations",)
        xs = tuple(x for x in AXES if x not in (*unread, "cpu-seconds"))
        along = "generations"
    made_by = {
        method: [run for run in runs if run.method.name == method]
        for method in OF_METHODS
    }
    filled, grown = made_by[MAP_ELITES], made_by[POET]
    known = {
        "learning": lambda: figures.learning(panels, xs, arguments.y),
        "population": lambda: figures.population(evolved, along),
        "time": lambda: figures.time(evolved),
        "iteration": lambda: figures.iteration(evolved),
        "aggregate": lambda: figures.aggregated(
            panels, xs, arguments.y, arguments.references
        ),
        "growth": lambda: archives.growth(sorted_into_panels(filled)),
        "elites": lambda: archives.elites(archives.by_title(filled)),
        "annecs": lambda: niches.annecs(sorted_into_panels(grown)),
        "niches": lambda: niches.tree([niches.read_niches(run) for run in grown]),
    }
    names = [arguments.figure]
    if arguments.figure == "all":
        left_out = () if evolved else OF_POPULATIONS
        left_out += () if aggregate.is_comparable(panels) else ("aggregate",)
        for method, (_, _, shown) in OF_METHODS.items():
            left_out += () if made_by[method] else shown
        names = [name for name in known if name not in left_out]
    return {name: known[name]() for name in names}


if __name__ == "__main__":
    sys.exit(main())
