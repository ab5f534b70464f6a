"""Writes the tables of the README and of ``docs/`` from the files beside this one.

``python results/tables.py`` writes what stands between ``<!-- results: NAME -->`` and
``<!-- end: NAME -->``; with ``--check`` it fails instead if something would change.
"""

import difflib
import functools
import itertools
import json
import math
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_es.analysis.curves import Run, read_runs, summary
from jax_es.envs.jax_packages import names_package
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.phases import in_phase
from jax_es.presets import DEFAULT_PRESET
from jax_es.runs.changes import ROUNDING_ALONE
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import CLONING
from jax_es.runs.reproduce import command
from jax_es.runs.wording import markdown, significant, spread
from jax_es.train_config import policy_kind

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent
MARKED = re.compile(
    r"(<!-- results: ([\w-]+) -->\n).*?(\n<!-- end: \2 -->)", flags=re.DOTALL
)

OMITTED_FIELDS = (
    *("seed", "checkpoint_every", "rollout.num_threads", "rollout.hide_constants"),
    *ROUNDING_ALONE,
)
"""What a row's command does not name: the seed is S, docs/results/index.md tells of
constants, and the rest is up to the machine."""

DEFAULTS = {
    **dict.fromkeys(("sac", "td3", "ppo"), TeacherSettings()),
    "cloning": CloningConfig(),
}
"""Settings of other methods; a row's command leaves out what is as here."""

NETWORKS = {
    "image-decision-transformer": "image Decision Transformer",
    "decision-transformer": "Decision Transformer",
    "cnn": "CNN",
    "lstm": "LSTM",
    "mlp": "MLP",
}
OBEDIENCE = {
    "spearman": "{:.2f}".format,
    "error_of_reached": "{:,.0%}".format,
    "error_of_asked": "{:.0%}".format,
    "slope": "{:.2f}".format,
    "reached_lowest": significant,
    "reached_highest": significant,
}
"""Measures of obedience in a row, and how they are written."""
GAMES = ("hero-dt", "hero-dt-fast", "atari-cnn")


class Row(NamedTuple):
    """The runs of one task and policy, one a seed."""

    task: str
    policy: str
    runs: list[Run]

    @property
    def start(self) -> list[str]:
        return [self.task, self.policy, seeds(self.runs)]

    @property
    def command(self) -> str:
        """What trains seed S; several runs one after the other have a script."""
        # Of several presets that were configured alike, the one with least to add.
        return min(map(self._command_of, self.runs), key=len)

    def _command_of(self, run: Run) -> str:
        if before(run):
            task, _, kind = Path(run.path).parent.name.partition("-")
            return f"bash results/{task}.sh {kind} S"
        default = DEFAULTS.get(run.method.name)
        as_default = [
            name
            for name, value in run.method.settings.items()
            if value == json.loads(json.dumps(getattr(default, name, None)))
        ]
        omitted = [*OMITTED_FIELDS, *as_default]
        words = command(
            run.config, record(run)["preset"], leave_out=omitted, method=run.method
        )
        return f"{words} --seed S"


def read_rows(folder: Path) -> list[Row]:
    """Reads the runs and experiments in a folder, by task, policy and budget."""

    def kind(run: Run) -> tuple[str, str, float]:
        budget = run.config.max_env_steps or math.inf
        return run.task.partition(" in coarse")[0], run.variant, budget

    paths = sorted(path for path in folder.iterdir() if path.is_dir())
    runs = sorted(read_runs(paths), key=lambda run: (*kind(run), run.config.seed))
    rows = [list(group) for _, group in itertools.groupby(runs, kind)]
    return [Row(kind(runs[0])[0], policy_name(runs[0]), runs) for runs in rows]


