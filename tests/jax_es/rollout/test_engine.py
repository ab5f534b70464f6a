"""Continuous batching changes nothing: a task's result is a function of the task.

The probe policy and the probe noise compute in binary fractions that float32 holds
exactly, so there is no rounding that an order of addition could change: there every
equality is exact. Real networks and physics get a tolerance, for rounding alone.
"""

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import ESConfig
from jax_es.envs.make import make as make_vector_env
from jax_es.es.noise import FullNoise
from jax_es.es.openai_es import openai_es
from jax_es.es.population import MEAN
from jax_es.models import BoxActions, MLPConfig, make_policy
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import Rollout
from jax_es.rollout.observation_statistics import ObservationStatistics, View
from jax_es.rollout.slots import SlotPrograms
from jax_es.rollout.tasks import Tasks
from tests.probe_envs import TargetEnv

NUM_PAIRS = 8


class ProbeNoise(FullNoise):
    """Multiples of ½ in [−3, 3]."""

    def sample(self, key, mean):
        return jnp.clip(jnp.round(2 * super().sample(key, mean)), -6, 6) / 2


class ProbePolicy:
    """Linear in the observation, a fading memory, the last reward and a random number.

    Whatever leaks from one episode into the next changes its actions. All its weights
    are multiples of ⅛ and its memory of 2⁻¹⁵ at most, so that float32 is exact.
    """

    def init(self, key):
        kernel_key, bias_key = jax.random.split(key)
        return {
            "kernel": jax.random.randint(kernel_key, (7, 2), -4, 5) / 8,
            "bias": jax.random.randint(bias_key, (2,), -4, 5) / 8,
        }

    def initial_carry(self):
        return {"memory": jnp.zeros(2), "steps": jnp.int32(0)}

    def apply(self, variables, carry, observation, reward, first, key):
        memory = jnp.where(first, 0.0, carry["memory"] / 2) + observation[:2]
        steps = jnp.where(first, 0, carry["steps"])
        paid = jnp.where(first, 0.0, jnp.clip(jnp.round(reward), -8, 8))
        luck = jax.random.randint(key, (), -2, 3) / 8
        inputs = [observation, memory, paid[None], (luck + steps)[None]]
        params = variables["params"]
        action = jnp.concatenate(inputs) @ params["kernel"] + params["bias"]
        return {"memory": memory, "steps": steps + 1}, action


@jax.jit
def luck_of(seed):
    """The policy's random numbers at the timesteps of an episode."""

    def at(step):
        key = jax.random.fold_in(jax.random.key(seed), step)
        return jax.random.randint(key, (), -2, 3) / 8

    return jax.vmap(at)(jnp.arange(10))


def reference_episode(params, env, seed, max_steps, mean, std):
    """One episode of :class:`ProbePolicy` in NumPy: return, length, observations."""
    (observation,), _ = env.reset(seed=[seed])
    total, seen = 0.0, []
    lucks = np.asarray(luck_of(seed))
    memory, paid = np.zeros(2), 0.0
    for step in range(max_steps):
        seen.append(observation)
        x = (observation - mean) / std
        memory = memory / 2 + x[:2]
        inputs = np.concatenate([x, memory, [paid, lucks[step] + step]])
        action = inputs @ params["kernel"] + params["bias"]
        (observation,), (reward,), (ended,), _, _ = env.step(action[None])
        total += reward
        paid = np.clip(np.round(np.float32(reward)), -8, 8)
        if ended:
            break
    return total, len(seen), np.array(seen)


def reference(population, tasks, statistics, env):
    """The tasks one after the other, with materialised weights."""
    members = jax.tree.map(np.asarray, population.members)
    theta = jax.tree.map(np.asarray, population.mean)
    mean, std = MEAN_AND_STD if statistics else (0.0, 1.0)
    episodes = []
    for member, seed, max_steps, _ in zip(*tasks[:4], strict=True):
        own = jax.tree.map(lambda m, i=member: m[i], members)
        params = theta if member == MEAN else own
        episodes.append(reference_episode(params, env, seed, max_steps, mean, std))
    returns, lengths, observations = zip(*episodes, strict=True)
    return np.array(returns), np.array(lengths), observations


MEAN_AND_STD = np.array([0.25, -0.5, 0.5]), np.array([0.5, 0.25, 1.0])
"""Binary fractions, so that normalising is exact."""


def make_statistics():
    mean, std = MEAN_AND_STD
    return ObservationStatistics(
        np.array(4.0), 4 * mean, 4 * (np.square(std) + np.square(mean))
    )


