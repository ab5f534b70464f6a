"""A run's folder: one process at a time, and what a resume may change."""

import dataclasses
import datetime
import json
import os
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_es.checks import ConfigError, printable
from jax_es.runs.changes import check_resumable, take_over
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory, resume_options
from jax_es.runs.files import check_place, read_json, write_record
from jax_es.runs.find import check_new_name, find_run, find_runs
from jax_es.runs.folders import new_folder
from jax_es.training.build import TrainConfig
from jax_es.training.train_policy import train_policy
from tests.made_runs import TINY

HOLD_THE_LOCK = """
import fcntl, pathlib, sys, time
file = pathlib.Path(sys.argv[1]).open("w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create(TrainConfig(), "test")
    return run


def test_a_second_process_is_refused_until_the_first_is_killed(run):
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(run.path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="another process"), run.lock():
            pass
        other.kill()
        other.wait()
    with run.lock():
        pass


def test_runs_that_begin_at_one_instant_have_folders_of_their_own(
    tmp_path, monkeypatch
):
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 28, 10, 11, 44, tzinfo=tz)

    monkeypatch.setattr(datetime, "datetime", Clock)
    names = []
    for _ in range(3):
        folder = new_folder("ant-seed0", tmp_path)
        folder.mkdir()
        names.append(folder.name)
    first = "ant-seed0-20261128-101144"
    assert names == [first, f"{first}-2", f"{first}-3"]


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm")
def test_shared_memory_holds_files_as_a_disk_does():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder) / "run" / "config.json"
        write_record(file, {"seed": 1})
        assert read_json(file) == {"seed": 1}
        assert os.listdir(file.parent) == [file.name]


def test_a_resume_may_extend_a_run_and_is_remembered(run):
    before = json.loads((run.path / "config.json").read_text())
    longer = dataclasses.replace(TrainConfig(), num_generations=300)
    check_resumable(run, longer)
    take_over(run, longer, 3)
    assert find_run(run.path).config() == longer
    other = {"config": None, "digests": None}
    after = json.loads((run.path / "config.json").read_text())
    assert {**after, **other} == {**before, **other}


def test_a_resume_under_other_settings_of_jax_is_refused(run):
    with jax.threefry_partitionable(False):
        with pytest.raises(ConfigError, match="JAX_THREEFRY_PARTITIONABLE was True, n"):
            check_resumable(run, TrainConfig())
        other = RunDirectory(run.path.with_name("other"))
        other.create(TrainConfig(), "test")
        check_resumable(other, TrainConfig())
    with pytest.raises(ConfigError, match="JAX_THREEFRY_PARTITIONABLE was False, now"):
        check_resumable(other, TrainConfig())


def test_a_run_that_does_not_say_its_settings_had_the_usual_ones(run):
    record = json.loads((run.path / "config.json").read_text())
    del record["jax"]
    run.write(record)
    check_resumable(run, TrainConfig())
    with (
        jax.default_matmul_precision("highest"),
        pytest.raises(ConfigError, match="MATMUL_PRECISION was None, now 'highest'"),
    ):
        check_resumable(run, TrainConfig())


def test_a_resume_warns_of_other_versions(run):
    record = json.loads((run.path / "config.json").read_text())
    record["versions"] |= {"jax": "0.0.1", "platform": "tpu"}
    run.update(versions=record["versions"])
    # Whoever resumes a run is told, from Python and of a cloning as well.
    with pytest.warns(UserWarning, match=r"platform tpu → cpu, jax 0\.0\.1 → "):
        take_over(run, TrainConfig(), 3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": ["sac"]}, "method must be one of"),
        ({"method": ["sac", {}, 3]}, "method must be one of"),
        ({"method": ["antigravity", {}]}, "method must be one of"),
        ({"method": "ab"}, "method must be one of"),
        ({"method": None}, "method must be one of"),
        ({"init": {"run": "a", "checkpoint": 1}}, "method must be one of"),
        ({"init": {"method": ["sac", {}]}}, "run must be str"),
        ({"init": 5}, "an object is expected"),
        ({"machine": [1]}, "machine must be dict"),
        ({"versions": "jax"}, "versions must be dict"),
        ({"data": 3}, "data must be dict"),
        ({"git_commit": 5}, "git_commit must be str"),
        ({"preset": None}, "preset must be str"),
    ],
)
def test_a_record_of_other_types_is_one_line(run, changes, said):
    file = run.path / "config.json"
    file.write_text(json.dumps({**run.record(), **changes}))
    for read in (run.record, run.config, run.method, run.method_before):
        with pytest.raises(ConfigError, match=f"config.json is not .*{said}.*restore"):
            read()


LONGER = dataclasses.replace(TINY, num_generations=2)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "made"
    train_policy(TINY, path)
    return path


@pytest.fixture
def trained(made, tmp_path):
    return shutil.copytree(made, tmp_path / "trained")


def test_a_resume_from_python_keeps_the_devices_and_slots_of_the_run(trained):
    left_open = dataclasses.replace(
        LONGER.rollout, num_devices=None, num_slots=None, slots_per_core=3
    )
    train_policy(dataclasses.replace(LONGER, rollout=left_open), trained, resume=True)
    assert find_run(trained).config() == LONGER


def test_an_experiment_folder_is_its_seeds_in_order(tmp_path):
    for name in ("seed-10", "seed-2", "seed-0", "seed-x", "other"):
        RunDirectory(tmp_path / name).create(TrainConfig(), "test")
    (tmp_path / "seed-3").mkdir()  # not begun
    found = [run.path for run in find_runs(tmp_path)]
    assert found == [tmp_path / f"seed-{seed}" for seed in (0, 2, 10)]
    assert find_runs(tmp_path / "other") == [find_run(tmp_path / "other")]
    with pytest.raises(ConfigError, match=r"seed-3 is not a run.*Runs there"):
        find_runs(tmp_path / "seed-3")
    # A run is a run, whatever else is in its folder.
    shutil.copy(tmp_path / "other" / "config.json", tmp_path)
    assert find_runs(tmp_path) == [RunDirectory(tmp_path)]


def is_lost(folder: Path) -> bool:
    """Whether what is stored below a folder cannot be read from there."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        checkpoints = Checkpoints(folder / "checkpoints")
        checkpoints.save(1, {"mean": np.arange(3.0)})
        state = checkpoints.restore("last").state
    except (ValueError, RuntimeError, NotImplementedError):
        return True
    return state["mean"].tolist() != [0, 1, 2]


