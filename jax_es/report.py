"""One page about runs: ``python -m jax_es.report PATH [PATH …] --output report.html``.

Configuration, curves, evaluation, video, versions and the command that makes it anew,
in one file that needs nothing else: it can be mailed, archived, read on a phone.
"""

import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from jax_es.analysis.curves import (
    SAME_VARIANT,
    TABLE_HEADS,
    Lines,
    Run,
    read_runs,
    sorted_into_panels,
    summary,
)
from jax_es.analysis.page import (
    MEDIA_TYPES,
    data_url,
    inline_svg,
    is_nested,
    render,
    shown,
)
from jax_es.cli.options import input_errors, parse_options, run_program
from jax_es.config import ConfigError, require
from jax_es.runs.directory import find_run, program_command
from jax_es.runs.method import Method
from jax_es.runs.outputs import whole_file
from jax_es.runs.reproduce import command, origin
from jax_es.train_config import differing, flat, flatten

SEED_HEADS = ["seed", "evaluations", "first", "last ± std", "its range", "best"]

FILLED_IN = ("seed", "rollout.num_devices")
"""Fields that a program fills in, and that are no change of a preset."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Writes one self-contained HTML page about runs or experiments."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs or of experiments; several are compared."""
    output: Path | None = None
    """The page (.html); report.html in the run's folder if not given, or here for
    several."""
    evaluation: tuple[Path, ...] = ()
    """Files that evaluate --json printed, to be shown as tables."""
    video: tuple[Path, ...] = ()
    """Videos (.mp4, .webm, .gif) to show besides the newest in each run's videos/."""


class Group(NamedTuple):
    """The seeds of one variant on one task."""

    task: str
    variant: str
    runs: list[Run]

    @property
    def record(self) -> dict[str, Any]:
        """What its first run recorded when it began."""
        return find_run(self.runs[0].path).record()

    @property
    def values(self) -> dict[str, object]:
        """What decided its first run, by name."""
        run = self.runs[0]
        return run.method.values(run.config)


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with input_errors():
        arguments = parse_options(Arguments, argv, "report")
        if not arguments.runs:
            raise ConfigError(
                "RUN is missing; give at least one folder of a run or an experiment."
            )
        output = _output(arguments)
        require(
            output.suffix in (".html", ".htm"),
            f"--output must end in .html, got {output}.",
        )
        evaluations = {str(file): _read_json(file) for file in arguments.evaluation}
        for file in arguments.video:
            _check_video(file)
        page = report(arguments.runs, evaluations, arguments.video)
        try:
            with whole_file(output) as draft:
                draft.write_text(page, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{output} cannot be written ({error.strerror}); choose another "
                "--output."
            ) from error
    sys.stderr.write(f"{output}\n")
    return 0


def _output(arguments: Arguments) -> Path:
    if arguments.output is not None:
        return arguments.output
    here = arguments.runs[0] if len(arguments.runs) == 1 else Path()
    return here / "report.html"


def _read_json(file: Path) -> Any:
    try:
        values = json.loads(file.read_text())
        is_evaluation = isinstance(values, dict) and (
            {"run", "episodes"} <= {*values} or is_nested(values.get("experiments"))
        )
        require(is_evaluation, "it holds no results")
        return values
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"--evaluation {file} cannot be read ({error}); give a file that "
            f"{program_command('evaluate')} RUN --json printed."
        ) from error


def _check_video(file: Path) -> None:
    require(
        file.suffix.lower() in MEDIA_TYPES,
        f"--video must end in {', '.join(MEDIA_TYPES)}, got {file}.",
    )
    require(
        file.is_file(),
        f"--video {file} does not exist; make one with {program_command('evaluate')} "
        "RUN --video FILE.",
    )


def report(
    paths: tuple[Path, ...],
    evaluations: dict[str, Any] | None = None,
    videos: tuple[Path, ...] = (),
) -> str:
    """Returns the page.

    Args:
        paths: folders of runs or experiments.
        evaluations: what ``evaluate --json`` said, by the name to show it under.
        videos: to show besides those of the runs.

    Raises:
        ValueError: for a folder that is neither a run nor an experiment, or without a
            finished generation.
    """
    from jax_es.analysis import aggregate, figures

    runs = read_runs(paths)
    panels = sorted_into_panels(runs)
    evolved = sorted_into_panels(run for run in runs if run.method.is_evolution)
    tasks = []
    for task, lines in panels.items():
        groups = [
            Group(task, kind, [r for r in runs if (r.task, r.variant) == (task, kind)])
            for kind in sorted(lines)
        ]
        numbers = [
            [g.variant, str(len(g.runs)), *summary([r.records for r in g.runs])]
            for g in groups
        ]
        variants = [*map(_variant, groups, numbers)]
        tasks.append(
            {
                "name": task,
                "heads": TABLE_HEADS[1:],
                "rows": numbers,
                "pictures": _pictures(task, lines, evolved.get(task, {})),
                "differences": _differences(groups),
                "variants": variants,
                "best": max(variants, key=lambda variant: float(variant["number"])),
            }
        )
    together = time = ""
    if aggregate.is_comparable(panels):
        figure = figures.aggregated(panels, ("env-steps",))
        together = _svg(figure, "All tasks together")
    if evolved:
        time = _svg(figures.time(evolved), "Where the wall-clock time went")
    return render(
        title=_title(paths, tasks, len(runs)),
        tasks=tasks,
        together=together,
        time=time,
        evaluations=evaluations or {},
        videos=[
            (str(file), data_url(file))
            for file in dict.fromkeys([*videos, *_newest_videos(runs)])
        ],
    )


