"""One record per epoch of behaviour cloning: on disk, and on the terminal.

``cloning.jsonl`` in the run's folder has a JSON object a line; NaN is ``null``. The
evaluation that counts is in ``metrics.jsonl`` as well, like any other run's.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jax_es.cli.progress import Layout
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.runs.files import whole_file
from jax_es.runs.metrics import MetricsError
from jax_es.runs.records import return_statistics

CLONING_FILE = "cloning.jsonl"


class TargetEvaluation(NamedTuple):
    """Episodes of θ under one target return."""

    target_return: float | None
    """What was asked for; None of a policy that is not asked."""
    return_mean: float
    """Over the episodes whose return is finite, as are the next three."""
    return_std: float
    return_min: float
    return_max: float
    length_mean: float
    """In environment steps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """What happened in one epoch."""

    epoch: int
    """Its index, from 0."""
    step: int
    """Steps of gradient descent since the run began."""
    training_loss: float
    """Mean over the epoch's batches, dropout included."""
    holdout_loss: float
    """Of the epoch's last θ on episodes that it never learns from, without dropout; NaN
    if none are held out."""
    evaluations: tuple[TargetEvaluation, ...]
    """Of the epoch's last θ, under the configuration's own target return first."""
    steps_per_second: float
    """Steps of gradient descent, evaluation left out."""
    seconds_elapsed: float
    """Since the run began."""

    @property
    def generation(self) -> int:
        """The epoch, by the name that ``Progress`` and ``metrics.jsonl`` count by."""
        return self.epoch


def target_evaluation(
    target_return: float | None, result: EpisodeResults
) -> TargetEvaluation:
    """Summarises an evaluation's episodes."""
    returns = return_statistics(result.returns)
    length = float(np.mean(result.lengths))
    return TargetEvaluation(target_return, *returns[:4], length)


def write_epoch(run: Path, record: EpochRecord) -> None:
    """Appends a record to the run's file, in place of any of this epoch or later."""
    records = [r for r in read_epochs(run) if r.epoch < record.epoch] + [record]
    # Renamed into place, so that a kill leaves whole lines only. Epochs are few.
    with whole_file(run / CLONING_FILE) as draft:
        draft.write_text("".join(_to_json(each) + "\n" for each in records))


def read_epochs(run: Path) -> list[EpochRecord]:
    """Reads a run's records; there may be none.

    Raises:
        MetricsError: a line is not a record.
    """
    path = run / CLONING_FILE
    if not path.exists():
        return []
    try:
        return [_from_json(line) for line in path.read_text().splitlines()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MetricsError(
            f"{path} is not a cloning's record ({error}): restore it from a backup"
        ) from error


def _to_json(record: EpochRecord) -> str:
    def finite(values: dict) -> dict:
        return {
            k: None if isinstance(v, float) and not math.isfinite(v) else v
            for k, v in values.items()
        }

    evaluations = [finite(each._asdict()) for each in record.evaluations]
    values = {**dataclasses.asdict(record), "evaluations": evaluations}
    return json.dumps(finite(values), allow_nan=False)


def _from_json(line: str) -> EpochRecord:
    def numbers(values: dict) -> dict:
        return {k: math.nan if v is None else v for k, v in values.items()}

    values = json.loads(line)
    evaluations = tuple(
        TargetEvaluation(each.pop("target_return"), **numbers(each))
        for each in values.pop("evaluations")
    )
    return EpochRecord(**numbers(values), evaluations=evaluations)


def _fields(record: EpochRecord) -> list[str]:
    own, *others = record.evaluations
    return [
        f"loss {record.training_loss:8.5f}",
        f"held-out {record.holdout_loss:8.5f}",
        f"evaluation {own.return_mean:9.1f}",
        *(f"asked-{e.target_return:.6g} {e.return_mean:9.1f}" for e in others),
        f"length {own.length_mean:7.1f}",
        f"steps/s {record.steps_per_second:7.1f}",
    ]


EPOCHS = Layout("epoch", "step", _fields)
