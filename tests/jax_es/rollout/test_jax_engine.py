"""Generations inside of one program equal those that the host steps.

The environment, the policy and the noise compute in binary fractions that float32
holds exactly, as in ``test_engine.py``: there every equality is exact.
"""

import dataclasses
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.envs.jax_env import JaxVectorEnv
from jax_es.rollout import jax_engine
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import Rollout
from jax_es.rollout.evaluator import Reported
from jax_es.rollout.jax_engine import JaxRollout, spread
from jax_es.rollout.jax_state import Sum
from jax_es.rollout.observation_statistics import View
from tests.jax_es.rollout.test_engine import (
    NUM_PAIRS,
    ProbePolicy,
    make_population,
    make_statistics,
    make_tasks,
)

VIEW = View(make_statistics())
REPORTED = Reported(sums=("luck",), last=("luck", "unheard"))


class Episode(NamedTuple):
    target: jax.Array
    length: jax.Array
    step: jax.Array


class JaxTarget:
    """``probe_envs.TargetEnv`` in JAX, paid in whole numbers; 0 at the optimum.

    Episodes whose target begins with 0.75 break at their second step, if told so.
    """

    observation_space = gymnasium.spaces.Box(-8, 8, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    max_episode_steps = 9

    def __init__(self, broken: str = ""):
        self.broken = broken

    def reset(self, key):
        target_key, length_key = jax.random.split(key)
        target = jax.random.randint(target_key, (2,), -6, 7) / 8
        length = jax.random.randint(length_key, (), 2, 10)
        episode = Episode(target, length, jnp.int32(0))
        return episode, self.observe(episode)

    def step(self, state, action, key):
        off = jnp.round(8 * (action - state.target))
        luck = jax.random.randint(key, (), 0, 3)
        reward = luck - jnp.abs(off).sum()
        breaks = (state.target[0] == 0.75) & (state.step == 1)
        if self.broken == "reward":
            reward = jnp.where(breaks, jnp.nan, reward)
        state = state._replace(step=state.step + 1)
        observation = self.observe(state)
        if self.broken == "observation":
            observation = jnp.where(breaks, jnp.inf, observation)
        info = {"reward_survive": jnp.float32(1.0), "luck": luck}
        ended = state.step >= state.length
        return state, observation, reward, ended, jnp.zeros((), bool), info

    def observe(self, episode):
        return jnp.append(episode.target, episode.step / 8).astype(jnp.float32)


def on_devices(num_slots=6, num_devices=1, policy=None, **kwargs):
    env = JaxVectorEnv(JaxTarget(**kwargs), num_slots, descriptor=(2, 0))
    devices = Devices(jax.local_devices()[:num_devices])
    return JaxRollout(policy or ProbePolicy(), env, devices, REPORTED)


def on_host(policy=None, **kwargs):
    env = JaxVectorEnv(JaxTarget(**kwargs), 6, descriptor=(2, 0))
    devices = Devices(jax.local_devices()[:1])
    return Rollout(policy or ProbePolicy(), [env], devices, REPORTED)


def assert_same(found, wanted, which=slice(None)):
    for name in ("returns", "lengths", "failed", "healthy_rewards", "descriptors"):
        np.testing.assert_array_equal(
            getattr(found, name)[which], getattr(wanted, name)[which], err_msg=name
        )
    for told, wished in ((found.sums, wanted.sums), (found.last, wanted.last)):
        assert told.keys() == wished.keys()
        for name, values in told.items():
            np.testing.assert_array_equal(values[which], wished[name][which])


@pytest.fixture(scope="module")
def expected():
    return on_host().evaluate(make_population(), make_tasks(), VIEW)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("num_slots", "num_devices"), [(1, 1), (6, 1), (8, 2), (64, 1), (64, 4)]
)
def test_results_are_those_of_the_host_for_any_slots(num_slots, num_devices, expected):
    tasks = make_tasks()
    rollout = on_devices(num_slots, num_devices)
    found = rollout.evaluate(make_population(), tasks, VIEW)
    assert_same(found, expected)
    assert found.env_steps == expected.env_steps == found.lengths.sum()
    assert found.computed_steps >= found.env_steps
    # Sums of observations are those of the host, but for the last digits of float32.
    assert found.observations.count == expected.observations.count
    for name in ("sum", "sum_of_squares"):
        np.testing.assert_allclose(
            getattr(found.observations, name),
            getattr(expected.observations, name),
            rtol=1e-6,
        )
    order = np.random.default_rng(1).permutation(len(tasks.seed))
    shuffled = jax.tree.map(lambda field: field[order], tasks)
    again = rollout.evaluate(make_population(), shuffled, VIEW)
    np.testing.assert_array_equal(again.returns, expected.returns[order])
    # These equalities refute something.
    assert len(np.unique(found.returns)) > len(tasks.seed) / 3
    assert set(found.lengths) >= set(range(1, 9))
    np.testing.assert_array_equal(found.healthy_rewards, found.lengths)