VIEW = View(make_statistics())


def make_tasks(episodes=2, num_mean=5, max_steps=None, seed=0):
    """A generation's tasks: θ's first, then both signs of each pair."""
    rng = np.random.default_rng(seed)
    members = NUM_PAIRS * episodes
    total = num_mean + 2 * members
    seeds = rng.choice(2**31 - 1, num_mean + members, replace=False)
    return Tasks(
        member=np.r_[
            np.full(num_mean, MEAN),
            np.tile(
                np.arange(2 * NUM_PAIRS).reshape(NUM_PAIRS, 1, 2), (1, episodes, 1)
            ).ravel(),
        ].astype(np.int32),
        seed=np.r_[seeds[:num_mean], np.repeat(seeds[num_mean:], 2)].astype(np.int32),
        max_steps=(
            rng.integers(1, 11, total)
            if max_steps is None
            else np.full(total, max_steps)
        ).astype(np.int32),
        observed=rng.random(total) < 0.3,
    )


def make_population(policy=None, noise=None, seed=0, sigma=0.25):
    # A noise family may be an empty tuple, which is false.
    noise = ProbeNoise() if noise is None else noise
    es = openai_es(ESConfig(num_pairs=NUM_PAIRS, sigma=sigma), noise)
    params_key, noise_key = jax.random.split(jax.random.key(seed))
    return es.ask(es.init(noise_key, (policy or ProbePolicy()).init(params_key)))


def make_rollout(envs, num_devices=1, policy=None):
    return Rollout(
        policy or ProbePolicy(),
        envs if isinstance(envs, list) else [envs],
        Devices(jax.local_devices()[:num_devices]),
    )


@functools.cache
def compiled(num_slots, num_devices):
    env = TargetEnv(num_slots)
    return make_rollout(env, num_devices), env


def probe(num_slots=6, num_devices=1, **options):
    """A rollout and its environment; tests share them, for compiling takes seconds."""
    rollout, env = compiled(num_slots, num_devices)
    env.__init__(num_slots, **options)
    return rollout, env


@functools.cache
def expected(with_statistics=True):
    statistics = make_statistics() if with_statistics else None
    population = make_population()
    tasks = make_tasks()
    return reference(population, tasks, statistics, TargetEnv(1))


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("num_groups", "num_slots", "num_devices"),
    [(1, 6, 1), (1, 8, 2), (3, 2, 1), (2, 2, 2)],
)
def test_a_return_depends_on_the_task_alone(num_groups, num_slots, num_devices):
    tasks = make_tasks()
    envs = [TargetEnv(num_slots) for _ in range(num_groups)]
    rollout = make_rollout(envs, num_devices)
    result = rollout.evaluate(make_population(), tasks, VIEW)
    returns, lengths, observations = expected()
    np.testing.assert_array_equal(result.returns, returns)
    np.testing.assert_array_equal(result.lengths, lengths)
    assert not result.failed.any()
    # Each task was one episode, and environments without a task stood still.
    started = collections.Counter(seed for env in envs for seed in env.started)
    assert started == collections.Counter(tasks.seed.tolist())
    assert all(env.steps_of_live_envs for env in envs)
    steps = sum(env.steps_of_live_envs for env in envs)
    assert steps == result.env_steps == lengths.sum()
    # The observed episodes alone are in the statistics.
    seen = [x for x, o in zip(observations, tasks.observed, strict=True) if o]
    seen = np.concatenate(seen).astype(np.float64)
    count, total, squares = result.observations
    assert count == len(seen) == result.lengths[tasks.observed].sum()
    np.testing.assert_array_equal(total, seen.sum(axis=0))
    np.testing.assert_array_equal(squares, np.square(seen).sum(axis=0))
    # Any order, also one that tears pairs apart: ε is then drawn more often.
    order = np.random.default_rng(1).permutation(len(returns))
    shuffled = jax.tree.map(lambda field: field[order], tasks)
    again = rollout.evaluate(make_population(), shuffled, VIEW)
    np.testing.assert_array_equal(again.returns, returns[order])
    # These equalities refute something: returns differ between tasks.
    assert len(np.unique(returns)) > 0.9 * len(returns)
    assert set(lengths) >= set(range(1, 9))


