"""The contract of ``EpisodeVectorEnv``, over every engine.

That a trajectory depends on its seed and actions alone is said by ``following.py``.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from jax_es.envs.make import make

# One per engine and kind of action; all but Pendulum end by themselves.
ENV_IDS = ["Humanoid-v5", "CartPole-v1", "Pendulum-v1", "Tetris-v0", "ALE/Pong-v5"]
NUM_ENVS = 4


@pytest.fixture(params=ENV_IDS)
def env(request):
    env = make(request.param, NUM_ENVS, num_threads=2, max_episode_steps=30)
    env.action_space.seed(0)
    yield env
    env.close()


def mask_of(*indices):
    mask = np.zeros(NUM_ENVS, bool)
    mask[list(indices)] = True
    return mask


def act(env):
    return env.step(env.action_space.sample())


def test_says_what_it_is(env):
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert env.max_episode_steps == 30
    assert env.num_envs == NUM_ENVS
    observations, info = env.reset(seed=0)
    assert info == {}
    assert observations.dtype == env.single_observation_space.dtype
    assert observations in env.observation_space
    observations, rewards, terminated, truncated, _ = act(env)
    assert observations in env.observation_space
    assert rewards.dtype == np.float64
    assert terminated.dtype == truncated.dtype == np.dtype(bool)
    assert rewards.shape == terminated.shape == truncated.shape == (NUM_ENVS,)


def test_an_ended_environment_stands_still(env):
    env.reset(seed=0)
    ended = np.zeros(NUM_ENVS, bool)
    last = None
    for _ in range(35):
        observations, rewards, terminated, truncated, _ = act(env)
        if ended.any():
            assert np.array_equal(observations[ended], last[0][ended])
            assert (rewards[ended] == 0).all()
            assert np.array_equal(terminated[ended], last[1][ended])
            assert np.array_equal(truncated[ended], last[2][ended])
        ended = terminated | truncated
        last = observations.copy(), terminated, truncated
    assert ended.all()


def test_halt_truncates_the_living_only(env):
    env.reset(seed=0)
    for _ in range(30):
        _, _, terminated, truncated, _ = act(env)
    env.reset(seed=1, options={"reset_mask": mask_of(0, 1)})
    observations = act(env)[0].copy()
    env.halt(mask_of(1, 2))
    after, rewards, terminated_after, truncated_after, _ = act(env)
    assert not (terminated_after | truncated_after)[0]
    assert truncated_after[1] and not terminated_after[1]
    assert rewards[1] == 0
    assert np.array_equal(after[1], observations[1])
    assert np.array_equal(terminated_after[2:], terminated[2:])
    assert np.array_equal(truncated_after[2:], truncated[2:])


def test_returned_flags_are_the_callers(env):
    env.reset(seed=0)
    _, _, terminated, truncated, _ = act(env)
    before = truncated.copy()
    env.halt(mask_of(0, 1, 2, 3))
    assert np.array_equal(truncated, before)
    terminated[:] = True
    _, _, terminated, truncated, _ = act(env)
    assert truncated.all() and not terminated.any()


def test_a_partial_reset_leaves_the_others_alone(env):
    env.reset(seed=[1, 2, 3, 4])
    before = act(env)[0].copy()
    options = {"reset_mask": mask_of(2)}
    observations, _ = env.reset(seed=[-1, -1, 7, -1], options=options)
    assert list(options) == ["reset_mask"]
    assert np.array_equal(np.delete(observations, 2, 0), np.delete(before, 2, 0))
    assert not np.array_equal(observations[2], before[2])
    expected = env.reset(seed=7, options={"reset_mask": mask_of(0)})[0][0]
    assert np.array_equal(observations[2], expected)


def test_the_first_reset_may_be_partial(env):
    env.reset(options={"reset_mask": mask_of()})
    assert act(env)[3].all()
    env.reset(seed=0, options={"reset_mask": mask_of(1)})
    _, rewards, terminated, truncated, _ = act(env)
    assert truncated.tolist() == [True, False, True, True]
    assert not terminated.any()
    assert (rewards[[0, 2, 3]] == 0).all()


def test_all_spellings_of_seeds_mean_the_same(env):
    expected = env.reset(seed=(5, 6, 7, 8))[0].copy()
    for seed in (5, np.int64(5), [5, 6, 7, 8], np.arange(5, 9, dtype=np.uint32)):
        assert np.array_equal(env.reset(seed=seed)[0], expected)


def test_misuse_is_named(env):
    for seed in (-1, 0.5, [1, 2], np.ones(4)):
        with pytest.raises(ValueError, match=r"seed.*got.*expected"):
            env.reset(seed=seed)
    for mask in ([True] * 3, np.ones(4)):
        with pytest.raises(ValueError, match=r"reset_mask.*got.*expected bool"):
            env.reset(options={"reset_mask": mask})
        with pytest.raises(ValueError, match=r"mask: got.*expected bool"):
            env.halt(mask)
    actions = env.action_space.sample()
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(actions)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions: got shape"):
        env.step(actions[:-1])
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed"):
        env.step(actions)
    with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed"):
        env.reset(seed=0)


@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.parametrize("name", ["num_envs", "max_episode_steps"])
@pytest.mark.parametrize("value", [0, 1.5, True])
def test_bad_counts_are_named(env_id, name, value):
    with pytest.raises(ValueError, match=f"{name}: got {value!r}, expected"):
        make(env_id, **{"num_envs": 2, name: value})
