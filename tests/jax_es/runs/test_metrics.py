"""Records survive kills, resume to the same file, and are strictly valid JSON."""

import dataclasses
import json
import math
import os
import struct
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.runs import metrics
from jax_es.runs.metrics import (
    TENSORBOARD_GROUPS,
    WALL_CLOCK_FIELDS,
    GenerationRecord,
    MetricsWriter,
    read_metrics,
    return_statistics,
)

FIELDS = dataclasses.fields(GenerationRecord)


def make_record(generation, **changes):
    """A record whose every field has a value of its own."""
    values = {
        field.name: generation + index * (1 if field.type is int else 0.1)
        for index, field in enumerate(FIELDS)
    }
    return GenerationRecord(**values | {"generation": generation} | changes)


def write_all(directory, generations, resume_after_generation=None):
    with MetricsWriter(directory, resume_after_generation) as writer:
        for generation in generations:
            writer.write(make_record(generation))


def test_reads_back_what_was_written(tmp_path):
    write_all(tmp_path / "runs" / "a", range(3))
    assert read_metrics(tmp_path / "runs" / "a") == [make_record(g) for g in range(3)]


def test_a_line_is_strict_json_with_every_field_in_order(tmp_path):
    write_all(tmp_path, [4])
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.endswith("}\n")
    assert text.count("\n") == 1
    values = json.loads(text, parse_constant=pytest.fail)
    assert list(values) == [field.name for field in FIELDS]
    assert values == dataclasses.asdict(make_record(4))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_what_json_cannot_say_is_null_and_reads_as_nan(tmp_path, value):
    with MetricsWriter(tmp_path) as writer:
        writer.write(make_record(0, return_mean=value))
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["return_mean"] is None
    (record,) = read_metrics(tmp_path)
    assert math.isnan(record.return_mean)


def test_numpy_and_jax_scalars_become_plain_numbers():
    record = make_record(
        np.int64(3),
        return_mean=np.float32(0.1),
        return_max=jnp.float32(2.5),
        num_failed=jnp.int32(7),
        mean_norm=4,
    )
    for field in FIELDS:
        assert type(getattr(record, field.name)) is field.type, field.name
    assert record.return_mean == float(np.float32(0.1))
    assert record.num_failed == 7


def test_a_record_is_on_the_disk_when_write_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        metrics.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor))
    )
    with MetricsWriter(tmp_path) as writer:
        for generation in range(3):
            writer.write(make_record(generation))
            assert len(read_metrics(tmp_path)) == generation + 1
            file = (tmp_path / "metrics.jsonl").stat()
            sizes = [stat.st_size for stat in synced if stat.st_ino == file.st_ino]
            assert len(sizes) == generation + 1
            assert sizes[-1] == file.st_size


def test_every_field_is_documented_and_mirrored_once():
    grouped = [name for names in TENSORBOARD_GROUPS.values() for name in names]
    names = {field.name for field in FIELDS}
    assert sorted(grouped) == sorted(names - {"generation"})
    assert set(WALL_CLOCK_FIELDS) <= names
    assert {name for name in names if "second" in name} == set(WALL_CLOCK_FIELDS)
    for name in names:
        assert f"        {name}: " in GenerationRecord.__doc__


# Resuming


@pytest.mark.parametrize("half_line", [b"", b'{"generation": 5, "env', b"{", b"\xff"])
@pytest.mark.parametrize("num_written", [3, 4, 5])
def test_a_resumed_file_equals_the_uninterrupted_one(tmp_path, num_written, half_line):
    """The checkpoint is of generation 2; the kill came 0 to 2 generations later."""
    write_all(tmp_path / "whole", range(6))
    write_all(tmp_path / "killed", range(num_written))
    path = tmp_path / "killed" / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + half_line)
    write_all(tmp_path / "killed", range(3, 6), resume_after_generation=2)
    assert path.read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert sorted(os.listdir(tmp_path / "killed")) == ["metrics.jsonl", "tensorboard"]


def test_resuming_before_the_first_checkpoint_starts_over(tmp_path):
    write_all(tmp_path, range(2))
    write_all(tmp_path, range(1), resume_after_generation=-1)
    assert read_metrics(tmp_path) == [make_record(0)]


def test_resuming_without_a_file_begins_one(tmp_path):
    write_all(tmp_path, [3], resume_after_generation=2)
    assert read_metrics(tmp_path) == [make_record(3)]


