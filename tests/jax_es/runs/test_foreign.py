"""Runs made elsewhere: nothing in them runs code or writes outside."""

import dataclasses
import importlib
import itertools
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from jax_es import collect, evaluate, plot, pretrain, report, teacher, train
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.runs import trust
from jax_es.runs.directory import RunDirectory, resume_options
from jax_es.runs.method import Method
from jax_es.train_config import TrainConfig, to_dict
from jax_es.training.load_policy import load_policy
from jax_es.training.train_policy import train_policy
from tests.made_runs import TINY
from tests.trials import inputs

MODULES = itertools.count()


@pytest.fixture(autouse=True)
def nothing_is_trusted(monkeypatch):
    """Other tests of this process may have named what these read from folders."""
    monkeypatch.setattr(trust, "_named", set())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "trained"
    train_policy(TINY, run)
    return run


@pytest.fixture
def foreign(trained, folder, monkeypatch):
    """A run in ``runs/foreign`` whose environment is in a module that leaves a mark."""
    name = f"planted_{next(MODULES)}"
    monkeypatch.syspath_prepend(folder)
    Path(f"{name}.py").write_text("open('imported', 'w').close()\n")
    run = Path("runs/foreign")
    shutil.copytree(trained, run)
    record = RunDirectory(run).record()
    record["config"]["env"]["id"] = f"{name}:InvertedPendulum-v5"
    RunDirectory(run).write(record)
    return name


NAMED = "runs/foreign names {0}:InvertedPendulum-v5, for which the module"
EVALUATE = ["runs/foreign", "--episodes", "1"]
INIT = [*inputs.TINY.split(), "--init", "runs/foreign", "--name", "new"]
INIT += ["--num-generations", "1"]
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
    foreign, refused, program, arguments
):
    words = f"{foreign} would be used", "add --trust (from Python: jax_es.load_policy("
    refused(program.main, arguments, NAMED.format(foreign), *words)
    assert not Path("imported").exists()
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


def test_that_a_module_is_imported_is_no_word_of_the_user(foreign):
    importlib.import_module(foreign)
    with pytest.raises(ConfigError, match=f"{foreign} would be used"):
        load_policy("runs/foreign")
    load_policy("runs/foreign", trust=True)
    load_policy("runs/foreign")  # asked once a process


def change(**fields):
    """Changes ``runs/foreign`` so that parts of its configuration have these fields."""
    file = Path("runs/foreign/config.json")
    record = json.loads(file.read_text())
    record["config"]["env"]["id"] = "InvertedPendulum-v5"
    for part, values in fields.items():
        record["config"][part] |= values
    RunDirectory(file.parent).write(record)


CALLED = "os:system", "builtins:exec", "os:abort"
PLACES = {
    "a policy": lambda target: change(policy={"kind": target}),
    "a wrapper": lambda target: change(env={"wrappers": [target]}),
    "a wrapper alone": lambda target: change(env={"wrappers": [target[:2]]}),
    "an id": lambda target: change(env={"id": f"{target}-v0"}),
    "a robot": lambda target: change(
        env={"id": "PointFlat-v0", "kwargs": {"task": target}}
    ),
    "nested": lambda target: change(env={"kwargs": {"a": [{"b": [target]}]}}),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target", CALLED)
def test_what_is_loaded_already_is_not_called(
    foreign, refused, monkeypatch, place, target
):
    def called(*_, **__):
        pytest.fail("it was called")

    for name in CALLED:
        module, _, function = name.partition(":")
        monkeypatch.setattr(sys.modules[module], function, called)
    PLACES[place](target)
    for program, arguments in (
        (evaluate, EVALUATE),
        (train, RESUME_RUN),
        (train, INIT),
    ):
        refused(program.main, arguments, "runs/foreign names ", target[:2], "--trust")
    with pytest.raises(ConfigError, match="trust=True"):
        load_policy("runs/foreign")


def test_names_cannot_forge_lines(foreign, refused):
    change(env={"wrappers": ["a:b\n\x1b[2Jwarning: all is well \u202e"]})
    words = r"runs/foreign names a:b\n\x1b[2Jwarning: all is well \u202e, for which"
    refused(evaluate.main, EVALUATE, words)
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_policy("runs/foreign")


def test_reports_and_curves_import_nothing(foreign):
    assert plot.main(["runs/foreign"]) == 0
    assert report.main(["runs/foreign"]) == 0
    assert not Path("imported").exists()


@pytest.mark.parametrize("program", [pretrain, teacher])
def test_other_resumes_ask_alike(foreign, refused, program):
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
    refused(program.main, RESUME_RUN, NAMED.format(foreign))
    assert not Path("imported").exists()
