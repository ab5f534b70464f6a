"""What is saved comes back to the bit, and no kill or damage loses a run."""

import errno
import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from jax_es.runs import checkpoint as checkpoint_module
from jax_es.runs.checkpoint import CheckpointError, Checkpoints, CheckpointWarning


@pytest.fixture(autouse=True)
def synced(monkeypatch):
    """Lets nothing but the real kills wait for the disk; lists what would have."""
    paths = []
    monkeypatch.setattr(checkpoint_module, "_sync", paths.append)
    return paths


class Statistics(NamedTuple):
    """Stands for the observation statistics."""

    total: np.ndarray
    count: np.float64


def full_state():
    """A state with every kind of leaf and container that training may hold."""
    rng = np.random.default_rng(0)
    mean = {
        f"Dense_{i}": {
            "kernel": jnp.asarray(rng.normal(size=(7, 3)), jnp.float32),
            "bias": -jnp.zeros(3),
        }
        for i in range(3)
    }
    optimizer = optax.chain(
        optax.trace(0.9), optax.scale(0.05), optax.add_decayed_weights(0.1)
    )
    return {
        "mean": mean,
        "optimizer_state": (optimizer.init(mean), optax.adam(1e-3).init(mean)),
        "observation_statistics": Statistics(rng.normal(size=5), np.float64(1e300)),
        "key": jax.random.key(3),
        "key_data": jax.random.key_data(jax.random.key(4)),
        "generation": 12,
        "best_evaluation_return": -np.inf,
        "paused": False,
        "nothing": None,
        "zero_dimensional": np.asarray(2.5),
        "without_elements": np.zeros((0, 3), np.int8),
        "negative_zeros": np.full(4, -0.0),
        "nan_payload": np.array([0x7FF8000000000123], np.uint64).view(np.float64),
        "bfloat16": jnp.arange(3, dtype=jnp.bfloat16),
        "column_major": np.asfortranarray(rng.normal(size=(2, 3))),
        "list": [np.arange(2, dtype=np.uint8), {"a.b": np.ones(1, bool)}],
    }


def bits(leaf):
    """Everything about a leaf that a restore must preserve."""
    is_key = jnp.issubdtype(getattr(leaf, "dtype", np.float64), jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return (
        type(leaf),
        str(getattr(leaf, "dtype", "")),
        array.shape,
        array.tobytes(),
        getattr(leaf, "committed", None),
        getattr(leaf, "weak_type", None),
    )


def assert_identical(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    leaves = jax.tree_util.tree_leaves_with_path(expected)
    for (path, right), left in zip(leaves, jax.tree.leaves(actual), strict=True):
        assert bits(left) == bits(right), jax.tree_util.keystr(path)


def small_state(step):
    """A state that tells which step it was saved at, whichever part one looks at."""
    rng = np.random.default_rng(step)
    return {
        "mean": {"kernel": rng.normal(size=(20, 50)).astype(np.float32)},
        "statistics": rng.normal(size=30),
        "generation": np.asarray(step),
    }


def assert_small_state(restored):
    assert_identical(restored.state, small_state(restored.step))


# Restoring


def test_restores_every_bit_dtype_and_container(tmp_path):
    state = full_state()
    Checkpoints(tmp_path).save(12, state)
    step, restored = Checkpoints(tmp_path).restore_latest(full_state())
    assert step == 12
    assert not jax.config.jax_enable_x64
    assert_identical(restored, state)


def test_template_may_be_abstract(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small_state(1))
    template = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), {"x": np.zeros(3, np.float32)}
    )
    checkpoints.save(2, {"x": np.arange(3, dtype=np.float32)})
    restored = checkpoints.restore(2, template).state
    assert_identical(restored, {"x": np.arange(3, dtype=np.float32)})


def test_restored_arrays_stay_on_their_device(tmp_path):
    device = jax.devices()[-1]
    state = {"x": jax.device_put(jnp.arange(3), device), "y": jnp.arange(2)}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, state)
    restored = checkpoints.restore_latest(state).state
    assert restored["x"].sharding == state["x"].sharding
    assert restored["x"].committed
    assert not restored["y"].committed