def policy_name(run: Run) -> str:
    """Names a policy with its sizes, and of its variant what is not the default."""
    kind = policy_kind(run.config.policy)
    name = NETWORKS.get(kind, kind)
    sizes = getattr(run.config.policy, "hidden_sizes", None)
    if sizes == ():
        name = "linear"
    elif sizes:
        alike = len({*sizes}) == 1
        shape = f"{len(sizes)}×{sizes[0]}" if alike else "-".join(map(str, sizes))
        name = f"{name} {shape}"
    variant = run.variant.partition(", phases ")[0]  # a number that says nothing
    variant = variant.rpartition(", after ")[0] if before(run) else variant
    return variant.replace(kind, name, 1)


def learning(folder: Path) -> str:
    """How the runs in a folder learned, and what random actions reach if known."""
    rows, baseline = read_rows(folder), random_returns(folder)
    heads = ["task", "policy", "seeds", "first generation", "last", "best"]
    heads += ["random actions"] * bool(baseline)
    lines = []
    for row in rows:
        first, last, best, *costs = summary([run.records for run in row.runs])
        returns = [first, last, best] + [baseline.get(row.task, "")] * bool(baseline)
        lines.append([*row.start, *returns, *costs])
    runs = [run for row in rows for run in row.runs]
    said = paragraph(
        "Mean evaluation return of θ over "
        f"{either(run.config.evaluation.num_episodes for run in runs)} episodes, the "
        "first of a run, its last and its best: median over the seeds, lowest to "
        "highest in brackets; environment steps and wall-clock minutes are medians. "
        f"A run had {machines(runs)}."
    )
    return table([*heads, "env steps", "minutes"], lines) + said + commands(rows)


def random_returns(folder: Path) -> dict[str, str]:
    """What random actions reach on each task, by ``evaluate --json``."""
    found: dict[str, str] = {}
    for file in folder.glob("*.json"):
        report = read(file)
        reports = [run for e in report.get("experiments", []) for run in e["runs"]]
        for run in reports or [report]:
            for condition in run.get("conditions", ()):
                if condition["random_actions"]:
                    found[run["env_id"]] = significant(condition["return_mean"])
    return found


def trained(folder: str) -> str:
    """What the best θ of each run reaches, by ``evaluate --json`` beside the run."""
    rows = read_rows(RESULTS / folder)
    runs = [run for row in rows for run in row.runs]
    reports = {run.path: read(Path(run.path) / "evaluation.json") for run in runs}
    lines = []
    for row in rows:
        returns = [reports[run.path]["return_mean"] for run in row.runs]
        spent = [costs_of(run) for run in row.runs]
        steps, seconds = (statistics.median(each) for each in zip(*spent, strict=True))
        minutes = seconds / 60
        cores = record(row.runs[0])["machine"]["cores"]
        costs = [count(steps), f"{minutes:.0f}" if minutes > 3 else f"{minutes:.1f}"]
        costs += [f"{minutes * cores / 60:.1f}"] * (folder == "robots")
        lines.append([*row.start, spread(returns), *costs])
    heads = ["task", "policy", "seeds", "return", "env steps", "minutes", "core-hours"]
    heads = heads[: len(lines[0])]
    cores_said = "; core-hours are minutes times cores" * (len(heads) == 7)
    is_cloned = any(run.method.name == CLONING for run in runs)
    cores_said += "; a clone's steps are its dataset's" * is_cloned
    said = paragraph(
        "Return: the best θ of a run, by its own evaluations, in "
        f"{either(report['episodes'] for report in reports.values())} other "
        "episodes, of the task's own reward; median over the seeds, lowest to highest "
        "in brackets. Environment steps, evaluations included, and wall-clock minutes "
        f"are those of the whole run, medians{cores_said}. A run had {machines(runs)}."
    )
    return table(heads, lines) + said + commands(rows)


