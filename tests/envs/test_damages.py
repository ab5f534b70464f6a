"""Damages name motors as the model does, and say which there are."""

import numpy as np
import pytest

from envs.damages import DAMAGES, WEAK_MOTORS, damage, damages
from envs.make import make


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_weakens_the_motors_that_it_names(name):
    env_id = f"{name}-v5"
    env = make(env_id, 1, num_threads=1)
    found = damages(env_id)
    assert {*found} == {*DAMAGES[name], WEAK_MOTORS}
    for shares, strength in zip(DAMAGES[name].values(), found.values(), strict=False):
        assert strength.shape == env.single_action_space.shape
        assert sorted(strength[strength < 1]) == sorted(shares.values())
    env.close()


def test_a_dead_leg_is_that_of_its_foot():
    """Motors of the Ant's model come in another order than its legs."""
    dead = damage("Ant-v5", "left-front-leg")
    np.testing.assert_array_equal(dead, [1, 1, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(damage("Ant-v5", "hip_1=0,ankle_1=0"), dead)


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
