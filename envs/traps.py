"""Deceptive tasks: going ahead is paid, and ends in a U of walls.

A policy that follows the reward alone stays in the dead end; the way on begins with a
detour that pays nothing. Gymnasium's Ant and Humanoid are as they are, rewards and
observations included, with the trap of Conti et al. (2018, arXiv 1712.06560) in front
of them; a point that two motors push is simple enough to learn in a minute.
"""

import functools
from pathlib import Path
from typing import ClassVar, NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from jax_es.envs.mujoco_task import MujocoTask, Runner
from jax_es.envs.mujoco_walkers import Ant, HumanoidV5
from jax_es.envs.robot import write_model


class Wall(NamedTuple):
    """An upright box on the floor; metres."""

    x: float
    """Of its centre."""
    y: float
    half_length: float
    """Along x."""
    half_width: float
    """Along y."""


TRAP = (Wall(5.5, 0, 0.1, 1.5), Wall(4, 1.5, 1.5, 0.1), Wall(4, -1.5, 1.5, 0.1))
"""Three metres wide and deep, open towards a robot that starts 2.5 m before it; the
figures are those of ``humanoid_maze.xml`` in uber-research/deep-neuroevolution."""

CUL_DE_SAC = (Wall(2, 0, 0.1, 1.6), Wall(0.5, 1.5, 1.5, 0.1), Wall(0.5, -1.5, 1.5, 0.1))
"""Around the start: the way out leads back for a metre."""

WALL_HEIGHT = 2.0
"""Metres above the floor."""


class Trap(MujocoTask):
    """A task whose model has walls added to it."""

    walls: ClassVar[tuple[Wall, ...]] = TRAP

    @classmethod
    def model_path(cls) -> Path:
        """Returns where the XML file with the walls is, for as long as we run."""
        return walled(super().model_path(), cls.walls)


class AntTrap(Trap, Ant):
    """Ant-v5 before the trap."""


class HumanoidTrap(Trap, HumanoidV5):
    """Humanoid-v5 before the trap."""


class PointFlat(Runner):
    """A ball on a plane, 4 observations: position and velocity, x and y.

    It is paid the metres that it has gained along x; 40 steps are 16 seconds, enough
    for 15 m.
    """

    model_file = "point.xml"
    num_substeps = 8
    max_episode_steps = 40
    reset_noise = 0.05
    forward_weight = 0.4  # of a step's seconds: rewards are metres
    control_weight = 0.0

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns positions and velocities."""
        return self.qpos, self.qvel


class PointTrap(Trap, PointFlat):
    """The ball in a cul-de-sac that is open at its back."""

    walls = CUL_DE_SAC


@functools.cache
def walled(model: Path, walls: tuple[Wall, ...]) -> Path:
    """Writes a model that includes another one and has walls on its floor, z = 0."""
    boxes = "".join(
        f'<geom name="wall{index}" type="box" contype="1" conaffinity="1" '
        f'pos="{wall.x} {wall.y} {WALL_HEIGHT / 2}" '
        f'size="{wall.half_length} {wall.half_width} {WALL_HEIGHT / 2}" '
        'rgba=".45 .5 .6 .7"/>'
        for index, wall in enumerate(walls)
    )
    return write_model(
        model.name,
        f"<mujoco><include file={quoteattr(str(model))}/>"
        f"<worldbody>{boxes}</worldbody></mujoco>",
    )