def games_published() -> str:
    """Published scores of the games beside the median of the runs here."""
    published, lines = read(RESULTS / "published.json")["games"], []
    folders = RESULTS / "games", RESULTS / "games_frames"
    rows = [row for folder in folders for row in read_rows(folder)]
    for row in sorted(rows, key=lambda row: row.task):
        files = [Path(run.path) / "evaluation.json" for run in row.runs]
        here = spread([read(file)["return_mean"] for file in files])
        scores = ["" if x is None else significant(x) for x in published[row.task]]
        others = [file.with_name("without_sticky.json") for file in files]
        theirs = [read(file)["return_mean"] for file in others if file.exists()]
        without = spread(theirs) if theirs else "not run"
        lines.append([row.task, row.policy, here, without, *scores])
    heads = ["task", "policy here", "return", "without sticky", *published["heads"]]
    return table(heads, lines).rstrip()


def core_minutes() -> str:
    """What methods reach with equally many CPU seconds, a line a task."""
    rows = read_rows(RESULTS / "core_minutes")
    runs = [run for row in rows for run in row.runs]
    cells: dict[tuple[str, str], str] = {}
    for row in rows:
        config, method = row.runs[0].config, row.runs[0].method
        head = policy_kind(config.policy)
        head = head if method.name == "openai-es" else method.title
        files = [Path(run.path) / "evaluation.json" for run in row.runs]
        steps = statistics.median(run.records[-1].total_env_steps for run in row.runs)
        returns = spread([read(file)["return_mean"] for file in files])
        cells[row.task, head] = f"{returns}; {count(steps)}"
    heads = sorted({head for _, head in cells}, key=str.upper)
    lines = [
        [task, *(cells.get((task, head), "not run") for head in heads)]
        for task in dict.fromkeys(row.task for row in rows)
    ]
    said = paragraph(
        "Return of the best θ of a run, by its own evaluations, in 20 other episodes, "
        "and environment steps in the ten minutes (of PPO and TD3 without "
        f"evaluations'). Seed {either(row.start[2] for row in rows)}. A run had "
        f"{machines(runs)}."
    )
    return table(["task", *heads], lines) + said + commands(rows)


def robots_short() -> str:
    """The returns of the robots' presets and the minutes of a run, a line a task."""
    policies = ["linear", "Decision Transformer, cache"]
    of_tasks: dict[str, dict[str, list[Run]]] = {}
    for row in read_rows(RESULTS / "robots"):
        of_task = of_tasks.setdefault(row.task, {})
        of_task.setdefault(row.policy, []).extend(row.runs)
    lines = []
    for task, of_task in of_tasks.items():
        line = [task]
        for runs in (of_task.get(policy, []) for policy in policies):
            if not runs:
                line.append("not run")
                continue
            returns = [
                read(Path(run.path) / "evaluation.json")["return_mean"] for run in runs
            ]
            minutes = statistics.median(costs_of(run)[1] for run in runs) / 60
            line.append(f"{spread(returns)}, {minutes:.0f} min")
        lines.append(line)
    return table(["task", "linear", "small transformer"], lines).rstrip()