@pytest.mark.parametrize("kind", ["reward", "observation"])
def test_a_broken_episode_ranks_worst_and_hurts_nobody_else(kind, expected):
    found = on_devices(broken=kind).evaluate(make_population(), make_tasks(), VIEW)
    broken = found.failed
    assert 0 < broken.sum() < len(broken) / 2
    assert np.isnan(found.returns[broken]).all()
    assert (found.lengths[broken] == 2).all()
    assert np.isfinite(found.observations.sum).all()
    assert_same(found, expected, ~broken)
    host = on_host(broken=kind).evaluate(make_population(), make_tasks(), VIEW)
    assert_same(found, host, ~broken)
    np.testing.assert_array_equal(found.failed, host.failed)


def test_a_second_generation_owes_nothing_to_the_first(expected):
    rollout = on_devices()
    rollout.evaluate(make_population(seed=7), make_tasks(seed=9))
    assert_same(rollout.evaluate(make_population(), make_tasks(), VIEW), expected)


class AskedPolicy(ProbePolicy):
    """Adds what it is asked for, whole numbers, to its action."""

    def apply(self, variables, carry, observation, reward, first, key):
        carry, action = super().apply(variables, carry, observation, reward, first, key)
        return carry, action + variables["command"]["target_return"]


def test_commands_reach_their_tasks():
    tasks = make_tasks()
    command = np.arange(len(tasks.seed), dtype=np.float32) % 5
    tasks = tasks._replace(command=command)
    wanted = on_host(AskedPolicy()).evaluate(make_population(), tasks, VIEW)
    found = on_devices(policy=AskedPolicy()).evaluate(make_population(), tasks, VIEW)
    assert_same(found, wanted)
    other = tasks._replace(command=command[::-1].copy())
    again = on_devices(policy=AskedPolicy()).evaluate(make_population(), other, VIEW)
    assert (again.returns != found.returns).any()


def test_variations_are_rejected():
    tasks = make_tasks()._replace(variation=np.zeros((37, 2)))
    with pytest.raises(ConfigError, match="know no variations"):
        on_devices().evaluate(make_population(), tasks)


def test_only_the_first_generation_compiles(compilations):
    rollout, population = on_devices(4, 2), make_population()
    rollout.evaluate(population, make_tasks(), VIEW)
    assert compilations
    later = dataclasses.replace(
        population, mean=jax.tree.map(lambda leaf: leaf + 1, population.mean)
    )
    compilations.clear()
    rollout.evaluate(later, make_tasks(seed=3), VIEW)
    assert not compilations


def test_progress_grows_and_may_end_the_generation(expected, monkeypatch):
    monkeypatch.setattr("jax_es.rollout.jax_engine.SECONDS_A_CALL", 0.0)
    rollout, tasks, reports = on_devices(1), make_tasks(), []
    result = rollout.evaluate(make_population(), tasks, VIEW, reports.append)
    assert_same(result, expected)
    # With one slot a call is 16 steps.
    assert len(reports) == -(-result.computed_steps // 16) > 5
    for counted in zip(*((r.num_done, r.env_steps) for r in reports), strict=True):
        assert list(counted) == sorted(counted)
    last = reports[-1]
    assert last.num_done == last.num_tasks == len(tasks.seed)
    assert (last.env_steps, last.seconds) == (result.env_steps, result.seconds)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollout.evaluate(make_population(), tasks, VIEW, stop)
    assert_same(rollout.evaluate(make_population(), tasks, VIEW), expected)


@pytest.mark.skipif("jax.local_device_count() < 2", reason="one accelerator")
def test_slots_must_divide_over_the_devices():
    with pytest.raises(ConfigError, match=r"num_slots .* multiple of the 2 .* got 3"):
        on_devices(3, num_devices=2)


def test_a_pair_has_its_tasks_on_one_device():
    member = np.r_[-1, -1, -1, np.repeat(np.arange(2 * NUM_PAIRS), 2)]
    order = spread(member, 2, 3)
    np.testing.assert_array_equal(np.sort(np.concatenate(order)), np.arange(35))
    pairs = [set(member[own][member[own] >= 0] // 2) for own in order]
    assert sum(map(len, pairs)) == NUM_PAIRS
    assert max(map(len, order)) - min(map(len, order)) <= 4


def test_sums_keep_what_float32_would_lose():
    total = Sum.zeros()
    for number in [2.0**24, *[1.0] * 64]:
        total = total.plus(jnp.float32(number))
    assert total.exact() == 2.0**24 + 64
    assert jnp.float32(2.0**24) + 1 == 2.0**24


class Uneven(JaxTarget):
    """Observes numbers whose sums float32 has to round."""

    def observe(self, episode):
        return super().observe(episode) / 3 + 0.1


@pytest.mark.compiled
def test_how_long_a_call_lasts_changes_no_bit(monkeypatch):
    """A resume has other clocks: the loop is called more often, or less."""
    sums = []
    for seconds in (0.0, 1e9):  # 16 steps a call; twice as many each time
        monkeypatch.setattr(jax_engine, "SECONDS_A_CALL", seconds)
        env = JaxVectorEnv(Uneven(), 2, descriptor=(2, 0))
        rollout = JaxRollout(ProbePolicy(), env, Devices(jax.local_devices()[:1]))
        found = rollout.evaluate(make_population(), make_tasks(), VIEW)
        sums.append(found.observations)
    assert sums[0].count > 16
    jax.tree.map(np.testing.assert_array_equal, *sums)
