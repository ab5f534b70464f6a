"""A run's folder: one process at a time, and what a resume may change."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest

from jax_es.checks import ConfigError
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_run, find_runs
from jax_es.training.build import TrainConfig
from jax_es.training.loop import train_run
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


def test_a_resume_may_extend_a_run_and_is_remembered(run):
    before = json.loads((run.path / "config.json").read_text())
    longer = dataclasses.replace(TrainConfig(), num_generations=300)
    run.check_resumable(longer)
    run.resume(longer)
    assert find_run(run.path).config() == longer
    after = json.loads((run.path / "config.json").read_text())
    assert {**after, "config": None} == {**before, "config": None}


def test_a_resume_warns_of_other_versions(run):
    record = json.loads((run.path / "config.json").read_text())
    record["versions"] |= {"jax": "0.0.1", "platform": "tpu"}
    run.update(versions=record["versions"])
    # Whoever resumes a run is told, from Python and of a cloning as well.
    with pytest.warns(UserWarning, match=r"platform tpu → cpu, jax 0\.0\.1 → "):
        run.resume(TrainConfig())


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
    train_run(TINY, path)
    return path


@pytest.fixture
def trained(made, tmp_path):
    return shutil.copytree(made, tmp_path / "trained")


def test_a_resume_from_python_keeps_the_devices_and_slots_of_the_run(trained):
    left_open = dataclasses.replace(
        LONGER.rollout, num_devices=None, num_slots=None, slots_per_core=3
    )
    train_run(dataclasses.replace(LONGER, rollout=left_open), trained, resume=True)
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
