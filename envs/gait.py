"""What a walker's episode did: where its torso ended, and how long each foot stood.

A foot, a sphere or a capsule, touches the floor where its lowest point is closer than
the margins of both geoms together, MuJoCo's own test against a plane: shares are those
counted from ``MjData.contact`` after each of Gymnasium's steps. (``mujoco.batch`` shows
no list of contacts.)
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import mujoco
import numpy as np

from jax_es.envs.mujoco_task import Bind, MujocoTask

FEET = {
    "Ant": (
        "left_ankle_geom",
        "right_ankle_geom",
        "third_ankle_geom",
        "fourth_ankle_geom",
    ),
    "HalfCheetah": ("bfoot", "ffoot"),
    "Hopper": ("foot_geom",),
    "HumanoidV4": ("right_foot", "left_foot"),
    "HumanoidV5": ("right_foot", "left_foot"),
    "PointFlat": (),
    "Swimmer": (),
    "Walker2d": ("foot_geom", "foot_left_geom"),
}
"""The geoms that are feet, by the task's class or one that it is made from."""


def feet_of(task: type[MujocoTask]) -> tuple[str, ...] | None:
    """Returns the names of the geoms that are feet; None of what is no walker."""
    names = (base.__name__ for base in task.__mro__)
    return next((FEET[name] for name in names if name in FEET), None)


PARTS = {"gait": slice(None), "position": slice(2), "feet": slice(2, None)}
"""What of it describes an episode, by the descriptor's name."""


class Gait:
    """Follows the episodes of ``N`` simulations of one model.

    Args:
        task: of the simulations; one of :data:`FEET`.
        model: the compiled model.
        bind: gives the live ``[N, ...]`` array of an ``MjData`` field.
        part: one of :data:`PARTS`.
    """

    def __init__(
        self,
        task: MujocoTask,
        model: mujoco.MjModel,
        bind: Bind,
        part: str = "gait",
    ) -> None:
        self._part = PARTS[part]
        self._qpos = task.qpos
        slides_along_y = (
            model.jnt_type[1:2] == mujoco.mjtJoint.mjJNT_SLIDE
        ).all() and model.jnt_axis[1:2, 1].all()
        is_free = model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
        self._has_y = bool(is_free or slides_along_y)
        geoms = [model.geom(name).id for name in feet_of(type(task)) or ()]
        is_capsule = model.geom_type[geoms] == mujoco.mjtGeom.mjGEOM_CAPSULE
        floor = model.geom("floor").id
        self._radius = model.geom_size[geoms, 0]
        self._half_length = np.where(is_capsule, model.geom_size[geoms, 1], 0.0)
        self._margin = model.geom_margin[geoms] + model.geom_margin[floor]
        self._floor_z = model.geom_pos[floor, 2]
        self._geoms = geoms
        self._positions = bind("geom_xpos")
        self._rotations = bind("geom_xmat").reshape(len(self._qpos), -1, 3, 3)
        self._steps = np.zeros(len(self._qpos))
        self._touches = np.zeros((len(self._qpos), len(geoms)))

    @property
    def size(self) -> int:
        """B: x, y and a number for each foot, or those of the part."""
        return len(range(2 + len(self._geoms))[self._part])

    def start(self, ids: np.ndarray) -> None:
        """Forgets the former episodes of these simulations."""
        self._steps[ids] = 0.0
        self._touches[ids] = 0.0

    def observe(self, live: np.ndarray) -> None:
        """Looks at the step that the ``live`` ``[N]`` simulations have taken."""
        upright = np.abs(self._rotations[:, self._geoms, 2, 2])
        lowest = self._positions[:, self._geoms, 2] - self._half_length * upright
        distance = lowest - self._radius - self._floor_z
        self._touches += live[:, None] & (distance < self._margin)
        self._steps += live

    def descriptors(self) -> np.ndarray:
        """Returns ``[N, B]``: the torso's x and y, each foot's share of the steps.

        Or the part of these numbers that was asked for.
        """
        y = self._qpos[:, 1:2] if self._has_y else np.zeros((len(self._qpos), 1))
        shares = self._touches / np.maximum(self._steps, 1)[:, None]
        return np.concatenate([self._qpos[:, :1], y, shares], axis=1)[:, self._part]
