"""The genetic algorithm: members from lists of numbers, equal to their weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.es.genetic import genetic
from jax_es.es.noise import FullNoise, member_key
from jax_es.es.population import MEAN
from tests.comparing import assert_equal_bits

START = {"x": jnp.array([3.0, -2.0]), "y": jnp.full((2, 2), 0.5)}
SIGMA, FIRST_SIGMA = 0.1, 0.5


def searched(generations, **options):
    """Returns the strategy and its states, the first one first."""
    strategy = genetic(12, START, SIGMA, 4, first_sigma=FIRST_SIGMA, **options)
    states = [strategy.init(jax.random.key(3), START)]
    for _ in range(generations):
        members = strategy.ask(states[-1]).members
        fitness = -jnp.sum((members["x"] - 1.0) ** 2, axis=-1)
        states.append(strategy.tell(states[-1], fitness)[0])
    return strategy, states


def test_a_member_is_the_list_of_its_ancestors_numbers():
    """Rebuilt here by NumPy from the list, the keys and the first weights alone."""
    strategy, states = searched(6)
    state = states[-1]
    parents = strategy.ask(state).parents
    numbers = np.asarray(state.ancestors)[:, :6]
    assert (numbers[:, :-1] != 0).any(), "nobody has an ancestor with noise"
    for i, row in enumerate(numbers):
        weights = {name: np.asarray(leaf) for name, leaf in START.items()}
        for generation, number in enumerate(row):
            if number == 0:  # the elite, as it was
                continue
            key = member_key(jax.random.fold_in(state.key, generation), number)
            noise = np.asarray(FullNoise().sample(key, START))
            sigma = FIRST_SIGMA if generation == 0 else SIGMA
            weights["x"] = weights["x"] + sigma * noise[:2]
            weights["y"] = weights["y"] + sigma * noise[2:6].reshape(2, 2)
        for name, leaf in weights.items():
            np.testing.assert_allclose(parents[name][i], leaf, rtol=1e-5)


def test_parents_made_again_are_those_in_memory_to_the_bit():
    """A strategy that was built anew has nothing but the state."""
    strategy, states = searched(6)
    kept = strategy.ask(states[-1])
    fresh, _ = searched(0)
    assert_equal_bits(fresh.ask(states[-1]), kept)
    # Nor do other states in between leave anything behind.
    strategy.ask(states[2])
    assert_equal_bits(strategy.ask(states[-1]), kept)
    fitness = jnp.arange(12.0)
    told = strategy.tell(states[-1], fitness)
    assert_equal_bits(searched(0)[0].tell(states[-1], fitness), told)


def test_the_best_members_are_the_next_parents_and_the_best_of_all_theta():
    strategy, states = searched(3)
    population = strategy.ask(states[-1])
    members = population.members
    fitness = jnp.asarray(np.random.default_rng(0).permutation(12), jnp.float32)
    state, info = strategy.tell(states[-1], fitness)
    best = np.argsort(-np.asarray(fitness))[:4]
    parents = strategy.ask(state).parents
    for name, leaf in parents.items():
        np.testing.assert_allclose(leaf, members[name][best], rtol=1e-6)
        np.testing.assert_array_equal(state.mean[name], leaf[0])
    moved = jax.tree.map(lambda a, b: a - b, state.mean, states[-1].mean)
    length = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(moved)))
    assert float(info.update_norm) == pytest.approx(length, rel=1e-5)


def test_member_0_and_the_mean_are_the_elite_and_others_are_near_a_parent():
    strategy, states = searched(3)
    population = strategy.ask(states[-1])
    for member in (0, MEAN):
        group = population.group(jnp.int32(max(member, 0)))
        weights = population.variables(group, jnp.int32(member))["params"]
        assert_equal_bits(weights, states[-1].mean)
    x, parents = population.members["x"], population.parents["x"]
    nearest = np.linalg.norm(x[:, None] - parents[None], axis=-1).min(axis=1)
    assert nearest[0] == 0 and (nearest[1:] > 0).all()
    assert nearest.max() < 5 * SIGMA


def test_after_the_last_generation_it_says_what_to_do():
    strategy, states = searched(2, max_generations=2)
    with pytest.raises(ConfigError, match=r"max_generations 2 are over; .* init RUN"):
        strategy.tell(states[-1], jnp.zeros(12))