def _title(paths: tuple[Path, ...], tasks: list[dict[str, Any]], num_runs: int) -> str:
    if len(paths) == 1:
        told = [f"{v['name']} on {t['name']}" for t in tasks for v in t["variants"]]
        return f"{paths[0].resolve().name}: {'; '.join(told)}"
    return f"{num_runs} runs of {'; '.join(task['name'] for task in tasks)}"


def _pictures(task: str, lines: Lines, evolved: Lines) -> list[str]:
    """Draws a task's panels one by one, so that they stand in a column on a phone."""
    from jax_es.analysis import figures

    # Of a single variant, the curve against time says what that against steps does.
    xs = ("env-steps", "seconds") if len(lines) > 1 else ("env-steps",)
    drawn = [
        (figures.learning({task: lines}, (x,)), f"Evaluation return on {task}, {x}")
        for x in xs
    ]
    drawn += [
        (
            figures.population({task: {kind: evolved[kind]}}),
            f"Returns of the population of {kind} on {task}",
        )
        for kind in sorted(evolved)
    ]
    if evolved:
        label = f"Wall-clock time of a generation on {task}"
        drawn.append((figures.iteration({task: evolved}), label))
    return [_svg(figure, label) for figure, label in drawn]


def _svg(figure: Any, label: str) -> str:
    from jax_es.analysis import figures

    file = io.StringIO()
    with figures.style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    return inline_svg(file.getvalue(), label)


def _differences(groups: list[Group]) -> list[list[str]]:
    """Lists the fields that all variants of a task have, and not all alike."""
    told = [group.values for group in groups]
    return [
        [field, *(shown(values[field]) for values in told)]
        for field in told[0]
        if field not in SAME_VARIANT
        and all(field in values for values in told)
        and any(values[field] != told[0][field] for values in told)
    ]


def _variant(group: Group, row: list[str]) -> dict[str, Any]:
    """Returns what the page says of a task's variant; ``row`` is from the table."""
    record, reads = group.record, group.runs[0].method.reads
    number, _, spread = row[TABLE_HEADS.index("last") - 1].partition(" ")
    surroundings = {
        "begun": record.get("created"),
        "commit": record.get("git_commit"),
        **record.get("machine", {}),
        **record.get("versions", {}),
    }
    seeds = sorted(group.runs, key=lambda run: run.config.seed)
    return {
        "name": group.variant,
        "number": number,
        "spread": spread,
        "told": _told(group),
        "commands": _commands(group, seeds),
        "seed_heads": SEED_HEADS,
        "seeds": [*map(_seed, seeds)],
        "config": {k: v for k, v in record["config"].items() if reads(k)},
        "surroundings": [[k, v] for k, v in surroundings.items() if v is not None],
    }


def _told(group: Group) -> list[str]:
    """Says what trained a variant, what it began with and what the user changed."""
    run, record, told = group.runs[0], group.record, []
    if not run.method.is_evolution:
        settings = [f"{name} {shown(v)}" for name, v in run.method.settings.items()]
        told.append(f"Trained by {run.method.title}: {', '.join(settings)}.")
    if "init" in record:
        source = record["init"]
        told.append(
            f"Began with θ of {source['run']}, checkpoint {source['checkpoint']}, "
            f"trained by {Method(*source['method']).title}."
        )
    start = origin(run.config, record["preset"], run.method)
    base = f"Preset {start.preset}"
    if start.kind is not None:
        base += f" with --policy {start.kind}"
    if start.preset != record["preset"]:
        base = f"The nearest preset, {start.preset}"
    changes = [
        f"{field} {shown(before)} → {shown(here)}"
        for field, (before, here) in start.changes.items()
        if field not in (*FILLED_IN, *_newer(group))
    ]
    told.append(f"{base}, changed: {'; '.join(changes)}." if changes else f"{base}.")
    return told


def _newer(group: Group) -> set[str]:
    """Returns the fields that came after the run: nobody chose their values."""
    return {*flat(group.runs[0].config)} - {*flatten(group.record["config"])}


def _seed(run: Run) -> list[str]:
    """Returns a run's row under :data:`SEED_HEADS`."""
    first, last = run.records[0], run.records[-1]
    return [
        str(run.config.seed),
        str(last.generation + 1),
        f"{first.evaluation_return_mean:.1f}",
        f"{last.evaluation_return_mean:.1f} ± {last.evaluation_return_std:.1f}",
        f"{last.evaluation_return_min:.1f} to {last.evaluation_return_max:.1f}",
        f"{last.best_evaluation_return:.1f}",
    ]


def _newest_videos(runs: list[Run]) -> list[Path]:
    newest = []
    for run in runs:
        files = [
            file
            for file in (Path(run.path) / "videos").glob("*")
            if file.suffix.lower() in MEDIA_TYPES
        ]
        newest += sorted(files, key=lambda file: file.stat().st_mtime)[-1:]
    return newest


def _commands(group: Group, runs: list[Run]) -> list[str]:
    """Returns what trains a variant anew, at the commit that trained it."""
    seeds = [run.config.seed for run in runs]
    method, record = runs[0].method, group.record
    same = all(
        {*differing(group.values, method.values(run.config))} <= {"seed"}
        for run in runs
    )
    in_a_row = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    newer = _newer(group)
    if same and in_a_row and method.is_evolution:
        commands = [command(runs[0].config, record["preset"], len(seeds), newer)]
    else:
        commands = [
            command(run.config, record["preset"], 1, newer, method) for run in runs
        ]
    commit = record.get("git_commit")
    if commit:
        changed = "  # and changes that were not committed" if commit[-1] == "+" else ""
        commands.insert(0, f"git checkout {commit.rstrip('+')}{changed}")
    return commands


if __name__ == "__main__":
    sys.exit(main())
