"""Damages of MuJoCo's robots: what is left of each motor's strength, by name.

An episode takes one as its ``variation`` (``reset(options={"variation": …})``). Bodies
stay as they are: a leg that is shorter, or lacks its foot, would be another model.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import difflib

import mujoco
import numpy as np

from envs.mujoco_tasks import TASKS
from envs.robot import registered_task

_ANT_LEGS = {"left-front": 1, "right-front": 2, "left-back": 3, "right-back": 4}

DAMAGES: dict[str, dict[str, dict[str, float]]] = {
    "Ant": {
        **{
            f"{leg}-leg": {f"hip_{number}": 0.0, f"ankle_{number}": 0.0}
            for leg, number in _ANT_LEGS.items()
        },
        **{f"{leg}-ankle": {f"ankle_{n}": 0.0} for leg, n in _ANT_LEGS.items()},
        "front-legs-weak": dict.fromkeys(("hip_1", "ankle_1", "hip_2", "ankle_2"), 0.5),
    },
    "HalfCheetah": {
        "back-leg": {"bthigh": 0.0, "bshin": 0.0, "bfoot": 0.0},
        "front-leg": {"fthigh": 0.0, "fshin": 0.0, "ffoot": 0.0},
        "back-foot": {"bfoot": 0.0},
        "front-foot": {"ffoot": 0.0},
        "back-shin": {"bshin": 0.0},
        "front-shin": {"fshin": 0.0},
    },
    "Hopper": {
        "foot": {"foot_joint": 0.0},
        "knee-weak": {"leg_joint": 0.5},
        "hip-weak": {"thigh_joint": 0.5},
    },
    "Walker2d": {
        "right-foot": {"foot_joint": 0.0},
        "left-foot": {"foot_left_joint": 0.0},
        "right-knee-weak": {"leg_joint": 0.5},
        "left-knee-weak": {"leg_left_joint": 0.5},
    },
}
"""Of a task's class: damage → motor → share of its strength. All have weak-motors."""

WEAK_MOTORS = "weak-motors"
"""Half of all motors' strength."""


def damages(env_id: str) -> dict[str, np.ndarray]:
    """Returns the named damages of a task, each as its motors' strengths ``[A]``.

    Raises:
        ValueError: it is no task on MuJoCo's threads.
    """
    motors, named = _motors(env_id)
    found = {name: _strengths(motors, shares) for name, shares in named.items()}
    return found | {WEAK_MOTORS: np.full(len(motors), 0.5)}


def damage(env_id: str, text: str) -> np.ndarray:
    """Returns what a damage leaves of each motor's strength, ``[A]``.

    Args:
        env_id: the task.
        text: one of :func:`damages`, or motors and their shares: ``hip_1=0,ankle_1=.5``
            (a motor is named as the joint that it moves).

    Raises:
        ValueError: there is no such damage; it lists those that there are.

    Example:
        >>> damage("Hopper-v5", "foot_joint=0.5").tolist()
        [1.0, 1.0, 0.5]
    """
    known = damages(env_id)
    if text in known:
        return known[text]
    motors, _ = _motors(env_id)
    if "=" not in text:
        close = difflib.get_close_matches(text, known, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(
            f"damage {text!r} is unknown for {env_id}; {hint}Known: "
            f"{', '.join(known)}, or MOTOR=SHARE,… of {', '.join(motors)}."
        )
    shares = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            shares[name] = np.nan
        if name not in motors or not 0 <= shares[name] <= 1:
            raise ValueError(
                f"damage {part!r} must be MOTOR=SHARE with a share in [0, 1] and a "
                f"motor of {env_id}: {', '.join(motors)}."
            )
    return _strengths(motors, shares)


def _motors(env_id: str) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Returns the joints that motors move, in their order, and the named damages."""
    task = TASKS.get(env_id) or registered_task(env_id)
    if task is None:
        raise ValueError(
            f"env_id: {env_id} has no motors that could be damaged; choose one of "
            f"{', '.join(TASKS)}"
        )
    model = mujoco.MjModel.from_xml_path(str(task.model_path()))
    motors = [model.joint(int(joint)).name for joint in model.actuator_trnid[:, 0]]
    known = (DAMAGES[c.__name__] for c in task.__mro__ if c.__name__ in DAMAGES)
    return motors, next(known, {})


def _strengths(motors: list[str], shares: dict[str, float]) -> np.ndarray:
    return np.array([shares.get(motor, 1.0) for motor in motors])
