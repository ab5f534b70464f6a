"""The tables of the README, as Markdown, from the files of ``results/``.

A run is kept there as ``config.json`` and ``metrics.jsonl``; other files beside runs
are evaluations (``evaluate --json``) and benchmarks (``benchmark --json``).
"""

import itertools
import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_es.analysis.curves import Run, read_runs, spread, table_rows
from jax_es.benchmarks.rows import ATARI_NETWORKS
from jax_es.config import ConfigError, require
from jax_es.imitation.cloning import CloningConfig
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.presets import DEFAULT_PRESET
from jax_es.runs.directory import ROUNDING_ALONE, RunDirectory
from jax_es.runs.reproduce import command
from jax_es.thresholds import (
    Threshold,
    in_words,
    over_seeds,
    read_thresholds,
    steps_to_reach,
)
from jax_es.training.build import policy_kind

UNTOLD = ("seed", "checkpoint_every", "rollout.num_threads", *ROUNDING_ALONE)
"""Fields left out of a row's command: the seed is S, the rest is up to the machine."""

DEFAULTS = {
    "sac": TeacherSettings(),
    "td3": TeacherSettings(),
    "cloning": CloningConfig(),
}
"""Settings of other methods that a row's command leaves out."""

NAMES = {
    "image-decision-transformer": "image Decision Transformer",
    "decision-transformer": "Decision Transformer",
    "cnn": "CNN",
    "lstm": "LSTM",
    "mlp": "MLP",
}

LINE_LENGTH = 95


class Row(NamedTuple):
    """The runs of one line of a table: one task and one variant.

    Attributes:
        task: what they learned.
        policy: what learned it.
        runs: one a seed, in the order of the seeds.
    """

    task: str
    policy: str
    runs: list[Run]


def read_rows(folder: Path) -> list[Row]:
    """Reads the runs and experiments in a folder, by task and policy.

    Raises:
        ConfigError: if there is none, or one of them cannot be read.
    """
    paths = sorted(path for path in folder.iterdir() if path.is_dir())
    require(bool(paths), f"{folder} holds no run; copy some there or remove it.")
    runs = sorted(read_runs(paths), key=_place)
    return [
        Row(task, _policy(same[0]), same)
        for (task, _), group in itertools.groupby(runs, lambda r: (r.task, r.variant))
        for same in [list(group)]
    ]


def _place(run: Run) -> tuple[str, str, int]:
    return run.task, run.variant, run.config.seed


def _policy(run: Run) -> str:
    """Names a policy, and of its variant what is not the default."""
    kind = policy_kind(run.config.policy)
    name = NAMES.get(kind, kind)
    sizes = getattr(run.config.policy, "hidden_sizes", None)
    if sizes == ():
        name = "linear"
    elif sizes:
        alike = len({*sizes}) == 1
        shape = f"{len(sizes)}×{sizes[0]}" if alike else "-".join(map(str, sizes))
        name = f"{name} {shape}"
    return run.variant.replace(kind, name, 1)


def learning(folder: Path) -> str:
    """Returns how the runs in a folder learned, a line each task and policy.

    A column tells what random actions reach, where an evaluation in the folder
    (``evaluate --random-actions --json``) says so.

    Raises:
        ConfigError: if something there cannot be read.
    """
    rows = read_rows(folder)
    random = _random_returns(folder)
    heads = ["task", "policy", "seeds", "first generation", "last", "best"]
    heads += ["random actions"] * bool(random) + ["env steps", "minutes", "command"]
    lines = []
    for row in rows:
        records = [run.records for run in row.runs]
        (cells,) = table_rows({row.task: {row.policy: records}})
        _, _, _, first, last, best, env_steps, minutes = cells
        baseline = [random.get(row.task, "")] * bool(random)
        lines.append(
            [
                *(row.task, row.policy, _seeds(row.runs), first, last, best),
                *(*baseline, env_steps, minutes, f"`{_command(row.runs[0])}`"),
            ]
        )
    return f"{_table(heads, lines)}\n\n{_caption(rows)}"


