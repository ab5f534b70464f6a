"""What evaluations say: summaries, rank tests, tables, rows and JSON."""

import csv
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_es.evaluation import obedience
from jax_es.evaluation.conditions import BASE, Condition, Evaluation, described
from jax_es.evaluation.rank_test import rank_test
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.runs.files import whole_file
from jax_es.runs.method import OPENAI_ES
from jax_es.runs.records import nulled
from jax_es.runs.wording import markdown, significant

STATISTICS = {
    "return_mean": np.mean,
    "return_std": np.std,
    "return_min": np.min,
    "return_quartile_1": lambda returns: np.percentile(returns, 25),
    "return_median": np.median,
    "return_quartile_3": lambda returns: np.percentile(returns, 75),
    "return_max": np.max,
}


CELLS = {
    "mean return ± std": "{return_mean} ± {return_std}",
    "median": "{return_median}",
    "quartiles": "{return_quartile_1} to {return_quartile_3}",
    "fitness mean ± std": "{fitness_mean} ± {fitness_std}",
    "of intact": "{share_of_intact:.0%}",
    "length (range)": "{length_mean:.1f} ({length_min} to {length_max})",
    "episodes": "{episodes}",
    "not finite": "{nonfinite_returns}",
}
"""Of a table: head → what of a summary stands below it."""


def summary(
    result: EpisodeResults, fitness: np.ndarray | None = None
) -> dict[str, Any]:
    """Summarises episodes: returns and lengths, quartiles linearly interpolated.

    Episodes whose return is not finite are counted and left out of the statistics.
    What they came to by an objective, ``[E]`` if there is one, has a mean and a
    standard deviation.
    """
    returns = _counts([result]) | _statistics(result.returns)
    return returns | _fitness_statistics(fitness)


def _fitness_statistics(fitness: np.ndarray | None) -> dict[str, Any]:
    if fitness is None:
        return {}
    finite = fitness[np.isfinite(fitness)]
    found = {"nonfinite_fitness": len(fitness) - len(finite)}
    if not len(finite):
        return {"fitness_mean": None, "fitness_std": None, **found}
    mean, std = float(finite.mean()), float(finite.std())
    return {"fitness_mean": mean, "fitness_std": std, **found}


def summary_over_runs(
    evaluations: Sequence[Evaluation], condition: Condition
) -> dict[str, Any]:
    """Summarises runs: each run's mean return is one value.

    The statistics of the returns are over the runs' means, so ``return_std`` is the
    spread between runs. Lengths and counts are over all episodes.
    """
    results = [evaluation.results[condition] for evaluation in evaluations]
    means = np.array([_finite_mean(result) for result in results])
    found = {"runs": len(results), **_counts(results), **_statistics(means)}
    if evaluations[0].fitness:
        fitness = [evaluation.fitness[condition] for evaluation in evaluations]
        means = [_fitness_statistics(each)["fitness_mean"] for each in fitness]
        found |= _fitness_statistics(np.array(means, float))  # None is NaN
        found["nonfinite_fitness"] = int((~np.isfinite(np.concatenate(fitness))).sum())
    return found


def _counts(results: Sequence[EpisodeResults]) -> dict[str, Any]:
    returns = np.concatenate([result.returns for result in results])
    lengths = np.concatenate([result.lengths for result in results])
    return {
        "episodes": len(returns),
        "nonfinite_returns": int((~np.isfinite(returns)).sum()),
        "length_mean": float(lengths.mean()),
        "length_min": int(lengths.min()),
        "length_max": int(lengths.max()),
    }


def _statistics(returns: np.ndarray) -> dict[str, float]:
    """Returns what ``STATISTICS`` names; nothing without a finite return."""
    finite = returns[np.isfinite(returns)]
    if not len(finite):
        return {}
    return {name: float(function(finite)) for name, function in STATISTICS.items()}


def _finite_mean(result: EpisodeResults) -> float:
    return _statistics(result.returns).get("return_mean", np.nan)


def run_report(evaluation: Evaluation, checkpoint: str, seed: int) -> dict[str, Any]:
    """Returns a run's base condition and, where there are any, its sweeps as JSON."""
    report = {
        **_origin(evaluation, checkpoint, seed),
        **summary(evaluation.results[BASE], evaluation.fitness.get(BASE)),
    }
    if len(evaluation.results) > 1:
        found = summaries([evaluation])
        report["conditions"] = [_values(c) | each for c, each in found.items()]
        report["rank_tests"] = rank_tests([evaluation])
    if (measured := obedience.measured(evaluation)) is not None:
        report["obedience"] = nulled(measured._asdict())
    return report


def _origin(evaluation: Evaluation, checkpoint: str, seed: int) -> dict[str, Any]:
    trained = evaluation.trained
    objective = {"objective": trained.config.es.objective} if evaluation.fitness else {}
    return {
        "run": str(evaluation.path),
        "env_id": trained.config.env.id,
        "method": trained.method.name,
        "checkpoint": checkpoint,
        "generation": trained.generation,
        "seed": seed,
        **({"changed": dict(trained.changed)} if trained.changed else {}),
        **objective,
    }


def experiment_report(
    evaluations: Sequence[Evaluation], checkpoint: str, seed: int
) -> dict[str, Any]:
    """Returns an experiment's runs, and each condition over all of them, as JSON."""
    runs = [run_report(each, checkpoint, seed) for each in evaluations]
    report: dict[str, Any] = {"runs": runs}
    if len(evaluations) > 1:
        found = summaries(evaluations)
        report["over_runs"] = [_values(c) | each for c, each in found.items()]
        report["rank_tests"] = rank_tests(evaluations)
        if measured := obedience.over_runs(evaluations):
            report["obedience"] = measured
    return report


