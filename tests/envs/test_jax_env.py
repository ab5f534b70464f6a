"""Environments in JAX: adapters equal the packages' own rollouts; the seam's errors."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.wrappers import Autoreset, FlattenObservation

from jax_es.envs.jax_env import JaxVectorEnv, check
from jax_es.envs.jax_packages import PACKAGES, BraxEnvironment, make_jax
from jax_es.envs.make import make
from jax_es.train_config import JAX_PACKAGES

pytest.importorskip("gymnax")
# What the packages warn of is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_packages_need_no_trust():
    assert tuple(PACKAGES) == JAX_PACKAGES


def keys(count):
    return jax.random.split(jax.random.key(3), count)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Asterix-MinAtar"])
def test_gymnax_plays_as_by_itself(name):
    import gymnax

    ours = make_jax(f"gymnax:{name}", {})
    theirs, params = gymnax.make(name)
    start, *steps = keys(12)
    state, seen = ours.reset(start)
    expected, own = theirs.reset_env(start, params)
    act = theirs.action_space(params)
    assert ours.max_episode_steps == params.max_steps_in_episode
    for key in steps:
        action = act.sample(key)
        shown = np.asarray(expected)
        if shown.ndim == 3:  # channels first here
            shown = np.moveaxis(shown, -1, 0)
        np.testing.assert_array_equal(seen, shown)
        assert seen.shape == ours.observation_space.shape
        state, seen, reward, terminated, truncated, _ = ours.step(state, action, key)
        expected, own, paid, done, _ = theirs.step_env(key, own, action, params)
        np.testing.assert_array_equal(reward, paid)
        assert bool(terminated | truncated) == bool(done)


def test_flattened_it_is_the_same():
    flat = make("gymnax:Breakout-MinAtar", 2, wrappers=(FlattenObservation,))
    env = make("gymnax:Breakout-MinAtar", 2)
    assert flat.single_observation_space.shape == (400,)
    (vectors, _), (images, _) = flat.reset(seed=3), env.reset(seed=3)
    np.testing.assert_array_equal(vectors, images.reshape(2, -1))
    for _ in range(3):
        vectors, images = flat.step(np.ones(2, int))[0], env.step(np.ones(2, int))[0]
        np.testing.assert_array_equal(vectors, images.reshape(2, -1))
    with pytest.raises(ValueError, match="except for gymnasium"):
        make("gymnax:Breakout-MinAtar", 2, wrappers=(FlattenObservation, Autoreset))


@pytest.mark.slow
def test_brax_plays_as_by_itself():
    envs = pytest.importorskip("brax.envs")
    ours = make_jax("brax:inverted_pendulum", {"backend": "spring"})
    assert isinstance(ours, BraxEnvironment)
    theirs = envs.get_environment("inverted_pendulum", backend="spring")
    start, *steps = keys(6)
    (state, seen), own = jax.jit(ours.reset)(start), jax.jit(theirs.reset)(start)
    ours_step, theirs_step = jax.jit(ours.step), jax.jit(theirs.step)
    for key in steps:
        np.testing.assert_array_equal(seen, own.obs)
        action = jax.random.uniform(key, ours.action_space.shape, minval=-1.0)
        state, seen, reward, terminated, *_ = ours_step(state, action, key)
        own = theirs_step(own, action)
        assert (float(reward), bool(terminated)) == (float(own.reward), bool(own.done))


def test_ended_environments_stand_still_until_their_reset():
    env = make("gymnax:CartPole-v1", 3, max_episode_steps=4)
    assert isinstance(env, JaxVectorEnv)
    first, _ = env.reset(seed=[5, 6, 5])
    first = first.copy()
    np.testing.assert_array_equal(first[0], first[2])
    assert (first[0] != first[1]).any()
    env.halt(np.array([False, True, False]))
    for step in range(4):
        seen, reward, _, truncated, _ = env.step(np.ones(3, int))
        np.testing.assert_array_equal(seen[1], first[1])
        np.testing.assert_array_equal(reward, [1, 0, 1])
        assert truncated.tolist() == [step == 3, True, step == 3]
    seen, _ = env.reset(seed=[5, 5, 5], options={"reset_mask": np.arange(3) == 1})
    np.testing.assert_array_equal(seen[1], first[0])
    with pytest.raises(ValueError, match="do not know"):
        env.reset(seed=0, options={"variation": 1})


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("gymnax:CartPol-v1", {}, "did you mean gymnax:CartPole-v1"),
        ("gymnax:CartPole-v1", {"gravty": 1.0}, "gravty.* cannot be made"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_line(env_id, kwargs, says):
    with pytest.raises(ValueError, match=says) as caught:
        make(env_id, 2, kwargs=kwargs)
    assert "\n" not in str(caught.value)


def test_wrappers_and_coarse_physics_are_rejected():
    with pytest.raises(ValueError, match="written in JAX"):
        make("gymnax:CartPole-v1", 2, wrappers=(lambda env: env,))
    with pytest.raises(ValueError, match="no coarse physics"):
        make("gymnax:CartPole-v1", 2, physics={"num_substeps": 2})


def test_a_missing_package_is_named(monkeypatch):
    from jax_es.envs import jax_packages

    def missing(name):
        raise ImportError("No module named 'brax'")

    monkeypatch.setitem(jax_packages.PACKAGES, "brax", missing)
    with pytest.raises(ValueError, match=r"brax:ant needs .* '\.\[jax-envs\]'"):
        make("brax:ant", 1)


class Right:
    """An environment that counts, and pays nothing."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    max_episode_steps = 5

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(3)

    def step(self, state, action, key):
        return state + 1, jnp.zeros(3), 0.0, False, False, {}


def test_what_steps_report_is_checked():
    with pytest.raises(ValueError, match="no 'reward_ctrl'; it reports nothing"):
        JaxVectorEnv(Right(), 1).report(["reward_ctrl"])


class Short(Right):
    def step(self, state, action, key):
        return super().step(state, action, key)[:5]


class Alone(Right):
    def reset(self, key):
        return jnp.zeros(3)


class Other(Right):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))


class Grows(Right):
    def step(self, state, action, key):
        return jnp.zeros(2), *super().step(state, action, key)[1:]


class Many(Right):
    def step(self, state, action, key):
        state, seen, _, *rest = super().step(state, action, key)
        return state, seen, jnp.zeros(2), *rest


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Short, r"step must return \(state, observation, reward"),
        (Alone, r"reset must return \(state, observation\)"),
        (Other, r"observation_space's shape \(4,\), got \(3,\)"),
        (Grows, "a state like that of reset"),
        (Many, "as single numbers"),
    ],
)
def test_what_methods_return_is_checked(kind, says):
    check(Right(), "my:Right")
    with pytest.raises(ValueError, match=rf"env_id: my:Env: .*{says}"):
        check(kind(), "my:Env")
