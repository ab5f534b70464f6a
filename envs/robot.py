"""Robots of the user's own: a MuJoCo model and a task, registered under an id.

A task says observation, reward and ending once, over a batch of simulations
(:class:`jax_es.envs.mujoco_task.MujocoTask`). Training steps it on MuJoCo's threads;
for ``gymnasium.make``, a video or another library it is one environment of
Gymnasium's (:mod:`jax_es.envs.robot_env`).
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.registration import load_env_creator

from jax_es.envs.faults import EnvironmentFailure
from jax_es.envs.mujoco_task import MujocoTask, Runner

__all__ = ["MujocoTask", "Runner", "register"]

_ENTRY_POINT = "jax_es.envs.robot_env:RobotEnv"


def register(env_id: str, task: type[MujocoTask]) -> None:
    """Registers a robot, here and with Gymnasium.

    Named as ``module:id`` (``--env.id my_robot:Worm-v0``), ``module`` being the one
    that calls this, it is trained on MuJoCo's threads.

    Args:
        env_id: such as ``"Worm-v0"``.
        task: its model, observation, reward and ending; a class at the top level of a
            module.

    Raises:
        gymnasium.error.Error: the id has another form than Gymnasium's.
    """
    gymnasium.register(
        env_id,
        entry_point=_ENTRY_POINT,
        max_episode_steps=task.max_episode_steps,
        # By name, so that datasets can say it.
        kwargs={"task": f"{task.__module__}:{task.__qualname__}"},
    )


def registered_task(env_id: str) -> type[MujocoTask] | None:
    """Returns the task of a robot's id, with or without its module; None of others."""
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    if spec is None or spec.entry_point != _ENTRY_POINT:
        return None
    return task_of(spec.kwargs["task"])


def own_numbers(task: type[MujocoTask], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those arguments, as they were given, that are the task's own variations.

    Raises:
        ValueError: one is no number.
    """
    own = {name: kwargs[name] for name in kwargs if _variation(task, name) is not None}
    for name, value in own.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} {value!r}: expected a number")
    return own


def _variation(task: type[MujocoTask], argument: str) -> str | None:
    """Returns whose value an argument is, which may be spelled with _ for -."""
    names = [argument, argument.replace("_", "-")]
    return next((name for name in names if name in task.variations), None)


def with_numbers(
    task: type[MujocoTask], numbers: Mapping[str, float]
) -> type[MujocoTask]:
    """Returns a task whose episodes have other numbers where no variation is given.

    Args:
        task: which one.
        numbers: as :func:`own_numbers` returns them.
    """
    named = {_variation(task, name): value for name, value in numbers.items()}
    variations = {**task.variations, **named}
    changed = {"__module__": task.__module__, "variations": variations}
    return type(task.__name__, (task,), changed)


def write_model(name: str, text: str) -> Path:
    """Writes a model's XML into a folder of this process, which is removed with it."""
    folder = Path(tempfile.mkdtemp(prefix="jax-es-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / name
    path.write_text(text)
    return path


def check(name: str, task: MujocoTask, model: mujoco.MjModel) -> None:
    """Checks what a task returns, and that policies can act in its model.

    Raises:
        EnvironmentFailure: naming what returns what, and what is expected.
    """
    unlimited = np.flatnonzero(model.actuator_ctrllimited == 0)
    if len(unlimited) or model.nu == 0:
        what = (
            f"actuator {unlimited[0]} without ctrlrange" if model.nu else "no actuator"
        )
        raise EnvironmentFailure(
            f"environment {name} has {what} in {task.model_file}; policies act within "
            "bounds, so give each a ctrlrange"
        )
    num_envs = len(task.qpos)
    with np.errstate(all="ignore"):  # nothing was computed yet
        parts = task.observation()
        is_pieces = isinstance(parts, tuple) and all(
            np.ndim(part) == 2 and len(part) == num_envs and part.dtype.kind in "biuf"
            for part in parts
        )
        unhealthy = task.unhealthy()
        rewards = task.reward(np.zeros((num_envs, model.nu), np.float32), unhealthy)
    for method, got, is_right, expected in (
        ("observation", parts, is_pieces, "a tuple of arrays [N, k] of numbers"),
        ("unhealthy", unhealthy, _is_row(unhealthy, num_envs, "b"), "[N] bool"),
        ("reward", rewards, _is_row(rewards, num_envs, "fiu"), "[N] numbers"),
    ):
        if not is_right:
            kind = type(got).__name__
            raise EnvironmentFailure(
                f"environment {name} returned {kind} {np.shape(got)} from {method}, "
                f"expected {expected}, N = {num_envs} environments"
            )


def task_of(target: str) -> type[MujocoTask]:
    """Imports what ``module:Name`` names."""
    found: Any = load_env_creator(target)
    return found


def _is_row(value: Any, size: int, kinds: str) -> bool:
    """Returns whether it is an array ``[size]`` of one of these kinds of numbers."""
    return (
        isinstance(value, np.ndarray)
        and value.shape == (size,)
        and value.dtype.kind in kinds
    )
