"""Saves and restores the whole training state, whatever instant a run is killed at.

On disk, inside ``runs/<name>/checkpoints/``::

    last/12/state/          an ordinary Orbax PyTree checkpoint: the arrays
    last/12/manifest.json   shape and dtype of every array, SHA-256 of every file
    best/9/...              the same, for the best evaluation so far

``last`` holds the most recent steps, ``best`` one step that pruning never touches.
A step is written under a hidden name, synced to the disk and renamed into place, so a
step either exists whole or not at all. An older one is deleted only after that. Saving
a step that exists writes ``last/12.1`` beside it before it deletes ``last/12``, for the
same reason. Damage that comes later (a full disk's truncated file, a flipped bit, a
folder of another program) is found on restore by the checksums, which Orbax lacks, and
the previous step is used.

The state is any pytree of NumPy and JAX arrays, typed PRNG keys and Python numbers.
What :mod:`jax_es.train` stores, by the name that both Orbax and the manifest use (``O``
numbers in an observation):

- ``es/mean``: θ, the policy's parameters, float32, as Flax names and nests them: a
  dense layer has ``kernel`` ``[inputs, outputs]`` and ``bias`` ``[outputs]``, a
  LayerNorm ``scale`` and ``bias``, a table ``embedding``; ``models/`` says what for.
- ``es/optimizer_state``: optax's state. ``0/ema``, of optimizer momentum, is the
  running mean of the gradient estimates, shaped like θ; ``0/count`` counts its updates.
- ``es/generation``: ``[]`` int32, finished generations; ``es/key``: ``[2]`` uint32, the
  key data of the run's ``jax.random.key`` (threefry2x32).
- ``observation_statistics``: ``count`` ``[]``, ``sum`` ``[O]`` and ``sum_of_squares``
  ``[O]`` of the observations seen so far, float64. The policy sees (o − mean) / std,
  std being at least 0.1, or o itself while the count is 0, as in runs that use no
  statistics; pixels are divided by 255 before.
- ``step_cap`` (environment steps, of the next generation's episodes),
  ``total_env_steps``, ``best_evaluation_return``: ``[]``.
- ``reference``: ``[R, …]``, only of policies with virtual batch normalisation: the
  observations that it normalises activations by.

Runs trained by gradients store ``es/mean``, ``es/generation`` (their steps),
``num_evaluations``, ``best_evaluation_return`` and, if they use them,
``observation_statistics``; clones also ``optimizer_state``, optax's of AdamW.

Named tuples are stored as dictionaries of their fields, tuples and lists as
dictionaries of ``"0"``, ``"1"``, …; a restore with a template turns them back. Every
array comes back with its exact bits, shape and dtype, float64 included although JAX
runs without x64: leaves are stored as NumPy arrays.

Bare Orbax reads a step without this module, as nested dictionaries of NumPy arrays
(arrays without elements, which Orbax cannot hold, are in the manifest alone)::

    import orbax.checkpoint as ocp

    state = ocp.PyTreeCheckpointer().restore("/…/runs/NAME/checkpoints/last/12/state")
    state["es"]["mean"]["head"]["kernel"]  # of a Decision Transformer

Saving is synchronous: 3 MB take about 50 ms on two cores, little beside a generation,
and no background thread can lose a step.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from jax_es.types import PyTree

_FORMAT = 1
_STATE = "state"
_MANIFEST = "manifest.json"
# A hidden name never matches a step's, so unfinished work is never taken for one.
_UNFINISHED = ".unfinished-"
_STEP_NAME = re.compile(r"(0|[1-9][0-9]*)(\.[1-9][0-9]*)?")


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, found or restored; says what to do."""


class CheckpointWarning(UserWarning):
    """A damaged checkpoint was passed over; names it and the step used instead."""


class Restored(NamedTuple):
    """What a restore returns.

    Attributes:
        step: the step that was restored.
        state: the state saved at that step.
    """

    step: int
    state: PyTree