def test_without_a_template_gives_dictionaries_of_numpy_arrays(tmp_path):
    state = full_state()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_best(12, state)
    restored = checkpoints.restore("best").state
    assert_identical(restored["mean"], jax.tree.map(np.asarray, state["mean"]))
    assert_identical(
        restored["observation_statistics"],
        {
            "total": state["observation_statistics"].total,
            "count": np.asarray(state["observation_statistics"].count),
        },
    )
    assert_identical(restored["key"], np.asarray(jax.random.key_data(state["key"])))
    assert_identical(restored["generation"], np.asarray(12))
    assert restored["without_elements"].shape == (0, 3)
    assert "nothing" not in restored
    assert restored["list"]["1"]["a.b"].dtype == bool


def test_bare_orbax_reads_a_step_as_the_module_docstring_says(tmp_path):
    state = small_state(4)
    Checkpoints(tmp_path).save(4, state)
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "last" / "4" / "state")
    assert_identical(restored, state)


def test_save_takes_a_snapshot(tmp_path):
    state = small_state(1)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state)
    state["statistics"][:] = 0
    assert_small_state(checkpoints.restore_latest(small_state(0)))


# Series and pruning


def test_keeps_the_most_recent_steps_and_the_best(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (8, 9, 10, 11):
        checkpoints.save(step, small_state(step))
        if step in (8, 9):
            checkpoints.save_best(step, small_state(step))
    assert checkpoints.steps() == [10, 11]
    assert checkpoints.best_step() == 9
    for which, step in {
        "last": 11,
        "best": 9,
        9: 9,
        "10": 10,
        np.int64(11): 11,
    }.items():
        restored = checkpoints.restore(which, small_state(0))
        assert restored.step == step
        assert_small_state(restored)


def test_opening_creates_nothing(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run")
    assert checkpoints.steps() == []
    assert checkpoints.best_step() is None
    assert not (tmp_path / "run").exists()


def test_saving_an_existing_step_again_replaces_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for save in (checkpoints.save, checkpoints.save_best):
        for value in range(3):
            save(5, {"x": np.asarray(value)})
    for which in ("last", "best", 5):
        assert checkpoints.restore(which) == (5, {"x": np.asarray(2)})
    assert checkpoints.steps() == [5]
    assert len(os.listdir(tmp_path / "last")) == 1
    assert len(os.listdir(tmp_path / "best")) == 1


def test_going_back_to_an_earlier_step_forgets_the_later_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (5, 6, 7, 6):
        checkpoints.save(step, small_state(step))
    assert checkpoints.steps() == [5, 6]
    assert checkpoints.restore_latest().step == 6


def test_leaves_of_killed_processes_are_removed_and_other_files_left_alone(tmp_path):
    (tmp_path / "last" / ".unfinished-7" / "state").mkdir(parents=True)
    (tmp_path / "last" / "notes.txt").write_text("mine")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.steps() == []
    checkpoints.save(1, small_state(1))
    assert sorted(os.listdir(tmp_path / "last")) == ["1", "notes.txt"]


# Damage


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip_one_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def overwrite_with_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def extend(path):
    path.write_bytes(path.read_bytes() + b"\0")


DAMAGES = (truncate, empty, flip_one_bit, overwrite_with_zeros, extend, Path.unlink)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_is_noticed_and_the_previous_step_used(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, small_state(3))
    newest = checkpoints.save(4, small_state(4))
    files = sorted(p.relative_to(newest) for p in newest.rglob("*") if p.is_file())
    assert len(files) > 5
    whole = tmp_path / "whole"
    shutil.copytree(newest, whole)
    for file in files:
        damage(newest / file)
        with pytest.warns(CheckpointWarning) as caught:
            restored = checkpoints.restore_latest(small_state(0))
        assert restored.step == 3, file
        assert_small_state(restored)
        (warning,) = caught
        assert str(newest) in str(warning.message)
        assert "using step 3" in str(warning.message)
        assert warning.filename == __file__
        shutil.rmtree(newest)
        shutil.copytree(whole, newest)
    assert checkpoints.restore_latest().step == 4


def test_flips_anywhere_in_the_largest_file_are_noticed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    newest = checkpoints.save(4, small_state(4))
    files = (path for path in newest.rglob("*") if path.is_file())
    file = max(files, key=lambda path: path.stat().st_size)
    content = file.read_bytes()
    rng = random.Random(0)
    for _ in range(30):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=file.name):
            checkpoints.restore_latest()


def foreign_orbax(folder):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder, {"x": np.ones(2)})


