"""What runs have in common and where they differ: the numbers behind the figures.

Runs are sorted into tasks, tasks into variants (a method, a kind of policy, its
attention, its noise, what it began with, and whatever else differs). The runs of a
variant are its seeds.
"""

import functools
import itertools
import math
import os
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.config import EnvConfig
from jax_es.phases import in_phase
from jax_es.runs.changes import SAME_EXPERIMENT
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_runs
from jax_es.runs.method import OPENAI_ES, Method
from jax_es.runs.metrics import records_so_far
from jax_es.runs.records import OWN, GenerationRecord
from jax_es.runs.wording import markdown, spread
from jax_es.train_config import TrainConfig, differing, policy_kind

AXES = {
    "env-steps": ("total_env_steps", "environment steps"),
    "generations": ("generation", "generation"),
    "seconds": ("seconds_elapsed", "wall-clock time (h:mm:ss)"),
    "cpu-seconds": ("cpu_seconds", "CPU time of all threads (h:mm:ss)"),
}

BEFORE = {"total_env_steps": "env_steps", "seconds_elapsed": "seconds_total"}
"""An axis's field → what a record's own generation added to it."""

RETURNS = {
    "evaluation": ("evaluation_return_mean", "evaluation return"),
    "fitness": ("evaluation_fitness", "evaluation fitness"),
    "population": ("return_mean", "mean return of the population"),
    "command-error": ("evaluation_command_error", "error / range of the commands"),
}


def measured(y: str) -> tuple[str, str]:
    """Returns the number of a record that ``--y`` names, and how a figure calls it."""
    return RETURNS.get(y, (y, y.removeprefix(OWN)))


Lines = dict[str, list[list[GenerationRecord]]]
"""Variant → runs → records."""

Panels = dict[str, Lines]
"""Task → its lines."""


class Run(NamedTuple):
    """A run as it is compared."""

    path: str
    config: TrainConfig
    method: Method
    records: list[GenerationRecord]
    """Its finished generations, or evaluations; at least one."""
    task: str
    """What it learned."""
    variant: str
    """What learned it, unlike any other variant of the runs given."""


def group(paths: Iterable[str | os.PathLike[str]]) -> Panels:
    """Reads runs and experiments and sorts their runs by task and variant.

    Raises:
        ValueError: as :func:`read_runs`.
    """
    return sorted_into_panels(read_runs(paths))


def sorted_into_panels(runs: Iterable[Run]) -> Panels:
    """Sorts the records of runs by task and variant."""
    panels: Panels = {}
    for run in runs:
        lines = panels.setdefault(run.task, {})
        lines.setdefault(run.variant, []).append(run.records)
    return panels


def read_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Run]:
    """Reads runs, and the begun runs of experiments; a run given twice counts once.

    Raises:
        ValueError: for a folder that is neither, has no finished generation, or repeats
            a seed of another one.
    """
    runs: dict[str, Run] = {}
    for path in paths:
        read = [_read(run) for run in find_runs(path)]
        if not any(run.records for run in read):
            raise ConfigError(f"{path} has no finished generation to plot.")
        runs |= {os.path.realpath(run.path): run for run in read if run.records}
    alike: dict[tuple[str, str], list[Run]] = {}
    for run in runs.values():
        alike.setdefault((run.task, run.variant), []).append(run)
    named = [run for same in alike.values() for run in _disambiguate(same)]
    for a, b in itertools.combinations(named, 2):
        require(
            (a.task, a.variant, a.config.seed) != (b.task, b.variant, b.config.seed),
            f"{a.path} and {b.path} are the same seed of the same configuration, which "
            "is one sample and not two; leave one out.",
        )
    return named


def _read(run: RunDirectory) -> Run:
    config, method, env = run.config(), run.method(), run.config().env
    task = env.id
    if env.max_episode_steps is not None:
        task += f", {env.max_episode_steps:,} steps"
    if env.frame_skip != EnvConfig.frame_skip:
        task += f", {env.frame_skip} frames an action"
    if not env.terminate_when_unhealthy:
        task += ", falling allowed"
    if env.hide_observation:
        task += f", {' '.join(env.hide_observation)} hidden"
    task += in_phase(config, -1).rollout.named_physics()
    name = variant(config, method, run.method_before())
    records = records_so_far(run.path)
    return Run(str(run.path), config, method, records, task, name)


