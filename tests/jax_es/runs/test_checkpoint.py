"""What is saved comes back to the bit, and no kill loses a run."""

import errno
import os
import resource
import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from jax_es.runs.checkpoint import CheckpointError, Checkpoints


class Statistics(NamedTuple):
    """Stands for the observation statistics."""

    total: np.ndarray
    count: np.float64


def full_state():
    """A state with every kind of leaf and container that training may hold."""
    rng = np.random.default_rng(0)
    kernel = jnp.asarray(rng.normal(size=(7, 3)), jnp.float32)
    mean = {"Dense_0": {"kernel": kernel, "bias": -jnp.zeros(3)}}
    optimizer = optax.chain(optax.trace(0.9), optax.add_decayed_weights(0.1))
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
        "without_elements": np.zeros((3, 0), np.int8),
        "negative_zeros": np.full(4, -0.0),
        "nan_payload": np.array([0x7FF8000000000123], np.uint64).view(np.float64),
        "bfloat16": jnp.arange(3, dtype=jnp.bfloat16),
        "column_major": np.asfortranarray(rng.normal(size=(2, 3))),
        "list": [np.arange(2, dtype=np.uint8), {"a.b": np.ones(1, bool)}],
        "placed": jax.device_put(jnp.arange(3), jax.devices()[-1]),
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
        getattr(leaf, "sharding", None),
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


SMALL = small_state(0)


def assert_small_state(restored):
    assert_identical(restored.state, small_state(restored.step))


def largest(folder):
    return max(folder.rglob("*"), key=lambda f: f.stat().st_size * f.is_file())


# Restoring


def test_restores_every_bit_dtype_and_container(tmp_path):
    state = full_state()
    Checkpoints(tmp_path).save(12, state)
    step, restored = Checkpoints(tmp_path).restore("last", full_state())
    assert step == 12
    assert not jax.config.jax_enable_x64
    assert_identical(restored, state)


def test_without_a_template_gives_dictionaries_of_numpy_arrays(tmp_path):
    state = full_state()
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save_best(12, state)
    restored = checkpoints.restore("best").state
    assert_identical(restored["mean"], jax.tree.map(np.asarray, state["mean"]))
    statistics = state["observation_statistics"]._asdict()
    expected = jax.tree.map(np.asarray, statistics)
    assert_identical(restored["observation_statistics"], expected)
    assert_identical(restored["key"], np.asarray(jax.random.key_data(state["key"])))
    assert_identical(restored["generation"], np.asarray(12))
    assert not {"nothing", "without_elements"} & {*restored}
    assert restored["list"]["1"]["a.b"].dtype == bool
    # As the module's docstring says, without this module.
    with ocp.PyTreeCheckpointer() as checkpointer:
        assert_identical(checkpointer.restore(path / "state"), restored)


# Series and pruning


