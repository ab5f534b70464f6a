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

from typing import Literal, TypeAlias

import mujoco

from jax_es.envs.mujoco_task import MujocoTask

Integrator: TypeAlias = Literal["RK4", "Euler", "implicitfast"]
"""MuJoCo's, by their names in a model's XML."""


def coarse(
    task: type[MujocoTask],
    model: mujoco.MjModel,
    num_substeps: int | None = None,
    integrator: Integrator | None = None,
) -> type[MujocoTask]:
    """Gives a task other physics steps, in environment steps of the same length.

    Args:
        task: Gymnasium's, or a robot's.
        model: its compiled model, whose options are changed.
        num_substeps: physics steps in an environment step; the task's if not given.
        integrator: what each of them computes; the task's if not given.

    Returns:
        The task that goes with the changed model.
    """
    count = num_substeps or task.num_substeps
    model.opt.timestep *= task.num_substeps / count
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    if integrator:
        name = f"mjINT_{integrator.upper()}"
        model.opt.integrator = getattr(mujoco.mjtIntegrator, name)
    changed = {"__module__": task.__module__, "num_substeps": count}
    return type(task.__name__, (task,), changed)
