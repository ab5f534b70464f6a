"""Damages name motors and limbs as the model does, and say which there are."""

import mujoco
import numpy as np
import pytest

from jax_es.envs.damages import BODIES, DAMAGES, WEAK_MOTORS, damage, damages
from jax_es.envs.make import make
from jax_es.envs.mujoco_tasks import TASKS
from jax_es.envs.robot import registered_task


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_weakens_the_motors_that_it_names(name):
    env_id = f"{name}-v5"
    env = make(env_id, 1, num_threads=1)
    found = damages(env_id)
    assert {*found} == {*DAMAGES[name], WEAK_MOTORS, *BODIES.get(env_id, {})}
    for shares, robot in zip(DAMAGES[name].values(), found.values(), strict=False):
        strength = robot.strength
        assert robot.env_id == env_id
        assert strength.shape == env.single_action_space.shape
        assert sorted(strength[strength < 1]) == sorted(shares.values())
    env.close()


def test_a_dead_leg_is_that_of_its_foot():
    """Motors of the Ant's model come in another order than its legs."""
    dead = damage("Ant-v5", "left-front-leg").strength
    np.testing.assert_array_equal(dead, [1, 1, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(damage("Ant-v5", "hip_1=0,ankle_1=0").strength, dead)


@pytest.mark.parametrize(
    ("whole", "name"), [(env_id, name) for env_id in BODIES for name in BODIES[env_id]]
)
def test_a_shorter_leg_is_that_and_nothing_else(whole, name):
    robot = damage(whole, name)
    task = registered_task(robot.env_id)
    assert task is not None and (robot.strength == 1).all()
    before, after = (
        mujoco.MjModel.from_xml_path(str(each.model_path()))  # pyright: ignore
        for each in (TASKS[whole], task)
    )
    ((limb, share),) = vars(task)["limbs"].items()
    is_limb = np.arange(before.ngeom) == before.geom(limb).id
    lengths = before.geom_size[:, 1], after.geom_size[:, 1]
    np.testing.assert_allclose(lengths[1][is_limb], share * lengths[0][is_limb])
    np.testing.assert_array_equal(lengths[1][~is_limb], lengths[0][~is_limb])
    np.testing.assert_array_equal(after.geom_pos[~is_limb], before.geom_pos[~is_limb])
    # The end at the joint stays where it is: half the way goes with half the length.
    middle = share * before.geom_pos[is_limb]
    np.testing.assert_allclose(after.geom_pos[is_limb], middle, atol=1e-12)
    for field in ("jnt_pos", "jnt_range", "actuator_gear", "body_pos", "qpos0"):
        np.testing.assert_array_equal(getattr(after, field), getattr(before, field))


@pytest.mark.parametrize(
    ("env_id", "text", "words"),
    [
        ("Ant-v5", "left-leg", "damage 'left-leg' is unknown for Ant-v5; did you mean"),
        ("Hopper-v5", "foot_joint=2", "damage 'foot_joint=2' must be MOTOR=SHARE"),
        ("Hopper-v5", "foot_joint=x", "damage 'foot_joint=x' must be MOTOR=SHARE"),
        ("Hopper-v5", "hip_1=0", "motor of Hopper-v5: thigh_joint, leg_joint"),
        ("CartPole-v1", "leg", "CartPole-v1 has no motors"),
    ],
)
def test_what_there_is_not_is_named(env_id, text, words):
    with pytest.raises(ValueError) as error:
        damage(env_id, text)
    assert words in str(error.value)
