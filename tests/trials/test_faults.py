"""Whatever happens to a run, its numbers are those of one that nothing happened to.

Or one line says why they cannot be. Each trial disturbs a run of its own, then resumes
it with nothing in the way.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import seed_runs
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.records import WALL_CLOCK_FIELDS, written
from tests.trials.conftest import run
from tests.trials.inputs import CLONE, TINY
from tests.trials.processes import Processes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("always")]

PHASES = (
    '[{{"changes":{{"rollout.integrator":"Euler"}},"generations":2}},'
    '{{"changes":{{"es.optimizer":"adam"}},"generations":2}},'
    '{{"changes":{{"es.num_pairs":3}},"generations":2}}]'
)
COMMANDS = {
    "train": f"train {TINY} --num-generations 5 --name {{}}",
    "rarely": f"train {TINY} --num-generations 7 --checkpoint-every 3 --name {{}}",
    "seeds": f"train {TINY} --num-generations 2 --seeds 3 --name {{}}",
    "phases": f"train {TINY} --phases {PHASES} --checkpoint-every 2 --name {{}}",
    "strategy": f"train {TINY} --num-generations 5 --strategy cma-es --name {{}}",
    "poet": f"poet {TINY} --mutate gravity 0.1 0.5 2 --mutate-every 1 "
    "--transfer-every 2 --reproduce-at -1000 --criterion-low -1000 --max-niches 2 "
    "--num-generations 5 --name {}",
    "pretrain": f"pretrain {CLONE} --epochs 3 --steps-per-epoch 2 --warmup-steps 1 "
    "--batch-size 2 --name {}",
}


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    return Processes(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def undisturbed(made, processes, tmp_path_factory):
    """A run of each kind, and how many operations on files it takes."""
    folder = tmp_path_factory.mktemp("undisturbed") / "world"
    shutil.copytree(made, folder)
    operations = {}
    for kind, command in COMMANDS.items():
        ended = processes.run(folder, command.format(f"whole-{kind}"))
        assert ended.code == 0, ended.lines
        operations[kind] = ended.operations
        assert operations[kind] > 20
    return folder, operations


def resumed(kind: str) -> str:
    """The command that continues a disturbed run."""
    return f"{COMMANDS[kind].split()[0]} --resume --name torn"


def recover(processes, folder, kind):
    """Resumes a run, or begins it if the fault came before there was one."""
    ended = processes.run(folder, resumed(kind))
    if ended.code == 2:
        (line,) = ended.errors
        assert "is not a run" in line
        ended = processes.run(folder, COMMANDS[kind].format("torn"))
    assert ended.code == 0, ended.lines
    assert not any("Traceback" in line for line in ended.lines)


def numbers(file: Path) -> list[dict]:
    """A file's records, without what wall-clocks say."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    # Epochs of cloning have no groups.
    names = {*WALL_CLOCK_FIELDS, *map(written, WALL_CLOCK_FIELDS), "steps_per_second"}
    return [{k: v for k, v in x.items() if k not in names} for x in lines]


def assert_equal_runs(one: Path, two: Path) -> None:
    """Compares records and final states to the bit."""
    assert not list(one.rglob(".unfinished*"))
    if seeds := seed_runs(two):
        record, expected = (
            json.loads((path / "experiment.json").read_text()) for path in (one, two)
        )
        assert record["results"] == expected["results"]
        for seed in seeds:
            assert_equal_runs(one / seed.path.name, seed.path)
        return
    for name in (METRICS_FILE, "cloning.jsonl"):
        if (two / name).exists():
            assert numbers(one / name) == numbers(two / name)
    for which in ("last", "best"):
        first, second = (
            Checkpoints(p / "checkpoints").restore(which) for p in (one, two)
        )
        assert first.step == second.step
        assert jax.tree.structure(first.state) == jax.tree.structure(second.state)
        pairs = zip(*map(jax.tree.leaves, (first.state, second.state)), strict=True)
        for a, b in pairs:
            np.testing.assert_array_equal(a, b)


def assert_equal(folder, undisturbed, kind):
    assert_equal_runs(folder / "runs" / "torn", undisturbed / "runs" / f"whole-{kind}")


# Signals at any operation on a file. Shares of all operations, drawn once.

MOMENTS = random.Random(0)
SIGNALS = [
    (kind, signum, round(MOMENTS.random(), 3))
    for kind, kills, stops in (
        *(("train", 5, 1), ("rarely", 2, 0), ("seeds", 2, 1)),
        *(("pretrain", 2, 0), ("strategy", 1, 0), ("phases", 3, 1)),
        ("poet", 1, 1),
    )
    for signum in [
        *[signal.SIGKILL] * kills,
        *[signal.SIGTERM] * stops,
        *[signal.SIGINT] * stops,
    ]
]


