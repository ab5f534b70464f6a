"""Records survive kills, resume to the same file, and are strictly valid JSON."""

import json
import math
import os
import re
import struct
import time

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from jax_es.checks import ConfigError
from jax_es.runs.metrics import MetricsWriter, check_own_records, read_metrics
from jax_es.runs.records import (
    FIELDS,
    GROUPS,
    GenerationRecord,
    evaluation_record,
    return_statistics,
    written,
)
from jax_es.runs.tracking import scalars


def make_record(generation, **changes):
    """A record whose every field has a value of its own."""
    values = {
        field.name: generation + index * (1 if field.type is int else 0.1)
        for index, field in enumerate(FIELDS)
    }
    return GenerationRecord(**values | {"generation": generation} | changes)


def write_all(directory, generations, resume_after_generation=-1):
    with MetricsWriter(directory, resume_after_generation) as writer:
        for generation in generations:
            writer.write(make_record(generation))


def test_a_line_is_strict_json_with_every_field_in_order(tmp_path):
    write_all(tmp_path, [4])
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.endswith("}\n")
    assert text.count("\n") == 1
    values = json.loads(text, parse_constant=pytest.fail)
    record = make_record(4)
    assert set(values) == {written(field.name) for field in FIELDS}
    assert list(values)[:5] == [
        *("generation", "phase", "env_steps", "total_env_steps"),
        "population/num_episodes",
    ]
    assert values["evaluation/return_mean"] == record.evaluation_return_mean
    assert values == record.numbers()


def test_cpu_seconds_are_counted_and_go_on_after_a_pause(tmp_path):
    def write(generation):
        with MetricsWriter(tmp_path, generation - 1) as writer:
            began = time.process_time()
            while time.process_time() < began + 0.02:
                pass
            writer.write(make_record(generation, cpu_seconds=math.nan))
        return read_metrics(tmp_path)[-1].cpu_seconds

    first, second = write(0), write(1)
    assert 0.02 <= first <= second - 0.02
    # Of a version that did not count them nobody knows how many there were.
    file = tmp_path / "metrics.jsonl"
    file.write_text(file.read_text().replace("cpu_seconds", "older"))
    assert math.isnan(write(2))


def test_every_field_is_in_one_group_or_in_none():
    grouped = [name for names in GROUPS.values() for name in names]
    first = ["generation", "phase", "env_steps", "total_env_steps"]
    assert sorted(grouped + first) == sorted(field.name for field in FIELDS)
    assert len({written(field.name) for field in FIELDS}) == len(FIELDS)


def test_what_was_not_measured_is_not_written(tmp_path):
    record = evaluation_record(3, 50, [1.0], [9], 1.0, 2.0)
    with MetricsWriter(tmp_path) as writer:
        writer.write(record)
    values = json.loads((tmp_path / "metrics.jsonl").read_text())
    groups = {name.split("/")[0] for name in values if "/" in name}
    assert groups == {"evaluation", "time"}
    found, wanted = read_metrics(tmp_path)[0].numbers(), record.numbers()
    assert found.pop("time/cpu_seconds") >= 0  # which the writer measures
    assert math.isnan(wanted.pop("time/cpu_seconds"))
    assert found == wanted


def test_names_without_groups_are_read_as_before(tmp_path):
    record = make_record(1)
    flat = {field.name: getattr(record, field.name) for field in FIELDS}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(flat) + "\n")
    assert read_metrics(tmp_path) == [record]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_what_json_cannot_say_is_null_and_reads_as_nan(tmp_path, value):
    with MetricsWriter(tmp_path) as writer:
        writer.write(make_record(0, return_mean=value))
    text = (tmp_path / "metrics.jsonl").read_text()
    assert (
        json.loads(text, parse_constant=pytest.fail)["population/return_mean"] is None
    )
    (record,) = read_metrics(tmp_path)
    assert math.isnan(record.return_mean)


