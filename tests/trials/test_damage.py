"""Bits that flip, files that end early and files that are gone are always reported.

Of each kind of thing that is saved there is one, in a small form. A reader either
refuses it in one line or warns in one, or what it read is what was saved.
"""

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from jax_es import load_archive, load_policy
from jax_es.imitation import datasets, teacher_run
from jax_es.imitation.teacher_settings import settings_of
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import STUDY_FILE
from jax_es.tuning import study
from tests.trials.conftest import run
from tests.trials.inputs import CLONE, TINY

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("always")]

TRIALS = 40
"""Of each kind; every fourth cuts a file off, the others flip a bit."""

COMMANDS = (
    f"train {TINY} --num-generations 2 --name es",
    "export runs/es exported",
    "collect runs/es --dataset pole-v0 --episodes 4",
    f"pretrain {CLONE} --epochs 1 --steps-per-epoch 2 --warmup-steps 1 --batch-size 2 "
    "--name clone",
    "illuminate hopper-uni --env.max-episode-steps 5 --policy mlp "
    "--policy.hidden-sizes 2 --cells 8 --batch-size 4 --evaluation.num-episodes 1 "
    "--rollout.num-slots 1 --rollout.num-threads 1 --rollout.num-devices 1 "
    "--num-generations 1 --name archive",
    "teacher inverted-pendulum --steps 32 --evaluate-every 16 --learning-starts 8 "
    "--batch-size 4 --critic-hidden-sizes 4 4 --policy.hidden-sizes 4 "
    "--evaluation.num-episodes 1 --name sac",
    f"tune {TINY} --max-env-steps 36 --trials 2 --seeds 1 --reduction-factor 2 "
    "--search es.sigma=0.01:0.1:log --name study",
)


@pytest.fixture(scope="module")
def things(stay_as_configured, tmp_path_factory):
    """A folder with one of each kind; where trials leave it as it was."""
    for package in ("minari", "sbx", "optuna", "ribs"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("things")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in COMMANDS:
            assert run(command) == 0, command
        yield folder


def read_last(path):
    return Checkpoints(RunDirectory(Path(path)).checkpoints).restore("last")


def take_up():
    """Reads what a teacher has learned; it is built once."""
    folder = RunDirectory(Path("runs/sac"))
    step = read_last(folder.path).step
    if not TEACHERS:
        from jax_es.imitation.sbx_teacher import Teacher

        TEACHERS.append(Teacher(settings_of(folder.method()), folder.config()))
    teacher_run.take_up(TEACHERS[0], folder.path / "sbx" / "state.npz", folder, step)


TEACHERS = []


class Kind(NamedTuple):
    """What is damaged: the files that match, and what reads them all."""

    files: tuple[str, ...]
    read: Callable[[], object]


# What nothing here reads is left out: a README.md, tensorboard/, plots/, .lock, SBX's
# own pickle apart (which has a digest), and Optuna's study.db, which is written anew.
# metrics.jsonl is another matter: training does not depend on it.
KINDS = {
    "checkpoint": Kind(
        ("runs/es/config.json", "runs/es/checkpoints/last/2/**/*"),
        lambda: load_policy("runs/es", "last"),
    ),
    "best": Kind(("runs/es/checkpoints/best/**/*",), lambda: load_policy("runs/es")),
    "clone": Kind(
        ("runs/clone/config.json", "runs/clone/checkpoints/best/**/*"),
        lambda: load_policy("runs/clone"),
    ),
    "export": Kind(
        ("exported/*.json", "exported/*.safetensors"), lambda: load_policy("exported")
    ),
    "archive": Kind(
        ("runs/archive/config.json", "runs/archive/checkpoints/last/*/**/*"),
        lambda: load_archive("runs/archive"),
    ),
    "dataset": Kind(
        ("datasets/pole-v0/data/*",),
        lambda: datasets.read_episodes(
            "pole-v0", RunDirectory(Path("runs/es")).config()
        ),
    ),
    "replay buffer": Kind(("runs/sac/sbx/*",), take_up),
    "study": Kind(
        ("runs/study/study.json", "runs/study/trial-*/experiment.json"),
        lambda: study.tune(RunDirectory(Path("runs/study"), STUDY_FILE)),
    ),
}


def reported(kind: Kind) -> str | None:
    """Returns the line that a reader says; None if it says nothing."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            kind.read()
        except ValueError as error:
            return str(error)
    lines = [str(w.message) for w in said if "holds no digests" in str(w.message)]
    return lines[0] if lines else None


def means_the_same(file: Path, damaged: bytes, content: bytes) -> bool:
    """Returns whether a record says what it said: 1e-05 as 1E-05, one line end less."""
    return file.suffix == ".json" and json.loads(damaged) == json.loads(content)


@pytest.mark.parametrize("name", KINDS)
def test_no_damage_is_silent(name, things):
    kind = KINDS[name]
    found = {path for pattern in kind.files for path in Path().glob(pattern)}
    files = sorted(path for path in found if path.is_file())
    assert reported(kind) is None and len(files) >= 2
    draw = random.Random(name)
    for trial in range(TRIALS):
        file = files[trial % len(files)]
        content = file.read_bytes()
        at = draw.randrange(len(content))
        damaged = content[:at]
        if trial % 4:
            flipped = bytes([content[at] ^ 1 << draw.randrange(8)])
            damaged += flipped + content[at + 1 :]
        try:
            file.write_bytes(damaged)
            line = reported(kind)
        finally:
            file.write_bytes(content)
        what = f"{file}, {len(content)} bytes, at {at} in trial {trial}"
        if line is None:
            assert means_the_same(file, damaged, content), what
        else:
            assert "\n" not in line and len(line) < 1300, (what, line)
            assert any(part in line for part in file.parts[1:]), (what, line)
    for file in files:
        content = file.read_bytes()
        file.unlink()
        line = reported(kind)
        file.write_bytes(content)
        assert line is not None and "\n" not in line, file
    assert reported(kind) is None
