"""An HTML page about runs that needs nothing but itself, from ``page.html``."""

import base64
import io
import itertools
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jax_es.analysis import aggregate, archives, drawing, figures, niches
from jax_es.analysis.curves import (
    Lines,
    Panels,
    Run,
    has_fitness,
    sorted_into_panels,
    summary,
    table_heads,
)
from jax_es.checks import check_types, optional
from jax_es.presets import meant_by
from jax_es.runs.changes import SAME_EXPERIMENT
from jax_es.runs.find import find_run
from jax_es.runs.method import MAP_ELITES, POET, Method
from jax_es.runs.reproduce import command, origin
from jax_es.runs.wording import significant
from jax_es.train_config import differing, flat, flatten

TEMPLATE = Path(__file__).with_name("page.html")

MEDIA_TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}

FILLED_IN = ("seed", "rollout.num_devices")
"""Fields that a program fills in, and that are no change of a preset."""


def page(
    title: str,
    runs: Sequence[Run],
    evaluations: dict[str, Any] | None = None,
    videos: Iterable[Path] = (),
) -> str:
    """Returns the page.

    Args:
        title: its heading.
        runs: what it is about.
        evaluations: what ``evaluate --json`` said, by the name to show it under.
        videos: files to show.

    Raises:
        ConfigError: if Jinja2 is not installed.
    """
    panels = sorted_into_panels(runs)
    evolved = sorted_into_panels(run for run in runs if run.method.is_evolution)
    with_fitness = any(has_fitness(run.records) for run in runs)
    tasks = {
        task: [
            Variant(
                kind,
                [r for r in runs if (r.task, r.variant) == (task, kind)],
                with_fitness,
            )
            for kind in sorted(lines)
        ]
        for task, lines in panels.items()
    }
    together = time = None
    if aggregate.is_comparable(panels):
        figure = figures.aggregated(panels, ("env-steps",))
        together = _picture(figure, "All tasks together")
    if evolved:
        time = _picture(figures.time(evolved), "Where the time went")
    return render(
        title=title,
        heads=table_heads(with_fitness)[1:],
        tasks=tasks,
        pictures={
            task: _pictures(
                *(task, panels[task], evolved),
                [run for run in runs if run.task == task],
            )
            for task in tasks
        },
        differences={task: _differences(variants) for task, variants in tasks.items()},
        together=together,
        time=time,
        evaluations=evaluations or {},
        obedience=_obedience((evaluations or {}).values()),
        videos={str(file): data_url(file) for file in videos},
    )


def render(**content: Any) -> str:
    """Fills ``page.html`` in, which escapes all text."""
    with optional("reports need Jinja2", "plot"):
        import jinja2
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "shown": shown,
        "significant": significant,
        "as_table": _as_table,
    }
    environment.tests |= {"nested": is_nested, "plain_records": _is_table}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(Method=Method, **content)


class Variant:
    """What the page says of the seeds of one variant on one task."""

    def __init__(
        self, name: str, runs: Iterable[Run], with_fitness: bool = False
    ) -> None:
        self.name = name
        self.runs = sorted(runs, key=lambda run: run.config.seed)
        first = self.first = self.runs[0]
        self.summary = summary([run.records for run in self.runs], with_fitness)
        last = [run.records[-1].evaluation_return_mean for run in self.runs]
        self.last = statistics.median(last)
        self.record = find_run(first.path).record()
        self.values = first.method.values(first.config)
        # What the method reads of the configuration, and what the user changed of the
        # preset; no user chose fields that are newer than the run.
        stored = self.record["config"]
        self.config = {k: v for k, v in stored.items() if first.method.reads(k)}
        self.newer = {*flat(first.config)} - {*flatten(stored)}
        self.origin = origin(first.config, self.record["preset"], first.method)
        unchosen = {*FILLED_IN, *self.newer}
        changes = self.origin.changes.items()
        self.changes = {f: v for f, v in changes if f not in unchosen}

    @property
    def was_renamed(self) -> bool:
        """Whether the preset had another name when the run began."""
        recorded, today = self.record["preset"], self.origin.preset
        return today != recorded and today in meant_by(recorded)

    @property
    def commands(self) -> list[str]:
        """What trains it again, at the commit that trained it."""
        preset, method = self.record["preset"], self.first.method
        seeds = [run.config.seed for run in self.runs]
        is_experiment = (
            method.has_seeds
            and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
            and all(
                {*differing(self.values, method.values(run.config))} <= {"seed"}
                for run in self.runs
            )
        )
        left_out = {*self.newer, "rollout.num_devices"}  # the program fills these in
        commands = [
            command(run.config, preset, 1, left_out, method) for run in self.runs
        ]
        if is_experiment:
            config, count = self.first.config, len(seeds)
            commands = [command(config, preset, count, left_out, method)]
        # Somebody else's record may say anything, and this line is pasted.
        recorded = self.record.get("git_commit") or ""
        if commit := re.fullmatch(r"([0-9a-f]{7,64})(\+?)", recorded):
            note = "  # and changes that were not committed" if commit[2] else ""
            start = f"git checkout {commit[1]}{note}"
            if self.was_renamed:  # that commit does not know today's name
                start = f"# trained as preset {preset} at commit {commit[1]}{note}"
            commands.insert(0, start)
        return commands


