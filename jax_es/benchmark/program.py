"""Measures how fast this machine trains: ``python -m jax_es.benchmark``.

Every row is a number of environment steps/s, and its ratio to what the simulator alone
reaches in the same minutes (``envs/physics.py``). Networks are fresh ones. Their
actions are computed, but bodies move by the random actions of ``physics``, so that both
simulate the same (except under the condition ``own-actions``).

- ``physics``: the simulator, in each of its regimes.
- ``policy``: inference alone.
- ``generation``: some seconds of rollout at steady state, as in the midst of a large
  population, and the update that they call for. Nothing but a limit, drawn from 20 to
  1000 steps, ends an episode; under ``untrained`` and ``own-actions`` a fall does,
  after some twenty steps. ``whole``: four tasks a slot, from the first to the last,
  with an eighth of the slots except with ``--full``. ``length-25`` to ``length-1000``:
  150,000 steps of episodes of that mean length, from the first to the last.
- ``update``: noise and update, as the steps/s of the episodes of its pairs.
- ``learning``: whole late generations of presets on cheaper physics, on one core, and
  beside their own vector environment instead of ``physics``.
- ``jax``: environments in JAX on one core, beside themselves alone
  (``jax_envs.py``): some seconds in the midst of a generation in which
  nothing but a limit, drawn from 20 steps to the environment's own, ends an episode.
  ``untrained``: 16 episodes a slot, from the first to the last, each as long as a fresh
  policy's. ``members``: a generation of 4,096 members with its update, each episode of
  all its steps; ``evosax``: the same by evosax's Open_ES and rollout.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import tyro

from jax_es.benchmark.rows import NETWORKS, ON_ONE_CORE, ROWS, Row, Work, choose
from jax_es.checks import require
from jax_es.cli.options import parse_options
from jax_es.cli.program import input_errors, program
from jax_es.runs.files import check_writable, whole_file, writing
from jax_es.runs.machine import git_commit, machine, versions

SCALING = "scaling"


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Measures how fast this machine trains, beside the speed of physics alone.

    The default form takes about six minutes on two cores.
    """

    only: tuple[str, ...] = ()
    """Rows to measure: names, or patterns such as 'policy/*'; scaling alone is what
    workers bring (docs/guides/scaling.md)."""
    list: bool = False
    """List the rows, those of the default form with a star, and measure nothing."""
    json: Path | None = None
    """Also write the rows into this file, with versions and machine."""
    picture: Path | None = None
    """Also draw scaling into this file (extra plot)."""
    profile: Path | None = None
    """Measure nothing; write a profile of one generation into this folder."""
    profile_network: str = "humanoid-dt-fast"
    """Whose generation is profiled."""
    work: Annotated[Work, tyro.conf.arg(name="")] = Work()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        require(
            self.profile_network in NETWORKS,
            f"--profile-network must be one of {', '.join(NETWORKS)}, got "
            f"{self.profile_network!r}.",
        )


@program
def main(argv: list[str]) -> int:
    """Runs the program; returns its exit code."""
    with input_errors():
        arguments = parse_options(Arguments, argv, "benchmark")
        rows = [row for row in ROWS if arguments.work.full or row.is_default]
        if arguments.only and arguments.only != (SCALING,):
            rows = choose(arguments.only)
        check_writable("--json", arguments.json)
        if arguments.profile is not None:
            check_writable("--profile", arguments.profile / "trace")
    if arguments.list:
        stars = (f"{' *'[row.is_default]} {row.name}\n" for row in ROWS)
        sys.stdout.write("".join(stars))
        return 0
    if arguments.profile is not None:
        _profile(arguments, arguments.profile)
        return 0
    report = {"versions": {**versions(), "commit": git_commit()}, "machine": machine()}
    if arguments.only == (SCALING,):
        _show(_scaling(report, arguments.picture), report, arguments.json)
        return 0
    started = time.perf_counter()
    measured: dict[str, dict[str, Any]] = {}
    failures: list[str] = []
    try:
        run(rows, arguments, measured, failures)
    finally:  # also of a measurement that was stopped
        report["seconds"] = time.perf_counter() - started
        report["rows"] = finish(measured)
        _show(table(report), report, arguments.json)
    for failure in failures:
        sys.stderr.write(f"error: {failure}\n")
    return 1 if failures else 0


def _show(text: str, report: dict[str, Any], file: Path | None) -> None:
    """Prints the table, and writes the report into ``--json``'s file."""
    sys.stdout.write(text)
    if file is not None:
        remedy = "free space, or choose another file"
        with writing(f"--json {file}", remedy), whole_file(file) as draft:
            draft.write_text(json.dumps(report, indent=1) + "\n")