def _disambiguate(runs: list[Run]) -> list[Run]:
    """Adds to the variants of runs of one name what else the runs differ in."""
    values = [run.method.values(run.config) for run in runs]
    differing_fields = (f for other in values for f in differing(values[0], other))
    fields = [f for f in dict.fromkeys(differing_fields) if f not in SAME_EXPERIMENT]
    named = []
    for run, own in zip(runs, values, strict=True):
        name = run.variant
        for field in fields:
            words = field.rpartition(".")[2].replace("_", " ")
            value = own.get(field, "default")
            if field == "phases":  # too long to be read, so only told apart
                value = f"{zlib.crc32(str(value).encode()):08x}" if value else "none"
            elif type(value) is int:
                value = f"{value:,}"
            name += f", {words} {value}"
        named.append(run._replace(variant=name))
    return named


def variant(
    config: TrainConfig, method: Method = OPENAI_ES, before: Method | None = None
) -> str:
    """Names what is compared: the kind of policy, and how it differs from the paper's.

    Args:
        config: of the run.
        method: how it was trained; OpenAI-ES is not named.
        before: how the run was trained whose θ it began with, if any.

    Example:
        >>> from jax_es.config import ESConfig
        >>> variant(TrainConfig(es=ESConfig(perturbation="low-rank", rank=4)))
        'decision-transformer, rank 4'
        >>> variant(TrainConfig(), before=Method("cloning", {}))
        'decision-transformer, after cloning'
        >>> variant(TrainConfig(), Method("td3", {}))
        'TD3, decision-transformer'
    """
    attention = getattr(config.policy, "attention", "window")
    bins = config.policy.action_bins
    is_low_rank = method.is_evolution and config.es.perturbation == "low-rank"
    parts = [
        "" if method.name == OPENAI_ES.name else method.title,
        policy_kind(config.policy),
        "" if attention == "window" else attention,
        f"{bins} bins" if bins else "",
        "sampled actions" if config.policy.sample_actions else "",
        f"rank {config.es.rank}" if is_low_rank else "",
        "" if before is None else f"after {before.title}",
    ]
    return ", ".join(filter(None, parts))


class Band(NamedTuple):
    """A distribution over runs along an axis, each ``[G]``; low and high: quartiles."""

    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


def band(runs: list[list[GenerationRecord]], x: str, y: str) -> Band:
    """Returns median and quartiles of field ``y`` over the runs, against ``x``."""
    grid, values = on_grid(runs, x, y)
    low, median, high = np.percentile(values, [25, 50, 75], axis=0)
    return Band(grid, median, low, high)


