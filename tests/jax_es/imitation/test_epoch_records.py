"""Records of cloning: what is written is read, and shown."""

import io
import json
import math

import pytest

from jax_es.cli.progress import Progress
from jax_es.imitation.epoch_records import (
    CLONING_FILE,
    EPOCHS,
    EpochRecord,
    TargetEvaluation,
    read_epochs,
    write_epoch,
)
from jax_es.runs.metrics import MetricsError


def record(epoch, loss=0.25, target_return=3000.0):
    asked = TargetEvaluation(target_return, 900.5, 10.0, 800.0, 1000.0, 321.0)
    return EpochRecord(
        epoch=epoch,
        step=10 * (epoch + 1),
        training_loss=loss,
        holdout_loss=math.nan,
        evaluations=(asked, asked._replace(target_return=50.0, return_mean=math.nan)),
        steps_per_second=12.5,
        seconds_elapsed=3.5,
    )


def test_what_is_written_is_read(tmp_path):
    assert read_epochs(tmp_path) == []
    write_epoch(tmp_path, record(0, target_return=None))
    write_epoch(tmp_path, record(1))
    first, second = read_epochs(tmp_path)
    assert repr(first) == repr(record(0, target_return=None))
    assert repr(second) == repr(record(1))
    for line in (tmp_path / CLONING_FILE).read_text().splitlines():
        assert json.loads(line)["holdout_loss"] is None
        assert "NaN" not in line


def test_a_repeated_epoch_takes_its_place_and_the_later_ones(tmp_path):
    for epoch in range(3):
        write_epoch(tmp_path, record(epoch))
    write_epoch(tmp_path, record(1, loss=0.5))
    kept = [(r.epoch, r.training_loss) for r in read_epochs(tmp_path)]
    assert kept == [(0, 0.25), (1, 0.5)]


@pytest.mark.parametrize("text", ["{", "{}", '{"epoch": 1}', "[]"])
def test_other_lines_are_refused(tmp_path, text):
    (tmp_path / CLONING_FILE).write_text(text + "\n")
    with pytest.raises(MetricsError, match="restore it from a backup"):
        read_epochs(tmp_path)


def test_what_is_shown():
    stream = io.StringIO()
    with Progress(12, stream=stream, layout=EPOCHS, clock=lambda: 0.0) as progress:
        progress.generation_started(0)
        progress.generation_done(record(0))
    assert " ".join(stream.getvalue().split()) == (
        "epoch 1/12 loss 0.25000 held-out nan evaluation 900.5 asked-50 nan "
        "length 321.0 steps/s 12.5 left -:--:--"
    )
