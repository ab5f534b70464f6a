"""Coarse physics: Gymnasium's environments with other physics steps, to the bit."""

from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.envs.mujoco_batch import ContactForceBatch
from jax_es.envs.mujoco_env import MujocoVectorEnv
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


@pytest.mark.parametrize("env_id", ["PointFlat-v0", "Humanoid-v5"])
def test_another_number_of_steps_keeps_model_and_time(env_id):
    own, other = (
        MujocoVectorEnv(env_id, 1, num_substeps=count) for count in (None, 10)
    )
    assert other._task.time_step == pytest.approx(own._task.time_step)
    assert other.single_observation_space == own.single_observation_space
    own.close(), other.close()


WITH_MESH = """<mujoco><compiler meshdir="meshes"/><asset><mesh file="body.obj"/>
</asset><worldbody><body><freejoint/><geom type="mesh" mesh="body"/></body></worldbody>
</mujoco>"""
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"


def test_a_model_with_meshes_runs_with_contact_forces(tmp_path):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "body.obj").write_text(TETRAHEDRON)
    (tmp_path / "robot.xml").write_text(WITH_MESH)
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml"))
    model.opt.timestep = 0.01
    batch = ContactForceBatch(model, 1, 1)
    batch.step(nstep=10)
    assert batch.bind("qvel")[0, 2] == pytest.approx(-0.981)


@pytest.mark.parametrize(
    ("env", "physics", "said"),
    [
        (EnvConfig("CartPole-v1"), {"num_substeps": 2}, "num_substeps 2: no coarse"),
        (EnvConfig("Tetris-v0"), {"num_substeps": 2}, "num_substeps 2: no coarse"),
        (EnvConfig("ALE/Pong-v5"), {"num_substeps": 2}, "num_substeps 2: no coarse"),
        (
            EnvConfig("Hopper-v5", kwargs={"frame_skip": 2}),
            {"integrator": "Euler"},
            "integrator Euler: no coarse physics for Hopper-v5",
        ),
    ],
)
def test_what_mujocos_threads_do_not_run_has_no_coarse_physics(env, physics, said):
    with pytest.raises(ConfigError, match=said):
        make_env(env, 2, 1, RolloutConfig(**physics))


class Taking(gymnasium.Env):
    """An environment with an argument of the same name."""

    def __init__(self, integrator="none"):
        raise AssertionError("it is asked for something else")


def test_an_environments_own_argument_is_not_meant():
    gymnasium.register("Taking-v0", Taking)
    with pytest.raises(ConfigError, match="no coarse physics for Taking-v0"):
        make_env(EnvConfig("Taking-v0"), 2, 1, RolloutConfig(integrator="Euler"))


def test_an_unknown_integrator_is_refused():
    with pytest.raises(ValueError, match="integrator: got 'rk4', expected one of RK4,"):
        MujocoVectorEnv("Hopper-v5", 1, integrator="rk4")  # type: ignore[arg-type]