def test_one_group_steps_while_the_other_groups_actions_are_computed(monkeypatch):
    events = []

    class LoggedEnv(TargetEnv):
        def step(self, actions):
            events.append(f"step {self.name}")
            return super().step(actions)

    envs = [LoggedEnv(2, min_steps=4, max_steps=4) for _ in range(2)]
    envs[0].name, envs[1].name = "A", "B"
    rollout = make_rollout(envs)
    rollout.evaluate(make_population(), equal_length_tasks(4))  # compiles
    act, names = SlotPrograms.act, iter("ABABABAB")
    monkeypatch.setattr(
        SlotPrograms,
        "act",
        lambda *args: (events.append(f"act {next(names)}"), act(*args))[1],
    )
    events.clear()
    rollout.evaluate(make_population(), equal_length_tasks(4))
    turn = ["step A", "act A", "step B", "act B"]
    assert events == ["act A", "act B", *turn * 3, "step A", "step B"]


def test_a_second_run_owes_nothing_to_the_first():
    rollout, _ = probe()
    other = make_population(seed=7)
    rollout.evaluate(other, make_tasks(seed=9))
    result = rollout.evaluate(make_population(), make_tasks(), VIEW)
    np.testing.assert_array_equal(result.returns, expected()[0])
    # Without statistics observations are seen as they are.
    result = rollout.evaluate(make_population(), make_tasks())
    np.testing.assert_array_equal(result.returns, expected(with_statistics=False)[0])


@pytest.mark.compiled
def test_mean_tasks_use_the_mean_whatever_is_around_them():
    (rollout, _), population = probe(), make_population()
    tasks = make_tasks(max_steps=9)
    # The same θ with other noise: members differ, θ's episodes do not.
    other = dataclasses.replace(population, key=jax.random.key(99))
    first, second = (rollout.evaluate(p, tasks) for p in (population, other))
    is_mean = tasks.member == MEAN
    np.testing.assert_array_equal(first.returns[is_mean], second.returns[is_mean])
    assert not np.array_equal(first.returns[~is_mean], second.returns[~is_mean])
    # With σ = 0 a member is θ.
    still = dataclasses.replace(population, sigma=jnp.float32(0))
    seeds = np.full(len(tasks.seed), tasks.seed[0])
    returns = rollout.evaluate(still, tasks._replace(seed=seeds)).returns
    np.testing.assert_array_equal(returns, first.returns[0])


def equal_length_tasks(num_tasks):
    rng = np.random.default_rng(0)
    return Tasks(
        member=2 * np.arange(num_tasks, dtype=np.int32),
        seed=rng.integers(2**31, size=num_tasks, dtype=np.int32),
        max_steps=np.full(num_tasks, 4, np.int32),
        observed=np.zeros(num_tasks, bool),
    )


@pytest.mark.parametrize(
    ("num_slots", "num_devices", "num_tasks", "computed"),
    [
        # Two full rounds of 8 slots, 4 steps each.
        (8, 1, 16, 64),
        # Then one task is left: packed into one slot.
        (8, 1, 17, 64 + 4),
        # Three are left: four slots, for there is no program of three.
        (8, 1, 19, 64 + 16),
        # Fewer tasks than slots.
        (8, 1, 2, 8),
        # Devices run the same width: one task occupies a slot on both.
        (8, 2, 9, 32 + 8),
        # Few tasks are dealt to the devices in turn.
        (8, 2, 2, 8),
    ],
)
def test_computed_steps_and_utilization(num_slots, num_devices, num_tasks, computed):
    if num_devices > jax.local_device_count():
        pytest.skip("one accelerator")
    rollout, _ = probe(num_slots, num_devices, min_steps=4, max_steps=4)
    result = rollout.evaluate(make_population(), equal_length_tasks(num_tasks))
    assert result.env_steps == 4 * num_tasks
    assert result.computed_steps == computed
    assert result.slot_utilization == 4 * num_tasks / computed


def test_packing_keeps_the_right_slots():
    """Slots end one by one, so that every width is visited with live slots in it."""
    lengths = np.random.default_rng(3).permutation(np.arange(2, 10))
    tasks = equal_length_tasks(8)._replace(max_steps=lengths.astype(np.int32))
    population = make_population()
    result = probe(8, min_steps=9)[0].evaluate(population, tasks)
    returns, _, _ = reference(population, tasks, None, TargetEnv(1, min_steps=9))
    np.testing.assert_array_equal(result.returns, returns)
    # Widths 8, 4, 2 and 1 while 8..5, 4..3, 2 and 1 of the slots are live.
    assert result.computed_steps == 8 * 5 + 4 * 2 + 2 + 1


