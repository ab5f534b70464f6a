"""Walker2d's body on ground of named numbers: boxes, observations, both engines."""

import gymnasium
import mujoco
import numpy as np
import pytest

from jax_es.envs.make import make
from jax_es.envs.mujoco_env import MujocoVectorEnv
from jax_es.envs.mujoco_terrain import METRE, SIGHTS, Walker2dTerrain, ground

ENV_ID = "Walker2dTerrain-v0"
HARD = {
    "roughness": 2.0,
    "pit-gap-low": 0.2,
    "pit-gap-high": 0.8,
    "stump-height-low": 0.1,
    "stump-height-high": 0.4,
    "stair-height-low": 0.05,
    "stair-height-high": 0.2,
}
FLAT = dict(Walker2dTerrain.variations)


@pytest.fixture
def one():
    with gymnasium.make(ENV_ID) as env:
        yield env


def stands_at(env, x):
    """Moves the robot over its ground."""
    core = env.unwrapped
    core.data.qpos[0] = x
    core._task.observation()  # which moves the boxes along
    mujoco.mj_forward(core.model, core.data)
    return core._task.observation()


def test_threads_step_it_as_gymnasium_does():
    values = {name: np.array([0.0, 1.0, 2.0]) * HARD[name] / 2 for name in HARD}
    batch = make(ENV_ID, 3, 1)
    rows = batch.named_variations(values, 3)
    seen, _ = batch.reset(seed=[1, 2, 3], options={"variation": rows})
    rng, live, reward = np.random.default_rng(0), np.ones(3, bool), np.zeros(3)
    for i in range(3):
        with gymnasium.make(ENV_ID) as env:
            own = [values[name][i] for name in FLAT]
            first, _ = env.reset(seed=i + 1, options={"variation": own})
            np.testing.assert_array_equal(first, seen[i])
    singles = [gymnasium.make(ENV_ID) for _ in range(3)]
    for i, env in enumerate(singles):
        own = [values[name][i] for name in FLAT]
        env.reset(seed=i + 1, options={"variation": own})
    for _ in range(60):
        actions = 0.3 * rng.uniform(-1, 1, (3, 6)).astype(np.float32)
        seen, reward, ended, _, _ = batch.step(actions)
        for i in np.flatnonzero(live):
            observed, paid, end, _, _ = singles[i].step(actions[i])
            np.testing.assert_array_equal(observed, seen[i])
            assert (paid, end) == (reward[i], ended[i])
        live &= ~ended
    batch.close()
    assert live.sum() < 3


def test_the_boxes_are_the_ground(one):
    one.reset(seed=4, options={"variation": [HARD[name] for name in FLAT]})
    core = one.unwrapped
    task, geom = core._task, np.zeros(1, np.int32)
    for x in np.linspace(0.0, 38.0, 60):
        stands_at(one, x)
        for place in (x - 0.8, x, x + 0.8):
            above, down = np.array([place, 0.9, 20.0]), np.array([0.0, 0.0, -1.0])
            hit = mujoco.mj_ray(core.model, core.data, above, down, None, 1, -1, geom)
            surface, _ = task._below(np.array([[place]]))
            assert 20.0 - hit == pytest.approx(surface[0, 0], abs=1e-9)
    assert len(np.unique(task._heights[0])) > 40  # it was no plain


def test_it_sees_the_ground_before_it(one):
    drawn, _ = one.reset(seed=0, options={"variation": [HARD[n] for n in FLAT]})
    assert drawn.shape == (27,)
    task = one.unwrapped._task
    ends = np.flatnonzero(np.isfinite(task._left[0]))[1:-2]
    surface, level = task._heights[:, 0, : ends[-1]]
    pits = np.flatnonzero((surface - level)[:, 0] < -0.9)
    left, right = task._left[0, pits[0]], task._left[0, pits[0] + 1]
    *_, sights = stands_at(one, left - 1.0)
    x = left - 1.0 + SIGHTS
    inside = (x > left) & (x < right)
    here = task._below(np.array([[left - 1.0]]))[1].item()
    depth = level[pits[0], 0] - 0.25 - here  # of a metre, a quarter is seen
    assert inside.any() and sights[0][inside] == pytest.approx(depth)
    np.testing.assert_allclose(sights[0][0], 0.0, atol=1e-9)
    assert one.unwrapped.data.qpos[1] > 0.8 and task.unhealthy().shape == (1,)
    one.unwrapped.data.qpos[1] = level[pits[0], 0] + 0.7
    stands_at(one, left)
    assert task.unhealthy()[0]