def robots_published() -> str:
    """Published figures, and the environment steps to the same return here."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for row in read_rows(RESULTS / "robots"):
        runs.setdefault((row.task, row.policy), []).extend(row.runs)
    for row in read_rows(RESULTS / "unfinished"):  # where none is finished
        runs.setdefault((row.task, row.policy), row.runs)
    policies = ["linear", "Decision Transformer, cache"]
    lines = []
    for figure in read(RESULTS / "published.json")["robots"]:
        level = figure["return"]
        unit = next(unit for unit in ("steps", "core_hours") if unit in figure)
        say = {"steps": count, "core_hours": "{:.1f} core hours".format}[unit]
        line = [figure["task"], significant(level), figure["who"], say(figure[unit])]
        for policy in policies:
            of_policy = runs.get((figure["task"], policy), ())
            costs = [costs_to_reach(run, level).get(unit) for run in of_policy]
            line.append(over_seeds(costs, say) if costs else "not run")
        lines.append(line)
    heads = ["task", "return", "published", "cost there", *policies]
    return table(heads, lines).rstrip()


def obedience() -> str:
    """How far runs return what they are asked for, by ``evaluate --obedience``."""
    lines, reports = [], []
    for folder in sorted((RESULTS / "obedience").iterdir()):
        seeds = [read(file) for file in sorted(folder.glob("seed-*/obedience.json"))]
        if not seeds:
            continue
        reports += seeds
        asked = [row["target_return"] for row in seeds[0]["conditions"][1:]]
        line = [f"`{folder.name}`", str(len(seeds))]
        line.append(f"{significant(asked[0])} to {significant(asked[-1])}")
        for name in OBEDIENCE:
            found = [seed["obedience"][name] for seed in seeds]
            found = [math.inf if value is None else value for value in found]
            line.append(spread(found, OBEDIENCE[name]))
        lines.append(line)
    heads = ["run", "seeds", "asked for", "rank correlation"]
    heads += ["error, of the range reached", "of that asked for", "slope"]
    commands = either(len(report["conditions"]) - 1 for report in reports)
    episodes = either(report["conditions"][1]["episodes"] for report in reports)
    said = paragraph(
        f"{commands} commands, {episodes} episodes each; median over the seeds, lowest "
        "to highest in brackets."
    )
    return table([*heads, "lowest mean", "highest mean"], lines) + said


def robustness() -> str:
    """What stored policies return in other environments, by ``evaluate --json``."""
    folder, names = RESULTS / "robustness", ("mass", "friction", "motors")
    # The last name is measured last: without it a policy is not done.
    policies = sorted(
        f.stem.rpartition("-")[0] for f in folder.glob(f"*-{names[-1]}.json")
    )
    heads, lines, episodes = {}, [], set()
    for policy in policies:
        reports = [read(folder / f"{policy}-{name}.json") for name in names]
        line = [f"`{policy}`", significant(reports[0]["return_mean"])]
        for condition in (c for report in reports for c in report["conditions"][1:]):
            ((name, value),) = condition["variation"].items()
            heads[f"{name} {round(100 * value)} %"] = None
            share, mean = condition["share_of_intact"], condition["return_mean"]
            line.append(f"{share:.0%} ({significant(mean)})".replace("%", " %"))
            episodes.add(condition["episodes"])
        lines.append(line)
    said = paragraph(
        f"Mean returns over {either(episodes)} episodes, in the task as it is and in "
        "brackets under each variation, beside the share of the intact return."
    )
    return table(["policy", "intact", *heads], lines) + said


def quickstart() -> str:
    """What the quickstart's runs came to, in a sentence or two."""
    rows = read_rows(RESULTS / "learning_curves")
    row = next(r for r in rows if record(r.runs[0])["preset"] == DEFAULT_PRESET)
    records = [run.records for run in row.runs]
    first, last, best = map(minus, summary(records)[:3])
    seconds = [run[-1].seconds_elapsed for run in records]
    return paragraph(
        f"Over seeds {seeds(row.runs)} (`{row.command}`) the evaluation "
        f"return rose from {first} to {last}, median and range; the best evaluation of "
        f"a run was {best}. Training took {min(seconds):.0f} to {max(seconds):.0f} s; "
        f"a run had {machines(row.runs)}, and other jobs beside it."
    )


def thresholds() -> str:
    """The environment steps to published returns, beside the published ones."""
    rows = read_rows(RESULTS / "tasks")
    runs = {(row.task, row.policy): row.runs for row in rows}
    policies = list(dict.fromkeys(row.policy for row in rows))
    published = read(RESULTS / "published.json")["thresholds"]
    lines = []
    for task in dict.fromkeys(row.task for row in rows):
        for index, level in enumerate(published.get(task, [])):
            value = level["return"]
            reached = [
                over_seeds([costs_to_reach(r, value).get("steps") for r in of_policy])
                if (of_policy := runs.get((task, policy)))
                else "not run"
                for policy in policies
            ]
            others = [count(level["es"]), count(level["trpo"])]
            name = "" if index else task
            lines.append(
                [
                    name,
                    f"{significant(value)} ({level['percent']} %)",
                    *reached,
                    *others,
                ]
            )
    heads = ["task", "return", *policies, "ES, Salimans et al.", "TRPO, there"]
    return table(heads, lines).rstrip()


