"""Damages of MuJoCo's robots: motors that are weak or dead, and legs that are shorter.

What is left of each motor's strength is an episode's ``variation``
(``reset(options={"variation": …})``). A leg that is shorter, or lacks its foot, is
another model, and so another task: Gymnasium's own except for the length of a limb, and
of HalfCheetah for all masses, whose sum its model file sets.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import difflib
import functools
from pathlib import Path
from typing import ClassVar, NamedTuple
from xml.etree import ElementTree

import mujoco
import numpy as np

from jax_es.envs.mujoco_env import silence_mujoco_log
from jax_es.envs.mujoco_task import MujocoTask
from jax_es.envs.mujoco_tasks import TASKS
from jax_es.envs.mujoco_walkers import Ant, HalfCheetah
from jax_es.envs.robot import registered_task, write_model


class Damage(NamedTuple):
    """One damaged robot."""

    env_id: str
    """The task of its body; that of the intact robot if only motors are damaged."""
    strength: np.ndarray
    """``[A]``, what is left of each motor's."""


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

BODIES = {
    "Ant-v5": {
        "left-front-leg-short": "AntShortLeg-v0",
        "left-front-foot-missing": "AntNoFoot-v0",
    },
    "HalfCheetah-v5": {
        "back-leg-short": "HalfCheetahShortBackFoot-v0",
        "front-leg-short": "HalfCheetahShortFrontFoot-v0",
        "back-foot-missing": "HalfCheetahNoBackFoot-v0",
        "front-foot-missing": "HalfCheetahNoFrontFoot-v0",
    },
}
"""Of a task: damage → the task of the damaged body."""


class Shortened(MujocoTask):
    """A task whose model has shorter limbs."""

    limbs: ClassVar[dict[str, float]]
    """Capsule → what is left of its length, from the joint on."""

    @classmethod
    def model_path(cls) -> Path:
        """Returns where the XML file is, for as long as we run."""
        return shortened(super().model_path(), tuple(cls.limbs.items()))


def _shorter(task: type[MujocoTask], limb: str, share: float) -> type[Shortened]:
    return type(task.__name__, (Shortened, task), {"limbs": {limb: share}})


# A foot of a hundredth of its length is missing: the leg ends at the ankle.
AntShortLeg = _shorter(Ant, "left_ankle_geom", 0.5)
AntNoFoot = _shorter(Ant, "left_ankle_geom", 0.01)
HalfCheetahShortBackFoot = _shorter(HalfCheetah, "bfoot", 0.5)
HalfCheetahShortFrontFoot = _shorter(HalfCheetah, "ffoot", 0.5)
HalfCheetahNoBackFoot = _shorter(HalfCheetah, "bfoot", 0.01)
HalfCheetahNoFrontFoot = _shorter(HalfCheetah, "ffoot", 0.01)


@functools.cache
def shortened(model: Path, limbs: tuple[tuple[str, float], ...]) -> Path:
    """Writes a model whose limbs are shorter; masses follow their volumes.

    HalfCheetah's file sets the sum of all masses, 14 kg: without a foot its other limbs
    are 5 to 6 % heavier.

    Args:
        model: the XML file of the whole one.
        limbs: capsules that begin at the origin of their body, each with the share of
            its length that is left.

    Returns:
        A file in a folder of this process, which is removed with it.
    """
    tree = ElementTree.parse(model).getroot()
    for name, share in limbs:
        (capsule,) = tree.iterfind(f".//geom[@name='{name}']")
        # A capsule is given by its ends, or by its middle and (radius, half length).
        for field, kept in (("fromto", 3), ("pos", 0), ("size", 1)):
            numbers = capsule.get(field, "").split()
            shorter = [str(share * float(number)) for number in numbers[kept:]]
            if shorter:
                capsule.set(field, " ".join([*numbers[:kept], *shorter]))
    return write_model(model.name, ElementTree.tostring(tree, "unicode"))


def damages(env_id: str) -> dict[str, Damage]:
    """Returns the named damages of a task.

    Raises:
        ValueError: it is no task on MuJoCo's threads.
    """
    motors, named = _motors(env_id)
    found = {
        name: Damage(env_id, _strengths(motors, shares))
        for name, shares in named.items()
    }
    found[WEAK_MOTORS] = Damage(env_id, np.full(len(motors), 0.5))
    bodies = BODIES.get(env_id, {})
    whole = np.ones(len(motors))
    return found | {name: Damage(body, whole) for name, body in bodies.items()}


def damage(env_id: str, text: str) -> Damage:
    """Returns the damage of a name, or of motors.

    Args:
        env_id: the task.
        text: one of :func:`damages`, or motors and their shares: ``hip_1=0,ankle_1=.5``
            (a motor is named as the joint that it moves).

    Raises:
        ValueError: there is no such damage; the error lists the valid ones.

    Example:
        >>> damage("Hopper-v5", "foot_joint=0.5").strength.tolist()
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
    return Damage(env_id, _strengths(motors, shares))


def _motors(env_id: str) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Returns the joints that motors move, in their order, and the named damages."""
    task = TASKS.get(env_id) or registered_task(env_id)
    if task is None:
        raise ValueError(
            f"env_id: {env_id} has no motors that could be damaged; choose one of "
            f"{', '.join(TASKS)}"
        )
    silence_mujoco_log()
    model = mujoco.MjModel.from_xml_path(str(task.model_path()))
    motors = [model.joint(int(joint)).name for joint in model.actuator_trnid[:, 0]]
    known = (DAMAGES[c.__name__] for c in task.__mro__ if c.__name__ in DAMAGES)
    return motors, next(known, {})


def _strengths(motors: list[str], shares: dict[str, float]) -> np.ndarray:
    return np.array([shares.get(motor, 1.0) for motor in motors])
