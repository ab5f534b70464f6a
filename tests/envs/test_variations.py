"""Named variations: equal to Gymnasium's environments that are changed by hand."""

import gymnasium
import numpy as np
import pytest

from jax_es.envs.make import make
from jax_es.envs.mujoco_env import MujocoVectorEnv
from jax_es.envs.variations import NEUTRAL
from tests.envs.following import follow
from tests.envs.varied import Varied

VALUES = {
    "mass": 1.07,
    "friction": 0.6,
    "gravity": 1.1,
    "motors": 0.9,
    "observation-noise": 0.02,
    "delay": 1,
}
MODELS = ("mass", "friction", "gravity")


def played(env_id, num_steps, variations, rtol=0.0):
    """Follows an environment of Gymnasium's for each of the variations."""
    # Ants under random actions may stay up for ever.
    options = {"max_episode_steps": 45}
    singles = [
        Varied(gymnasium.make(env_id, **options), **values) for values in variations
    ]
    env = MujocoVectorEnv(env_id, len(variations), **options)
    given = [env.named_variations(values, 1) for values in variations]
    low, high = env.single_action_space.low, env.single_action_space.high
    rng = np.random.default_rng(0)

    def draw():
        return rng.uniform(low, high, env.action_space.shape).astype(np.float32)

    given = np.concatenate(given)
    episodes = follow(env, singles, num_steps, draw, rtol, variation=given)
    env.close()
    return episodes


@pytest.mark.parametrize("env_id", ["Humanoid-v5", "Hopper-v5", "Ant-v5"])
def test_each_equals_gymnasium_changed_by_hand(env_id):
    """One beside the other, and all at once; whole episodes, to the bit."""
    variations = [{}, *({name: value} for name, value in VALUES.items()), VALUES]
    assert (played(env_id, 120, variations) > 2).all()


@pytest.mark.slow
@pytest.mark.parametrize("env_id", MujocoVectorEnv.supported)
@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_every_task_varies(env_id):
    rtol = 1e-14 if env_id == "InvertedDoublePendulum-v5" else 0.0  # as unvaried
    played(env_id, 120, [{name: VALUES[name]} for name in MODELS] + [VALUES], rtol)


def test_the_models_differ_from_the_plain_one():
    """Each value counts; those that are neutral leave everything to the bit."""
    env = MujocoVectorEnv("Humanoid-v5", 8)
    values = [{}, NEUTRAL, *({name: value} for name, value in VALUES.items())]
    rows = np.concatenate([env.named_variations(each, 1) for each in values])
    actions = np.random.default_rng(0).uniform(-0.4, 0.4, (15, 17)).astype(np.float32)

    def run(options):
        env.reset(seed=[3] * 8, options=options)
        return np.stack([env.step(np.tile(a, (8, 1)))[0].copy() for a in actions])

    plain, varied = run({}), run({"variation": rows})
    np.testing.assert_array_equal(varied[:, :2], plain[:, :2])
    for slot in range(2, 8):
        assert not np.array_equal(varied[:, slot], plain[:, slot])
    np.testing.assert_array_equal(run({}), plain)  # and nothing stays
    motors = np.full((8, 17), 0.9)
    np.testing.assert_array_equal(
        run({"variation": motors})[:, 0], varied[:, 2 + [*VALUES].index("motors")]
    )
    env.close()


def test_who_stands_still_shows_what_it_showed():
    env = MujocoVectorEnv("Hopper-v5", 2)
    noise = env.named_variations({"observation-noise": 0.1}, 2)
    env.reset(seed=0, options={"variation": noise})
    env.halt(np.array([True, False]))
    before = env.step(np.zeros((2, 3)))[0].copy()
    after = env.step(np.zeros((2, 3)))[0]
    np.testing.assert_array_equal(after[0], before[0])
    assert (after[1] != before[1]).all()
    env.close()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"weight": 1}, "weight: expected one of mass, friction, gravity, motors, obs"),
        ({"mass": 0}, "mass 0: expected a number positive and finite"),
        ({"mass": np.nan}, "mass nan: expected a number positive"),
        ({"friction": -1}, "friction -1: expected a number at least 0 and finite"),
        ({"delay": 2}, "delay 2: expected a number 0 or 1"),
        ({"gravity": [1, np.inf]}, "gravity inf: expected a number at least 0"),
    ],
)
def test_values_out_of_range_are_named(values, words):
    env = make("Hopper-v5", 1)
    with pytest.raises(ValueError, match=words):
        env.named_variations(values, 2)
    env.close()