def robots(folder: Path) -> str:
    """Returns what the best θ of each run reaches in episodes of their own.

    Beside a run stands ``evaluation.json``, what ``evaluate --json`` printed.

    Raises:
        ConfigError: if something there cannot be read.
    """
    rows = read_rows(folder)
    reports = {
        run.path: _read_json(Path(run.path) / "evaluation.json")
        for row in rows
        for run in row.runs
    }
    lines = []
    for row in rows:
        returns = [reports[run.path]["return_mean"] for run in row.runs]
        steps = [run.records[-1].total_env_steps for run in row.runs]
        minutes = [run.records[-1].seconds_elapsed / 60 for run in row.runs]
        lines.append(
            [
                *(row.task, row.policy, _seeds(row.runs), spread(returns)),
                *(in_words(int(np.median(steps))), f"{np.median(minutes):.0f}"),
                f"`{_command(row.runs[0])}`",
            ]
        )
    heads = ["task", "policy", "seeds", "return", "env steps", "minutes"]
    caption = _paragraph(
        "Return: the best θ of a run, by its own evaluations, in "
        f"{_one_of({report['episodes'] for report in reports.values()})} other "
        "episodes, of the task's own reward; median over the seeds, lowest to highest "
        "in brackets. Environment steps, evaluations included, and wall-clock minutes "
        "are those of the whole run, medians. A run had "
        f"{_machines([run for row in rows for run in row.runs])}."
    )
    return f"{_table([*heads, 'command'], lines)}\n\n{caption}"


def _seeds(runs: Sequence[Run]) -> str:
    return ", ".join(str(run.config.seed) for run in runs)


def _command(run: Run) -> str:
    settings, default = run.method.settings, DEFAULTS.get(run.method.name)
    untold = [f for f, v in settings.items() if v == _plain(getattr(default, f, None))]
    told = command(
        run.config, _preset(run), leave_out=[*UNTOLD, *untold], method=run.method
    )
    return f"{told} --seed S"


def _plain(value: Any) -> Any:
    """Returns a setting as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def _preset(run: Run) -> str:
    return RunDirectory(Path(run.path)).record()["preset"]


def _caption(rows: Sequence[Row]) -> str:
    """Says what the numbers mean and where they come from."""
    runs = [run for row in rows for run in row.runs]
    episodes = _one_of({run.config.evaluation.num_episodes for run in runs})
    return _paragraph(
        "Mean evaluation return of θ over "
        f"{episodes} episodes, the first of a run, its last and its best: median over "
        "the seeds, lowest to highest in brackets; environment steps and wall-clock "
        "minutes are medians. "
        f"A run had {_machines(runs)}."
    )


def _one_of(values: Iterable[Any]) -> str:
    return " or ".join(map(str, sorted(values)))


def _machines(runs: Iterable[Run]) -> str:
    """Names the processors and the simulator's versions that runs had."""
    found = {}
    for run in runs:
        record = RunDirectory(Path(run.path)).record()
        machine, versions = record["machine"], record["versions"]
        simulator = "ale-py" if run.config.env.id.startswith("ALE/") else "mujoco"
        found[_machine(machine, versions, simulator)] = None
    return " or ".join(found)


def _machine(
    machine: dict[str, Any], versions: dict[str, Any], simulator: str = "mujoco"
) -> str:
    processor = machine["processor"].replace("(R)", "").replace(" Processor", "")
    cores = f"{machine['cores']} core{'s' * (machine['cores'] > 1)}"
    name = {"mujoco": "MuJoCo"}.get(simulator, simulator)
    return f"{cores} of an {processor}, {name} {versions[simulator]}"