def test_a_strategys_own_numbers_are_written_by_name(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(make_record(0, strategy={"ok": True, "spread": jnp.inf}))
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.endswith('"strategy/ok": 1.0, "strategy/spread": null}\n')
    (record,) = read_metrics(tmp_path)
    assert record.strategy["ok"] == 1.0 and math.isnan(record.strategy["spread"])
    assert scalars(record)["strategy/ok"] == 1.0


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


def lacking(*generations):
    """Removes lines."""

    def damage(lines):
        return [line for g, line in enumerate(lines) if g not in generations]

    return damage


IN_ORDER = "held records twice or in another order, and was put in order"


@pytest.mark.parametrize(
    ("damage", "kept", "said"),
    [
        (lacking(1, 3), [0, 2], "lacks 2 of 4 records, the first 1"),
        (lacking(*range(4)), [], "lacks 4 of 4 records, the first 0"),
        (lambda lines: [lines[0], *lines], [0, 1, 2, 3], IN_ORDER),
        (lambda lines: lines[::-1], [0, 1, 2, 3], IN_ORDER),
        (
            lambda lines: lines[:1:-1],
            [2, 3],
            f"lacks 2 of 4 records, the first 0 and {IN_ORDER}",
        ),
    ],
)
def test_a_resume_says_which_records_are_missing(tmp_path, damage, kept, said):
    write_all(tmp_path / "whole", [*kept, 4])
    write_all(tmp_path / "run", range(4))
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(damage(lines)))
    with pytest.warns(UserWarning, match=re.escape(f"{path} {said}")):
        write_all(tmp_path / "run", [4], resume_after_generation=3)
    whole = tmp_path / "whole" / "metrics.jsonl"
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_file_that_is_deleted_is_said_once(tmp_path, is_begun):
    write_all(tmp_path, range(2))
    with MetricsWriter(tmp_path, 1) as writer:
        if is_begun:
            writer.write(make_record(2))
        (tmp_path / "metrics.jsonl").unlink()
        with pytest.warns(UserWarning, match="deleted while the run went on"):
            writer.write(make_record(3))
        writer.write(make_record(4))
    assert [record.generation for record in read_metrics(tmp_path)] == [3, 4]


def test_another_runs_file_is_refused(tmp_path):
    write_all(tmp_path, range(3))
    state = {"best_evaluation_return": make_record(1).best_evaluation_return}
    check_own_records(tmp_path / "none", -1, **state)
    for name, value in (("total_env_steps", 1.0), ("best_evaluation_return", 1.0)):
        with pytest.raises(ConfigError, match=rf"another run's: .* {name} .* 1\.0;"):
            check_own_records(tmp_path, 1, **{name: value})
    # What neither file nor checkpoint says in a number is compared with nothing.
    check_own_records(tmp_path, 1, best_evaluation_return=-math.inf)
    check_own_records(tmp_path, 1, **state)
    check_own_records(tmp_path, 2, total_env_steps=make_record(2).total_env_steps)


# Reading


FAR = '{"generation": Infinity, "env_steps": 1, "total_env_steps": 1}'


@pytest.mark.parametrize(
    "line", ["{", "[]", "3", "", "\r", '{"generation": 1}', "\xff", FAR]
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
    with pytest.raises(ValueError, match=r"metrics.jsonl cannot be read .*: give"):
        read_metrics(tmp_path)


def test_records_of_other_versions_are_read(tmp_path):
    values = make_record(1).numbers() | {"of_a_later_version": 1}
    del values["update/mean_norm"]
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
    content = file.read_bytes()
    events = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        events.append(event_pb2.Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return events


def test_scalars_are_mirrored_to_tensorboard(tmp_path):
    write_all(tmp_path, range(3))
    write_all(tmp_path, [2], resume_after_generation=1)
    first, second = sorted((tmp_path / "tensorboard").iterdir())
    scalars = {
        (event.step, value.tag): value.simple_value
        for event in read_events(first)
        for value in event.summary.value
    }
    record = make_record(1)
    shown = {tag: value for (step, tag), value in scalars.items() if step == 1}
    expected = record.numbers()
    assert shown.keys() == expected.keys() - {"generation", "phase"}
    assert shown == pytest.approx({tag: expected[tag] for tag in shown})
    # TensorBoard forgets what a killed process wrote of later generations.
    starts = [e.step for e in read_events(second) if e.session_log.status]
    assert starts == [2]
    assert {e.step for e in read_events(second) if e.summary.value} == {2}


def test_tensorboard_gets_no_nan_and_no_population_of_an_evaluation(tmp_path):
    shown = scalars(evaluation_record(3, 50, [1.0], [9], 1.0, 2.0))
    assert "evaluation/return_mean" in shown
    assert not any(tag.startswith("population/") for tag in shown)
    assert all(map(math.isfinite, shown.values()))
