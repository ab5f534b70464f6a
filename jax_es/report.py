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

from jax_es import aggregate, figures
from jax_es.command_line import input_errors, parse_options, run_program
from jax_es.config import ConfigError, require
from jax_es.curves import (
    TABLE_HEADS,
    Lines,
    Run,
    axes,
    read_runs,
    sorted_into_panels,
)
from jax_es.curves import table_rows as summary_rows
from jax_es.experiment import differing
from jax_es.methods import Method
from jax_es.outputs import whole_file
from jax_es.page import (
    MEDIA_TYPES,
    Markup,
    document,
    element,
    film,
    inline_svg,
    is_nested,
    joined,
    json_values,
    shown,
    table,
)
from jax_es.reproduce import command, origin
from jax_es.run_directory import find_run


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
    def title(self) -> str:
        """Names it on the page."""
        return f"{self.variant} on {self.task}"

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
        arguments = parse_options(Arguments, argv, prog="python -m jax_es.report")
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
        require(is_nested(values), "it holds no results")
        return values
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--evaluation {file} cannot be read ({error}); give a file that "
            "python -m jax_es.evaluate RUN --json printed."
        ) from error


def _check_video(file: Path) -> None:
    require(
        file.suffix.lower() in MEDIA_TYPES,
        f"--video must end in {', '.join(MEDIA_TYPES)}, got {file}.",
    )
    require(
        file.is_file(),
        f"--video {file} does not exist; make one with python -m jax_es.evaluate RUN "
        "--video FILE.",
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
    runs = read_runs(paths)
    panels = sorted_into_panels(runs)
    groups = [
        Group(task, kind, [r for r in runs if (r.task, r.variant) == (task, kind)])
        for task, lines in panels.items()
        for kind in sorted(lines)
    ]
    title = _title(paths, groups)
    return document(
        title,
        element("h1", title),
        element("h2", "Results"),
        table(TABLE_HEADS, summary_rows(panels)),
        _note(
            "Mean return of θ's evaluation episodes, the first time, the last time and "
            "at best: median over the seeds, lowest to highest "
            "in brackets."
        ),
        element("h2", "Configuration"),
        _comparison(groups) if len(groups) > 1 else "",
        *(_configuration(group) for group in groups),
        element("h2", "Curves"),
        _curves(runs),
        element("h2", "Evaluation"),
        _evaluations(groups),
        *(
            joined([element("h3", name), json_values(values)])
            for name, values in (evaluations or {}).items()
        ),
        _videos([*videos, *_newest_videos(runs)]),
        element("h2", "Versions and machine"),
        *(_surroundings(group) for group in groups),
        element("h2", "Reproduce"),
        *(_reproduction(group) for group in groups),
    )


def _title(paths: tuple[Path, ...], groups: list[Group]) -> str:
    if len(paths) == 1:
        return f"{paths[0].resolve().name}: {'; '.join(g.title for g in groups)}"
    num_runs = sum(len(group.runs) for group in groups)
    return f"{num_runs} runs of {', '.join(dict.fromkeys(g.task for g in groups))}"


def _note(text: str) -> Markup:
    return element("p", text, class_="note")


def _comparison(groups: list[Group]) -> Markup:
    """Shows the fields in which the variants differ."""
    told = [group.values for group in groups]
    found = [differing(told[0], values) for values in told]
    fields = dict.fromkeys(f for d in found for f in d if f != "seed")
    rows = [
        [group.title, *(shown(values.get(f, "")) for f in fields)]
        for group, values in zip(groups, told, strict=True)
    ]
    return joined(
        [element("h3", "What differs between them"), table(["", *fields], rows)]
    )


def _configuration(group: Group) -> Markup:
    """Shows what was changed of the preset, then everything."""
    run, record = group.runs[0], _record(group.runs[0])
    start = origin(run.config, record["preset"], run.method)
    changes = {f: v for f, v in start.changes.items() if f != "seed"}
    reads = run.method.reads
    base = f"preset {start.preset}"
    if start.kind is not None:
        base += f" with --policy {start.kind}"
    if start.preset != record["preset"]:
        base = f"the nearest preset, {start.preset}"
    return joined(
        [
            element("h3", group.title),
            "" if run.method.is_evolution else _method(run.method),
            _beginning(record["init"]) if "init" in record else "",
            element("p", f"What differs from {base}:" if changes else f"As {base}."),
            table(
                ["field", "preset", "here"],
                [[field, *map(shown, values)] for field, values in changes.items()],
            )
            if changes
            else "",
            element(
                "details",
                element("summary", "The whole configuration"),
                json_values({k: v for k, v in record["config"].items() if reads(k)}),
            ),
        ]
    )


def _method(method: Method) -> Markup:
    """Shows what trained a run, if it was not OpenAI-ES."""
    settings = [[name, shown(value)] for name, value in method.settings.items()]
    return joined(
        [
            element("p", f"Trained by {method.title}:"),
            table(["setting", ""], settings),
        ]
    )


def _beginning(source: dict[str, Any]) -> Markup:
    """Says with whose θ a run began."""
    return element(
        "p",
        f"Began with θ of {source['run']}, checkpoint {source['checkpoint']}, trained "
        f"by {Method(*source['method']).title}.",
    )


def _record(run: Run) -> dict[str, Any]:
    return find_run(run.path).record()


def _curves(runs: list[Run]) -> Markup:
    """Draws each panel by itself, so that they stand below each other on a phone."""
    panels = sorted_into_panels(runs)
    evolved = sorted_into_panels(run for run in runs if run.method.is_evolution)
    small: list[tuple[Any, str]] = []
    for task, lines in panels.items():
        here = {task: lines}
        small += [
            (figures.learning(here, (x,)), f"Evaluation return on {task} against {x}")
            for x in axes(run for run in runs if run.task == task)
        ]
        small += _populations(task, evolved.get(task, {}))
    wide: list[tuple[Any, str]] = []
    if evolved:
        wide.append((figures.time(evolved), "Where the wall-clock time went"))
    caption = (
        "Lines are medians over the seeds and bands their quartiles, as far as all "
        "seeds reach; the hatched band holds 95 % of the population's members. The "
        "first generation compiles its programs."
    )
    if aggregate.is_comparable(panels):
        wide.append((figures.aggregated(panels, ("env-steps",)), "All tasks together"))
        caption += (
            " IQM: interquartile mean of scores between the initial network (0) and "
            "the best evaluation (1), with a 95 % bootstrap interval over the seeds."
        )
    pictures = [
        element("figure", inline_svg(_svg(figure), f"f{index}", label))
        for index, (figure, label) in enumerate([*small, *wide])
    ]
    return joined(
        [
            element("div", *pictures[: len(small)], class_="figures"),
            *(element("div", p, class_="wide") for p in pictures[len(small) :]),
            _note(caption),
        ]
    )


def _populations(task: str, lines: Lines) -> list[tuple[Any, str]]:
    """Draws what only OpenAI-ES has."""
    if not lines:
        return []
    drawn = [
        (
            figures.population({task: {kind: lines[kind]}}),
            f"Returns of the population of {kind} on {task}",
        )
        for kind in sorted(lines)
    ]
    iteration = figures.iteration({task: lines})
    return [*drawn, (iteration, f"Wall-clock time of a generation on {task}")]


def _svg(figure: Any) -> str:
    file = io.StringIO()
    with figures.style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _evaluations(groups: list[Group]) -> Markup:
    """Shows each seed's evaluations in training."""
    heads = ["", "seed", "evaluations", "first", "last", "its range", "best"]
    rows = []
    for group in groups:
        for run in sorted(group.runs, key=lambda run: run.config.seed):
            last = run.records[-1]
            rows.append(
                [
                    group.title,
                    run.config.seed,
                    last.generation + 1,
                    f"{run.records[0].evaluation_return_mean:.1f}",
                    f"{last.evaluation_return_mean:.1f} ± "
                    f"{last.evaluation_return_std:.1f}",
                    f"{last.evaluation_return_min:.1f} to "
                    f"{last.evaluation_return_max:.1f}",
                    f"{last.best_evaluation_return:.1f}",
                ]
            )
    return joined(
        [
            table(heads, rows),
            _note(
                "Returns of the evaluation's episodes in training: their mean the "
                "first and the last time, ± their standard deviation, lowest to "
                "highest; the best mean of any time."
            ),
        ]
    )


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


def _videos(files: list[Path]) -> Markup:
    if not files:
        return Markup()
    shown = [
        element("figure", film(file), element("figcaption", str(file)))
        for file in dict.fromkeys(files)
    ]
    return joined([element("h2", "Video"), element("div", *shown, class_="figures")])


def _surroundings(group: Group) -> Markup:
    """Shows versions, commit and machine of a group's first run."""
    record = _record(group.runs[0])
    rows = [
        ["begun", record.get("created")],
        ["commit", record.get("git_commit")],
        *record.get("machine", {}).items(),
        *record.get("versions", {}).items(),
    ]
    listed = [[name, shown(value)] for name, value in rows if value is not None]
    return element(
        "details",
        element("summary", group.title),
        table(["", ""], listed),
        open=True,
    )


def _reproduction(group: Group) -> Markup:
    """Shows the commands; ``+`` after a commit says that its files were changed."""
    runs = sorted(group.runs, key=lambda run: run.config.seed)
    seeds = [run.config.seed for run in runs]
    configs = {run.config.seed: run.config for run in runs}
    preset = _record(runs[0])["preset"]
    method = runs[0].method
    same = all(
        {*differing(group.values, method.values(run.config))} <= {"seed"}
        for run in runs
    )
    in_a_row = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    if same and in_a_row and method.is_evolution:
        commands = [command(configs[seeds[0]], preset, len(seeds))]
    else:
        commands = [command(configs[s], preset, method=method) for s in seeds]
    commit = _record(runs[0]).get("git_commit")
    if commit:
        changed = "  # and changes that were not committed" if commit[-1] == "+" else ""
        commands.insert(0, f"git checkout {commit.rstrip('+')}{changed}")
    return joined([element("h3", group.title), element("pre", "\n".join(commands))])


if __name__ == "__main__":
    sys.exit(main())
