"""One record per epoch of behaviour cloning: on disk, and on the terminal.

``cloning.jsonl`` in the run's folder has a JSON object a line. The evaluation that
counts is in ``metrics.jsonl`` as well, like any other run's.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jax_es.cli.progress import Layout, named
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.runs.files import whole_file
from jax_es.runs.records import nulled, return_statistics

CLONING_FILE = "cloning.jsonl"


class EpochRecord(NamedTuple):
    """What happened in one epoch."""

    epoch: int
    """Its index, from 0."""
    step: int
    """Steps of gradient descent since the run began."""
    training_loss: float
    """Mean over the epoch's batches, dropout included."""
    holdout_loss: float | None
    """Of the epoch's last θ on episodes that it never learns from, without dropout;
    None if none are held out."""
    evaluations: list[dict[str, float | None]]
    """From :func:`target_evaluation`, of the epoch's last θ, under the configuration's
    own target return first."""
    steps_per_second: float
    """Steps of gradient descent, evaluation left out."""
    seconds_elapsed: float
    """Since the run began."""
    own_return_mean: float | None = None
    """Of the episodes that it played itself before the epoch, with noise."""
    own_steps: int = 0
    """Environment steps of all such episodes so far."""


def target_evaluation(
    target_return: float | None, result: EpisodeResults
) -> dict[str, float | None]:
    """Summarises episodes under one target return; None is what is not finite."""
    found = return_statistics(result.returns)._asdict()
    found = {f"return_{name}": found[name] for name in ("mean", "std", "min", "max")}
    found["length_mean"] = float(np.mean(result.lengths))
    return {"target_return": target_return, **nulled(found)}


def write_epoch(run: Path, record: EpochRecord) -> None:
    """Appends a record to the run's file, in place of any of this epoch or later."""
    kept = [*(e for e in read_epochs(run) if e.epoch < record.epoch), record]
    # Renamed into place, so that a kill leaves whole lines only. Epochs are few.
    with whole_file(run / CLONING_FILE) as draft:
        draft.write_text("".join(json.dumps(r._asdict()) + "\n" for r in kept))


def read_epochs(run: Path) -> list[EpochRecord]:
    """Reads a run's records; there may be none."""
    path = run / CLONING_FILE
    lines = path.read_text().splitlines() if path.exists() else []
    return [EpochRecord(**json.loads(line)) for line in lines]


def _fields(record: EpochRecord) -> list[str]:
    own, *others = record.evaluations
    played = record.own_return_mean
    return [
        f"loss {record.training_loss:7.5f}",
        *(
            []
            if record.holdout_loss is None
            else [f"held-out {record.holdout_loss:7.5f}"]
        ),
        named("evaluation", _or_nan(own["return_mean"])),
        *(
            named(f"asked-{each['target_return']:.6g}", _or_nan(each["return_mean"]))
            for each in others
        ),
        *([] if played is None else [named("own", played)]),
        f"length {own['length_mean']:5.0f}",
        f"steps/s {record.steps_per_second:7.1f}",
    ]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


EPOCHS = Layout("epoch", "step", _fields)