@pytest.mark.parametrize("kind", ["inf", "failed", "observation"])
def test_a_broken_episode_hurts_nobody_else(kind):
    tasks = make_tasks(max_steps=9)
    healthy = probe()[0].evaluate(make_population(), tasks, VIEW)
    broken_seeds = {int(tasks.seed[1]): kind, int(tasks.seed[-1]): kind}
    broken = np.isin(tasks.seed, list(broken_seeds))
    rollout, _ = probe(broken=broken_seeds)
    result = rollout.evaluate(make_population(), tasks, VIEW)
    np.testing.assert_array_equal(result.returns[~broken], healthy.returns[~broken])
    assert not np.isfinite(result.returns[broken]).any()
    np.testing.assert_array_equal(result.failed, broken & (kind == "failed"))
    if kind == "failed":
        np.testing.assert_array_equal(result.lengths[broken], 2)
    else:
        np.testing.assert_array_equal(result.lengths, healthy.lengths)


class CountingNoise(ProbeNoise):
    """Counts how often an ε is really drawn."""

    draws = 0

    def sample(self, key, mean):
        jax.debug.callback(self._count)
        return super().sample(key, mean)

    @classmethod
    def _count(cls):
        cls.draws += 1


def test_the_epsilon_of_a_pair_is_drawn_once():
    num_slots, num_devices = 2, 2
    noise = CountingNoise()
    rollout = make_rollout(TargetEnv(num_slots), num_devices)
    population = make_population(noise=noise)
    CountingNoise.draws = 0
    # Three episodes of either sign; θ's episodes need none.
    result = rollout.evaluate(population, make_tasks(episodes=3))
    jax.effects_barrier()
    assert CountingNoise.draws == NUM_PAIRS
    assert len(result.returns) == 5 + 6 * NUM_PAIRS


def test_only_the_first_run_compiles(compilations):
    rollout = make_rollout(TargetEnv(4), 2)
    population = make_population()
    rollout.evaluate(population, equal_length_tasks(8))
    assert compilations
    compilations.clear()
    # Another mean and key, and numbers of tasks that visit each width.
    for num_tasks in (8, 1, 3, 5, 12, 33):
        later = dataclasses.replace(
            population,
            mean=jax.tree.map(lambda leaf: leaf + 1, population.mean),
            key=jax.random.fold_in(population.key, num_tasks),
        )
        compilations.clear()
        rollout.evaluate(later, equal_length_tasks(num_tasks), VIEW)
        assert not compilations, f"{num_tasks} tasks"


def test_progress_is_reported_every_step_and_may_end_the_run():
    (rollout, _), tasks = probe(), make_tasks()
    reports = []
    result = rollout.evaluate(make_population(), tasks, on_step=reports.append)
    for counted in zip(*((r.num_done, r.env_steps) for r in reports), strict=True):
        assert list(counted) == sorted(counted)
    last = reports[-1]
    assert last.num_done == last.num_tasks == len(tasks.member)
    assert last.env_steps == result.env_steps
    assert last.computed_steps == result.computed_steps
    assert last.seconds == result.seconds
    assert len(reports) >= result.env_steps / 6

    def stop(progress):
        if progress.num_done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollout.evaluate(make_population(), tasks, on_step=stop)
    # The half-finished episodes leave no trace.
    result = rollout.evaluate(make_population(), tasks, VIEW)
    np.testing.assert_array_equal(result.returns, expected()[0])


@pytest.mark.skipif("jax.local_device_count() < 2", reason="one accelerator")
def test_slots_must_divide_over_the_devices():
    with pytest.raises(ConfigError, match=r"num_slots .* multiple of the 2 .* got 3"):
        make_rollout(TargetEnv(3), num_devices=2)


@pytest.mark.compiled
@pytest.mark.slow
def test_physics_agrees_to_rounding():
    """Programs of other widths add in another order, and physics amplifies that.

    HalfCheetah, because its reward tells any two trajectories apart.
    """
    config = MLPConfig(hidden_sizes=(16,))
    results = []
    for num_slots in (1, 2):
        env = make_vector_env("HalfCheetah-v5", num_slots, 1)
        space = env.single_action_space
        actions = BoxActions(tuple(space.low), tuple(space.high))
        policy = make_policy(config, env.single_observation_space.shape[0], actions)
        population = make_population(policy, FullNoise(), sigma=0.05)
        rollout = make_rollout(env, 1, policy)
        tasks = make_tasks(episodes=1, num_mean=2, max_steps=15)
        results.append(rollout.evaluate(population, tasks))
        env.close()
    alone, together = results
    np.testing.assert_array_equal(together.lengths, 15)
    np.testing.assert_allclose(
        together.returns, alone.returns, rtol=0, atol=1e-3 * alone.returns.std()
    )
