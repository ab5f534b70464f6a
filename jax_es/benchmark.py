"""Measures how fast this machine trains: ``python -m jax_es.benchmark``.

Every row is a number of environment steps/s, and its ratio to what physics alone
reaches in the same minutes (``envs/physics.py``), in one of two regimes: ``trained``
(nothing but a limit, drawn from 20 to 1000 steps, ends an episode) or ``untrained``
(a body falls after some twenty steps). Networks that play a game are compared with
``physics/atari``, ale-py's own vector environment (``envs/emulation.py``); their
episodes end when the game is over. Networks are fresh ones; their actions are
computed, and the bodies moved by the random actions of ``physics``, so that both
simulate the same (but for the condition ``own-actions``, which shows what that leaves
out). θ's own evaluation is left out.

- ``physics``: the limit, and Gymnasium's vector environments beside it.
- ``policy``: inference alone.
- ``rollout``, ``generation``: some seconds at steady state, as in the midst of a large
  population; the first without the update. Where the time went is shown in shares.
- ``update``: noise + update, as the steps/s of the episodes that its pairs would run.

Of the conditions, ``whole`` is a generation of four tasks a slot, from the first to the
last, its tail included; ``full-length`` the same with a task a slot, each of 1000
steps; ``1-device`` has one XLA device with its slots, and physics on all cores. These
compare with the regime ``trained``. ``own-actions``, ``1-core`` (one core's slots,
beside physics on all cores) and ``1x-pairs`` to ``16x-pairs`` (whole generations of
episodes of five steps) belong to ``untrained``.
Whole generations have fewer slots, see the table, but for ``--full``.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_es.benchmarks.rows import (
    NETWORKS,
    NORMALS,
    PAIRS_FACTORS,
    PHYSICS_ROWS,
    REGIMES,
    Case,
    Setting,
    Work,
    all_rows,
    choose,
    default_rows,
    parse,
    work_of,
)
from jax_es.cli.options import input_errors, parse_options, run_program
from jax_es.config import ConfigError, require
from jax_es.runs.directory import git_commit, machine, versions
from jax_es.runs.outputs import check_writable, whole_file

if TYPE_CHECKING:
    from jax_es.benchmarks.cases import Measured, Measurements


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Measures how fast this machine trains, beside the speed of physics alone.

    The default form takes about six minutes on two cores.
    """

    only: tuple[str, ...] = ()
    """Rows to measure: names, or patterns such as 'policy/*'."""
    list: bool = False
    """List the rows, those of the default form with a star, and measure nothing."""
    full: bool = False
    """The long form: every row, whole generations of 512 pairs with all slots, updates
    of 20 000 (hours)."""
    json: Path | None = None
    """Also write the rows into this file, with versions and machine."""
    profile: Path | None = None
    """Measure nothing; write a profile of one generation into this folder."""
    profile_network: str = "humanoid-dt-fast"
    """Whose generation is profiled."""
    num_slots: int | None = None
    """Slots of every row, instead of each network's own."""
    num_groups: int | None = None
    """Slot groups of every row at most, instead of what training chooses: with two,
    policies and physics overlap."""
    num_pairs: int | None = None
    """Pairs of the rows 'whole', instead of two a slot (--full: at least 512)."""
    update_pairs: int | None = None
    """Pairs of every update, instead of each network's own."""
    seconds: float = 1.0
    """How long to measure physics and policies, at least; slices take four times as
    long."""

    def work(self, network: str, setting: Setting = "usual") -> Work:
        """Returns how much work a process' rows are."""
        from jax_es.rollout.devices import available_cores

        return work_of(
            network,
            setting,
            available_cores(),
            self.full,
            self.num_slots,
            self.num_pairs,
            self.update_pairs,
            self.seconds,
            self.num_groups,
        )


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with input_errors():
        arguments = parse_options(Arguments, argv, "benchmark")
        _check(arguments)
        names = _names(arguments)
    if arguments.list:
        sys.stdout.write(_listing())
        return 0
    if arguments.profile is not None:
        return _profile(arguments, arguments.profile)
    started = time.perf_counter()
    measurements, failures = run(plan(names, arguments))
    devices = [m.devices for m in measurements if m.devices is not None]
    about = {
        "versions": {**versions(), "commit": git_commit()},
        "machine": {**machine(), "devices": devices[0] if devices else None},
        "seconds": time.perf_counter() - started,
    }
    rows = finish(names, measurements)
    sys.stdout.write(table(rows, about))
    if arguments.json is not None:
        with whole_file(arguments.json) as draft:
            draft.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    for failure in failures:
        sys.stderr.write(f"error: {failure}\n")
    return 1 if failures else 0


def _check(arguments: Arguments) -> None:
    """Raises for what cannot work, results that could not be written among it.

    Raises:
        ConfigError: naming the option.
    """
    least_values = {"num_slots": 4, "num_groups": 1, "num_pairs": 2, "update_pairs": 2}
    for name, least in least_values.items():
        value = getattr(arguments, name)
        require(
            value is None or value >= least,
            f"--{name.replace('_', '-')} must be at least {least}, got {value}.",
        )
    require(
        0 < arguments.seconds < float("inf"),
        f"--seconds must be positive and finite, got {arguments.seconds}.",
    )
    network = arguments.profile_network
    require(
        network in NETWORKS,
        f"--profile-network must be one of {', '.join(NETWORKS)}, got {network!r}.",
    )
    check_writable("--json", arguments.json)
    try:
        if arguments.profile is not None:
            arguments.profile.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{error.filename} cannot be written ({error.strerror}); choose another "
            "--profile."
        ) from error


