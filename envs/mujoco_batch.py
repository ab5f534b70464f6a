"""A batch of simulations that also computes contact forces, on MuJoCo's threads.

Gymnasium's Humanoid, HumanoidStandup and Ant observe ``cfrc_ext``, which exists only
after ``mj_rnePostConstraint``. ``mujoco.batch.Batch.step`` never calls it, and its
public methods cannot apply a function to a simulation's ``MjData``; the C API beneath
it can (``mjb_apply``). Of three ways that all reproduce Gymnasium exactly, we chose
the C API through ctypes, measured on Humanoid-v5 with 64 environments and 2 threads:

- ``mjb_step``, ``mjb_apply(mj_rnePostConstraint)``, ``mjb_forward(mjSTAGE_NONE)``:
  the last two add 0.7 µs to the 200 µs of a step when caches are warm and 2 µs when
  they are not, and run on the pool's C++ threads;
- Python threads over one ``MjData`` each: 5 % slower on 2 cores; each step holds the
  interpreter's lock for several µs, which 16 threads would queue for;
- ``get_data`` one by one: 25 µs a simulation on one thread, whatever the core count.

Only public C functions are used, and the model is loaded by C as well, so no address
is borrowed from a Python object. In exchange a wrong argument would end the process:
callers pass ids that came out of ``np.flatnonzero``.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import ctypes
import functools
import math
import operator
import tempfile
import weakref
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import SimulationError

_STATE_COMPONENTS = {
    "qpos": mujoco.mjtState.mjSTATE_QPOS,
    "qvel": mujoco.mjtState.mjSTATE_QVEL,
    "ctrl": mujoco.mjtState.mjSTATE_CTRL,
}
_STAGE_NONE = int(mujoco.mjtStage.mjSTAGE_NONE)
_STAGE_ALL = int(mujoco.mjtStage.mjSTAGE_ACC)
_ERROR_SIZE = 1000


class ContactForceBatch:
    """The part of ``mujoco.batch.Batch`` that we use, with ``cfrc_ext`` after a step.

    Attributes:
        state: ``[nsim, nstate]``, each row the whole state of a simulation, writable.
        warning: ``[nsim, 7, 2]`` int32, detail and count of each kind, writable.

    Args:
        model: the compiled model.
        nsim: number of simulations.
        nthread: number of threads, the caller's included.

    Raises:
        ValueError: MuJoCo has no memory for that many simulations.
    """

    def __init__(self, model: mujoco.MjModel, nsim: int, nthread: int) -> None:
        """Loads the model a second time, in C, and starts the threads."""
        self._lib = _library()
        self._nsim, self._model = nsim, model
        self._data = mujoco.MjData(model)  # shapes and types of the fields
        # Persistent, because each simulation's contacts must outlive its step.
        self._batch = _make_batch(self._lib, model, nsim, nthread)
        self._status = self._array(self._lib.mjb_status(self._batch), np.int32)
        self._contact_forces = self._bind_output("cfrc_ext")
        width = self._lib.mjb_nstate(self._batch)
        self.state = self._array(self._lib.mjb_state(self._batch), np.float64, width)
        self.warning = self._array(
            self._lib.mjb_warning(self._batch), np.int32, len(self._data.warning), 2
        )

    def bind(self, name: str) -> np.ndarray:
        """Returns a live ``[nsim, ...]`` view of an ``MjData`` field.

        ``qpos``, ``qvel`` and ``ctrl`` are views of ``state``, which may be written;
        other fields are refreshed by each call on a simulation.
        """
        if name in _STATE_COMPONENTS:
            return self._bind_state(name)
        field = self._bind_output(name)
        field.flags.writeable = False
        return field

    def expand(self, name: str) -> np.ndarray:
        """Gives a field of the model values of each simulation, ``[nsim, …]``.

        ``mjModel``'s of numbers, or ``mjOption``'s as ``opt.gravity``; after masses
        were written, :meth:`set_const` computes what follows from them.
        """
        template = operator.attrgetter(name)(self._model)
        address = self._lib.mjb_expand(self._batch, name.encode(), None, None)
        return self._array(address, np.float64, *template.shape)

    def set_const(self, ids: np.ndarray) -> None:
        """Runs ``mj_setConst`` on simulations' models.

        Raises:
            SimulationError: MuJoCo raised in some simulations; the others are done.
        """
        self._run(ids, (self._lib.mjb_setConst,))

    def forward(self, ids: np.ndarray | None = None) -> None:
        """Computes ``mj_forward``, which leaves no contact forces: they become 0.

        Args:
            ids: sorted unique simulation numbers, int32; all if ``None``.

        Raises:
            SimulationError: MuJoCo raised in some simulations; the others are done.
        """
        self._run(ids, (self._lib.mjb_forward, _STAGE_ALL))
        self._contact_forces[slice(None) if ids is None else ids] = 0.0

    def step(self, ids: np.ndarray | None = None, nstep: int = 1) -> None:
        """Advances simulations by ``nstep`` physics steps; computes contact forces.

        Args:
            ids: sorted unique simulation numbers, int32; all if ``None``.
            nstep: number of calls to ``mj_step``.

        Raises:
            SimulationError: MuJoCo raised in some simulations; the others are done.
        """
        self._run(
            ids,
            (self._lib.mjb_step, nstep, _STAGE_NONE),
            # The two arguments more that mjb_apply gives its callback are ignored by a
            # C function of two, in every calling convention MuJoCo is built for.
            (self._lib.mjb_apply, self._lib.mj_rnePostConstraint, None, 0),
            # Applying leaves the bound arrays as they were; a call of no stage copies.
            (self._lib.mjb_forward, _STAGE_NONE),
        )

    def _run(self, ids: np.ndarray | None, *calls: tuple[Any, ...]) -> None:
        """Makes calls of the C API in turn, leaving out simulations that failed."""
        num_called = self._nsim if ids is None else len(ids)
        errors: dict[int, str] = {}
        for function, *arguments in calls:
            if ids is not None and len(ids) == 0:
                break
            pointer = None if ids is None else ids.ctypes.data
            count = self._nsim if ids is None else len(ids)
            if function(self._batch, pointer, count, *arguments):
                called = np.arange(self._nsim, dtype=np.int32) if ids is None else ids
                failed = self._status[called] != 0
                for i in called[failed].tolist():
                    errors[i] = self._lib.mjb_error(self._batch, i).decode()
                ids = called[~failed]
        if errors:
            failed_ids = np.sort(np.array(list(errors), np.int32))
            raise SimulationError(failed_ids, errors[int(failed_ids[0])], num_called)

    def _bind_state(self, name: str) -> np.ndarray:
        size = ctypes.c_int()
        address = self._lib.mjb_stateComponent(
            self._batch, int(_STATE_COMPONENTS[name]), ctypes.byref(size)
        )
        start = (address - self.state.ctypes.data) // self.state.itemsize
        return self.state[:, start : start + size.value]

    def _bind_output(self, name: str) -> np.ndarray:
        template = getattr(self._data, name)
        address = self._lib.mjb_output(self._batch, name.encode(), None, None)
        return self._array(address, template.dtype, *template.shape)

    def _array(self, address: int, dtype: Any, *row_shape: int) -> np.ndarray:
        """Returns MuJoCo's memory as ``[nsim, *row_shape]``, which keeps it alive."""
        shape = (self._nsim, *row_shape)
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        buffer = (ctypes.c_char * num_bytes).from_address(address)
        buffer.owner = self._batch
        return np.frombuffer(memoryview(buffer), dtype).reshape(shape)


