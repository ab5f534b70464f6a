"""MuJoCo's tasks in coarse physics: fewer and longer physics steps, for training.

Most of Gymnasium's tasks integrate by RK4, which computes all forces four times a
physics step: twenty times an environment step of Humanoid. MuJoCo's ``implicitfast``
computes them once and stays stable at longer steps, and the solver ``Newton`` needs
fewer iterations than Humanoid's. What learns there acts in the task's own physics
nearly alike, see ``docs/guides/training.md``.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import functools
from pathlib import Path
from typing import ClassVar
from xml.sax.saxutils import quoteattr

import mujoco

from envs.mujoco_tasks import MujocoTask
from envs.robot import write_model


class Coarse(MujocoTask):
    """A task whose environment steps are made of other physics steps."""

    time_step_factor: ClassVar[float]
    """Length of a physics step, in those of the task."""

    @classmethod
    def model_path(cls) -> Path:
        """Returns where the XML file is, for as long as we run."""
        return coarse_model(super().model_path(), cls.time_step_factor)


def coarse(task: type[MujocoTask], num_substeps: int) -> type[MujocoTask]:
    """Returns a task with other physics steps in an environment step of equal length.

    Args:
        task: Gymnasium's, or a robot's.
        num_substeps: physics steps in an environment step.
    """
    factor = task.num_substeps / num_substeps
    changed = {"num_substeps": num_substeps, "time_step_factor": factor}
    return type(task.__name__, (Coarse, task), changed)


@functools.cache
def coarse_model(model: Path, factor: float) -> Path:
    """Writes a model with longer physics steps, ``implicitfast`` and ``Newton``."""
    time_step = factor * mujoco.MjModel.from_xml_path(str(model)).opt.timestep
    return write_model(
        model.name,
        f"<mujoco><include file={quoteattr(str(model))}/>"
        f'<option timestep="{time_step!r}" integrator="implicitfast" solver="Newton"/>'
        "</mujoco>",
    )