def is_refused(folder: Path) -> bool:
    """Whether nothing is written there."""
    try:
        check_place(folder)
    except ConfigError as error:
        assert printable(f"{folder}")[:99] in str(error)
        return True
    return False


def test_exactly_what_the_storage_loses_is_refused(tmp_path):
    characters = [
        *set(string.punctuation) - {"/"},
        *" \n\té漢\u0301\u202e🙂\udcff",
        "**",
    ]
    names = [f"a{character}b]" for character in characters]
    refused = {name for name in names if is_refused(tmp_path / name)}
    lost = {name for name in names if is_lost(tmp_path / name)}
    # These are patterns, which lose a run only beside another one that they match.
    assert refused - lost == {"a?b]", "a*b]"}
    assert lost == {"a\\b]", "a[b]", "a**b]", "a\udcffb]"}
    assert lost < refused


def test_a_path_that_leaves_a_link_upwards_is_refused(tmp_path):
    (tmp_path / "there" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "deep")
    for path in ("link/run", "there/deep/../run"):
        assert not is_refused(tmp_path / path) and not is_lost(tmp_path / path)
    assert is_refused(tmp_path / "link/../run") and is_lost(tmp_path / "link/../run")


def test_a_path_may_have_the_length_that_is_not_refused(tmp_path):
    long = tmp_path.joinpath(*["n" * 99] * 38)
    long /= "n" * (3899 - len(str(long)))
    assert len(str(long)) == 3900
    assert not is_refused(long) and not is_lost(long / "seed-2147483647")
    assert is_refused(Path(f"{long}n"))


def test_no_folder_is_made_where_a_run_would_be_lost(tmp_path, monkeypatch):
    folder = tmp_path / "a\\b"
    with pytest.raises(ConfigError, match="arrays cannot be stored"):
        train_policy(TINY, folder / "run")
    assert not folder.exists()
    folder.mkdir()
    monkeypatch.chdir(folder)  # a relative path, too
    with pytest.raises(ConfigError, match="arrays cannot be stored"):
        train_policy(TINY, "run")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("name", ["Ünï 2.0_b-1", "हिन्दी", "走る", "n\u0303andu", "٣"])
def test_names_are_of_any_script(name):
    check_new_name(name)


@pytest.mark.parametrize("name", [*"\\#%?*+:~!\n\0\u200d\u202e🙂²½", "a\udcffb"])
def test_names_have_no_other_characters(name):
    with pytest.raises(ConfigError, match="must consist of letters"):
        check_new_name(f"a{name}")


def test_a_run_of_another_name_is_read_and_goes_on(run, tmp_path):
    odd = run.path.rename(tmp_path / "a b+c#%41")
    assert resume_options(RunDirectory(odd)) == (
        f"--resume --name {shlex.quote(odd.name)} --runs-dir {tmp_path}"
    )
    assert find_run(odd).config() == TrainConfig()
    with find_run(odd).lock():
        pass
