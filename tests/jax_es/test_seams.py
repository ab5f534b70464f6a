"""Strategies, engine and environments meet at protocols: each side may be another."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evosax.algorithms import SNES

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.envs.make import make
from jax_es.es.evosax_bridge import evosax_strategy
from jax_es.es.noise import FullNoise, LowRankNoise
from jax_es.es.openai_es import openai_es
from jax_es.es.population import MaterializedPopulation, MeanPopulation
from jax_es.models import BoxActions, DecisionTransformerConfig, MLPConfig, make_policy
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import Rollout
from jax_es.rollout.tasks import tasks_of_mean
from jax_es.train_config import TrainConfig
from jax_es.training.episodes import population_tasks
from jax_es.training.generation import initial_state, run_generation
from jax_es.training.parts import build
from tests.probe_envs import TargetEnv

CHEETAH = TrainConfig(
    EnvConfig("HalfCheetah-v5", max_episode_steps=50),
    MLPConfig(hidden_sizes=(4,)),
    ESConfig(num_pairs=8, sigma=0.1, learning_rate=0.3, shaping="centered_rank"),
    RolloutConfig(num_slots=4, num_threads=1, num_devices=1, statistics_fraction=1.0),
    evaluation=EvaluationConfig(num_episodes=2),
)


def test_any_strategy_trains_through_the_same_engine():
    """Also one whose members are no pairs, and an odd number."""
    parts, size = build(CHEETAH), 15
    mean = parts.policy.init(jax.random.key(0))
    strategy = evosax_strategy(SNES, size, mean, std_init=0.1)
    parts = dataclasses.replace(parts, strategy=strategy)
    state = initial_state(parts)
    returns = []
    for _ in range(12):
        generation = run_generation(parts, state)
        state = generation.state
        assert generation.fitness.shape == (size,)
        returns.append(generation.population.returns.mean())
    parts.close()
    assert int(state.es.generation) == 12
    # Half a second of running forward, from none.
    assert np.mean(returns[-2:]) > np.mean(returns[:2]) + 5


def probe(policy_config=None, num_slots=1, num_devices=1):
    env = TargetEnv(num_slots)
    actions = BoxActions((-1.0, -1.0), (1.0, 1.0))
    policy = make_policy(policy_config or MLPConfig(hidden_sizes=(4,)), 3, actions)
    rollout = Rollout(policy, [env], Devices(jax.local_devices()[:num_devices]))
    return rollout, policy.init(jax.random.key(1))


@pytest.mark.parametrize("noise", [FullNoise(), LowRankNoise(1)])
def test_a_recipe_and_its_members_in_memory_play_alike(noise):
    rollout, mean = probe()
    es = openai_es(ESConfig(num_pairs=5, sigma=0.3), noise)
    recipe = es.ask(es.init(jax.random.key(2), mean))
    weights = []
    for pair in range(5):
        epsilon = full_epsilon(noise, recipe, pair)
        for sign in (0.3, -0.3):
            weights.append(jax.tree.map(lambda m, e, s=sign: m + s * e, mean, epsilon))
    in_memory = MaterializedPopulation(
        mean, jax.tree.map(lambda *leaves: jnp.stack(leaves), *weights)
    )
    assert recipe.size == in_memory.size == 10
    tasks = population_tasks(CHEETAH, 0, 9, 10)
    tasks = tasks_of_mean(np.arange(3), 9).followed_by(tasks)
    played = [rollout.evaluate(p, tasks) for p in (recipe, in_memory)]
    np.testing.assert_allclose(played[0].returns, played[1].returns, rtol=1e-4)
    assert len(np.unique(played[0].returns.round(4))) == 13
    alone = rollout.evaluate(MeanPopulation(mean), tasks_of_mean(np.arange(3), 9))
    np.testing.assert_allclose(alone.returns, played[0].returns[:3], rtol=1e-4)


def full_epsilon(noise, recipe, pair):
    """A pair's ε as a weight pytree, whatever the family holds."""
    weights = np.zeros(pair + 1, np.float32)
    weights[pair] = 1.0
    pairs = jnp.arange(pair + 1)
    return noise.weighted_sum(recipe.key, pairs, jnp.asarray(weights), recipe.mean)


def test_two_variations_in_one_generation_are_two_runs():
    policy = make_policy(
        MLPConfig(hidden_sizes=()), 11, BoxActions((-1.0,) * 3, (1.0,) * 3)
    )
    mean = policy.init(jax.random.key(0))
    devices = Devices(jax.local_devices()[:1])

    def play(tasks):
        env = make("Hopper-v5", 2, num_threads=1, descriptor="gait")
        result = Rollout(policy, [env], devices).evaluate(MeanPopulation(mean), tasks)
        env.close()
        return result

    strengths = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.5]])
    seeds = np.arange(6)
    both = tasks_of_mean(np.repeat(seeds, 2), 30)
    both = play(both._replace(variation=np.tile(strengths, (6, 1))))
    for which, strength in enumerate(strengths):
        tasks = tasks_of_mean(seeds, 30)._replace(variation=np.tile(strength, (6, 1)))
        alone = play(tasks)
        np.testing.assert_allclose(both.returns[which::2], alone.returns, rtol=1e-4)
        np.testing.assert_array_equal(both.lengths[which::2], alone.lengths)
        np.testing.assert_allclose(
            both.descriptors[which::2], alone.descriptors, rtol=1e-3, atol=1e-5
        )
    whole = play(tasks_of_mean(seeds, 30))
    np.testing.assert_allclose(both.returns[::2], whole.returns, rtol=1e-4)
    assert not np.allclose(both.returns[1::2], whole.returns, rtol=1e-2)


def test_a_command_is_the_return_that_is_asked_for():
    config = DecisionTransformerConfig(
        context_length=3,
        width=8,
        num_layers=1,
        max_timestep=9,
        attention="cache",
        reward_scale=1.0,
        target_return=-1.0,
    )
    rollout, mean = probe(config)
    tasks = tasks_of_mean(np.repeat(np.arange(4), 2), 9)
    asked = rollout.evaluate(
        MeanPopulation(mean), tasks._replace(command=np.tile([-1.0, 5.0], 4))
    )
    # The same as in a configuration that asks for it.
    one = dataclasses.replace(config, target_return=5.0)
    alone = probe(one)[0].evaluate(MeanPopulation(mean), tasks)
    np.testing.assert_allclose(asked.returns[1::2], alone.returns[1::2], rtol=1e-5)
    assert not np.allclose(asked.returns[::2], alone.returns[::2], rtol=1e-3)
