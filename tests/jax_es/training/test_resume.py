"""A run that is killed, interrupted and damaged ends with an undisturbed run's numbers.

Real processes of ``python -m jax_es.train``. One run goes through every disturbance in
turn, because starting a process takes seconds; ``test_loop.py`` stops a run at many
more moments within one process.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

import jax_es
from jax_es.rollout.devices import available_cores
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.metrics import METRICS_FILE, read_metrics
from jax_es.runs.records import WALL_CLOCK_FIELDS

pytestmark = pytest.mark.slow

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
import os, signal, sys
import orbax.checkpoint as ocp
from jax_es import train
save = ocp.PyTreeCheckpointer.save
def save_or_die(self, path, tree):
    if path.parts[-3] == "last":
        os.makedirs(f"{path}.orbax-checkpoint-tmp")  # what Orbax leaves half-written
        os.kill(os.getpid(), signal.SIGKILL)
    return save(self, path, tree)
ocp.PyTreeCheckpointer.save = save_or_die
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
        self.processes: list[subprocess.Popen] = []

    def start(self, *arguments: str, program: tuple[str, ...] = ()) -> subprocess.Popen:
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(jax_es.__file__).parents[1]),
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        process = subprocess.Popen(
            [sys.executable, *(program or ("-m", "jax_es.train")), *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def resume(self, program: tuple[str, ...] = ()) -> subprocess.Popen:
        return self.start("--resume", "--name", "torn", program=program)

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
        steps = Checkpoints(self.folder / "runs" / "torn" / "checkpoints").steps()
        return Stage(process.returncode, lines, self.num_lines("torn"), steps)


@pytest.fixture
def runs(tmp_path):
    runs = Runs(tmp_path)
    yield runs
    for process in runs.processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_run_torn_by_every_disturbance_equals_a_whole_one(runs):
    whole = runs.start(*OPTIONS, "--name", "whole")
    runs.wait_for_lines(whole, "whole", 1)  # the compilation cache is warm

    process = runs.start(*OPTIONS, "--name", "torn")
    runs.wait_for_lines(process, "torn", 2)
    process.kill()
    killed = runs.end(process)

    program = ("-c", DIES_INSIDE_A_CHECKPOINT)
    saving = runs.end(runs.resume(program))
    for stage in (killed, saving):
        assert stage.returncode == -signal.SIGKILL
        assert 0 < stage.num_lines < NUM_GENERATIONS
        assert stage.stderr == []
    assert saving.num_lines == max(saving.steps) + 1

    process = runs.resume()
    runs.wait_for_lines(process, "torn", saving.num_lines + 2)
    process.send_signal(signal.SIGINT)
    interrupted = runs.end(process)
    newest = check_stopped(interrupted, signal.SIGINT)
    assert len(interrupted.stderr) == 1

    # The newest checkpoint is damaged, so the one before is used.
    folder = runs.folder / "runs" / "torn" / "checkpoints" / "last" / str(newest)
    largest = max(folder.rglob("*"), key=lambda f: f.stat().st_size * f.is_file())
    largest.write_bytes(largest.read_bytes()[:-7])
    process = runs.resume()
    runs.wait_for_lines(process, "torn", interrupted.num_lines + 2)
    process.send_signal(signal.SIGTERM)
    terminated = runs.end(process)
    check_stopped(terminated, signal.SIGTERM)
    warning, _ = terminated.stderr
    assert warning.startswith("warning: checkpoint ")
    assert f"last/{newest} is damaged" in warning
    assert f"using step {newest - 1}" in warning

    assert runs.end(runs.resume()).returncode == runs.end(whole).returncode == 0
    check_equal(*(runs.folder / "runs" / name for name in ("torn", "whole")))


def check_stopped(stage: Stage, signum: signal.Signals) -> int:
    """Checks that a signal saved and said so in one line; returns the newest step."""
    newest = max(stage.steps)
    assert stage.returncode == 128 + signum
    assert newest == stage.num_lines < NUM_GENERATIONS
    assert stage.stderr[-1] == (
        f"{signum.name}: {newest} finished generations are saved in runs/torn; "
        "continue with python -m jax_es.train --resume --name torn"
    )
    return newest


def check_equal(torn: Path, whole: Path) -> None:
    numbers = [read_metrics(path) for path in (torn, whole)]
    assert [r.generation for r in numbers[0]] == list(range(NUM_GENERATIONS + 1))
    free = dict.fromkeys(WALL_CLOCK_FIELDS, 0.0)
    one, two = ([replace(r, **free) for r in records] for records in numbers)
    assert list(map(repr, one)) == list(map(repr, two))  # NaN equals NaN
    for which in ("last", "best"):
        first, second = (
            Checkpoints(path / "checkpoints").restore(which) for path in (torn, whole)
        )
        assert first.step == second.step
        assert jax.tree.structure(first.state) == jax.tree.structure(second.state)
        pairs = zip(*map(jax.tree.leaves, (first.state, second.state)), strict=True)
        for a, b in pairs:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_a_killed_run_of_another_strategy_equals_a_whole_one(runs):
    options = [*OPTIONS, "--strategy", "cma-es", "--es.num-pairs", "8"]
    whole = runs.start(*options, "--name", "whole")
    runs.wait_for_lines(whole, "whole", 1)
    process = runs.start(*options, "--name", "torn")
    runs.wait_for_lines(process, "torn", 3)
    process.kill()
    killed = runs.end(process)
    assert killed.returncode == -signal.SIGKILL and killed.stderr == []
    assert 3 <= killed.num_lines < NUM_GENERATIONS
    assert runs.end(runs.resume()).returncode == runs.end(whole).returncode == 0
    check_equal(*(runs.folder / "runs" / name for name in ("torn", "whole")))