def foreign_file(folder):
    folder.write_text("not a folder")


def copy_under_another_name(folder):
    shutil.copytree(folder.with_name("3"), folder)


def later_format(folder):
    copy_under_another_name(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    content = manifest["content"] | {"format": 99, "step": 9}
    digest = checkpoint_module._digest_json(content)
    text = json.dumps({"content": content, "sha256": digest})
    (folder / "manifest.json").write_text(text)


FOREIGN = {
    foreign_orbax: "has no manifest.json",
    foreign_file: "unreadable manifest.json",
    Path.mkdir: "has no manifest.json",
    copy_under_another_name: "holds step 3",
    later_format: "unknown format 99",
}


@pytest.mark.parametrize(("plant", "reason"), FOREIGN.items())
def test_foreign_steps_are_passed_over_and_replaced(tmp_path, plant, reason):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(3, small_state(3))
    plant(tmp_path / "last" / "9")
    with pytest.warns(CheckpointWarning, match=reason):
        assert_small_state(checkpoints.restore_latest(small_state(0)))
    checkpoints.save(9, small_state(9))
    assert checkpoints.restore_latest(small_state(0)).step == 9


def test_reports_every_damaged_step_it_passed_over(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in range(3):
        path = checkpoints.save(step, small_state(step))
        if step > 0:
            empty(path / "manifest.json")
    with pytest.warns(CheckpointWarning) as caught:
        assert checkpoints.restore_latest().step == 0
    assert len(caught) == 2


def test_the_first_save_after_a_fallback_replaces_the_damaged_steps(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(4):
        path = checkpoints.save(step, small_state(step))
    empty(path / "manifest.json")
    with pytest.warns(CheckpointWarning):
        assert checkpoints.restore_latest().step == 2
    checkpoints.save(3, small_state(3))
    assert checkpoints.steps() == [2, 3]
    assert_small_state(checkpoints.restore_latest(small_state(0)))


def test_orbax_returning_another_dtype_counts_as_damage(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": np.ones(3)})
    monkeypatch.setattr(
        ocp.Checkpointer, "restore", lambda *_: {"x": np.ones(3, np.float32)}
    )
    with pytest.raises(CheckpointError, match=r"has x as float32\[3\]"):
        checkpoints.restore_latest()


def test_a_step_pruned_while_it_is_read_is_no_fault(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_best(1, small_state(1))
    read_step = checkpoint_module._read_step

    def slow_read(path):
        if checkpoints.best_step() == 1:
            checkpoints.save_best(2, small_state(2))
        return read_step(path)

    monkeypatch.setattr(checkpoint_module, "_read_step", slow_read)
    assert checkpoints.restore("best").step == 2


# Errors


@pytest.mark.parametrize("keep", [1, 0, -1])
def test_refuses_to_keep_fewer_than_two(tmp_path, keep):
    with pytest.raises(ValueError, match=f"keep must be at least 2, got {keep}"):
        Checkpoints(tmp_path, keep=keep)


def test_an_empty_directory_says_where_and_what_to_do(tmp_path):
    with pytest.raises(CheckpointError) as error:
        Checkpoints(tmp_path / "run").restore_latest()
    assert str(error.value).startswith(f"no checkpoint in {tmp_path / 'run'}: check")


def test_nothing_usable_names_directory_reasons_and_remedy(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        empty(checkpoints.save(step, small_state(step)) / "manifest.json")
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore_latest()
    for text in (f"'last' in {tmp_path}", "last/1 has", "last/2 has", "new run"):
        assert text in str(error.value)


def test_a_damaged_best_is_not_replaced_by_another_step(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(2, small_state(2))
    empty(checkpoints.save_best(1, small_state(1)) / "manifest.json")
    with pytest.raises(CheckpointError, match="no usable checkpoint 'best'"):
        checkpoints.restore("best")


@pytest.mark.parametrize("which", ["lats", "", "-3", "1.5"])
def test_unknown_names_list_what_there_is(tmp_path, which):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small_state(1))
    checkpoints.save(2, small_state(2))
    checkpoints.save_best(2, small_state(2))
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore(which)
    assert f"'last', 'best' or a step, got {which!r}" in str(error.value)
    assert f"{tmp_path} has the steps 1, 2 and the best, 2" in str(error.value)
    with pytest.raises(CheckpointError, match=r"no checkpoint '7': .* steps 1, 2"):
        checkpoints.restore(7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"mean": {"kernel": np.zeros((20, 51), np.float32)}},
            r"mean/kernel is float32\[20, 50\] in the checkpoint and float32\[20, 51\]",
        ),
        (
            {"statistics": np.zeros(30, np.float32)},
            r"statistics is float64\[30\] in the checkpoint and float32\[30\] here",
        ),
        (
            {"mean": {"kernel": np.zeros((20, 50), np.float32), "bias": np.zeros(50)}},
            r"mean/bias is absent in the checkpoint and float64\[50\] here",
        ),
        ({"mean": {}}, r"mean/kernel is float32\[20, 50\] in the checkpoint and abs"),
        ({"generation": 3.0}, r"generation is int64\[\] in the .* float64\[\] here"),
        ({"generation": jax.random.key(0)}, r"generation is int64\[\] .* uint32\[2\]"),
    ],
)
def test_another_architecture_names_the_first_difference(tmp_path, change, message):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small_state(1))
    checkpoints.save(2, small_state(2))
    with pytest.raises(CheckpointError, match=message) as error:
        checkpoints.restore_latest(small_state(0) | change)
    assert str(tmp_path / "last" / "2") in str(error.value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "at least one array"),
        (np.ones(3), "must be a container"),
        ({"mean": {"name": "dense"}}, "mean/name must be an array.* got str"),
        ({"mean": [object()]}, "mean/0 must be an array"),
        (OrderedDict([(1, np.ones(1)), ("1", np.ones(1))]), "two entries"),
    ],
)
def test_a_state_that_is_not_of_arrays_is_refused(tmp_path, state, message):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        checkpoints.save(1, state)
    with pytest.raises(CheckpointError, match="step must be 0 or more, got -1"):
        checkpoints.save(-1, small_state(1))
    assert checkpoints.steps() == []


