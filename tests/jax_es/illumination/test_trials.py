"""Intelligent trial and error on archives made by hand."""

import numpy as np
import pytest

from jax_es.illumination.adaptation import Recovery, table
from jax_es.illumination.archive import Archive
from jax_es.illumination.settings import ArchiveConfig, TrialConfig, axes_of
from jax_es.illumination.trials import Search

CONFIG = ArchiveConfig(cells=(10,), low=(0.0,), high=(2.0,))


@pytest.fixture(scope="module")
def archive():
    """Ten elites in a row, the better the farther right."""
    made = Archive(CONFIG, axes_of(CONFIG, ("0",), 1), 1)
    places = np.arange(0.1, 2.0, 0.2)[:, None]
    made.add(np.zeros((10, 1)), 100 * places[:, 0], places)
    return made


def search(archive, rule="ite", seed=0, **changes):
    config = TrialConfig(**changes)
    promise = archive.elites().fitness
    return Search(archive, promise, config, rule, np.random.default_rng(seed))


def by_hand(archive, tried, fitness, config):
    """μ and σ of the issue's equation, in units of the best."""
    places = archive.elites().descriptors / 2.0
    prior = archive.elites().fitness / archive.elites().fitness.max()

    def kernel(a, b):
        r = np.sqrt(5) * np.abs(a - b.T) / config.length_scale
        return (1 + r + r**2 / 3) * np.exp(-r)

    own = kernel(places[tried], places[tried]) + config.noise * np.eye(len(tried))
    cross = kernel(places, places[tried])
    found = np.array(fitness) / archive.elites().fitness.max() - prior[tried]
    mean = prior + cross @ np.linalg.solve(own, found)
    variance = 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(own, cross.T))
    return mean, np.sqrt(variance)


def test_what_it_expects_and_chooses_is_the_papers_equation(archive):
    it = search(archive)
    assert it.next() == 9  # the best promise
    it.tell(9, 20.0)
    it.tell(4, 80.0)
    mean, std = it.expected()
    expected = by_hand(archive, [9, 4], [20.0, 80.0], TrialConfig())
    np.testing.assert_allclose(mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(std, expected[1], atol=1e-6)
    assert it.next() == np.argmax(expected[0] + 0.05 * expected[1])
    # The neighbours of what failed are expected to fail, too.
    assert mean[8] < 0.5 * archive.elites().fitness[8] / 190


def test_it_ends_once_a_trial_is_near_the_best_expected(archive):
    it = search(archive, length_scale=0.1)
    it.tell(9, 60.0)
    assert not it.is_over
    while not it.is_over:
        position = it.next()
        # What lies right of the middle is broken, the rest is as it was.
        value = archive.elites().fitness[position] if position < 6 else 10.0
        it.tell(position, value)
    mean, _ = it.expected()
    assert max(it.fitness) / 190 >= 0.9 * mean.max()
    assert it.tried[-1] in (4, 5) and len(it.tried) < 8
    intact = search(archive)
    intact.tell(9, 188.0)
    assert intact.is_over


def test_rules_to_compare_with(archive):
    best_first = search(archive, "best-first", trials=3)
    for expected in (9, 8, 7):
        assert not best_first.is_over and best_first.next() == expected
        best_first.tell(expected, 1e6)
    assert best_first.is_over  # after its trials only
    orders = []
    for seed in (0, 0, 1):
        it = search(archive, "random", seed, trials=10)
        while not it.is_over:
            it.tell(it.next(), 0.0)
        orders.append(it.tried)
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(10))
    blind = search(archive, "no-prior", seed=3)
    first = blind.next()
    blind.tell(first, 150.0)
    assert blind.next() in (first - 1, first, first + 1)  # where it was good


def test_a_trial_that_failed_counts_as_standing(archive):
    it = search(archive)
    it.tell(9, np.nan)
    assert it.fitness == [0.0] and np.isfinite(it.expected()[0]).all()


def test_a_table_of_recoveries_names_rules_and_has_no_shares_below_nothing():
    robot = Recovery("leg", "ite", 0, [1], [-3.9], kept=-3.9, intact=10.0, limit=0.04)
    assert table([robot]).splitlines()[2] == (
        "| leg | intelligent trial and error | 1 | -3.90 | -3.90 | -3.90 | none | 0 % |"
    )
