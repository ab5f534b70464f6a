"""What evaluations say: summaries, rank tests, tables, rows and JSON."""

import csv
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_es.evaluation.conditions import BASE, Condition, Evaluation
from jax_es.evaluation.rank_test import meaning, rank_test
from jax_es.rollout.engine import EpisodeResults
from jax_es.runs.files import whole_file
from jax_es.runs.method import OPENAI_ES

STATISTICS = (
    "return_mean",
    "return_std",
    "return_min",
    "return_quartile_1",
    "return_median",
    "return_quartile_3",
    "return_max",
)


def summary(result: EpisodeResults) -> dict[str, Any]:
    """Summarises episodes: returns and lengths, quartiles linearly interpolated.

    Episodes whose return is not finite are counted and left out of the statistics.
    """
    finite = np.isfinite(result.returns)
    return {
        "episodes": len(result.returns),
        "nonfinite_returns": int((~finite).sum()),
        "length_mean": float(result.lengths.mean()),
        "length_min": int(result.lengths.min()),
        "length_max": int(result.lengths.max()),
        **_statistics(result.returns[finite]),
    }


def _statistics(returns: np.ndarray) -> dict[str, float]:
    """Returns what ``STATISTICS`` names; nothing without a return."""
    if not len(returns):
        return {}
    low, median, high = np.percentile(returns, [25, 50, 75])
    values = (
        returns.mean(), returns.std(), returns.min(), low, median, high, returns.max()
    )  # fmt: skip
    return dict(zip(STATISTICS, map(float, values), strict=True))


def summary_over_runs(
    evaluations: Sequence[Evaluation], condition: Condition
) -> dict[str, Any]:
    """Summarises runs: each run's mean return is one value.

    The statistics of the returns are over the runs' means, so ``return_std`` is the
    spread between runs. Lengths and counts are over all episodes.
    """
    results = [evaluation.results[condition] for evaluation in evaluations]
    lengths = np.concatenate([result.lengths for result in results])
    means = np.array([_finite_mean(result) for result in results])
    return {
        "runs": len(results),
        "episodes": len(lengths),
        "nonfinite_returns": sum(summary(r)["nonfinite_returns"] for r in results),
        "length_mean": float(lengths.mean()),
        "length_min": int(lengths.min()),
        "length_max": int(lengths.max()),
        **_statistics(means[np.isfinite(means)]),
    }


def _finite_mean(result: EpisodeResults) -> float:
    return summary(result).get("return_mean", np.nan)


def run_report(evaluation: Evaluation, checkpoint: str, seed: int) -> dict[str, Any]:
    """Returns a run's base condition and, where there are any, its sweeps as JSON."""
    report = {
        **_origin(evaluation, checkpoint, seed),
        **summary(evaluation.results[BASE]),
    }
    if len(evaluation.results) == 1:
        return report
    return report | {
        "conditions": [
            {**dataclasses.asdict(condition), **summary(result)}
            for condition, result in evaluation.results.items()
        ],
        "rank_tests": rank_tests([evaluation]),
    }


def _origin(evaluation: Evaluation, checkpoint: str, seed: int) -> dict[str, Any]:
    return {
        "run": str(evaluation.path),
        "env_id": evaluation.trained.config.env.id,
        "method": evaluation.trained.method.name,
        "checkpoint": checkpoint,
        "generation": evaluation.trained.generation,
        "seed": seed,
    }


def experiment_report(
    evaluations: Sequence[Evaluation], checkpoint: str, seed: int
) -> dict[str, Any]:
    """Returns an experiment's runs, and each condition over all of them, as JSON."""
    report: dict[str, Any] = {
        "runs": [run_report(each, checkpoint, seed) for each in evaluations]
    }
    if len(evaluations) == 1:
        return report
    return report | {
        "over_runs": [
            {**dataclasses.asdict(c), **summary_over_runs(evaluations, c)}
            for c in evaluations[0].results
        ],
        "rank_tests": rank_tests(evaluations),
    }


