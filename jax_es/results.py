"""Rebuilds the README's tables from ``results/``: ``python -m jax_es.results``.

A table stands between two lines, ``<!-- results: NAME -->`` and ``<!-- end: NAME -->``.
What is between them is written anew, the rest of the README is left as it is. With
``--check`` nothing is written: the program fails if it would change something.
"""

import dataclasses
import difflib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from jax_es import result_tables
from jax_es.cli.options import input_errors, parse_options, run_program
from jax_es.config import ConfigError, require
from jax_es.runs.outputs import whole_file


class Table(NamedTuple):
    """A part of the README.

    Attributes:
        source: what it is made from, in the folder of results; without it there is no
            such table.
        make: takes the folder of results, returns Markdown.
    """

    source: str
    make: Callable[[Path], str]


TABLES = {
    "quickstart": Table("learning_curves", result_tables.quickstart),
    "robots": Table("robots", lambda results: result_tables.robots(results / "robots")),
    "tasks": Table("tasks", lambda results: result_tables.learning(results / "tasks")),
    "thresholds": Table("tasks", result_tables.thresholds),
    "atari": Table("atari", lambda results: result_tables.learning(results / "atari")),
    "learning-curves": Table(
        "learning_curves",
        lambda results: result_tables.learning(results / "learning_curves"),
    ),
    "perturbation-attention": Table(
        "perturbation_attention",
        lambda results: result_tables.learning(results / "perturbation_attention"),
    ),
    "pretraining": Table(
        "pretraining",
        lambda results: result_tables.learning(results / "pretraining"),
    ),
    "speed": Table("benchmark.json", result_tables.speed),
    "games": Table("benchmark.json", result_tables.games),
}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Rebuilds the README's tables from the files in results/."""

    check: bool = False
    """Write nothing, and fail if the README is not what would be written."""
    readme: Path = Path("README.md")
    """The file with the markers."""
    results: Path = Path("results")
    """The folder with the runs, evaluations and benchmarks."""


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with input_errors():
        arguments = parse_options(Arguments, argv, "results")
        before = _read(arguments.readme)
        after = rebuilt(before, arguments.results)
    if before == after:
        sys.stderr.write(f"{arguments.readme} is what {arguments.results} says.\n")
        return 0
    if not arguments.check:
        with whole_file(arguments.readme) as draft:
            draft.write_text(after)
        sys.stderr.write(f"{arguments.readme} is written anew.\n")
        return 0
    sys.stdout.write(_difference(before, after))
    sys.stderr.write(
        f"error: {arguments.readme} is not what {arguments.results} says (above); run "
        "python -m jax_es.results.\n"
    )
    return 1


def _read(readme: Path) -> str:
    try:
        return readme.read_text()
    except OSError as error:
        raise ConfigError(
            f"{readme} cannot be read ({error.strerror}); run this where the README "
            "is, or give --readme."
        ) from error


def rebuilt(text: str, results: Path) -> str:
    """Returns a README with every table written anew.

    Args:
        text: of the README.
        results: the folder with the files behind the tables.

    Raises:
        ConfigError: if markers are missing, repeated or unknown, or a file behind a
            table cannot be read.
    """
    require(
        results.is_dir(),
        f"{results} is no folder; run this where it is, or give --results.",
    )
    there = {name: t for name, t in TABLES.items() if (results / t.source).exists()}
    for name in re.findall(r"<!-- results: (.*?) -->", text):
        require(
            name in there,
            f"the README has a table {name!r}, but nothing is there to make it from; "
            f"known: {', '.join(f'{n} ({t.source})' for n, t in TABLES.items())}.",
        )
    for name, table in there.items():
        begin, end = f"<!-- results: {name} -->", f"<!-- end: {name} -->"
        parts = re.split(f"(?<={re.escape(begin)})|(?={re.escape(end)})", text)
        require(
            len(parts) == 3 and text.index(begin) < text.index(end),
            f"{results / table.source} needs the lines {begin} and {end} in the "
            "README, once each and in this order; add them where its table belongs.",
        )
        text = f"{parts[0]}\n{table.make(results)}\n{parts[2]}"
    return text


def _difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "as it is", "as it would be", "", "", 0
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