def before(run: Run) -> list[Run]:
    """The runs that it went on from, one after the other."""
    folders = sorted(Path(run.path).glob("before-*"))
    return read_runs(folders) if folders else []


def costs_of(run: Run) -> tuple[int, float]:
    """Environment steps and seconds, with those of the runs before or a dataset's."""
    ends = [part.records[-1] for part in (*before(run), run)]
    steps = sum(end.total_env_steps for end in ends)
    steps += record(run).get("data", {}).get("num_steps", 0)
    return steps, sum(end.seconds_elapsed for end in ends)


def first_at(records: Sequence[Any], value: float) -> Any:
    """The record of the first evaluation of at least ``value``; None if never."""
    return next((r for r in records if r.evaluation_return_mean >= value), None)


def last_physics(run: Run) -> list[Any]:
    """The records in the physics of the last phase; all of a run without phases."""
    last = in_phase(run.config, -1).rollout.physics
    of = [in_phase(run.config, index) for index in range(len(run.config.phases))]
    is_last = [config.rollout.physics == last for config in of]
    return [r for r in run.records if not of or is_last[r.phase - 1]]


def costs_to_reach(run: Run, value: float) -> dict[str, float]:
    """What all parts took to reach it, evaluated in the physics of the last one.

    Nothing if never.
    """
    steps, seconds = 0, 0.0
    for part in (*before(run), run):
        at = first_at(last_physics(part), value) if part.task == run.task else None
        end = at or part.records[-1]
        steps += end.total_env_steps
        seconds += end.seconds_elapsed
        if at:
            cores = record(part)["machine"]["cores"]
            return {"steps": steps, "core_hours": seconds * cores / 3600}
    return {}


def over_seeds(
    costs: Sequence[float | None], say: Callable[[float], str] | None = None
) -> str:
    """Says how many of several seeds reached a return, and when.

    A median over only those that did would flatter the rest: they are listed instead.
    """
    say = say or count
    found = sorted(cost for cost in costs if cost is not None)
    share = f"{len(found)}/{len(costs)}"
    if not found:
        return f"{share}: not reached"
    if len(found) < len(costs) or len(found) == 1:
        return f"{share}: {', '.join(map(say, found))}"
    lowest, highest = say(found[0]), say(found[-1])
    return f"{share}: {say(statistics.median(found))} ({lowest} to {highest})"


def speed() -> str:
    """How fast whole generations run, by ``benchmark --json``."""
    report = read(RESULTS / "benchmark.json")
    rows = {row["name"]: row for row in report["rows"]}
    whole = {r["name"]: r for r in read(RESULTS / "benchmark_whole.json")["rows"]}
    lines = [["MuJoCo alone", "", rate(rows["physics"])]]
    lines[0] += [rate(rows["physics/untrained"]), "", ""]
    for name in rows:
        if name.startswith("generation/") and name.endswith("/untrained"):
            base = name.removesuffix("/untrained")
            network, _, change = base.removeprefix("generation/").partition("+")
            change = {"": "", "cache": ", cached attention"}[change]
            lines.append(
                [
                    f"`{network}`{change}",
                    str(rows[base]["num_slots"]),
                    rate_and_ratio(rows[base]),
                    rate_and_ratio(rows[name]),
                    rate(rows.get(f"{base}/own-actions")),
                    rate_and_ratio(whole.get(f"{base}/whole")),
                ]
            )
    pairs = either(row["num_pairs"] for row in whole.values() if "num_pairs" in row)
    busy = either(
        f"{row['slot_utilization']:.0%}".replace("%", " %")
        for name, row in whole.items()
        if name.endswith("/whole")
    )
    heads = ["", "slots", "`trained`", "`untrained`", "`own-actions`", "`whole`"]
    return table(heads, lines) + paragraph(
        f"{machine(report, 'mujoco')}, one run of {report['seconds']:.0f} s; `whole`: "
        f"a generation of {pairs} pairs, in which {busy} of the slots were at work "
        "over all."
    )