def on_grid(
    runs: list[list[GenerationRecord]], x: str, y: str, grid: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns x ``[G]`` and the runs' y ``[R, G]``, linearly interpolated at it.

    x and y are fields of the records; ``grid`` is :func:`common_grid` if not given.
    """
    grid = common_grid(runs, x, y) if grid is None else grid
    # Before its first record a run has its initial mean: the first value holds.
    return grid, np.stack([np.interp(grid, *one) for one in series(runs, x, y)])


def common_grid(runs: list[list[GenerationRecord]], x: str, y: str) -> np.ndarray:
    """Returns x's ``[G]`` at which y's are compared, as far as all runs reach.

    The runs' own if they share them, as generations; else 200 in even distances, since
    runs meet different x's where episodes differ in length.
    """
    xs = [along for along, _ in series(runs, x, y)]
    start, end = min(v[0] for v in xs), min(v[-1] for v in xs)
    if start == end:  # a clone takes no environment step: its last evaluation holds
        return np.array([start])
    shared = functools.reduce(np.intersect1d, xs)
    if len(shared) == min(map(len, xs)):
        return shared
    return np.linspace(start, end, 200)


def series(runs: list[list[GenerationRecord]], x: str, y: str) -> list[np.ndarray]:
    """Returns each run's x and y ``[2, G]``.

    θ is evaluated before the steps of its generation change it, so what evaluations
    found stands where the generation begins.
    """
    is_before = y.startswith("evaluation_")
    found = []
    for records in runs:
        along = np.array([r.number(x) for r in records], float)
        if is_before and x in BEFORE:
            along -= np.nan_to_num([r.number(BEFORE[x]) for r in records])
        elif is_before and x == "cpu_seconds":  # a generation's own are not recorded
            steps = np.array([r.env_steps for r in records])
            along = np.where(steps > 0, np.append(0.0, along[:-1]), along)
        values = np.array([along, [r.number(y) for r in records]])
        # A closing evaluation has no population.
        have_y = np.isfinite(values[1]) | [r.num_episodes > 0 for r in records]
        found.append(values[:, have_y] if have_y.any() else values)
    return found


FITNESS_HEADS = ["first fitness", "last fitness", "best fitness"]
"""Of runs with an objective of the user's own."""


def table_heads(with_fitness: bool) -> list[str]:
    """Returns the heads of :func:`table`."""
    fitness = FITNESS_HEADS if with_fitness else []
    return [
        *("environment", "policy", "seeds", "first", "last", "best", *fitness),
        *("env steps", "minutes"),
    ]


def table(panels: Panels) -> str:
    """Returns a Markdown table: how each line began, ended, and what it took.

    Returns are medians over the runs (lowest to highest in brackets) of the mean
    evaluation return, at the first and the last generation and at the best one: that of
    the checkpoint ``best``, which an objective of the user's own chooses by its
    fitness.
    """
    lines = [
        (task, kind, runs)
        for task, variants in panels.items()
        for kind, runs in sorted(variants.items())
    ]
    with_fitness = any(has_fitness(run) for *_, runs in lines for run in runs)
    rows = [
        [t, k, str(len(runs)), *summary(runs, with_fitness)] for t, k, runs in lines
    ]
    return markdown(table_heads(with_fitness), rows)


def has_fitness(run: list[GenerationRecord]) -> bool:
    """Returns whether an objective of the user's own judged θ."""
    return any(math.isfinite(record.evaluation_fitness) for record in run)


def summary(
    runs: list[list[GenerationRecord]], with_fitness: bool = False
) -> list[str]:
    """Returns the cells of :func:`table` that say how runs of one variant went."""
    first, last = [run[0] for run in runs], [run[-1] for run in runs]
    best = [record.best_evaluation_return for record in last]
    fitness = [""] * len(FITNESS_HEADS)
    if all(map(has_fitness, runs)):
        chosen = [max(run, key=_finite_fitness) for run in runs]
        best = [record.evaluation_return_mean for record in chosen]
        three = first, last, chosen
        fitness = [spread([r.evaluation_fitness for r in each]) for each in three]
    return [
        spread([record.evaluation_return_mean for record in first]),
        spread([record.evaluation_return_mean for record in last]),
        spread(best),
        *(fitness if with_fitness else ()),
        f"{np.median([record.total_env_steps for record in last]) / 1e6:.2f} M",
        f"{np.median([record.seconds_elapsed for record in last]) / 60:.1f}",
    ]


def _finite_fitness(record: GenerationRecord) -> float:
    """Returns the fitness of θ, −∞ if it is not finite."""
    found = record.evaluation_fitness
    return found if math.isfinite(found) else -math.inf


def describe_separation(panels: Panels) -> str:
    """Says how far the seeds separate the variants of each task, a sentence a task.

    Two variants are separate if their runs' last evaluations do not overlap. Of n and m
    runs that do not differ, this is so with a probability of 2/C(n + m, n).
    """
    sentences = [_separation(t, lines) for t, lines in panels.items() if len(lines) > 1]
    return "\n".join(sentences)


def _separation(task: str, lines: Lines) -> str:
    last = {
        kind: [run[-1].evaluation_return_mean for run in runs]
        for kind, runs in lines.items()
    }
    ordered = sorted(last, key=lambda kind: -np.median(last[kind]))
    values = "; ".join(f"{kind}: {spread(last[kind])}" for kind in ordered)
    said = f"{task}, last evaluation, median and range: {values}."
    if min(map(len, last.values())) == 1:
        return f"{said} A single seed shows no difference."
    apart = []
    for a, b in itertools.combinations(ordered, 2):
        n, m = len(last[a]), len(last[b])
        if min(last[a]) > max(last[b]) or max(last[a]) < min(last[b]):
            apart.append(
                f"{a} and {b} do not overlap (equal ones would not in "
                f"{2 / math.comb(n + m, n):.0%} of such experiments)"
            )
    return f"{said} {'; '.join(apart) or 'All overlap: no difference is shown'}."
