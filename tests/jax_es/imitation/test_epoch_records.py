"""Records of cloning: what is written is read, and shown."""

import io

from jax_es.cli.progress import Progress
from jax_es.imitation.epoch_records import EPOCHS, EpochRecord, read_epochs, write_epoch


def record(epoch, loss=0.25):
    asked = {"target_return": 3000.0, "return_mean": 900.5, "length_mean": 321.0}
    other = {"target_return": 50.0, "return_mean": None, "length_mean": 2.0}
    return EpochRecord(epoch, 10 * (epoch + 1), loss, None, [asked, other], 12.5, 3.5)


def test_a_repeated_epoch_takes_its_place_and_the_later_ones(tmp_path):
    assert read_epochs(tmp_path) == []
    for epoch in range(3):
        write_epoch(tmp_path, record(epoch))
    write_epoch(tmp_path, record(1, loss=0.5))
    assert read_epochs(tmp_path) == [record(0), record(1, loss=0.5)]


def test_what_is_shown():
    stream = io.StringIO()
    with Progress(12, stream=stream, layout=EPOCHS, clock=lambda: 0.0) as progress:
        progress.generation_started(0)
        progress.generation_done(record(0))
    assert " ".join(stream.getvalue().split()) == (
        "compiling and running the first epoch epoch 1/12 loss 0.25000 "
        "evaluation 900.5 asked-50 nan length 321 "
        "left -:--:--"
    )