def test_a_metre_is_paid(one):
    one.reset(seed=0)
    task = one.unwrapped._task
    task.remember()
    stands_at(one, 1.0 + float(task._x_before[0]))
    paid = task.reward(np.zeros((1, 6), np.float32), task.unhealthy())
    assert paid[0] == pytest.approx(METRE)


def test_grounds_are_drawn_from_their_ranges():
    flat = ground(FLAT, np.random.default_rng(0))
    assert not flat.surface.any() and (np.diff(flat.left) > 0).all()
    for seed in range(20):
        drawn = ground(HARD, np.random.default_rng(seed))
        above = (drawn.surface - drawn.level)[:, 0]
        widths = np.diff(drawn.left)
        assert drawn.left[-2] >= 39.0
        is_pit, is_stump = above < -1e-9, above > 1e-9
        assert ((above[is_stump] >= 0.1) & (above[is_stump] <= 0.4)).all()
        assert ((widths[is_pit] > 0.2 - 1e-9) & (widths[is_pit] < 0.8 + 1e-9)).all()
        jumps = np.abs(drawn.level[1:, 0] - drawn.level[:-1, 1])
        stairs = jumps[jumps > 1e-9]
        assert ((stairs > 0.05 - 1e-9) & (stairs < 0.2 + 1e-9)).all()
        slopes = np.diff(drawn.level, axis=1)[:, 0] / widths
        assert np.abs(slopes).max() <= 0.75 + 1e-9 and np.abs(slopes).max() > 0.1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"roughness": -1.0}, "roughness -1: expected a number at least 0"),
        ({"pit-gap-low": 0.5}, "pit-gap-low 0.5: expected at most pit-gap-high 0"),
        ({"stump-height-high": 1.1}, "stump-height-high 1.1: expected at most 1, as"),
    ],
)
def test_numbers_out_of_range(one, changed, words):
    with pytest.raises(ValueError, match=words):
        one.reset(options={"variation": [*{**FLAT, **changed}.values()]})


def test_arguments_are_the_ground_of_episodes_without_a_variation():
    """On threads as in Gymnasium's own environment, in coarse physics, too."""
    kwargs = {"roughness": 0.5, "pit_gap_high": 0.3}
    env = make(ENV_ID, 2, kwargs=kwargs, physics={"num_substeps": 2})
    assert isinstance(env, MujocoVectorEnv)
    given = {"roughness": 0.5, "pit-gap-high": 0.3}
    assert env.variations.items() >= {**FLAT, **given}.items()
    theirs = gymnasium.make(ENV_ID, render_mode="rgb_array", **kwargs)
    expected, _ = theirs.reset(seed=3)
    observations, _ = env.reset(seed=[3, 4])
    np.testing.assert_array_equal(observations[0], expected.astype(np.float32))
    rows = env.named_variations({"roughness": [0.5, 0.0], "pit-gap-high": 0.3}, 2)
    again, _ = env.reset(seed=[3, 3], options={"variation": rows})
    np.testing.assert_array_equal(again[0], observations[0])
    flat = make(ENV_ID, 1)
    varied, _ = flat.reset(
        seed=[3], options={"variation": flat.named_variations(given, 1)}
    )
    np.testing.assert_array_equal(varied, again[:1])
    env.close()
    theirs.close()
    hyphened = gymnasium.make(ENV_ID, **{"pit-gap-high": 0.3, "roughness": 0.5})
    np.testing.assert_array_equal(hyphened.reset(seed=3)[0], expected)
    hyphened.close()
    with pytest.raises(ValueError, match="roughness 'abc': expected a number"):
        make(ENV_ID, 1, kwargs={"roughness": "abc"})
    with pytest.raises(TypeError, match="argument 'ruffness'"):
        make(ENV_ID, 1, kwargs={"ruffness": 1.0})
    with pytest.raises(ValueError, match="roughness -1: expected a number at least 0"):
        make(ENV_ID, 1, kwargs={"roughness": -1.0})
