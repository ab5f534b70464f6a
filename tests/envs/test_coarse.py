"""Coarse physics: Gymnasium's environments with other physics steps, to the bit."""

from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from envs.mujoco_env import MujocoVectorEnv
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.training.build import make_env
from tests.envs.following import follow


@pytest.mark.parametrize(
    ("env_id", "num_substeps", "integrator"),
    [
        ("Hopper-v5", 2, None),
        ("Humanoid-v5", 3, "implicitfast"),
        ("Ant-v5", None, "Euler"),
    ],
)
def test_equals_gymnasium_with_that_physics(env_id, num_substeps, integrator):
    """The model's options are set by hand there: same steps, forces and rewards."""
    singles = [gymnasium.make(env_id) for _ in range(2)]
    for single in singles:
        inner: Any = single.unwrapped
        if num_substeps:
            inner.model.opt.timestep *= inner.frame_skip / num_substeps
            inner.frame_skip = num_substeps
        if integrator:
            name = f"mjINT_{integrator.upper()}"
            inner.model.opt.integrator = getattr(mujoco.mjtIntegrator, name)
        inner.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    env = MujocoVectorEnv(env_id, 2, num_substeps=num_substeps, integrator=integrator)
    rng = np.random.default_rng(0)

    def draw():
        space = env.single_action_space
        shape = env.action_space.shape
        return rng.uniform(space.low, space.high, shape).astype(np.float32)

    follow(env, singles, 150, draw, 0, lambda info: None)
    env.close()


def test_a_task_that_mujoco_does_not_run_has_no_coarse_physics():
    with pytest.raises(ConfigError, match=r"not take rollout\.num_substeps"):
        make_env(EnvConfig("CartPole-v1"), 2, 1, RolloutConfig(num_substeps=2))