def test_keeps_the_most_recent_steps_and_the_best(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run", keep=2)
    assert (checkpoints.steps(), checkpoints.best_step()) == ([], None)
    assert not (tmp_path / "run").exists()
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
        restored = checkpoints.restore(which, SMALL)
        assert restored.step == step
        assert_small_state(restored)


def test_saving_an_existing_step_again_replaces_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for save in (checkpoints.save, checkpoints.save_best):
        for value in range(3):
            save(5, {"x": np.asarray(value)})
    for which in ("last", "best", 5):
        assert checkpoints.restore(which) == (5, {"x": np.asarray(2)})
    assert checkpoints.steps() == [5]
    assert len(os.listdir(tmp_path / "last")) == len(os.listdir(tmp_path / "best")) == 1


def test_what_is_no_step_is_left_where_it_is(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, small_state(1))
    for name in ("mine", "1-copy", "012", ".hidden"):
        (tmp_path / "last" / name).mkdir()
    for name in (".unfinished-9-1-0", "3"):  # a killed save's
        (tmp_path / "last" / name / "state.orbax-checkpoint-tmp-1").mkdir(parents=True)
    checkpoints.save(2, small_state(2))
    left = {"mine", "1-copy", "012", ".hidden", "2"}
    assert {*os.listdir(tmp_path / "last")} == left


def test_going_back_to_an_earlier_step_forgets_the_later_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (5, 6, 7, 6):
        checkpoints.save(step, small_state(step))
    assert checkpoints.steps() == [5, 6]


# Damage


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_every_file_of_a_step_is_checked(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, small_state(3))
    newest = checkpoints.save(4, small_state(4))
    kept = shutil.copytree(newest, tmp_path / "kept")
    for file in (path for path in kept.rglob("*") if path.is_file()):
        # Nothing says that these digests must be there.
        if (file.name, damage) == ("digests.json", Path.unlink):
            continue
        shutil.rmtree(newest)
        shutil.copytree(kept, newest)
        name = file.relative_to(kept).as_posix()
        damage(newest / name)
        with pytest.raises(CheckpointError) as error:
            checkpoints.restore("last", SMALL)
        state = "missing" if damage is Path.unlink else "damaged"
        assert str(error.value).startswith(f"checkpoint {newest} cannot be read (")
        assert f"{name} is {state}); delete that folder to use what remains" in str(
            error.value
        )
        assert str(error.value).endswith("last (3)")
    shutil.rmtree(newest)
    assert_small_state(checkpoints.restore("last", SMALL))
    assert checkpoints.steps() == [3]


def test_a_run_whose_folder_was_moved_is_not_saved_elsewhere(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    with pytest.raises(CheckpointError, match="cannot save a checkpoint"):
        checkpoints.save(1, SMALL)
    assert os.listdir(tmp_path) == []


# Errors


@pytest.mark.parametrize("which", ["lats", "-3", 7])
def test_unknown_names_list_what_there_is(tmp_path, which):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match=f"no checkpoint in {tmp_path}: check"):
        checkpoints.restore(which)
    for step in (1, 2):
        checkpoints.save(step, SMALL)
    checkpoints.save_best(2, SMALL)
    with pytest.raises(CheckpointError, match=f"no checkpoint '{which}'") as error:
        checkpoints.restore(which)
    assert f"{tmp_path} has the steps 1, 2 and the best, 2" in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"mean": {"kernel": np.zeros((20, 51), np.float32)}},
            r"mean/kernel is float32\[20, 50\] in the checkpoint and float32\[20, 51\]",
        ),
        ({"mean": {}}, r"mean/kernel is float32\[20, 50\] in the checkpoint and abs"),
        ({"generation": 3.0}, r"generation is int64\[\] in the .* float64\[\] here"),
        ({"generation": jax.random.key(0)}, r"generation is int64\[\] .* uint32\[2\]"),
    ],
)
def test_another_architecture_names_the_first_difference(tmp_path, change, message):
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(2, small_state(2))
    with pytest.raises(CheckpointError, match=message) as error:
        checkpoints.restore("last", SMALL | change)
    assert str(path) in str(error.value) and "use the conf" in str(error.value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "at least one array"),
        (np.ones(3), "in a container"),
        ({"mean": {"name": "dense"}}, "mean/name must be an array.* got str"),
        ({"mean": [object()]}, "mean/0 must be an array"),
    ],
)
def test_a_state_that_is_not_of_arrays_is_refused(tmp_path, state, message):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        checkpoints.save(1, state)
    assert checkpoints.steps() == []


def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "last").write_text("a file in the way")
    with pytest.raises(CheckpointError, match=f"cannot save a .* {tmp_path / 'last'}"):
        Checkpoints(tmp_path).save(1, SMALL)


def test_a_full_disk_is_one_clear_error_and_leaves_earlier_steps(tmp_path, capfd):
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
    assert Checkpoints(tmp_path).steps() == [1]
    assert Checkpoints(tmp_path).restore("last").step == 1
    assert capfd.readouterr() == ("", "")
    Checkpoints(tmp_path).save(2, SMALL)
    assert Checkpoints(tmp_path).steps() == [1, 2]
    assert len(os.listdir(tmp_path / "last")) == 2


# Kills


class KilledError(BaseException):
    """Stands for a kill: nothing in the module catches it."""


def die_at(patch, fatal):
    """Lets the ``fatal``-th of a save's operations raise, before or after it."""
    count = iter(range(1000))

    def dying(function):
        def call(*args, **kwargs):
            if next(count) == fatal:
                raise KilledError
            result = function(*args, **kwargs)
            if next(count) == fatal:
                raise KilledError
            return result

        return call

    for owner, name in (
        (Path, "mkdir"),
        *((Path, "rename"), (Path, "replace")),
        (shutil, "rmtree"),
        (ocp.PyTreeCheckpointer, "save"),
    ):
        patch.setattr(owner, name, dying(getattr(owner, name)))


@pytest.mark.parametrize(
    ("series", "new_step"), [("last", 4), ("last", 3), ("best", 4), ("best", 3)]
)
def test_dying_at_any_operation_loses_nothing(tmp_path, monkeypatch, series, new_step):
    """``new_step`` 4 is the usual case, 3 replaces the newest step."""
    old = small_state(3)
    new = jax.tree.map(lambda x: np.asarray(x + 1), old)
    checkpoints = Checkpoints(tmp_path / "before", keep=2)
    for step in (2, 3):
        checkpoints.save(step, old)
        checkpoints.save_best(step, old)
    for fatal in range(1000):
        directory = shutil.copytree(tmp_path / "before", tmp_path / str(fatal))
        checkpoints = Checkpoints(directory, keep=2)
        save = checkpoints.save if series == "last" else checkpoints.save_best
        with monkeypatch.context() as patch:
            die_at(patch, fatal)
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
        assert_identical(checkpoints.restore(series, old).state, new)
        assert len(os.listdir(directory / series)) == (1 if series == "best" else 2)
    assert 10 <= fatal < 99
