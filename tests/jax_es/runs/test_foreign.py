"""Runs made elsewhere: nothing in them runs code or writes outside."""

import dataclasses
import importlib
import itertools
import json
import shutil
import sys
from pathlib import Path

import jax
import pytest

from jax_es import collect, evaluate, plot, pretrain, report, teacher, train
from jax_es.checks import ConfigError
from jax_es.config import (
    CloningConfig,
    EnvConfig,
    ESConfig,
    EvaluationConfig,
    RolloutConfig,
)
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.runs.directory import RunDirectory, resume_options
from jax_es.runs.method import Method
from jax_es.train_config import TrainConfig, to_dict
from jax_es.training.load_policy import load_policy
from jax_es.training.loop import train_run
from models import MLPConfig

LIMIT = 5
MODULES = itertools.count()
ENV = EnvConfig("InvertedPendulum-v5", LIMIT)
SLOTS = RolloutConfig(num_slots=1, num_devices=1, num_threads=1)
TINY = TrainConfig(
    env=ENV,
    policy=MLPConfig(hidden_sizes=(2,)),
    es=ESConfig(num_pairs=2),
    rollout=SLOTS,
    evaluation=EvaluationConfig(num_episodes=1),
    num_generations=1,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "trained"
    train_run(TINY, run)
    return run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory; the process's JAX stays as the tests configure it."""
    jax.devices()
    monkeypatch.setattr("jax_es.rollout.devices.use_compilation_cache", lambda: None)
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(main, arguments, capsys):
    """Runs a program on bad input; returns the one line that it prints."""
    capsys.readouterr()
    assert main([str(each) for each in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def foreign(trained, folder, monkeypatch):
    """A run in ``runs/foreign`` whose environment is in a module that leaves a mark."""
    name = f"planted_{next(MODULES)}"
    monkeypatch.syspath_prepend(folder)
    Path(f"{name}.py").write_text("open('imported', 'w').close()\n")
    run = Path("runs/foreign")
    shutil.copytree(trained, run)
    record = json.loads((run / "config.json").read_text())
    record["config"]["env"]["id"] = f"{name}:InvertedPendulum-v5"
    (run / "config.json").write_text(json.dumps(record))
    yield name
    sys.modules.pop(name, None)


NAMED = "runs/foreign names {0}:InvertedPendulum-v5, for which the module"
EVALUATE = ["runs/foreign", "--episodes", "1"]
INIT = [
    *("inverted-pendulum", "--policy", "mlp", "--policy.hidden-sizes", "2"),
    *("--env.max-episode-steps", str(LIMIT), "--es.num-pairs", "2"),
    *("--rollout.num-slots", "1", "--rollout.num-devices", "1"),
    *("--num-generations", "1", "--init", "runs/foreign", "--name", "new"),
]
RESUME_RUN = ["--resume", "--name", "foreign"]


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (evaluate, EVALUATE),
        (collect, ["runs/foreign", "--dataset", "b-v0", "--episodes", "1"]),
        (train, RESUME_RUN),
        (train, INIT),
    ],
)
def test_no_module_that_a_run_names_is_imported_unasked(
    foreign, capsys, program, arguments
):
    line = refused(program.main, arguments, capsys)
    assert NAMED.format(foreign) in line
    assert f"{foreign} would be imported" in line
    assert "add --trust (from Python: trust=True" in line
    assert not Path("imported").exists()
    assert not Path("runs/new").exists()
    assert program.main([*arguments, "--trust"]) == 0
    assert Path("imported").exists()


def test_a_module_named_on_the_command_line_is_imported(foreign, capsys):
    env_id = f"{foreign}:InvertedPendulum-v5"
    assert train.main([*RESUME_RUN, "--env.id", env_id]) == 0
    assert Path("imported").exists()
    err = capsys.readouterr().err
    assert "python -m jax_es.evaluate runs/foreign --trust" in err
    assert "jax_es.load_policy('runs/foreign', trust=True)" in err
    options = resume_options(RunDirectory(Path("runs/foreign")))
    assert options == "--resume --name foreign --trust"


def test_a_policy_is_loaded_from_modules_that_are_imported_or_trusted(foreign):
    with pytest.raises(ConfigError, match=f"{foreign} would be imported"):
        load_policy("runs/foreign")
    assert not Path("imported").exists()
    importlib.import_module(foreign)
    Path("imported").unlink()
    load_policy("runs/foreign")
    del sys.modules[foreign]
    load_policy("runs/foreign", trust=True)
    assert Path("imported").exists()


def test_reports_and_curves_import_nothing(foreign):
    assert plot.main(["runs/foreign"]) == 0
    assert report.main(["runs/foreign"]) == 0
    assert not Path("imported").exists()


@pytest.mark.parametrize("program", [pretrain, teacher])
def test_other_resumes_ask_alike(foreign, capsys, program):
    cloning = {**dataclasses.asdict(CloningConfig()), "dataset": "a-v0"}
    method = Method("cloning", {**cloning, "target_returns": []})
    if program is teacher:
        method = TeacherSettings().method()
    config = TrainConfig(
        env=EnvConfig(f"{foreign}:InvertedPendulum-v5"),
        policy=TINY.policy,
        rollout=RolloutConfig(observation_statistics=False),
    )
    RunDirectory(Path("runs/foreign")).update(config=to_dict(config), method=method)
    line = refused(program.main, RESUME_RUN, capsys)
    assert NAMED.format(foreign) in line
    assert not Path("imported").exists()


def changed_record(run, **changes):
    """Writes into a run's record what nobody's program would."""
    file = run / ("experiment.json" if "results" in changes else "config.json")
    record = json.loads((run / "config.json").read_text())
    file.write_text(json.dumps({**record, "num_seeds": 1, "results": {}, **changes}))


RECORDS = [
    ({"method": 5}, "method must be list, got 5"),
    ({"method": ["td3"]}, "settings"),
    ({"versions": None}, "versions must be dict, got None"),
    ({"init": 7}, "init must be dict, got 7"),
    ({"preset": 5}, "preset must be str, got 5"),
    ({"config": None}, "config must be dict, got None"),
    ({"config": {"policy": {"kind": []}}}, "unhashable"),
    ({"config": {"policy": {"kind": "mlp"}, "env": "x"}}, "object is expected"),
    (
        {"config": {"policy": {"kind": "mlp"}, "es": {"sigma": "0.1"}}},
        "sigma must be float, got '0.1'",
    ),
]


@pytest.mark.parametrize(("changes", "words"), RECORDS)
def test_an_edited_record_is_one_line(trained, folder, capsys, changes, words):
    shutil.copytree(trained, folder / "runs" / "edited")
    changed_record(Path("runs/edited"), **changes)
    for program, arguments in (
        (evaluate, ["runs/edited"]),
        (train, ["--resume", "--name", "edited"]),
        (report, ["runs/edited"]),
        (plot, ["runs/edited"]),
    ):
        line = refused(program.main, arguments, capsys)
        assert "runs/edited/config.json is not the configuration of a run (" in line
        assert words in line


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe{", b"5"], ids=len)
def test_a_record_that_is_no_object_is_one_line(trained, folder, capsys, content):
    shutil.copytree(trained, folder / "runs" / "edited")
    Path("runs/edited/config.json").write_bytes(content)
    line = refused(evaluate.main, ["runs/edited"], capsys)
    assert "runs/edited/config.json is not the configuration of a run (" in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"results": []}, "results must be dict, got []"),
        ({"results": {}, "num_seeds": "three"}, "num_seeds must be int, got 'three'"),
    ],
)
def test_an_edited_experiment_is_one_line(trained, folder, capsys, changes, words):
    shutil.copytree(trained, folder / "runs" / "edited" / "seed-0")
    shutil.copy(trained / "config.json", folder / "runs" / "edited")
    changed_record(Path("runs/edited"), **changes)
    line = refused(train.main, ["--resume", "--name", "edited"], capsys)
    assert "runs/edited/experiment.json is not the configuration of a run (" in line
    assert words in line