def processes(rows: list[Row]) -> list[list[Row]]:
    """Sorts rows by the processes that measure them: one network, one number of slots.

    The first measures their physics.
    """
    regimes = {row.regime for row in rows if row.kind not in ON_ONE_CORE}
    physics = [r for r in ROWS if r.kind == "physics" and r.regime in regimes]
    groups = {("", False): physics} if physics else {}
    for row in rows:
        if row.kind != "physics":
            key = row.network, row.condition == "whole"
            groups.setdefault(key, []).append(row)
    return list(groups.values())


def run(
    rows: list[Row],
    arguments: Arguments,
    measured: dict[str, dict[str, Any]],
    failures: list[str],
) -> None:
    """Adds the fields of rows by name, and a line for each process that failed."""
    from jax_es.benchmark import measure

    groups = processes(rows)
    for number, group in enumerate(groups, 1):
        title = group[0].network or "physics"
        sys.stderr.write(f"measuring {number} of {len(groups)}: {title}\n")
        values = json.dumps(group), json.dumps(dataclasses.asdict(arguments.work))
        process = subprocess.run(
            [sys.executable, "-m", measure.__name__, *values],
            capture_output=True,
            text=True,
        )
        if process.returncode == 0:
            measured |= json.loads(process.stdout.splitlines()[-1])
        else:
            why = (process.stderr.splitlines() or ["no message"])[-1]
            failures.append(f"{title} ended with {process.returncode}: {why}")


def finish(measured: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Puts rows in order and beside physics.

    A generation is compared with the physics measured before and after it, other rows
    with the median of all such samples, which is the row ``physics``.
    """
    rows = [row for row in ROWS if row.name in measured]
    samples: dict[str, list[float]] = {row.regime: [] for row in rows}
    for row in rows:
        samples[row.regime] += measured[row.name].pop("physics_samples", [])
    medians = {r: statistics.median(taken) for r, taken in samples.items() if taken}
    finished = []
    for row in rows:
        fields, physics = measured[row.name], medians.get(row.regime)
        if row.kind == "physics":
            fields = {"steps_per_second": physics, "samples": samples[row.regime]}
        beside = fields.get("physics_steps_per_second", physics)
        ratio = {}
        if beside is not None:  # its process did not fail
            ratio = {"ratio_to_physics": fields["steps_per_second"] / beside}
        finished.append({"name": row.name, **ratio, **fields})
    return finished


COLUMNS = {
    "row": ("name", ""),
    "steps/s": ("steps_per_second", ",.0f"),
    "/physics": ("ratio_to_physics", ".2f"),
    "slots used": ("slot_utilization", ".0%"),
    "MiB": ("peak_rss_mib", ",.0f"),
    "seconds": ("seconds", ".2f"),
    "compiled": ("compilations", "d"),
    "slots": ("num_slots", "d"),
    "pairs": ("num_pairs", ",d"),
}
"""Heading → field and format of the table's columns."""


def table(report: dict[str, Any]) -> str:
    """Returns the table for a terminal."""
    lines = [[*COLUMNS, ""]]
    for row in report["rows"]:
        shares = row.get("shares", {}).items()
        columns = COLUMNS.values()
        cells = [format(row[key], spec) if key in row else "" for key, spec in columns]
        lines.append([*cells, ", ".join(f"{name} {part:.0%}" for name, part in shares)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ""
    for name, *numbers, shares in lines:
        padded = map(str.rjust, numbers, widths[1:])
        text += "  ".join([name.ljust(widths[0]), *padded, shares]).rstrip() + "\n"
    here, using = report["machine"], report["versions"]
    return text + (
        f"{here['processor']}, {here['cores']} cores; MuJoCo {using['mujoco']}, JAX "
        f"{using['jax']}; {report['seconds']:.0f} s.\n"
    )


def _scaling(report: dict[str, Any], picture: Path | None) -> str:
    """Measures workers beside one process, and simulates many; returns the table."""
    from jax_es.benchmark import scaling

    with tempfile.TemporaryDirectory() as folder:
        report["side_by_side"] = scaling.side_by_side(Path(folder))
    sys.stderr.write("measuring costs, simulating\n")
    process = subprocess.run(
        [sys.executable, "-m", scaling.__name__],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report["simulated"] = json.loads(process.stdout.splitlines()[-1])
    if picture is not None:
        from jax_es.analysis import drawing, figures

        drawing.save(figures.scaling(report["simulated"]), picture, SCALING)
    return scaling.table(report)


def _profile(arguments: Arguments, folder: Path) -> None:
    from jax_es.benchmark import measure
    from jax_es.cli.train_program import start_jax

    start_jax()
    network = arguments.profile_network
    trace = measure.profile(folder, network, arguments.work)
    sys.stdout.write(
        f"Profile of one generation of {network}: {trace}\n"
        f"Perfetto: open {trace / 'perfetto_trace.json.gz'} at "
        "https://ui.perfetto.dev\n"
        f"TensorBoard: tensorboard --logdir {folder} (with "
        "tensorboard-plugin-profile)\n"
    )
