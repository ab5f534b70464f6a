"""From an id to an environment, or to one clear line."""

import gymnasium
import pytest

from jax_es.envs.gymnasium_env import GymnasiumVectorEnv
from jax_es.envs.make import make
from jax_es.envs.mujoco_env import MujocoVectorEnv


@pytest.mark.parametrize(
    ("env_id", "engine"),
    [
        ("Hopper-v5", MujocoVectorEnv),
        ("CartPole-v1", GymnasiumVectorEnv),
        ("gymnasium:CartPole-v1", GymnasiumVectorEnv),
    ],
)
def test_chooses_the_engine(env_id, engine):
    env = make(env_id, 2, num_threads=1, max_episode_steps=12)
    assert type(env) is engine
    assert (env.num_envs, env.max_episode_steps) == (2, 12)
    assert env.spec.id == env_id.removeprefix("gymnasium:")
    env.close()


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Humanoid", "no environment 'Humanoid'; did you mean Humanoid-v5, Humanoid"),
        ("HalfCheeta-v5", "did you mean HalfCheetah-v5"),
        ("zzz", "no environment 'zzz'; gymnasium.pprint_registry"),
        ("no_such_module:X-v0", "cannot be made: No module named 'no_such_module'"),
        ("gymnasium:Nothing-v0", "gymnasium:Nothing-v0 cannot be made"),
        ("gymnasium:", "no environment 'gymnasium:'; expected module:id"),
        ("../x:Y", "no environment '../x:Y'; expected module:id"),
    ],
)
def test_an_unknown_id_is_one_clear_line(env_id, message):
    with pytest.raises(ValueError, match=r"^env_id: ") as raised:
        make(env_id, 1)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("advice", "message"),
    [
        ("run\n`pip install box3d`", "not installed: run `pip install box3d`"),
        (
            'pip install "gymnasium[box2d]"',
            r"needs Box2D: pip install -e '\.\[box2d\]'",
        ),
    ],
)
def test_a_missing_package_is_named(advice, message, register):
    def entry_point():
        raise gymnasium.error.DependencyNotInstalled(advice)

    env_id = register("NeedsPackage-v0", entry_point, max_episode_steps=5)
    with pytest.raises(ValueError, match=message):
        make(env_id, 1)