class Checkpoints:
    """The checkpoints of one run.

    Opening creates nothing, so a reader may watch a run that another process trains.
    One process at a time may save.

    Example:
        >>> import tempfile
        >>> checkpoints = Checkpoints(tempfile.mkdtemp())
        >>> path = checkpoints.save(3, {"mean": np.arange(2.0)})
        >>> checkpoints.restore("last")
        Restored(step=3, state={'mean': array([0., 1.])})
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3) -> None:
        """Opens a directory of checkpoints, which need not exist yet.

        Args:
            directory: usually ``runs/<name>/checkpoints``.
            keep: how many of the most recent steps survive, at least 2, so that a
                damaged newest one has a predecessor.

        Raises:
            ValueError: ``keep`` is below 2.
        """
        if keep < 2:
            raise ValueError(
                f"keep must be at least 2, got {keep}: a damaged newest checkpoint"
                " needs a predecessor to fall back to"
            )
        self.directory = Path(directory).absolute()
        self.keep = keep

    def save(self, step: int, state: PyTree) -> Path:
        """Saves a state as the most recent one, then prunes.

        Steps beyond the ``keep`` most recent are deleted, and so are later steps than
        this one: they are what remains of a run that went back to an earlier step.

        Args:
            step: 0 or more; the number of completed generations.
            state: a container pytree of arrays, typed keys and Python numbers.

        Returns:
            The folder of the new step.

        Raises:
            CheckpointError: the state holds something that is not an array, or it
                cannot be written. Earlier steps are intact.
        """
        return self._save("last", step, state, self.keep)

    def save_best(self, step: int, state: PyTree) -> Path:
        """Saves a state as the best one, replacing the previous best.

        Arguments, result and errors are those of :meth:`save`.
        """
        return self._save("best", step, state, 1)

    def remove_unfinished(self) -> None:
        """Deletes what a killed process left; only for the one process that saves."""
        for series in ("last", "best"):
            _remove_unfinished(self.directory / series)

    def restore_latest(self, template: PyTree = None) -> Restored:
        """Restores the most recent step that is whole; see :meth:`restore`."""
        return self._restore(lambda: self._paths("last"), "last", template)

    def restore(self, which: str | int = "last", template: PyTree = None) -> Restored:
        """Restores one state.

        Args:
            which: ``"last"``, ``"best"`` or a step, as a number or in digits. A
                damaged ``"last"`` falls back to the step before it, with a
                :class:`CheckpointWarning`; a step asked for by number does not.
            template: a pytree like the saved one, whose structure, shapes, dtypes and
                kinds of leaves (NumPy, JAX, key, number) the result gets; its values
                are not used, and arrays may be ``jax.ShapeDtypeStruct``. Without one
                the result is nested dictionaries of NumPy arrays.

        Returns:
            The step and its state.

        Raises:
            CheckpointError: no such step, none that is whole, or one that does not
                fit the template.
        """
        if which in ("last", "best"):
            series = str(which)
            return self._restore(lambda: self._paths(series), series, template)
        step = self._parse_step(which)
        return self._restore(lambda: self._paths_of(step), str(step), template)

    def steps(self) -> list[int]:
        """Returns the steps of the ``last`` series, oldest first."""
        return sorted({_step_of(path) for path in self._paths("last")})

    def best_step(self) -> int | None:
        """Returns the step of the best state, or None if none was saved."""
        paths = self._paths("best")
        return _step_of(paths[0]) if paths else None

    def _save(self, series: str, step: int, state: PyTree, keep: int) -> Path:
        if step < 0:
            raise CheckpointError(f"a checkpoint's step must be 0 or more, got {step}")
        arrays = _flatten(state)
        folder = self.directory / series
        unfinished = folder / f"{_UNFINISHED}{step}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_unfinished(folder)
            _write_step(unfinished, step, arrays)
            path = _free_name(folder, step)
            os.rename(unfinished, path)
            _sync(folder)
            self._prune(series, path, keep)
        # Orbax reports a full disk as ValueError, the file system as OSError.
        except (OSError, ValueError) as error:
            _make_room(folder)
            raise CheckpointError(
                f"cannot save a checkpoint in {folder}: {_reason(error)}; free space or"
                " make it writable, then resume (earlier checkpoints are intact)"
            ) from error
        return path

    def _prune(self, series: str, newest: Path, keep: int) -> None:
        """Deletes all steps but ``newest`` and the ``keep - 1`` steps before it."""
        step = _step_of(newest)
        others = [path for path in self._paths(series) if path != newest]
        older = [path for path in others if _step_of(path) < step]
        for path in others:
            if path not in older[: keep - 1]:
                # Deleting takes several calls; a half-deleted step has a hidden name.
                trash = path.with_name(f"{_UNFINISHED}deleted-{path.name}")
                os.rename(path, trash)
                _delete(trash)

    def _restore(
        self, find: Callable[[], list[Path]], which: str, template: PyTree
    ) -> Restored:
        """Restores the first usable one of the folders that ``find`` lists."""
        faults: dict[Path, str] = {}
        while path := next((p for p in find() if p not in faults), None):
            try:
                arrays = _read_step(path)
            except _UnusableError as error:
                faults[path] = str(error)
                continue
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                faults[path] = f"has an unreadable {_MANIFEST} ({error!r})"
                continue
            # A training process may have pruned a step while it was read: no fault.
            for fault in [f"{p} {why}" for p, why in faults.items() if p.exists()]:
                warnings.warn(
                    f"checkpoint {fault}; using step {_step_of(path)}, {path}, instead",
                    CheckpointWarning,
                    stacklevel=3,
                )
            return Restored(_step_of(path), _rebuild(arrays, template, path))
        raise CheckpointError(self._nothing_found(which, faults))

    def _nothing_found(self, which: str, faults: dict[Path, str]) -> str:
        if faults:
            found = "; ".join(f"{path} {why}" for path, why in faults.items())
            return (
                f"no usable checkpoint '{which}' in {self.directory}: {found}. Choose"
                " another checkpoint, copy the run from a backup or start a new run"
            )
        if not self.steps() and self.best_step() is None:
            return (
                f"no checkpoint in {self.directory}: check the run's name; a run has"
                " its first checkpoint after its first generation"
            )
        return f"no checkpoint '{which}': {self._available()}"

    def _paths_of(self, step: int) -> list[Path]:
        paths = self._paths("last") + self._paths("best")
        return [path for path in paths if _step_of(path) == step]

    def _paths(self, series: str) -> list[Path]:
        """Returns the folders of a series, newest first."""
        folder = self.directory / series
        names = os.listdir(folder) if folder.is_dir() else []
        paths = [folder / name for name in names if _STEP_NAME.fullmatch(name)]
        return sorted(paths, key=_order, reverse=True)

    def _parse_step(self, which: str | int) -> int:
        if not isinstance(which, str) or which.isdecimal():
            return int(which)
        raise CheckpointError(
            f"checkpoint must be 'last', 'best' or a step, got {which!r};"
            f" {self._available()}"
        )

    def _available(self) -> str:
        steps = ", ".join(map(str, self.steps())) or "none"
        best = self.best_step()
        return f"{self.directory} has the steps {steps}" + (
            "" if best is None else f" and the best, {best}"
        )


class _UnusableError(Exception):
    """A step's folder is damaged; the message continues a sentence about it."""


