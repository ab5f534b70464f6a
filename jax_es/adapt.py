"""Recovers from damage: ``python -m jax_es.adapt ARCHIVE --damage NAME``.

A robot that broke tries policies of an archive, guided by what they did before and by
the trials so far, until one of them does well enough (intelligent trial and error).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import tyro

from jax_es.checks import Count, check_fields, require
from jax_es.cli.options import parse_options
from jax_es.cli.program import input_errors, program
from jax_es.illumination.settings import RULES, TrialConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Lets a damaged robot try an archive's policies until one does well enough."""

    archive: Annotated[Path, tyro.conf.Positional]
    """Folder of a run of illuminate, runs/NAME."""
    damage: tuple[str, ...]
    """What broke: names, each a robot of its own, as left-front-leg or weak-motors
    (an unknown name lists all), or all; or MOTOR=SHARE,MOTOR=SHARE, what is left of
    each motor's strength."""
    search: Annotated[TrialConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=TrialConfig
    )
    seeds: Count = 5
    """Robots of each damage; they differ in how episodes begin."""
    baselines: bool = False
    """Also try without the archive's fitness, the best first, and at random."""
    exhaustive: bool = False
    """Also try every elite in every damaged robot: what no search can pass."""
    output: Path | None = None
    """A file for the picture (.png, .svg, .pdf), or a folder; plots/ in the run's
    folder if not given."""
    json: bool = False
    """Print one JSON object with every trial instead of a table."""
    trust: bool = False
    """Import the modules that the run's environment and policy name (module:id)."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(self.damage != (), "--damage needs a value, as left-front-leg, or all.")


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    with input_errors():
        arguments = parse_options(Arguments, argv, "adapt")
        from jax_es.analysis import drawing
        from jax_es.cli.train_program import start_jax
        from jax_es.runs.find import find_run

        run = find_run(arguments.archive)
        start_jax(run.config().rollout.num_devices)
        from jax_es.analysis.archives import recovery
        from jax_es.illumination.adaptation import adapt_run, table
        from jax_es.illumination.repertoire import read_archive
        from jax_es.runs.trust import check_imports
        from jax_es.training.build import damages

        with drawing.style():  # not after the trials
            saved = read_archive(run.path)
        check_imports(saved.config, run.path, arguments.trust)
        robots = damages(saved.config.env, arguments.damage)
    recoveries = adapt_run(
        saved,
        robots,
        arguments.search,
        tuple(RULES) if arguments.baselines else ("ite",),
        arguments.seeds,
        arguments.exhaustive,
        _say,
    )
    with input_errors():
        folder = arguments.output or arguments.archive / "plots"
        files = drawing.save(recovery(recoveries), folder, "recovery")
    if arguments.json:
        found = [recovery._asdict() for recovery in recoveries]
        shown = {"archive": str(arguments.archive), "recoveries": found}
        text = json.dumps(shown, indent=1)
    else:
        text = table(recoveries)
    sys.stdout.write(f"{text}\n")
    sys.stderr.write("".join(f"{file}\n" for file in files))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
