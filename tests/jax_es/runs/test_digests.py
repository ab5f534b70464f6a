"""Damage is noticed; what earlier versions wrote is read with a warning."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.runs.changes import take_over
from jax_es.runs.checkpoint import CheckpointError, Checkpoints
from jax_es.runs.digests import check_digests, replacing
from jax_es.runs.directory import RunDirectory
from jax_es.train_config import TrainConfig
from jax_es.training.load_policy import load_policy

RESULTS = Path(__file__).parents[3] / "results" / "policies"


def state(value):
    return {"x": np.full(3, float(value))}


@pytest.fixture
def run(tmp_path):
    """A run that keeps digests, with the steps 1 and 2."""
    run = RunDirectory(tmp_path / "run")
    run.create(TrainConfig(), "test")
    for step in (1, 2):
        Checkpoints(run.checkpoints).save(step, state(step))
    return run


def as_of_an_earlier_version(run):
    """Takes all digests away."""
    for file in run.path.rglob("digests.json"):
        file.unlink()
    record = run.record()
    del record["digests"]
    (run.path / run.file).write_text(json.dumps(record))


def test_where_digests_were_written_their_absence_is_damage(run):
    (run.checkpoints / "last" / "2" / "digests.json").unlink()
    with pytest.raises(CheckpointError, match=r"2/digests.json is missing\); delete"):
        Checkpoints(run.checkpoints).restore()


def test_another_steps_content_is_noticed(run):
    last = run.checkpoints / "last"
    shutil.rmtree(last / "2")
    shutil.copytree(last / "1", last / "2")
    with pytest.raises(CheckpointError, match=r"2 cannot be read \(it holds step 1\)"):
        Checkpoints(run.checkpoints).restore()
    shutil.rmtree(last / "2" / "state")
    shutil.rmtree(last / "1" / "state" / "d")
    shutil.copytree(last / "1" / "state", last / "2" / "state")
    shutil.rmtree(last / "1")
    with pytest.raises(CheckpointError, match="no other is left, so start a new run"):
        Checkpoints(run.checkpoints).restore()


def test_a_run_of_an_earlier_version_goes_on_and_keeps_digests_from_there(run):
    as_of_an_earlier_version(run)
    checkpoints = Checkpoints(run.checkpoints)
    with pytest.warns(UserWarning, match=r"run/config.json holds no digests") as lines:
        assert checkpoints.restore().step == 2
    assert len(lines) == 1
    take_over(run, run.config(), 2)
    checkpoints.save(3, state(3))
    checkpoints.restore(3)
    with pytest.warns(UserWarning, match=r"last/2 holds no digests"):
        checkpoints.restore(2)
    (run.checkpoints / "last" / "3" / "digests.json").unlink()
    with pytest.raises(CheckpointError, match=r"digests.json is missing"):
        checkpoints.restore(3)


def test_an_edited_record_is_refused_until_its_digest_is_taken_away(run):
    file = run.path / "config.json"
    text = file.read_text()
    assert '"seed": 0' in text
    file.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ConfigError, match=r"config.json is damaged or was edited"):
        run.config()
    record = json.loads(file.read_text())
    del record["digests"]
    file.write_text(json.dumps(record))
    assert run.config().seed == 1
    with pytest.warns(UserWarning, match=r"config.json holds no digests"):
        Checkpoints(run.checkpoints).restore()


def test_a_policy_of_an_earlier_version_is_read_with_one_line(tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(RESULTS / "hopper-linear" / name, tmp_path)
    file = tmp_path / "config.json"
    record = json.loads(file.read_text())
    del record["digests"]
    file.write_text(json.dumps(record))
    with pytest.warns(UserWarning, match="holds no digests, as other") as lines:
        load_policy(tmp_path)
    assert len(lines) == 1


def test_a_kill_while_files_are_replaced_leaves_what_passes(tmp_path, monkeypatch):
    entry, folder, draft = {"first_step": 0}, tmp_path / "data", tmp_path / "draft"

    def replace(value):
        with replacing(folder, draft):
            for name in ("a", "b"):
                (draft / name).write_text(value)

    replace("old")
    check_digests(folder, entry, folder)
    real = Path.replace

    def dying(self, target):
        if next(count) == fatal:
            raise KeyboardInterrupt
        return real(self, target)

    for fatal in range(4):
        count = iter(range(9))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dying)
            with pytest.raises(KeyboardInterrupt):
                replace(f"new {fatal}")
        check_digests(folder, entry, folder)
    (folder / "a").write_text("neither")
    with pytest.raises(ValueError, match="a is damaged"):
        check_digests(folder, entry, folder)