def test_dying_while_later_records_are_removed_keeps_the_file(tmp_path, monkeypatch):
    write_all(tmp_path, range(4))
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(metrics.os, "replace", die)
        MetricsWriter(tmp_path, resume_after_generation=1)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    write_all(tmp_path, [], resume_after_generation=1)
    assert [record.generation for record in read_metrics(tmp_path)] == [0, 1]


def test_a_new_run_does_not_touch_the_records_of_another(tmp_path):
    write_all(tmp_path, range(2))
    with pytest.raises(ValueError, match=r"metrics.jsonl has records of another run"):
        MetricsWriter(tmp_path)
    assert len(read_metrics(tmp_path)) == 2


# Reading


def test_a_line_being_written_is_left_out(tmp_path):
    write_all(tmp_path, range(2))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"generation": 2')
    assert len(read_metrics(tmp_path)) == 2


@pytest.mark.parametrize(
    "line", ["{", "[]", "3", "", "\r", '{"generation": 1}', "\xff"]
)
def test_a_damaged_line_is_named(tmp_path, line):
    write_all(tmp_path, range(2))
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    lines[1] = line.encode("latin-1")
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(ValueError, match=r"line 2 of .*metrics.jsonl is not a record"):
        read_metrics(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"metrics.jsonl does not exist: give"):
        read_metrics(tmp_path)


def test_records_of_other_versions_are_read(tmp_path):
    values = dataclasses.asdict(make_record(1)) | {"of_a_later_version": 1}
    del values["mean_norm"]
    (tmp_path / "metrics.jsonl").write_text(json.dumps(values) + "\n")
    (record,) = read_metrics(tmp_path)
    assert math.isnan(record.mean_norm)
    assert record.return_mean == make_record(1).return_mean


# Statistics of returns


def test_return_statistics_against_hand_computed_values():
    statistics = return_statistics([[0.0, 1.0, 2.0], [3.0, 4.0, np.nan], [np.inf] * 3])
    assert statistics._asdict() == {
        "mean": 2.0,
        "std": math.sqrt(2.0),
        "min": 0.0,
        "max": 4.0,
        "p2_5": pytest.approx(0.1),
        "p97_5": pytest.approx(3.9),
        "num_nonfinite": 4,
    }
    assert {type(value) for value in statistics} == {float, int}


@pytest.mark.parametrize(("returns", "count"), [([], 0), ([np.nan, -np.inf], 2)])
def test_return_statistics_of_nothing_are_nan(returns, count):
    *values, num_nonfinite = return_statistics(returns)
    assert num_nonfinite == count
    assert len(values) == 6
    assert np.isnan(values).all()


# TensorBoard


def read_events(file):
    """Reads the TensorBoard events of a file, record by record."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    content = file.read_bytes()
    events = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        events.append(event_pb2.Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return events


def test_scalars_are_mirrored_to_tensorboard(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(make_record(7, return_max=math.nan))
    (file,) = (tmp_path / "tensorboard").iterdir()
    # Read before closing: a kill must not lose it.
    version, event = read_events(file)
    assert version.file_version == "brain.Event:2"
    assert event.step == 7
    values = {value.tag: value.simple_value for value in event.summary.value}
    record = make_record(7)
    expected = {
        f"{group}/{name}": pytest.approx(getattr(record, name))
        for group, names in TENSORBOARD_GROUPS.items()
        for name in names
        if name != "return_max"
    }
    assert values == expected
    writer.close()
    writer.close()


def test_a_resume_purges_later_events_and_overwrites_no_file(tmp_path):
    write_all(tmp_path, range(5))
    write_all(tmp_path, range(3, 5), resume_after_generation=2)
    first, second = sorted((tmp_path / "tensorboard").iterdir())
    assert [event.step for event in read_events(first)] == [0, 0, 1, 2, 3, 4]
    _, start, *rest = read_events(second)
    assert start.step == 3
    assert start.session_log.status == start.session_log.START
    assert [event.step for event in rest] == [3, 4]


def test_without_tensorboardx_there_is_only_jsonl(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tensorboardX.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    write_all(tmp_path, range(2))
    assert len(read_metrics(tmp_path)) == 2
    assert os.listdir(tmp_path) == ["metrics.jsonl"]