_Path = tuple[str, ...]
"""The names on the way to a leaf, as in ``("mean", "Dense_0", "kernel")``."""


def _write_step(folder: Path, step: int, arrays: dict[_Path, np.ndarray]) -> None:
    """Writes one step to ``folder`` and waits until the disk has it."""
    folder.mkdir()
    # Orbax refuses arrays without elements; the manifest suffices to restore them.
    filled = {path: array for path, array in arrays.items() if array.size}
    with (
        _quiet(),
        _without_stragglers(),
        ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer,
    ):
        checkpointer.save(folder / _STATE, args=ocp.args.PyTreeSave(_nest(filled)))
    content = {
        "format": _FORMAT,
        "step": step,
        "arrays": [
            {"path": path, "shape": array.shape, "dtype": str(array.dtype)}
            for path, array in arrays.items()
        ],
        "files": {
            file.relative_to(folder).as_posix(): _digest(file)
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        },
    }
    manifest = {"content": content, "sha256": _digest_json(content)}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in [folder, *folder.rglob("*")]:
        _sync(path)


def _read_step(folder: Path) -> dict[_Path, np.ndarray]:
    """Reads one step, or raises :class:`_UnusableError` if any byte is not as saved."""
    content = _read_manifest(folder)
    for name, digest in content["files"].items():
        try:
            intact = _digest(folder / name) == digest
        except OSError:
            raise _UnusableError(f"lacks its file {name}") from None
        if not intact:
            raise _UnusableError(f"is damaged in its file {name}")
    try:
        with _quiet(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            stored = checkpointer.restore(folder / _STATE)
    # Orbax documents no error types; whatever it raises, this step is of no use.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise _UnusableError(f"cannot be read by Orbax ({reason})") from error
    return dict(_expect(stored, **entry) for entry in content["arrays"])


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        content, digest = manifest["content"], manifest["sha256"]
    except FileNotFoundError:
        raise _UnusableError(f"has no {_MANIFEST}: not written by jax_es") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise _UnusableError(f"has an unreadable {_MANIFEST}") from None
    if _digest_json(content) != digest:
        raise _UnusableError(f"has a damaged {_MANIFEST}")
    if content["format"] != _FORMAT:
        raise _UnusableError(f"has the unknown format {content['format']}")
    if content["step"] != _step_of(folder):
        raise _UnusableError(f"holds step {content['step']}, not its name's")
    return content


def _expect(
    stored: PyTree, path: list[str], shape: list[int], dtype: str
) -> tuple[_Path, np.ndarray]:
    """Looks up one array of the manifest among those that Orbax returned."""
    if 0 in shape:
        return tuple(path), np.zeros(shape, dtype)
    for name in path:
        stored = stored[name]
    array = np.asarray(stored)
    if array.shape != tuple(shape) or str(array.dtype) != dtype:
        raise _UnusableError(
            f"has {'/'.join(path)} as {_describe(array)}, not as it was saved"
        )
    return tuple(path), array


def _flatten(state: PyTree) -> dict[_Path, np.ndarray]:
    """Turns a state into NumPy arrays by name; see the module's docstring."""
    leaves = _named_leaves(state)
    if not leaves or () in leaves:
        raise CheckpointError(
            "state must be a container with at least one array, got"
            f" {type(state).__name__}"
        )
    return {path: _to_numpy(path, leaf) for path, leaf in leaves.items()}


def _rebuild(arrays: dict[_Path, np.ndarray], template: PyTree, folder: Path) -> PyTree:
    """Arranges a step's arrays like ``template``, or in dictionaries without one."""
    if template is None:
        return _nest(arrays)
    leaves = _named_leaves(template)
    for path in leaves | arrays:
        saved = _describe(arrays[path]) if path in arrays else "absent"
        here = _describe(leaves[path]) if path in leaves else "absent"
        if saved != here:
            raise CheckpointError(
                f"checkpoint {folder} does not fit: {'/'.join(path)} is {saved} in the"
                f" checkpoint and {here} here; use the configuration it was saved with"
            )
    restored = [_like(leaf, arrays[path]) for path, leaf in leaves.items()]
    return jax.tree.unflatten(jax.tree.structure(template), restored)


def _named_leaves(tree: PyTree) -> dict[_Path, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {
        tuple(jax.tree_util.keystr((key,), simple=True) for key in path): leaf
        for path, leaf in leaves
    }
    if len(named) < len(leaves):
        raise CheckpointError("state has two entries whose names are the same text")
    return named


def _nest(arrays: dict[_Path, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for (*parents, name), array in arrays.items():
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[name] = array
    return tree


def _to_numpy(path: _Path, leaf: Any) -> np.ndarray:
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    is_number = jnp.issubdtype(array.dtype, np.number) or array.dtype == bool
    if not is_number or not array.dtype.isnative:
        raise CheckpointError(
            f"state entry {'/'.join(path)} must be an array, a key or a number, got"
            f" {type(leaf).__name__} of dtype {array.dtype}"
        )
    return array


def _like(leaf: Any, array: np.ndarray) -> Any:
    """Converts a restored array to the kind of leaf that the template has."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(
            jnp.asarray(array), impl=jax.random.key_impl(leaf)
        )
    if isinstance(leaf, jax.Array):
        # An uncommitted array must stay so, or a jit would see another placement.
        return jax.device_put(array, leaf.sharding if leaf.committed else None)
    if isinstance(leaf, np.generic):
        return array[()]
    if isinstance(leaf, bool | int | float | complex):
        return array.item()
    return array


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _describe(leaf: Any) -> str:
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    elif not hasattr(leaf, "shape"):
        leaf = np.asarray(leaf)
    return f"{leaf.dtype}{list(leaf.shape)}"


def _order(path: Path) -> tuple[int, int]:
    """Sorts ``2`` < ``12`` < ``12.1``."""
    step, _, attempt = path.name.partition(".")
    return int(step), int(attempt or 0)


def _step_of(path: Path) -> int:
    return _order(path)[0]


def _free_name(folder: Path, step: int) -> Path:
    """Returns the first free one of ``12``, ``12.1``, ``12.2``, … in order."""
    attempt = 0
    path = folder / f"{step}"
    while path.exists():
        attempt += 1
        path = folder / f"{step}.{attempt}"
    return path


def _remove_unfinished(folder: Path) -> None:
    """Deletes what killed processes left behind."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        _delete(path)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _digest(file: Path) -> str:
    if not file.is_file():  # a device may have no end
        raise FileNotFoundError(file)
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    """Waits until the disk has a file's bytes or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Orbax's log lines and warnings off the user's terminal."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _without_stragglers() -> Iterator[None]:
    """Keeps a failed save from ending in a traceback for each array.

    When one array cannot be written, Orbax closes its event loop. The others end later,
    each in a thread that still wants to tell that loop; nobody has to know.
    """
    hook = sys.unraisablehook

    def drop(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = drop
    yield
    # Only now: after an error they are still to come.
    sys.unraisablehook = hook


def _make_room(folder: Path) -> None:
    """Deletes what a failed save left, while its last threads may still write more."""
    for _ in range(5):
        with contextlib.suppress(OSError):
            _remove_unfinished(folder)
        time.sleep(0.1)


def _reason(error: Exception) -> str:
    """Returns what the operating system said, out of Orbax's account of it."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else str(error).partition("\n")[0]
