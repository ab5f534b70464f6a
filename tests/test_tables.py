"""The tables of README and docs: from files to numbers; a wrong number is found."""

import dataclasses
import importlib.util
import json
import math
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from jax_es import evaluate, pretrain, train
from jax_es.runs.directory import RunDirectory
from jax_es.train_config import differences

ROOT = Path(__file__).parents[1]
RUNS = ("tasks", "learning_curves", "perturbation_attention", "atari")
RUNS += ("robots", "varied", "control", "games", "games_trials", "games_frames")
RUNS += ("games_strategies",)
POLICIES = sorted((ROOT / "results" / "policies").iterdir())
# What a command leaves to the machine.
OF_MACHINE = {"rollout.num_slots", "rollout.slots_per_core", "rollout.num_devices"}
PROGRAMS = {"jax_es.train": train, "jax_es.pretrain": pretrain}

spec = importlib.util.spec_from_file_location("tables", ROOT / "results" / "tables.py")
assert spec is not None and spec.loader is not None
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


def test_the_pages_are_what_the_committed_files_say():
    tables.main(["--check"])


def test_a_changed_number_is_found_and_repaired(tmp_path, capsys):
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    page = tmp_path / "docs" / "results" / "tasks.md"
    good = page.read_text()
    page.write_text(good.replace("−1.35\xa0(25", "−9.99\xa0(25"))
    with pytest.raises(SystemExit, match=r"docs/results/tasks\.md differs"):
        tables.main(["--check"], tmp_path)
    assert "−9.99" in capsys.readouterr().out
    tables.main([], tmp_path)
    assert page.read_text() == good


@pytest.mark.parametrize(
    ("page", "name"), [("", "atari"), ("<!-- results: a -->\n\n<!-- end: a -->", "a")]
)
def test_markers_and_tables_belong_together(page, name):
    with pytest.raises(SystemExit, match=f"<!-- results: {name} -->"):
        tables.rebuilt({ROOT / "README.md": page})


@pytest.mark.parametrize("folder", RUNS)
def test_each_rows_command_configures_its_runs(folder):
    for row in tables.read_rows(ROOT / "results" / folder):
        if row.command.startswith("bash "):
            continue
        told = shlex.split(row.command.replace("--seed S", "--seed 0"))
        assert told[:2] == ["python", "-m"]
        request = PROGRAMS[told[2]].parse(told[3:])
        cloning = getattr(request.arguments, "cloning", None)
        settings = (
            json.loads(json.dumps(dataclasses.asdict(cloning))) if cloning else {}
        )
        for run in row.runs:
            changed = differences(request.config, run.config).keys()
            assert changed <= {*tables.OMITTED_FIELDS}
            of_method = run.method.settings if cloning else {}
            assert settings == {
                name: of_method.get(name, settings[name]) for name in settings
            }


SCRIPTED = [
    (row.command, run)
    for row in tables.read_rows(ROOT / "results" / "robots")
    for run in row.runs
    if row.command.startswith("bash ")
]


@pytest.mark.parametrize(("command", "run"), SCRIPTED)
def test_a_rows_script_configures_the_runs_of_each_part(command, run, tmp_path):
    _, script, kind, _ = command.split()
    (tmp_path / "results").mkdir()
    shutil.copy(ROOT / script, tmp_path / script)
    recorder = tmp_path / "python"
    recorder.write_text('#!/bin/sh\nprintf "%s\\n" "$*" >>"$0.log"\n')
    recorder.chmod(0o755)
    subprocess.run(
        ["bash", tmp_path / script, kind, str(run.config.seed)],
        env={**os.environ, "PYTHON": str(recorder)},
        stderr=subprocess.DEVNULL,  # no run is there to be kept
    )
    lines = recorder.with_suffix(".log").read_text().splitlines()
    told = [train.parse(line.split()[2:]).config for line in lines if ".train" in line]
    (config,) = told
    assert config.phases and config.seed == run.config.seed
    changed = differences(config, run.config).keys()
    if tables.before(run):  # from before the parts were phases of one run
        changed = {name for name in changed if name.startswith(("env", "policy"))}
    assert changed <= {*tables.OMITTED_FIELDS}


def test_a_return_is_reached_by_the_first_generation_at_it():
    run = [
        SimpleNamespace(total_env_steps=steps, evaluation_return_mean=value)
        for steps, value in [(1, 0.0), (2, 10.0), (3, math.nan), (4, 30.0), (5, 5.0)]
    ]
    reached = [tables.first_at(run, value) for value in (10.0, 10.1, -1.0, 30.1)]
    assert reached == [run[1], run[3], run[0], None]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([150_000, 90_000, 1_200_000], "3/3: 150 k (90 k to 1.20 M)"),
        ([None, 90_000], "1/2: 90 k"),
        ([None, None], "0/2: not reached"),
    ],
)
def test_seeds_that_do_not_arrive_are_counted(steps, said):
    assert tables.over_seeds(steps) == said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* holds no digests")
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_committed_policies_do_what_the_tables_say(policy, capsys):
    recorded = [
        json.loads(file.read_text())
        for kind in ("robots", "varied", "games", "games_frames", "control")
        for file in (ROOT / "results" / kind / policy.name).glob("*/evaluation.json")
    ]
    median = sorted(recorded, key=lambda each: each["return_mean"])[len(recorded) // 2]
    assert evaluate.main([str(policy), "--episodes", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["return_mean"]
    # Four standard errors: on other processors falls come in other episodes. Where one
    # in fifty falls, one of five does so more often than that: then what it costs.
    fall = (median["return_max"] - median["return_min"]) / 5
    error = max(4 * median["return_std"] / math.sqrt(5), fall)
    assert found == pytest.approx(median["return_mean"], rel=0.02, abs=error)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_stored_policys_command_trains_it_again(policy):
    text = (policy / "README.md").read_text()
    found = re.search(r"^python -m jax_es\.train (.*)$", text, re.MULTILINE)
    if found is None:
        return  # it was cloned, or evolved in parts
    config = train.parse(shlex.split(found.group(1))).config
    changed = differences(RunDirectory(policy).config(), config)
    assert changed.keys() <= OF_MACHINE