def _names(arguments: Arguments) -> list[str]:
    """Returns the names of the rows to measure."""
    if arguments.only:
        return choose(arguments.only)
    return all_rows() if arguments.full else default_rows()


def plan(names: list[str], arguments: Arguments) -> list[Case]:
    """Sorts rows into the processes that measure them, physics first."""
    # What rows are compared with is measured, whether it is asked for or not.
    regimes = {parse(name).regime for name in names}
    physics = [PHYSICS_ROWS[r] for r in REGIMES if r in regimes]
    groups: dict[tuple[str, Setting], list[str]] = {("", "usual"): physics}
    for name in names:
        row = parse(name)
        group = groups.setdefault((row.network, row.setting), [])
        if name not in group:
            group.append(name)
    return [
        Case(network, setting, tuple(rows), arguments.work(network, setting))
        for (network, setting), rows in groups.items()
    ]


def run(cases: list[Case]) -> tuple[list[Measurements], list[str]]:
    """Measures the cases one after the other, each in a process of its own.

    Returns:
        The measurements, and a line for each case without any.
    """
    from jax_es.benchmarks import cases as worker
    from jax_es.benchmarks.cases import Measurements

    measurements, failures = [], []
    for number, case in enumerate(cases, 1):
        title = case.network or "physics"
        if case.setting != "usual":
            title += f", {case.setting}"
        sys.stderr.write(f"measuring {number} of {len(cases)}: {title}\n")
        process = subprocess.run(
            [sys.executable, "-m", worker.__name__, json.dumps(case.to_json())],
            capture_output=True,
            text=True,
        )
        if process.returncode == 0:
            last_line = process.stdout.splitlines()[-1]
            measurements.append(Measurements(**json.loads(last_line)))
        else:
            why = (process.stderr.splitlines() or ["no message"])[-1]
            failures.append(f"{title} ended with {process.returncode}: {why}")
    return measurements, failures


def finish(names: list[str], measurements: list[Measurements]) -> list[dict[str, Any]]:
    """Puts the rows in order and beside their yardsticks, physics and normals.

    A row is compared with the physics that was measured before and after it, in its own
    process; others with the median of all such samples, which is the row ``physics``.
    """
    measured = {name: row for m in measurements for name, row in m.rows.items()}
    for regime, name in PHYSICS_ROWS.items():
        samples = [s for m in measurements for s in m.physics.get(regime, [])]
        if samples:
            speed = statistics.median(samples)
            measured[name] = {"steps_per_second": speed, "samples": samples}
    order = [name for name in all_rows() if name in {*names, *PHYSICS_ROWS.values()}]
    return [_finish_row(name, measured) for name in order if name in measured]


def _finish_row(name: str, measured: dict[str, Measured]) -> dict[str, Any]:
    """Returns a row with its name and its ratios."""
    row = measured[name]
    speed = row["steps_per_second"]
    finished = {"name": name, "steps_per_second": speed}
    median = measured.get(PHYSICS_ROWS[parse(name).regime], {}).get("steps_per_second")
    physics = row.get("physics_steps_per_second", median)
    if physics is not None:
        finished["ratio_to_physics"] = speed / physics
    if "normals_per_second" in row and NORMALS in measured:
        normals = measured[NORMALS]["normals_per_second"]
        finished["seconds_to_normals"] = normals / row["normals_per_second"]
    return {**finished, **row}


COLUMNS: dict[str, tuple[str, str]] = {
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


def table(rows: list[dict[str, Any]], about: dict[str, Any]) -> str:
    """Returns the table for a terminal."""
    cells = [[*COLUMNS, ""]]
    for row in rows:
        line = [
            format(row[field], spec) if field in row else ""
            for field, spec in COLUMNS.values()
        ]
        cells.append([*line, _remark(row)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers, remark in cells:
        padded = [
            number.rjust(width)
            for number, width in zip(numbers, widths[1:-1], strict=True)
        ]
        lines.append("  ".join([name.ljust(widths[0]), *padded, remark]).rstrip())
    on, using = about["machine"], about["versions"]
    lines.append(
        f"{on['processor']}, {on['cores']} cores, JAX devices: {on['devices']}; "
        f"MuJoCo {using['mujoco']}, JAX {using['jax']}; {about['seconds']:.0f} s."
    )
    return "\n".join(lines) + "\n"


def _remark(row: dict[str, Any]) -> str:
    """Says what has no column: where the time went, and what an update compares to."""
    parts = [f"{name} {share:.0%}" for name, share in row.get("shares", {}).items()]
    if parse(row["name"]).condition in PAIRS_FACTORS:
        parts.append(f"{500 * row['seconds'] / row['num_pairs']:.2f} ms a task")
    if row.get("seconds_to_normals", 1.0) != 1.0:
        parts.append(f"{row['seconds_to_normals']:.2f} × the time of its normals")
    return ", ".join(parts)


def _listing() -> str:
    """Lists the rows, those of the default form with a star."""
    default = set(default_rows())
    return "".join(f"{'*' if n in default else ' '} {n}\n" for n in all_rows())


def _profile(arguments: Arguments, directory: Path) -> int:
    """Writes a profile and says where it is."""
    from jax_es.benchmarks import cases as worker
    from jax_es.rollout.devices import configure_cpu_devices, use_compilation_cache

    configure_cpu_devices()
    use_compilation_cache()
    network = arguments.profile_network
    folder = worker.profile(directory, network, arguments.work(network))
    sys.stdout.write(
        f"Profile of one generation of {network}: {folder}\n"
        f"Perfetto: open {folder / 'perfetto_trace.json.gz'} at "
        "https://ui.perfetto.dev\n"
        f"TensorBoard: tensorboard --logdir {directory} (with "
        "tensorboard-plugin-profile)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
