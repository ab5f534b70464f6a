"""MuJoCo's tasks in coarse physics: cheaper physics steps, for training.

Most of Gymnasium's tasks integrate by RK4, which computes all forces four times a
physics step: twenty times an environment step of Humanoid. Fewer and longer steps
compute them less often, and so do MuJoCo's other integrators, once a step, whose first
order and implicit damping make it easier to stay up. The solver is ``Newton``, which
has the accuracy of Humanoid's in fewer iterations. ``docs/guides/training.md`` says how
well what learns there acts in the task's own physics.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import functools
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias
from xml.sax.saxutils import quoteattr

import mujoco

from envs.mujoco_tasks import MujocoTask
from envs.robot import write_model

Integrator: TypeAlias = Literal["RK4", "Euler", "implicitfast"]
"""MuJoCo's, by their names in a model's XML."""


class Coarse(MujocoTask):
    """A task whose environment steps are made of other physics steps."""

    time_step_factor: ClassVar[float]
    """Length of a physics step, in those of the task."""
    integrator: ClassVar[Integrator | None]
    """The task's own if None."""

    @classmethod
    def model_path(cls) -> Path:
        """Returns where the XML file is, for as long as we run."""
        return coarse_model(super().model_path(), cls.time_step_factor, cls.integrator)


def coarse(
    task: type[MujocoTask],
    num_substeps: int | None = None,
    integrator: Integrator | None = None,
) -> type[MujocoTask]:
    """Returns a task with other physics steps in an environment step of equal length.

    Args:
        task: Gymnasium's, or a robot's.
        num_substeps: physics steps in an environment step; the task's if not given.
        integrator: what each of them computes; the task's if not given.
    """
    count = num_substeps or task.num_substeps
    changed = {
        "num_substeps": count,
        "time_step_factor": task.num_substeps / count,
        "integrator": integrator,
    }
    return type(task.__name__, (Coarse, task), changed)


@functools.cache
def coarse_model(model: Path, factor: float, integrator: Integrator | None) -> Path:
    """Writes a model with other physics steps and the solver ``Newton``."""
    time_step = factor * mujoco.MjModel.from_xml_path(str(model)).opt.timestep
    chosen = f' integrator="{integrator}"' if integrator else ""
    return write_model(
        model.name,
        f"<mujoco><include file={quoteattr(str(model))}/>"
        f'<option timestep="{time_step!r}" solver="Newton"{chosen}/></mujoco>',
    )