def _differences(variants: Sequence[Variant]) -> list[list[object]]:
    """Lists the fields that all variants of a task have, and not all alike."""
    first, *others = decided = [variant.values for variant in variants]
    return [
        [field, *(values[field] for values in decided)]
        for field in first
        if field not in SAME_EXPERIMENT
        and all(field in values for values in others)
        and any(values[field] != first[field] for values in others)
    ]


def _pictures(
    task: str, lines: Lines, evolved: Panels, runs: Sequence[Run]
) -> list[dict[str, str]]:
    """Draws a task's panels one by one, so that they stand in a column on a phone."""
    # Of a single variant, the curve against time says what that against steps does.
    xs = ("env-steps", "seconds") if len(lines) > 1 else ("env-steps",)
    drawn = {
        f"Evaluation return on {task}, {x}": figures.learning({task: lines}, (x,))
        for x in xs
    }
    rated = {kind: each for kind, each in lines.items() if all(map(has_fitness, each))}
    if rated:
        label = f"Evaluation fitness on {task}"
        drawn[label] = figures.learning({task: rated}, ("env-steps",), "fitness")
    for kind, records in sorted(evolved.get(task, {}).items()):
        label = f"Returns of the population of {kind} on {task}"
        drawn[label] = figures.population({task: {kind: records}})
    if task in evolved:
        label = f"Wall-clock time of a generation on {task}"
        drawn[label] = figures.iteration({task: evolved[task]})
    if filled := [run for run in runs if run.method.name == MAP_ELITES]:
        growth = archives.growth(sorted_into_panels(filled))
        drawn[f"Growth of the archives on {task}"] = growth
        drawn[f"Elites on {task}"] = archives.elites(archives.by_title(filled))
    if grown := [run for run in runs if run.method.name == POET]:
        created = niches.annecs(sorted_into_panels(grown))
        drawn[f"Terrains created and solved on {task}"] = created
        read = [niches.read_niches(run) for run in grown]
        drawn[f"Niches on {task}"] = niches.tree(read)
    return [_picture(figure, label) for label, figure in drawn.items()]


def _obedience(evaluations: Iterable[Any]) -> list[dict[str, str]]:
    """Draws the runs that were asked for several returns, a picture an environment."""
    asked: dict[str, list[Any]] = {}
    for run in itertools.chain.from_iterable(map(obedience_runs, evaluations)):
        asked.setdefault(run["env_id"], []).append(run)
    title = "Returns against those asked for on"
    return [
        _picture(figures.obedience(runs), f"{title} {env_id}")
        for env_id, runs in asked.items()
    ]


def obedience_runs(evaluation: Any) -> list[dict[str, Any]]:
    """Returns the runs that ``evaluate --json`` says were asked for several returns.

    Raises:
        TypeError: they lack what is drawn of them.
    """
    parts = check_types(evaluation).get("experiments", ())
    runs = [run for part in parts for run in check_types(part).get("runs", ())]
    found = [run for run in runs or [evaluation] if "obedience" in check_types(run)]
    for run in found:
        check_types(run, run=str, env_id=str, conditions=list)
        for row in run["conditions"]:
            check_types(row, target_return=float | None)
            if "return_mean" in row:  # of episodes with finite returns
                check_types(row, return_mean=float, return_std=float)
    return found


def _picture(figure: Any, label: str) -> dict[str, str]:
    """Returns a figure as an address that holds it, and what it shows."""
    file = io.BytesIO()
    with drawing.style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode()
    return {"label": label, "source": f"data:image/svg+xml;base64,{data}"}


def data_url(file: Path) -> str:
    """Returns a video, or a moving picture, as an address that holds it."""
    data = base64.b64encode(file.read_bytes()).decode()
    return f"data:{MEDIA_TYPES[file.suffix.lower()]};base64,{data}"


def _as_table(records: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Returns heads and rows of plain records, without columns that are all empty."""
    heads = dict.fromkeys(name for record in records for name in record)
    kept = [h for h in heads if any(r.get(h) is not None for r in records)]
    return kept, [[record.get(head) for head in kept] for record in records]


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and not any(
        is_nested(cell) for row in value for cell in row.values()
    )


def is_nested(value: Any) -> bool:
    """Returns whether a JSON value is an object or a list of objects."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict)


def shown(value: Any) -> str:
    """Returns a JSON value as people read it."""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return str(value)