def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "last").write_text("a file in the way")
    with pytest.raises(CheckpointError, match=f"cannot save a .* {tmp_path / 'last'}"):
        Checkpoints(tmp_path).save(1, small_state(1))


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path, capfd):
    # A limit on the size of files stands for a disk without space.
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    noise = np.random.default_rng(0).normal(size=(40, 30_000))
    Checkpoints(tmp_path).save(1, {"x": np.zeros(2)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))
    try:
        with pytest.raises(CheckpointError) as caught:
            Checkpoints(tmp_path).save(2, {f"w{i}": row for i, row in enumerate(noise)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    (line,) = str(caught.value).splitlines()
    assert f"last: {os.strerror(errno.EFBIG)}; free space" in line
    assert [path.name for path in (tmp_path / "last").iterdir()] == ["1"]
    assert Checkpoints(tmp_path).restore("last").step == 1
    assert capfd.readouterr() == ("", "")


def test_orbax_stays_silent(tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("absl")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoints = Checkpoints(tmp_path)
        checkpoints.save(1, full_state())
        checkpoints.restore_latest(full_state())
    assert logger.level == level
    assert [r.message for r in caplog.records if r.name == "absl"] == []
    assert capfd.readouterr() == ("", "")


# Kills


@pytest.mark.parametrize("series", ["last", "best"])
def test_a_step_is_on_the_disk_before_it_has_its_name(
    tmp_path, monkeypatch, synced, series
):
    rename = os.rename
    renamed = {}

    def recorded_rename(source, target):
        renamed[source] = (target, list(synced))
        rename(source, target)

    checkpoints = Checkpoints(tmp_path, keep=2)
    save = checkpoints.save if series == "last" else checkpoints.save_best
    save(1, small_state(1))
    save(2, small_state(2))
    synced.clear()
    monkeypatch.setattr(os, "rename", recorded_rename)
    path = save(3, small_state(3))
    (unfinished,) = [
        source for source, (target, _) in renamed.items() if target == path
    ]
    contents = [
        unfinished,
        *(unfinished / p.relative_to(path) for p in path.rglob("*")),
    ]
    assert len(contents) > 8
    _, synced_before_it_is_named = renamed[unfinished]
    assert set(contents) <= set(synced_before_it_is_named)
    # The new name is on the disk before the old step is gone.
    old = path.with_name("1" if series == "last" else "2")
    _, synced_before_deletion = renamed[old]
    assert path.parent not in synced_before_it_is_named
    assert path.parent in synced_before_deletion


class KilledError(BaseException):
    """Stands for a kill: nothing in the module catches it."""


@pytest.mark.parametrize(
    ("series", "new_step"), [("last", 4), ("last", 3), ("best", 4)]
)
def test_dying_before_any_file_operation_loses_nothing(
    tmp_path, monkeypatch, series, new_step
):
    """Dies before the n-th file operation of a save, for every n.

    ``new_step`` 4 is the usual case, 3 replaces the newest step.
    """
    old = small_state(3)
    new = jax.tree.map(lambda x: np.asarray(x + 1), old)
    checkpoints = Checkpoints(tmp_path / "before", keep=2)
    for step in (2, 3):
        checkpoints.save(step, old)
        checkpoints.save_best(step, old)
    for fatal in range(1000):
        directory = tmp_path / str(fatal)
        shutil.copytree(tmp_path / "before", directory)
        checkpoints = Checkpoints(directory, keep=2)
        save = checkpoints.save if series == "last" else checkpoints.save_best
        with monkeypatch.context() as patch:
            _die_before_operation(patch, fatal)
            try:
                save(new_step, new)
            except KilledError:
                finished = False
            else:
                finished = True
        step, state = Checkpoints(directory).restore(series, old)
        assert (step, int(state["generation"])) in {(3, 3), (new_step, 4)}
        assert_identical(state, new if state["generation"] == 4 else old)
        if finished:
            break
        # What comes next works too, whatever the dead process left behind.
        save(new_step, new)
        restored = checkpoints.restore(series, old)
        assert restored.step == new_step
        assert_identical(restored.state, new)
        assert not list((directory / series).glob(".*"))
    assert 7 <= fatal < 999


def _die_before_operation(patch, fatal):
    """Lets every file operation of the module count, and the ``fatal``-th raise."""
    count = iter(range(10_000))

    def dying(function):
        def call(*args, **kwargs):
            if next(count) == fatal:
                raise KilledError
            return function(*args, **kwargs)

        return call

    for target, name in (
        (os, "rename"),
        (shutil, "rmtree"),
        (Path, "mkdir"),
        (Path, "write_text"),
        (ocp.Checkpointer, "save"),
    ):
        patch.setattr(target, name, dying(getattr(target, name)))


SAVING_LOOP = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from test_checkpoint import Checkpoints, small_state

def save_forever():
    checkpoints = Checkpoints(sys.argv[1], keep=2)
    step = max([-1, *checkpoints.steps()])
    while True:
        step += 1
        if step % 3 == 0:
            checkpoints.save_best(step, small_state(step))
        checkpoints.save(step, small_state(step))

# Forked before JAX starts any thread, so that imports are paid for once.
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        save_forever()
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""


def test_sigkill_at_random_moments_never_loses_a_checkpoint(tmp_path):
    source = [Path(__file__).parent, Path(checkpoint_module.__file__).parents[1]]
    command = [sys.executable, "-W", "ignore", "-c", SAVING_LOOP, tmp_path, *source]
    rng = random.Random(0)
    num_caught_saving = 0
    checkpoints = Checkpoints(tmp_path)
    latest = -1
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as server:
        for _ in range(15):
            server.stdin.write("save\n")
            pid = int(server.stdout.readline())
            try:
                _wait_for_step(checkpoints, latest + 1)
                time.sleep(rng.uniform(0, 0.1))
            finally:
                os.kill(pid, signal.SIGKILL)
            assert server.stdout.readline() == "ended\n"
            num_caught_saving += any(tmp_path.glob("*/.unfinished-*"))
            # Any CheckpointWarning would be an error here: nothing is half-written.
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                restored = checkpoints.restore_latest(small_state(0))
                best = checkpoints.restore("best", small_state(0))
            assert_small_state(restored)
            assert_small_state(best)
            assert restored.step > latest
            assert best.step == 3 * (best.step // 3)
            assert restored.step - 3 < best.step <= restored.step + 1
            latest = restored.step
        server.stdin.close()
    assert num_caught_saving >= 5


def _wait_for_step(checkpoints, step):
    deadline = time.monotonic() + 60
    while max([-1, *checkpoints.steps()]) < step:
        assert time.monotonic() < deadline, "the saving process makes no progress"
        time.sleep(0.002)