def summaries(evaluations: Sequence[Evaluation]) -> dict[Condition, dict[str, Any]]:
    """Summarises each condition of a run, or over several runs.

    Varied environments have ``share_of_intact``, the mean return divided by that in the
    environment as it is; None where that is not positive.
    """
    if len(evaluations) == 1:
        (one,) = evaluations
        found = {c: summary(r, one.fitness.get(c)) for c, r in one.results.items()}
    else:
        conditions = evaluations[0].results
        found = {c: summary_over_runs(evaluations, c) for c in conditions}
    intact = found[BASE].get("return_mean", 0.0)
    for condition, each in found.items():
        if condition.variation is not None:
            is_known = intact > 0 and "return_mean" in each
            each["share_of_intact"] = each["return_mean"] / intact if is_known else None
    return found


def _values(condition: Condition) -> dict[str, Any]:
    """Returns what a condition changes, as JSON."""
    values = dataclasses.asdict(condition)
    if condition.variation is not None:
        values["variation"] = dict(condition.variation)
    return values


def rank_tests(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Tests each sweep: do the returns depend on what was changed?

    The blocks of one run are its episodes. Those of several are the runs, each with its
    mean return: a run's episodes are no samples of other runs. The base takes part,
    except where several target returns are compared with each other.
    """
    tests = []
    for name in (field.name for field in dataclasses.fields(Condition)):
        swept = [c for c in evaluations[0].results if getattr(c, name) is not None]
        if not swept:
            continue
        if name != "target_return" or len(swept) == 1:
            swept = [BASE, *swept]
        if len(evaluations) == 1:
            blocks = [evaluations[0].results[c].returns for c in swept]
        else:
            blocks = [[_finite_mean(e.results[c]) for e in evaluations] for c in swept]
        tests.append(
            {
                "changed": name,
                "blocks": "episodes" if len(evaluations) == 1 else "runs",
                **rank_test(np.transpose(blocks))._asdict(),
            }
        )
    return tests


def table(experiments: Sequence[Sequence[Evaluation]]) -> str:
    """Returns a Markdown table, and below it what the rank tests say.

    Between them stands how far runs obey, if they were asked for several returns.
    An experiment of several runs ends with rows of its own, over the runs' mean
    returns; its tests are over runs.
    """
    rows, tests, obeyed = [], [], []
    for evaluations in experiments:
        paths = [str(evaluation.path) for evaluation in evaluations]
        shown = [
            (path, *each)
            for path, evaluation in zip(paths, evaluations, strict=True)
            for each in summaries([evaluation]).items()
        ]
        name = paths[0]
        if len(evaluations) > 1:
            # Of characters: runs/hopper-seed0 and runs/hopper-seed1: runs/hopper-seed*.
            name = f"{os.path.commonprefix(paths)}* ({len(paths)} runs)"  # noqa: RUF071
            shown += [(name, *each) for each in summaries(evaluations).items()]
        method = evaluations[0].trained.method.title
        rows += [_row(run, method, condition, found) for run, condition, found in shown]
        tests += [
            "{run}, {about}: {name} test over {num_conditions} conditions and "
            "{num_blocks} {blocks}, p = {p_value:.2g}: {meaning}.".format(
                run=name, about=test["changed"].replace("_", " "), **test
            )
            for test in rank_tests(evaluations)
        ]
        obeyed += obedience.rows(evaluations, name)
    tables = [_aligned(part) for part in (rows, obeyed) if part]
    return "\n\n".join([*tables, *tests])


def _row(
    run: str, method: str, condition: Condition, found: dict[str, Any]
) -> dict[str, str]:
    row = {"run": run, "method": method, "condition": str(condition)}
    shown = [*STATISTICS, "fitness_mean", "fitness_std"]
    numbers = {name: found[name] for name in shown if found.get(name) is not None}
    written = {name: significant(value, 2) for name, value in numbers.items()}
    for head, cell in CELLS.items():
        is_known = "return_mean" in found or "{return" not in cell
        if "{share" in cell and found.get("share_of_intact") is None:
            row[head] = ""  # as of all that is not varied
            continue
        if "{fitness" in cell:
            if "fitness_mean" not in found:
                row[head] = ""
                continue
            is_known = found["fitness_mean"] is not None
        row[head] = cell.format(**found | written) if is_known else "none is finite"
    return row


def _aligned(rows: Sequence[dict[str, str]]) -> str:
    """Returns a table without columns that are empty."""
    plain = {"run": rows[0]["run"], "method": OPENAI_ES.title, "not finite": "0"}
    plain |= {"of intact": "", "fitness mean ± std": ""}
    names = [n for n in rows[0] if {row[n] for row in rows} != {plain.get(n)}]
    cells = [[row[name] for name in names] for row in rows]
    return markdown(names, cells, aligned=True)


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
            "changed": evaluation.trained.named_changes(),
            **dataclasses.asdict(condition),
            "variation": condition.variation and described(condition.variation),
            **dict.fromkeys(STATISTICS),
            **summary(result, evaluation.fitness.get(condition)),
        }
        for evaluations in experiments
        for evaluation in evaluations
        for condition, result in evaluation.results.items()
    ]
    with whole_file(file) as draft, draft.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