def _random_returns(folder: Path) -> dict[str, str]:
    """Returns what random actions reach, by environment, as evaluations there say."""
    found: dict[str, list[float]] = {}
    for file in sorted(folder.glob("*.json")):
        for report in _run_reports(_read_json(file)):
            for condition in report.get("conditions", ()):
                if condition.get("random_actions"):
                    returns = found.setdefault(report["env_id"], [])
                    returns.append(condition["return_mean"])
    return {env_id: f"{np.mean(returns):.0f}" for env_id, returns in found.items()}


def _run_reports(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the runs of what ``evaluate --json`` printed, of one run or several."""
    if "experiments" not in report:
        return [report]
    return [run for each in report["experiments"] for run in each["runs"]]


def thresholds(results: Path) -> str:
    """Returns the environment steps to published returns, beside the published ones.

    Args:
        results: the folder with ``tasks/`` and ``published.json``.

    Raises:
        ConfigError: if something there cannot be read.
    """
    published = read_thresholds(results / "published.json")
    rows = read_rows(results / "tasks")
    policies = list(dict.fromkeys(row.policy for row in rows))
    of_row = {(row.task, row.policy): row.runs for row in rows}
    lines = [
        [
            task if threshold is published[task][0] else "",
            f"{threshold.value:g} ({threshold.percent} %)",
            *(_reached(of_row.get((task, policy)), threshold) for policy in policies),
            *(in_words(threshold.es), in_words(threshold.trpo)),
        ]
        for task in dict.fromkeys(row.task for row in rows)
        for threshold in published.get(task, [])
    ]
    heads = ["task", "return", *policies, "ES, Salimans et al.", "TRPO, there"]
    return f"{_table(heads, lines)}\n\n{_threshold_caption(rows)}"


def _threshold_caption(rows: Sequence[Row]) -> str:
    configs = [run.config for row in rows for run in row.runs]
    episodes = _one_of({config.evaluation.num_episodes for config in configs})
    ends = _one_of({in_words(config.max_env_steps or 0) for config in configs})
    return _paragraph(
        "A return is reached in the first generation whose mean evaluation return, "
        f"over {episodes} episodes of θ, is at least it; counted are all environment "
        "steps that the run had made by the end of that generation, members' and "
        "evaluations' alike. 2/3: two of three seeds reached it; no generation began "
        f"after {ends} steps. Then the median over the seeds with the lowest and the "
        "highest, or, where not all reached it, the steps of those that did. In "
        "brackets beside the return: its share of what TRPO learned in 5 million "
        "steps. "
        "Salimans et al. ran the first versions of these tasks, on the MuJoCo of their "
        "time: compare orders of magnitude, not digits."
    )


def _reached(runs: Sequence[Run] | None, threshold: Threshold) -> str:
    if runs is None:
        return "not run"
    return over_seeds([steps_to_reach(run.records, threshold.value) for run in runs])


def quickstart(results: Path) -> str:
    """Returns what the quickstart's runs came to, in a sentence or two.

    Raises:
        ConfigError: if there are none.
    """
    rows = read_rows(results / "learning_curves")
    row = next((row for row in rows if _preset(row.runs[0]) == DEFAULT_PRESET), None)
    if row is None:
        raise ConfigError(f"{results}/learning_curves has no run of the quickstart.")
    records = [run.records for run in row.runs]
    (cells,) = table_rows({row.task: {row.policy: records}})
    first, last, best = map(_minus, cells[3:6])
    seconds = [run[-1].seconds_elapsed for run in records]
    return _paragraph(
        f"Over seeds {_seeds(row.runs)} (`{_command(row.runs[0])}`) the evaluation "
        f"return rose from {first} to {last}, median and range; the best evaluation of "
        f"a run was {best}. Training took {min(seconds):.0f} to {max(seconds):.0f} s; "
        f"a run had {_machines(row.runs)}, and other jobs beside it."
    )


def speed(results: Path) -> str:
    """Returns how fast whole generations run, from the benchmarks' files.

    Raises:
        ConfigError: if one of them cannot be read.
    """
    report = _benchmark(results / "benchmark.json")
    whole = _benchmark(results / "benchmark_whole.json")["rows"]
    rows = report["rows"]
    names = [
        name.removesuffix("/untrained")
        for name in rows
        if name.startswith("generation/") and name.endswith("/untrained")
    ]
    physics = [_rate(rows["physics"]), _rate(rows["physics/untrained"])]
    lines = [["MuJoCo alone", "", *physics, "", ""]]
    for name in names:
        lines.append(
            [
                _network(name.split("/")[1]),
                str(rows[name]["num_slots"]),
                _rate_and_ratio(rows[name]),
                _rate_and_ratio(rows[f"{name}/untrained"]),
                _rate(rows.get(f"{name}/own-actions")),
                _rate_and_ratio(whole.get(f"{name}/whole")),
            ]
        )
    pairs = _one_of({row["num_pairs"] for row in whole.values() if "num_pairs" in row})
    busy = {row["slot_utilization"] for n, row in whole.items() if n.endswith("/whole")}
    heads = ["", "slots", "`trained`", "`untrained`", "`own-actions`", "`whole`"]
    caption = _paragraph(
        f"{_machine(report['machine'], report['versions'])}, one run of "
        f"{report['seconds']:.0f} s; `whole`: a generation of {pairs} pairs, in which "
        f"{_one_of({f'{100 * share:.0f} %' for share in busy})} of the slots were at "
        "work over all."
    )
    return f"{_table(heads, lines)}\n\n{caption}"


def games(results: Path) -> str:
    """Returns how fast games are played and learned, from the benchmark's file.

    Raises:
        ConfigError: if it cannot be read, or has no rows of games.
    """
    report = _benchmark(results / "benchmark.json")
    rows = report["rows"]
    if "physics/atari" not in rows:
        raise ConfigError(f"{results}/benchmark.json has no row physics/atari.")
    emulators = rows["physics/atari"]
    lines = [["ale-py alone", "", "", _rate(emulators), "", ""]]
    for name in ATARI_NETWORKS:
        policy, generation = (
            rows[f"{kind}/{name}"] for kind in ("policy", "generation")
        )
        shares = generation["shares"]
        lines.append(
            [
                f"`{name}`",
                str(generation["num_slots"]),
                _rate(policy),
                _rate_and_ratio(generation),
                f"{shares['policy']:.0%} / {shares['environment']:.0%}",
                f"{generation['peak_rss_mib']:,.0f}",
            ]
        )
    heads = [
        *("", "slots", "policy alone", "generation"),
        *("time in policy / environment", "MiB"),
    ]
    caption = _paragraph(
        f"{_machine(report['machine'], report['versions'], 'ale-py')}; Hero, agent "
        "steps/s (four frames each), in brackets the ratio to ale-py's own vector "
        "environment in the same minutes."
    )
    return f"{_table(heads, lines)}\n\n{caption}"


def _benchmark(file: Path) -> dict[str, Any]:
    """Reads what ``benchmark --json`` wrote, its rows by name."""
    report = _read_json(file)
    return report | {"rows": {row["name"]: row for row in report["rows"]}}


def _network(name: str) -> str:
    """Names a benchmark's network: a preset, and what it does otherwise."""
    base, _, otherwise = name.partition("+")
    words = {"": "", "cache": ", cached attention"}
    return f"`{base}`{words.get(otherwise, f', {otherwise}')}"


def _rate(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['steps_per_second']:,.0f}"


def _rate_and_ratio(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{_rate(row)} ({row['ratio_to_physics']:.2f})"


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read ({error}); restore it.") from error


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_minus, line))} |" for line in lines)


def _minus(cell: str) -> str:
    """Returns a cell with minus signs for the hyphens before numbers."""
    is_number = cell.lstrip("-")[:1].isdigit()
    return cell.replace("-", "−") if is_number else cell


def _paragraph(text: str) -> str:
    return textwrap.fill(text, LINE_LENGTH, break_on_hyphens=False)
