"""A run that is killed, interrupted and damaged ends with an undisturbed run's numbers.

Real processes of ``python -m jax_es.train``. One run goes through every disturbance in
turn, because starting a process takes seconds; ``test_training.py`` stops a run at
many more moments within one process.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

import jax_es
from jax_es.rollout.devices import available_cores
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.records import WALL_CLOCK_FIELDS

NUM_GENERATIONS = 24

OPTIONS = [
    *("inverted-pendulum", "--policy", "mlp", "--policy.hidden-sizes", "8"),
    *("--es.num-pairs", "32", "--evaluation.num-episodes", "20"),
    *("--rollout.num-slots", "4"),
    *("--rollout.num-devices", str(min(2, available_cores()))),
    *("--num-generations", str(NUM_GENERATIONS)),
]

# SIGKILL at a moment that no clock could hit: the record is written, its checkpoint is
# not. It cannot be caught, so nothing that the program would still have done gets done.
DIES_INSIDE_A_CHECKPOINT = """
import os, pathlib, signal, sys
from jax_es import train
rename = pathlib.Path.rename
def rename_or_die(path, target):
    if "last/.unfinished" in str(path):
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)
pathlib.Path.rename = rename_or_die
sys.exit(train.main())
"""


class Stage(NamedTuple):
    """What is left of a process."""

    returncode: int
    stderr: list[str]
    num_lines: int
    steps: list[int]


class Runs:
    """Two runs in one folder, and the processes that work on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen] = []
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(Path(jax_es.__file__).parents[1]),
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def start(self, *arguments: str, program: tuple[str, ...] = ()) -> subprocess.Popen:
        program = program or ("-m", "jax_es.train")
        process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        shutil.rmtree(self.folder)

    def resume(self, *options: str, program: tuple[str, ...] = ()) -> subprocess.Popen:
        return self.start("--resume", "--name", "torn", *options, program=program)

    def num_lines(self, name: str) -> int:
        file = self.folder / "runs" / name / METRICS_FILE
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def wait_for_lines(self, process: subprocess.Popen, name: str, count: int) -> None:
        deadline = time.monotonic() + 120
        while self.num_lines(name) < count:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def end(self, process: subprocess.Popen) -> Stage:
        _, stderr = process.communicate(timeout=120)
        # Plain progress lines share the stream.
        lines = [
            line
            for line in stderr.splitlines()
            if not line.startswith(("generation", "Training", "Resuming"))
        ]
        checkpoints = Checkpoints(self.folder / "runs" / "torn" / "checkpoints")
        return Stage(
            process.returncode, lines, self.num_lines("torn"), checkpoints.steps()
        )


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """The disturbances, in order, and what each process left behind."""
    runs = Runs(tmp_path_factory.mktemp("resume"))
    try:
        yield runs, disturb(runs)
    finally:
        runs.close()


def disturb(runs):
    stages = {}
    whole = runs.start(*OPTIONS, "--name", "whole")
    runs.wait_for_lines(whole, "whole", 1)  # the compilation cache is warm

    process = runs.start(*OPTIONS, "--name", "torn")
    runs.wait_for_lines(process, "torn", 2)
    process.kill()
    stages["kill"] = runs.end(process)

    program = ("-c", DIES_INSIDE_A_CHECKPOINT)
    stages["checkpoint"] = runs.end(runs.resume(program=program))

    process = runs.resume()
    runs.wait_for_lines(process, "torn", stages["checkpoint"].num_lines + 2)
    process.send_signal(signal.SIGINT)
    stages["interrupt"] = runs.end(process)

    newest = max(stages["interrupt"].steps)
    folder = runs.folder / "runs" / "torn" / "checkpoints" / "last" / str(newest)
    largest = max(folder.rglob("*"), key=lambda f: f.stat().st_size * f.is_file())
    largest.write_bytes(largest.read_bytes()[:-7])

    process = runs.resume()
    runs.wait_for_lines(process, "torn", stages["interrupt"].num_lines + 2)
    process.send_signal(signal.SIGTERM)
    stages["terminate"] = runs.end(process)

    stages["end"] = runs.end(runs.resume())
    stages["whole"] = runs.end(whole)
    return stages


def numbers(file: Path) -> list[dict]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [{k: v for k, v in x.items() if k not in WALL_CLOCK_FIELDS} for x in lines]


def test_sigkill_is_not_survived(history):
    _, stages = history
    for name in ("kill", "checkpoint"):
        assert stages[name].returncode == -signal.SIGKILL
        assert 0 < stages[name].num_lines < NUM_GENERATIONS
        assert stages[name].stderr == []
    # The moment was the one it is named after.
    assert stages["checkpoint"].num_lines == max(stages["checkpoint"].steps) + 1


@pytest.mark.parametrize(
    ("name", "signum"), [("interrupt", signal.SIGINT), ("terminate", signal.SIGTERM)]
)
def test_a_stop_signal_saves_and_says_so_in_one_line(history, name, signum):
    _, stages = history
    stage = stages[name]
    assert stage.returncode == 128 + signum
    saved = max(stage.steps)
    assert saved == stage.num_lines < NUM_GENERATIONS
    assert stage.stderr[-1] == (
        f"{signum.name}: {saved} finished generations are saved in runs/torn; continue "
        "with python -m jax_es.train --resume --name torn"
    )
    assert len(stage.stderr) == (1 if name == "interrupt" else 2)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(history):
    _, stages = history
    newest = max(stages["interrupt"].steps)
    warning = stages["terminate"].stderr[0]
    assert warning.startswith("warning: checkpoint ")
    assert f"last/{newest} is damaged" in warning
    assert f"using step {newest - 1}" in warning


def test_the_torn_run_equals_the_whole_one(history):
    runs, stages = history
    assert stages["end"].returncode == stages["whole"].returncode == 0
    whole, torn = (runs.folder / "runs" / name for name in ("whole", "torn"))
    expected = numbers(whole / METRICS_FILE)
    assert [line["generation"] for line in expected] == list(range(NUM_GENERATIONS + 1))
    for line, expected_line in zip(numbers(torn / METRICS_FILE), expected, strict=True):
        assert line == expected_line
    for which in ("last", "best"):
        first, second = (
            Checkpoints(path / "checkpoints").restore(which) for path in (whole, torn)
        )
        assert first.step == second.step
        assert jax.tree.structure(first.state) == jax.tree.structure(second.state)
        for a, b in zip(
            jax.tree.leaves(first.state), jax.tree.leaves(second.state), strict=True
        ):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_a_new_process_evaluates_it(history):
    """On as many devices as trained it, whatever reading a checkpoint starts first."""
    runs, _ = history
    arguments = ("runs/torn", "--episodes", "3", "--checkpoint", "last", "--json")
    process = runs.start(*arguments, program=("-m", "jax_es.evaluate"))
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    report = json.loads(stdout)
    assert report["generation"] == NUM_GENERATIONS
    assert report["episodes"] == 3