@pytest.mark.parametrize(("kind", "signum", "share"), SIGNALS)
def test_a_signal_at_any_operation(kind, signum, share, world, processes, undisturbed):
    folder, operations = undisturbed
    at = 1 + int(share * (operations[kind] - 1))
    ended = processes.run(world, COMMANDS[kind].format("torn"), signum, at)
    # Orbax's threads make a few operations more in one run than in another, so one of
    # the last may not come; and a signal that asks comes too late there.
    if ended.code == 0:
        assert ended.operations < at or signum != signal.SIGKILL
        assert share > 0.8
    elif signum == signal.SIGKILL:
        assert (ended.code, ended.errors) == (-signal.SIGKILL, [])
    else:
        assert ended.code == 128 + signum, ended.lines
        (line,) = ended.errors
        assert line.startswith(f"{signal.Signals(signum).name}: ")
        assert "--resume --name torn" in line or "nothing had begun" in line
    assert not any("Traceback" in line for line in ended.lines)
    recover(processes, world, kind)
    assert_equal(world, folder, kind)


# Full disks.


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        *(("train", 0.01), ("train", 0.5), ("train", 0.95)),
        ("pretrain", 0.5),
    ],
)
def test_a_disk_that_is_full_from_some_operation_on(
    kind, share, world, processes, undisturbed
):
    folder, operations = undisturbed
    at = 1 + int(share * (operations[kind] - 1))
    ended = processes.run(world, COMMANDS[kind].format("torn"), at=at, is_full=True)
    assert ended.code == 2, ended.lines
    (line,) = ended.errors
    assert "No space left on device" in line
    assert not any("Traceback" in line for line in ended.lines)
    recover(processes, world, kind)
    assert_equal(world, folder, kind)


# Files that are damaged between a stop and a resume, in this process.


@pytest.fixture(scope="module")
def stopped(made, processes, undisturbed, tmp_path_factory):
    """A run that was killed in its fourth generation."""
    folder = tmp_path_factory.mktemp("stopped") / "world"
    shutil.copytree(made, folder)

    def kill(pid):
        metrics = folder / "runs" / "torn" / METRICS_FILE
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 4:
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)

    command = COMMANDS["rarely"].format("torn").replace("-every 3", "-every 1")
    processes.run(folder, command, watch=kill)
    torn = folder / "runs" / "torn"
    assert len(Checkpoints(torn / "checkpoints").steps()) == 3
    return torn


@pytest.fixture
def torn(world, stopped):
    """A copy of it in the working directory."""
    shutil.copytree(stopped, world / "runs" / "torn")
    return world / "runs" / "torn"


def step(run: Path) -> Path:
    """The last step."""
    folders = (run / "checkpoints" / "last").glob("[0-9]*")  # remains are hidden
    return max(folders, key=lambda folder: int(folder.name))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def largest(folder: Path) -> Path:
    return max(files(folder), key=lambda file: file.stat().st_size)


def append(run: Path, text: bytes) -> None:
    with (run / METRICS_FILE).open("ab") as file:
        file.write(text)


# The run resumes to the same numbers.
HARMLESS = {
    "last missing": lambda run: shutil.rmtree(step(run)),
    "half a line": lambda run: append(run, b'{"generation": 4, "env_st'),
    "zeros after a power cut": lambda run: append(run, bytes(500)),
    "no checkpoints": lambda run: shutil.rmtree(run / "checkpoints"),
    "records twice": lambda run: append(run, (run / METRICS_FILE).read_bytes()),
    "records reversed": lambda run: backwards(run / METRICS_FILE),
    "remains of the killed": lambda run: plant(run),
}


def backwards(file: Path) -> None:
    """Turns the lines of a file around."""
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[::-1]))


def plant(run: Path) -> None:
    """Leaves what a process leaves that is killed while it saves or deletes."""
    remains = run / "checkpoints" / "last" / ".unfinished-9-1-0"
    (remains / "state").mkdir(parents=True)
    (remains / "manifest.json").write_text("{")


@pytest.mark.parametrize("fault", HARMLESS)
def test_damage_that_is_made_good(fault, torn, undisturbed, capsys):
    HARMLESS[fault](torn)
    capsys.readouterr()
    assert run("train --resume --name torn") == 0
    assert "Traceback" not in capsys.readouterr().err
    whole = shutil.copytree(
        undisturbed[0] / "runs" / "whole-rarely", torn.parent / "whole"
    )
    assert numbers(torn / METRICS_FILE) == numbers(whole / METRICS_FILE)
    assert_equal_runs(torn, whole)