def small_generations() -> str:
    """How fast generations of 150,000 steps are."""
    reports = [read(f) for f in sorted((RESULTS / "small_generations").glob("now-*"))]
    lines = []
    for name, row in over_runs(reports).items():
        if "/length-" in name:
            _, network, length = name.split("/")
            length = f"{int(length.removeprefix('length-')):,}"
            lines.append([f"`{network}`", length, row["ratio"], row["rate"]])
    return table(["", "mean length", "ratio to physics", "steps/s"], lines) + paragraph(
        f"{machine(reports[0], 'mujoco')}; medians and range of {len(reports)} runs "
        "(`results/small_generations.sh`)."
    )


def over_runs(reports: Sequence[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns medians over runs of the benchmark by row, and the range of ratios."""
    found = {}
    for name in [row["name"] for row in reports[0]["rows"]]:
        rows = [next(r for r in run["rows"] if r["name"] == name) for run in reports]
        ratios = sorted(row["ratio_to_physics"] for row in rows)
        alone = [row.get("physics_steps_per_second", math.nan) for row in rows]
        speeds = [row["steps_per_second"] for row in rows]
        found[name] = {
            "slots": str(rows[0].get("num_slots", "")),
            "rate": f"{statistics.median(speeds):,.0f}",
            "alone": f"{statistics.median(alone):,.0f}",
            "ratio": f"{statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
        }
    return found


def games() -> str:
    """How fast games are played and learned, by ``benchmark --json``."""
    reports = [read(file) for file in sorted((RESULTS / "games_speed").iterdir())]
    rows = over_runs(reports)
    first = {row["name"]: row for row in reports[0]["rows"]}
    lines = [["ale-py alone", "", "", rows["physics/atari"]["rate"], "", ""]]
    for name in GAMES:
        played = first[f"generation/{name}"]
        row, shares = rows[played["name"]], played["shares"]
        lines.append(
            [
                f"`{name}`",
                row["slots"],
                rows[f"policy/{name}"]["rate"],
                f"{row['rate']} · {row['ratio']}",
                f"{shares['policy']:.0%} / {shares['environment']:.0%}",
                f"{played['peak_rss_mib']:,.0f}",
            ]
        )
    heads = ["", "slots", "policy alone", "generation · ratio"]
    return table([*heads, "time in policy / environment", "MiB"], lines) + paragraph(
        f"{machine(reports[0], 'ale-py')}; Hero, agent steps/s (four frames each), and "
        "the ratio to ale-py's own vector environment in the same minutes; medians and "
        f"range of {len(reports)} runs, other jobs beside on another core."
    )


def jax_speed() -> str:
    """How fast environments in JAX are, by ``benchmark --json``."""
    report = read(RESULTS / "benchmark_jax.json")
    files = sorted(RESULTS.glob("benchmark_jax_shared-*.json"))
    shared = [row for file in files for row in read(file)["rows"]]
    lines = []
    for row in [*report["rows"], *shared]:
        name = row["name"].removeprefix("jax/")
        lines.append(
            [
                f"`{name}`",
                str(row["num_slots"]),
                "" if row in shared else rate(row),
                f"{row['ratio_to_physics']:.2f}",
                f"{row['peak_rss_mib']:,.0f}",
            ]
        )
    heads = ["row", "slots", "steps/s", "ratio to the environment alone", "MiB"]
    return table(heads, lines) + paragraph(
        f"{machine(report, 'jax')}, one run. Rows without steps/s had other jobs on "
        "their core: there only the ratio tells."
    )


def learning_speed() -> str:
    """How near generations of presets come to their environment alone."""
    reports = [
        read(file) for file in sorted((RESULTS / "learning_speed").glob("run-*"))
    ]
    lines = [
        [f"`{name.removeprefix('learning/')}`"]
        + [row[column] for column in ("slots", "rate", "alone", "ratio")]
        for name, row in over_runs(reports).items()
    ]
    heads = ["generation of", "slots", "steps/s", "environment alone", "ratio"]
    return table(heads, lines) + paragraph(
        f"{machine(reports[0], 'mujoco')}; medians and range of {len(reports)} runs."
    )


def slots_a_core() -> str:
    """How fast generations of presets are with other numbers of slots."""
    counts = (32, 128)
    few, many = (
        over_runs([read(RESULTS / "learning_speed" / f"slots-{count}.json")])
        for count in counts
    )
    usual = over_runs(
        [read(file) for file in sorted((RESULTS / "learning_speed").glob("run-*"))]
    )
    lines = [
        [f"`{name.removeprefix('learning/')}`"]
        + [
            f"{rows[name]['ratio'].split()[0]} ({rows[name]['slots']})"
            for rows in (few, usual, many)
        ]
        for name in few
    ]
    return table(["generation of", "32", "as chosen", "128"], lines) + paragraph(
        "Ratios to the environment alone, slots in brackets."
    )


def jax_cartpole() -> str:
    """How long CartPole in JAX takes to 500."""
    runs = read_runs(sorted((RESULTS / "jax_envs" / "cartpole").iterdir()))
    reached = [(run.records[0], first_at(run.records, 500)) for run in runs]
    seconds = [end.seconds_elapsed - start.seconds_elapsed for start, end in reached]
    steps = [count(end.total_env_steps) for _, end in reached]
    return paragraph(
        f"CartPole's first evaluation of 500 came {significant(min(seconds))} to "
        f"{significant(max(seconds))} s after the first generation, which compiles "
        f"(seeds {seeds(runs)}: {', '.join(steps)} environment steps)."
    )


def rate(row: dict[str, Any] | None) -> str:
    """A benchmark's row as steps/s; empty if there is none."""
    return f"{row['steps_per_second']:,.0f}" if row else ""


def rate_and_ratio(row: dict[str, Any] | None) -> str:
    return f"{rate(row)} ({row['ratio_to_physics']:.2f})" if row else ""


def count(steps: float) -> str:
    """A number of steps in thousands or millions: ``62 k``, ``37.90 M``."""
    return f"{steps / 1e3:.0f} k" if steps < 999_500 else f"{steps / 1e6:.2f} M"


def seeds(runs: Sequence[Run]) -> str:
    return ", ".join(str(run.config.seed) for run in runs)


def machines(runs: Iterable[Run]) -> str:
    """The processors and the simulator's versions that runs had."""
    found = (machine(record(run), simulator(run.config.env.id)) for run in runs)
    return " or ".join(dict.fromkeys(found))


def simulator(env_id: str) -> str:
    """The package whose version matters most to a task."""
    if env_id.startswith("ALE/"):
        return "ale-py"
    if names_package(env_id):
        return "jax"
    return "mujoco" if env_id.endswith("-v5") else "gymnasium"


def machine(report: dict[str, Any], simulator: str) -> str:
    """The processor and the simulator's version that a run or a benchmark recorded."""
    here, version = report["machine"], report["versions"][simulator]
    processor = here["processor"].replace("(R)", "").replace(" Processor", "")
    cores = f"{here['cores']} core{'s' * (here['cores'] > 1)}"
    name = {"mujoco": "MuJoCo", "gymnasium": "Gymnasium", "jax": "JAX"}.get(
        simulator, simulator
    )
    return f"{cores} of an {processor}, {name} {version}"


def record(run: Run) -> dict[str, Any]:
    return RunDirectory(Path(run.path)).record()


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def either(values: Iterable[Any]) -> str:
    return " or ".join(map(str, sorted({*values})))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [[*map(minus, line)] for line in rows]
    return markdown([*map(minus, heads)], lines) + "\n\n"


def commands(rows: Iterable[Row]) -> str:
    """The command of each row, folded: it is long."""
    lines = "\n".join(f"# {row.task}, {row.policy}\n{row.command}" for row in rows)
    head = '\n\n<details markdown="1"><summary>Commands; S is a seed</summary>'
    return f"{head}\n\n```bash\n{lines}\n```\n\n</details>"


def minus(cell: str) -> str:
    """A cell; of numbers one with minus signs for hyphens that is not broken."""
    is_number = cell.lstrip("-")[:1].isdigit()
    return cell.replace("-", "−").replace(" ", "\xa0") if is_number else cell


def paragraph(text: str) -> str:
    return textwrap.fill(text, 95, break_on_hyphens=False)


TABLES = {
    "quickstart": quickstart,
    "robots": lambda: trained("robots"),
    "varied": lambda: trained("varied"),
    "control": lambda: trained("control"),
    "own-tasks": lambda: trained("own_tasks"),
    "strategies": lambda: trained("strategies"),
    "guided": lambda: trained("guided"),
    "core-minutes": core_minutes,
    "robots-published": robots_published,
    "robots-short": robots_short,
    "tasks": lambda: learning(RESULTS / "tasks"),
    "thresholds": thresholds,
    "atari": lambda: learning(RESULTS / "atari"),
    "games-memory": lambda: trained("games"),
    "games-frames": lambda: trained("games_frames"),
    "games-strategies": lambda: trained("games_strategies"),
    "games-published": games_published,
    "games-trials": lambda: learning(RESULTS / "games_trials"),
    "learning-curves": lambda: learning(RESULTS / "learning_curves"),
    "perturbation-attention": lambda: learning(RESULTS / "perturbation_attention"),
    "pretraining": lambda: learning(RESULTS / "pretraining"),
    "obedience": obedience,
    "robustness": robustness,
    "speed": speed,
    "small-generations": small_generations,
    "games": games,
    "jax-envs": lambda: trained("jax_envs"),
    "jax-cartpole": jax_cartpole,
    "jax-speed": jax_speed,
    "learning-speed": learning_speed,
    "slots-a-core": slots_a_core,
}


@functools.cache
def made(name: str) -> str:
    return TABLES[name]()


def rebuilt(pages: dict[Path, str]) -> dict[Path, str]:
    """Returns the pages with every table as the files say."""
    found = {name for text in pages.values() for _, name, _ in MARKED.findall(text)}
    for name in sorted(TABLES.keys() ^ found):
        raise SystemExit(f"<!-- results: {name} --> is on no page, or names no table")
    return {
        path: MARKED.sub(lambda m: m[1] + made(m[2]) + m[3], text)
        for path, text in pages.items()
    }


def main(arguments: Sequence[str], root: Path = ROOT) -> None:
    """Writes the pages, or with ``--check`` fails if that would change one."""
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    before = {path: path.read_text() for path in paths}
    for path, text in rebuilt(before).items():
        if "--check" not in arguments:
            path.write_text(text)
        elif text != before[path]:
            lines = before[path].splitlines(), text.splitlines()
            sys.stdout.write("\n".join(difflib.unified_diff(*lines, lineterm="", n=0)))
            name = f"\n{path.relative_to(root)}"
            raise SystemExit(f"{name} differs from results/; run results/tables.py.")


if __name__ == "__main__":
    main(sys.argv[1:])
