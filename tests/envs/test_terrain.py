"""BipedalWalker's terrain: Gymnasium's own at both settings, and by numbers between."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from jax_es.envs.bipedal_walker import FastBipedalWalker
from jax_es.envs.faults import EnvironmentFailure
from jax_es.envs.gymnasium_env import GymnasiumVectorEnv
from jax_es.envs.make import make
from jax_es.envs.terrain import (
    DEFAULT,
    HARDCORE,
    TERRAIN_HEIGHT,
    TERRAIN_STARTPAD,
    TERRAIN_STEP,
    TerrainWalker,
)

ENV_ID = "BipedalWalkerTerrain-v0"


def bodies(env):
    """The vertices of all that stands still, in the order of its making."""
    return [f.shape.vertices for body in env.terrain for f in body.fixtures]


@pytest.mark.parametrize(
    ("env_id", "terrain"),
    [("BipedalWalker-v3", DEFAULT), ("BipedalWalkerHardcore-v3", HARDCORE)],
)
@pytest.mark.parametrize("seed", range(20))
def test_equals_gymnasium_to_the_bit(env_id, terrain, seed):
    theirs: gymnasium.Env = gymnasium.make(env_id).unwrapped
    # The episode's variation is read, not what the environment has without one.
    ours = TerrainWalker(hardcore=env_id == "BipedalWalker-v3")
    row = np.array([terrain[name] for name in DEFAULT])
    expected, _ = theirs.reset(seed=seed)
    observation, _ = ours.reset(seed=seed, options={"variation": row})
    assert bodies(ours) == bodies(theirs)
    assert [ours.terrain_x, ours.terrain_y] == [theirs.terrain_x, theirs.terrain_y]
    assert ours.terrain_poly[3][0] == theirs.terrain_poly[3][0]
    np.testing.assert_array_equal(observation, expected)
    rng, ended = np.random.default_rng(seed), False
    for _ in range(200):
        action = rng.uniform(-1, 1, 4).astype(np.float32)
        expected, paid, ended, *_ = theirs.step(action)
        observation, reward, *flags, info = ours.step(action)
        np.testing.assert_array_equal(observation, expected)
        assert (reward, flags) == (paid, [ended, False])
        assert info == ({"reward_survive": -100.0} if paid == -100 else {})
        if ended:
            break


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("env_id", ["BipedalWalker-v3", "BipedalWalkerHardcore-v3"])
def test_less_python_gives_the_same_numbers(env_id, dtype):
    """From episode to episode, with falls, and actions that are 0 or too large.

    Gymnasium's is made anew: its numbers depend on what it played before (its
    issue 728), and a resumed run's may not.
    """
    ours = FastBipedalWalker(hardcore=env_id != "BipedalWalker-v3")
    rng, falls = np.random.default_rng(0), 0
    for seed in range(8):
        theirs: gymnasium.Env = gymnasium.make(env_id).unwrapped
        np.testing.assert_array_equal(
            ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        )
        for t in range(200):
            action = (rng.uniform(-1.2, 1.2, 4) * (t % 3 > 0)).astype(dtype)
            observation, *rest = ours.step(action)
            expected, *others = theirs.step(action)
            np.testing.assert_array_equal(observation, expected)
            assert rest[:3] == others[:3]
            assert rest[3] == ({"reward_survive": -100.0} if rest[0] == -100 else {})
            if rest[1]:
                falls += 1
                break
    assert falls


def test_gymnasiums_ids_have_the_faster_walker():
    env = make("BipedalWalkerHardcore-v3", 1)
    (walker,) = (each.unwrapped for each in env._vector_env.envs)
    assert isinstance(walker, FastBipedalWalker) and walker.hardcore
    assert env.max_episode_steps == 2000
    # Not what somebody else registered under such an id.
    spec = gymnasium.spec("CartPole-v1")
    other = dataclasses.replace(spec, entry_point=spec.entry_point)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(gymnasium.registry, "BipedalWalker-v3", other)
        assert make("BipedalWalker-v3", 1).single_observation_space.shape == (4,)
    # What it draws is Gymnasium's.
    drawn = FastBipedalWalker(render_mode="rgb_array")
    drawn.reset(seed=0)
    drawn.step(np.ones(4, np.float32))
    assert drawn.render().shape == (400, 600, 3)


def started(seed=0, **terrain):
    env = TerrainWalker(**terrain)
    env.reset(seed=seed)
    return env


def test_ground_without_roughness_is_flat():
    env = started(roughness=0.0)
    assert env.terrain_y == [TERRAIN_HEIGHT] * 200


def test_roughness_is_a_factor_on_the_ground():
    low, high = started(roughness=0.001), started(roughness=0.003)
    one, three = (np.array(env.terrain_y) - TERRAIN_HEIGHT for env in (low, high))
    beyond = slice(TERRAIN_STARTPAD + 1, None)
    # Where the ground is low it rises by itself: hence about.
    ratio = np.abs(three[beyond]).mean() / np.abs(one[beyond]).mean()
    assert 2 < ratio < 4


def blocks(env):
    """Width and height of obstacles, in steps of the terrain, ``[n, 2]``."""
    corners = np.array([v for v in bodies(env) if len(v) == 4])
    return np.ptp(corners, axis=1) / TERRAIN_STEP


def test_a_stump_is_as_high_as_drawn():
    env = started(roughness=0.0, stump_height_low=0.25, stump_height_high=0.5)
    width, height = blocks(env).T
    np.testing.assert_allclose(width, 1.0, rtol=1e-4)
    assert 0.25 <= height.min() < height.max() <= 0.5
    assert env.terrain_y == [TERRAIN_HEIGHT] * 200
    tall = blocks(started(stump_height_low=4.0, stump_height_high=4.0))
    np.testing.assert_allclose(tall, [[2.0, 4.0]] * len(tall), rtol=1e-4)


def test_a_pit_is_as_wide_as_drawn():
    env = started(roughness=0.0, pit_gap_low=1.5, pit_gap_high=1.5)
    pillars = np.array([v for v in bodies(env)[::-1] if len(v) == 4])
    left, right = pillars[0::2], pillars[1::2]
    gap = right.min(axis=1)[:, 0] - left.max(axis=1)[:, 0]
    np.testing.assert_allclose(gap / TERRAIN_STEP, 1.5, rtol=1e-4)
    assert min(env.terrain_y) == TERRAIN_HEIGHT - 4 * TERRAIN_STEP
    # The ground comes up where the right pillar begins.
    up = next(i for i in range(1, 200) if env.terrain_y[i] > env.terrain_y[i - 1])
    assert env.terrain_x[up] == pytest.approx(right.max(axis=1)[0, 0], abs=1e-5)


def test_stairs_rise_by_the_height_drawn():
    env = started(roughness=0.0, stair_height_low=0.5, stair_height_high=0.5)
    stairs = np.array([v for v in bodies(env)[::-1] if len(v) == 4])
    rise = np.diff(stairs.max(axis=1)[:3, 1]) / TERRAIN_STEP
    np.testing.assert_allclose(np.abs(rise), 0.5, rtol=1e-4)
    np.testing.assert_allclose(blocks(env), [[4.0, 1.0]] * len(stairs), rtol=1e-4)


def test_a_stump_without_height_is_none():
    env = started(roughness=0.0, stump_height_high=0.01)
    assert not [v for v in bodies(env) if len(v) == 4]
    assert env.terrain_y == [TERRAIN_HEIGHT] * 200


def test_every_terrain_of_poet_can_be_built():
    env, rng = TerrainWalker(), np.random.default_rng(0)
    highest = np.array([10.0, 8.0, 8.0, 5.0, 5.0, 5.0, 5.0])
    for seed in range(60):
        low_and_high = rng.uniform(0, highest * rng.choice([0.01, 0.1, 1.0]))
        row = [*low_and_high[:1], *np.sort(low_and_high[1:].reshape(3, 2)).ravel(), 0.0]
        observation, _ = env.reset(seed=seed, options={"variation": row})
        assert np.isfinite(observation).all()


def test_a_vector_environment_knows_the_names():
    env = make(ENV_ID, 2, kwargs={"roughness": 0.0})
    assert env.variations == {**DEFAULT, "roughness": 0.0}
    assert env.pays_healthy_reward and env.max_episode_steps == 2000
    rows = env.named_variations({"roughness": [0.0, 2.0]}, 2)
    assert rows.shape == (2, len(DEFAULT))
    env.reset(seed=[5, 5], options={"variation": rows})
    flat, rough = (each.unwrapped for each in env._vector_env.envs)
    assert flat.terrain_y == [TERRAIN_HEIGHT] * 200 != rough.terrain_y
    env.reset(seed=[5, 5])
    assert rough.terrain_y == [TERRAIN_HEIGHT] * 200
    with pytest.raises(ValueError, match="ruffness: expected one of roughness, pit"):
        env.named_variations({"ruffness": 1.0}, 2)
    wrong = env.named_variations({"pit-gap-low": 2.0}, 2)
    with pytest.raises(EnvironmentFailure, match="pit-gap-low 2: expected at most"):
        env.reset(seed=[0, 1], options={"variation": wrong})


def test_one_without_variations_says_so():
    env = GymnasiumVectorEnv("CartPole-v1", 1)
    assert env.variations == {} and not hasattr(env, "named_variations")
    assert not env.pays_healthy_reward


@pytest.mark.parametrize(
    ("terrain", "words"),
    [
        ({"roughness": -1.0}, "roughness -1: expected a number at least 0"),
        ({"roughness": "abc"}, "roughness abc: expected a number at least 0"),
        ({"stump_height_low": 1.0}, "stump-height-low 1: expected at most"),
        ({"whole_sizes": 0.5}, "whole-sizes 0.5: expected 0 or 1"),
        (
            {"whole_sizes": 1.0, "pit_gap_high": 1.5},
            "whole numbers to 1.5, with whole-sizes",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(terrain, words):
    with pytest.raises(ValueError, match=words):
        TerrainWalker(**terrain)


def test_an_unknown_number_is_refused():
    with pytest.raises(TypeError, match="'ruffness'"):
        TerrainWalker(ruffness=1.0)