# One line says what is missing, and nothing is changed; test_inputs.py has more.
REFUSED = {
    "last truncated": (
        lambda run: os.truncate(largest(step(run)), 10),
        "delete that folder",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_damage_that_is_said(fault, torn, world, capsys):
    damage, word = REFUSED[fault]
    damage(torn)
    before = {p: p.read_bytes() for p in files(torn) if p.name != ".lock"}
    for command in ("train --resume --name torn", f"train {TINY} --name torn"):
        capsys.readouterr()
        assert run(command) == 2
        out, err = capsys.readouterr()
        (line,) = [x for x in err.splitlines() if not x.startswith("warning: ")]
        assert line.startswith("error: ") and "torn" in line and out == ""
        if "--resume" in command:
            assert word in line
    assert {p: p.read_bytes() for p in files(torn) if p.name != ".lock"} == before


def test_a_folder_that_is_renamed_between(torn, undisturbed):
    moved = torn.rename(torn.with_name("moved"))
    assert run("train --resume --name moved") == 0
    assert_equal_runs(moved, undisturbed[0] / "runs" / "whole-rarely")


# Environments that fail.


class Faulty(gymnasium.Env):
    """Does ``fault`` in the process's step ``fails_at``."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    fails_at = 0
    fault = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Faulty.fails_at -= 1
        answer = [np.zeros(2, np.float32), float(action), False, False, {}]
        if Faulty.fails_at == 0:
            return Faulty.fault(answer)
        return tuple(answer)


def answering(index, value):
    def fault(answer):
        answer[index] = value
        return tuple(answer)

    return fault


# tests/envs/test_gymnasium_env.py has more.
ENVIRONMENT_FAULTS = {
    "divides by zero": lambda answer: 1 / 0,
    "observes too much": answering(0, np.zeros(3, np.float32)),
}


@pytest.fixture(scope="module")
def faulty():
    gymnasium.register("Faulty-v0", Faulty, max_episode_steps=5)
    yield f"train {TINY} --env.id Faulty-v0 --num-generations 3 --name {{}}"
    del gymnasium.registry["Faulty-v0"]


@pytest.fixture(scope="module")
def faultless(faulty, made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("faultless")
    assert run(f"{faulty.format('whole')} --runs-dir {folder}") == 0
    return folder / "whole"


@pytest.mark.parametrize("fault", ENVIRONMENT_FAULTS)
def test_an_environment_that_fails(
    fault, faulty, faultless, world, capsys, monkeypatch
):
    monkeypatch.setattr(Faulty, "fault", ENVIRONMENT_FAULTS[fault])
    at = random.Random(fault).randrange(2, 70)
    monkeypatch.setattr(Faulty, "fails_at", at)
    capsys.readouterr()
    assert run(faulty.format("torn")) == 1
    out, err = capsys.readouterr()
    (line,) = [x for x in err.splitlines() if x.startswith("error: ")]
    assert line == err.splitlines()[-1] and out == ""
    assert line.startswith("error: environment Faulty-v0 ")
    assert "Traceback" not in err
    log = (world / "runs" / "torn" / "error.log").read_text()
    if fault == "divides by zero":
        assert "raised ZeroDivisionError in step" in line
        assert "runs/torn/error.log; mend it, then continue with --resume" in line
        assert "answer: 1 / 0" in log and "rollout" not in log
    assert run("train --resume --name torn") == 0
    assert_equal_runs(world / "runs" / "torn", faultless)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e308])
@pytest.mark.parametrize("index", [0, 1])
def test_numbers_that_are_none_do_not_end_a_run(
    index, value, faulty, world, capsys, monkeypatch
):
    content = np.full(2, value, np.float32) if index == 0 else value
    monkeypatch.setattr(Faulty, "fault", answering(index, content))
    monkeypatch.setattr(Faulty, "fails_at", 33)
    assert run(faulty.format("x")) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert len(numbers(world / "runs" / "x" / METRICS_FILE)) == 4
    assert not re.search("NaN|Infinity", (world / "runs/x" / METRICS_FILE).read_text())


# A display that goes away.

WITHOUT_A_DISPLAY = {
    "reader": "set -o pipefail; {command} 2>&1 | head -1",
    "stderr": "{command} 2>&-",
    "all": "{command} <&- >&- 2>&-",
    "full": "{command} 2>/dev/full",
}


def start(command, folder, **options):
    own = {"PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, "TERM": "xterm", **own}
    return subprocess.Popen(command, cwd=folder, env=environment, **options)


@pytest.mark.parametrize("kind", WITHOUT_A_DISPLAY)
def test_a_run_goes_on_without_its_display(kind, world):
    command = f"{sys.executable} -m jax_es.{COMMANDS['train'].format('torn')}"
    line = WITHOUT_A_DISPLAY[kind].format(command=command)
    assert start(["bash", "-c", line], world, stdout=subprocess.DEVNULL).wait() == 0
    assert len(numbers(world / "runs" / "torn" / METRICS_FILE)) == 6


def test_a_run_goes_on_when_its_terminal_is_closed(world):
    ours, theirs = os.openpty()
    command = f"{sys.executable} -m jax_es.{COMMANDS['train'].format('torn')}"
    line = f"trap '' HUP; exec {command}"  # as nohup does
    terminal = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with start(["setsid", "--ctty", "bash", "-c", line], world, **terminal) as process:
        os.close(theirs)
        shown = b""
        while b"Training" not in shown:
            shown += os.read(ours, 1000)
        os.close(ours)
        assert process.wait() == 0
    assert len(numbers(world / "runs" / "torn" / METRICS_FILE)) == 6