def rank_tests(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Tests each sweep: do the returns depend on what was changed?

    The blocks of one run are its episodes. Those of several are the runs, each with its
    mean return: episodes of a run say nothing about other runs. The base takes part,
    except where several target returns are compared with each other.
    """
    tests = []
    conditions = list(evaluations[0].results)
    for field in dataclasses.fields(Condition):
        swept = [c for c in conditions if getattr(c, field.name) is not None]
        if not swept:
            continue
        if field.name != "target_return" or len(swept) == 1:
            swept = [BASE, *swept]
        test = rank_test(_blocks(evaluations, swept))
        tests.append(
            {
                "changed": field.name,
                "blocks": "episodes" if len(evaluations) == 1 else "runs",
                **test._asdict(),
                "meaning": meaning(test),
            }
        )
    return tests


def _blocks(
    evaluations: Sequence[Evaluation], conditions: Sequence[Condition]
) -> np.ndarray:
    """Returns ``[B, k]`` returns: of a run's episodes, or mean ones of several runs."""
    if len(evaluations) == 1:
        results = evaluations[0].results
        return np.stack([results[c].returns for c in conditions], axis=1)
    return np.array(
        [[_finite_mean(e.results[c]) for c in conditions] for e in evaluations]
    )


def list_of_values(report: dict[str, Any]) -> str:
    """Prints a flat report as a name and a value a line."""
    width = max(map(len, report))
    return "\n".join(
        f"{name:<{width}}  {value:.2f}"
        if isinstance(value, float)
        else f"{name:<{width}}  {value}"
        for name, value in report.items()
    )


def table(experiments: Sequence[Sequence[Evaluation]]) -> str:
    """Returns a Markdown table, and below it what the rank tests say.

    An experiment of several runs ends with rows of its own, over the runs' mean
    returns; its tests are over runs.
    """
    rows, tests = [], []
    for evaluations in experiments:
        method = evaluations[0].trained.method.title
        for evaluation in evaluations:
            rows += [
                _row(str(evaluation.path), method, condition, summary(result))
                for condition, result in evaluation.results.items()
            ]
        name = _name(evaluations)
        if len(evaluations) > 1:
            rows += [
                _row(name, method, condition, summary_over_runs(evaluations, condition))
                for condition in evaluations[0].results
            ]
        tests += [f"{name}, {_sentence(test)}" for test in rank_tests(evaluations)]
    return "\n\n".join(["\n".join(_aligned(rows)), *tests])


def _row(
    name: str, method: str, condition: Condition, values: dict[str, Any]
) -> dict[str, str]:
    mean, median, quartiles = "none is finite", "", ""
    if "return_mean" in values:
        mean = "{return_mean:.2f} ± {return_std:.2f}".format(**values)
        median = "{return_median:.2f}".format(**values)
        quartiles = "{return_quartile_1:.2f} to {return_quartile_3:.2f}".format(
            **values
        )
    return {
        "run": name,
        "method": method,
        "condition": str(condition),
        "mean return ± std": mean,
        "median": median,
        "quartiles": quartiles,
        "length (range)": "{length_mean:.1f} ({length_min} to {length_max})".format(
            **values
        ),
        "episodes": str(values["episodes"]),
        "not finite": str(values["nonfinite_returns"]),
    }


def _name(evaluations: Sequence[Evaluation]) -> str:
    """Names runs by what their folders' names begin with."""
    paths = [str(evaluation.path) for evaluation in evaluations]
    if len(paths) == 1:
        return paths[0]
    # Of characters: runs/hopper-seed0 and runs/hopper-seed1 are runs/hopper-seed*.
    return f"{os.path.commonprefix(paths)}* ({len(paths)} runs)"  # noqa: RUF071


def _sentence(test: dict[str, Any]) -> str:
    return (
        "{changed}: {name} test over {num_conditions} conditions and {num_blocks} "
        "{blocks}, p = {p_value:.2g}: {meaning}."
    ).format(**{**test, "changed": test["changed"].replace("_", " ")})


def _aligned(rows: Sequence[dict[str, str]]) -> list[str]:
    """Returns the lines of a table, without columns that tell nothing."""
    empty = {"run"} if len({row["run"] for row in rows}) == 1 else set()
    if all(row["method"] == OPENAI_ES.title for row in rows):
        empty.add("method")
    if all(row["not finite"] == "0" for row in rows):
        empty.add("not finite")
    names = [name for name in rows[0] if name not in empty]
    cells = [names, *([row[name] for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [lines[0], rule, *lines[1:]]


def write_csv(
    file: Path,
    experiments: Sequence[Sequence[Evaluation]],
    checkpoint: str,
    seed: int,
) -> None:
    """Writes a row for each condition of each run; what is not known stays empty."""
    rows = [
        {
            **_origin(evaluation, checkpoint, seed),
            **dataclasses.asdict(condition),
            **dict.fromkeys(STATISTICS),
            **summary(result),
        }
        for evaluations in experiments
        for evaluation in evaluations
        for condition, result in evaluation.results.items()
    ]
    with whole_file(file) as draft, draft.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