class _BatchPointer(ctypes.c_void_p):
    """``mjBatch*``; the batch is deleted with the last reference to this."""


class _BatchConfig(ctypes.Structure):
    """``mjBatchConfig`` of mjbatch.h."""

    _fields_ = (("nthread", ctypes.c_int), ("persistent", ctypes.c_bool))


def _make_batch(
    lib: ctypes.CDLL, model: mujoco.MjModel, nsim: int, nthread: int
) -> _BatchPointer:
    """Loads the compiled model in C and makes a persistent batch of copies of it."""
    with tempfile.TemporaryDirectory(prefix="jax-es-") as folder:
        path = f"{folder}/model.mjb"
        mujoco.mj_saveModel(model, path)
        loaded = lib.mj_loadModel(path.encode(), None)
    error = ctypes.create_string_buffer(_ERROR_SIZE)
    config = _BatchConfig(nthread, True)
    batch = lib.mjb_makeBatch(loaded, nsim, ctypes.byref(config), error, _ERROR_SIZE)
    lib.mj_deleteModel(loaded)
    if not batch:
        raise ValueError(f"num_envs: no batch of {nsim}: {error.value.decode()}")
    pointer = _BatchPointer(batch)
    weakref.finalize(pointer, lib.mjb_deleteBatch, batch)
    return pointer


@functools.cache
def _library() -> ctypes.CDLL:
    """Returns the library that Python's ``mujoco`` already runs on, with signatures."""
    package = Path(mujoco.__file__).parent
    names = ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll")
    found = [path for name in names for path in package.glob(name)]
    if len(found) != 1:
        raise ImportError(
            f"expected one MuJoCo library beside its Python package, found {found}: "
            "reinstall mujoco"
        )
    lib = ctypes.CDLL(str(found[0]))
    pointer, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    call = (pointer, pointer, integer)  # batch, ids, number of ids
    for name, result, arguments in (
        ("mj_loadModel", pointer, (text, pointer)),
        ("mj_deleteModel", None, (pointer,)),
        ("mjb_makeBatch", pointer, (pointer, integer, pointer, text, integer)),
        ("mjb_deleteBatch", None, (pointer,)),
        ("mjb_nstate", integer, (pointer,)),
        ("mjb_state", pointer, (pointer,)),
        ("mjb_stateComponent", pointer, (pointer, integer, pointer)),
        ("mjb_status", pointer, (pointer,)),
        ("mjb_error", text, (pointer, integer)),
        ("mjb_warning", pointer, (pointer,)),
        ("mjb_output", pointer, (pointer, text, pointer, pointer)),
        ("mjb_expand", pointer, (pointer, text, pointer, pointer)),
        ("mjb_setConst", integer, call),
        ("mjb_forward", integer, (*call, integer)),
        ("mjb_step", integer, (*call, integer, integer)),
        ("mjb_apply", integer, (*call, pointer, pointer, integer)),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
