"""Novelty, the adaptive weight and the draw, on archives made by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import ESConfig
from jax_es.es.fitness import centered_rank
from jax_es.es.noise import FullNoise, LowRankNoise
from jax_es.es.novelty import (
    NoveltyOptions,
    adapted,
    draw_parent,
    novelty,
    novelty_search,
)
from jax_es.es.openai_es import openai_es
from jax_es.es.strategy import Behaviour
from tests.comparing import assert_equal_bits

START = {"x": jnp.array([3.0, -2.0]), "y": jnp.full((2, 2), 0.5)}


def configured(strategy="novelty", **kwargs):
    return ESConfig(
        strategy=strategy,
        kwargs=kwargs,
        num_pairs=6,
        sigma=0.1,
        learning_rate=0.1,
        shaping="centered_rank",
    )


def behaviour(members, mean):
    return Behaviour(np.asarray(members, float), np.asarray(mean, float), worth=0.0)


def test_novelty_is_the_mean_distance_to_the_nearest():
    archive = np.array([[0, 0], [3, 4], [0, 1], [-6, 8]], float)
    points = np.array([[0, 0], [3, 4], [np.nan, 0], [np.inf, 0], [1e30, 0]])
    distances = [[0, 1, 5, 10], [0, np.sqrt(18), 5, np.sqrt(97)]]
    for neighbors in (1, 3, 10):  # of ten there are four
        expected = [np.sort(row)[:neighbors].mean() for row in distances]
        found = novelty(points, archive, neighbors)
        np.testing.assert_allclose(found[:2], expected, rtol=1e-6)
        assert np.isnan(found[2:4]).all() and found[4] == pytest.approx(1e30)
    assert novelty(points[:3], archive[:0], 2)[:2].tolist() == [0, 0]
    rng = np.random.default_rng(0)
    points, archive = rng.normal(size=(50, 3)), rng.normal(size=(200, 3))
    away = np.linalg.norm(points[:, None] - archive[None], axis=-1)
    expected = np.sort(away, axis=1)[:, :10].mean(axis=1)
    np.testing.assert_allclose(novelty(points, archive, 10), expected, rtol=1e-6)


def test_an_adaptive_weight_falls_slowly_and_rises_at_once():
    """Conti et al. 2018, algorithm 3, with its figures."""
    options = NoveltyOptions(fitness_weight="adaptive")
    weight, best, stalled = 1.0, -np.inf, 0
    weights = []
    evaluations = [1.0] + [0.5] * 100 + [np.nan] * 50 + [2.0, 3.0, 4.0, 5.0]
    for evaluation in evaluations:
        weight, best, stalled = adapted(weight, best, stalled, evaluation, options)
        weights.append(round(weight, 6))
    assert weights[:51] == [1.0] * 50 + [0.95] and best == 5.0
    assert (weights[100], weights[150]) == (0.9, 0.85)
    assert weights[-4:] == [0.9, 0.95, 1.0, 1.0]
    assert adapted(0.02, 1.0, 49, 0.0, options) == (0.0, 1.0, 0)


def test_a_parent_is_drawn_in_proportion_to_its_novelty():
    archive = np.array([[0.0], [10.0]])
    parents = np.array([[0.0], [1.0], [-3.0], [np.nan]])  # 0, 1, 3 and none
    keys = jax.random.split(jax.random.key(0), 400)
    drawn = [draw_parent(key, parents, archive, 1) for key in keys]
    share = np.bincount(drawn, minlength=4) / 400
    # A standard error of 2 %.
    np.testing.assert_allclose(share, [0, 0.25, 0.75, 0], atol=0.08)
    parents[2] = np.inf  # it goes first
    assert draw_parent(keys[0], parents, archive, 1) == 2
    same = np.zeros((3, 1))
    drawn = [draw_parent(key, same, archive[:1], 1) for key in keys[:60]]
    assert {*drawn} == {0, 1, 2}


@pytest.mark.parametrize("noise", [FullNoise(), LowRankNoise(1)])
def test_one_parent_with_all_weight_on_fitness_is_openai_es(noise):
    key, rng = jax.random.key(3), np.random.default_rng(0)
    config = configured(fitness_weight=1.0, parents=1)
    plain = dataclasses.replace(config, strategy="openai-es", kwargs={})
    here, there = novelty_search(config, 2, noise), openai_es(plain, noise)
    mine, theirs = here.init(key, START), there.init(key, START)
    for _ in range(4):
        assert_equal_bits(here.ask(mine), there.ask(theirs))
        fitness = rng.normal(size=12)
        seen = behaviour(rng.normal(size=(12, 2)), rng.normal(size=2))
        mine, info = here.tell(mine, fitness, seen)
        theirs, expected = there.tell(theirs, fitness)
        assert_equal_bits((mine.mean, mine.optimizer_state), theirs[:2])
        assert_equal_bits(info[:4], tuple(expected))
    assert int(mine.archived) == 4


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_an_update_follows_the_mixed_ranks(weight):
    config = configured(fitness_weight=weight, parents=1)
    strategy, rng = novelty_search(config, 2), np.random.default_rng(1)
    state = strategy.init(jax.random.key(0), START)
    archive = []
    for _ in range(3):
        fitness = rng.normal(size=12).astype(np.float32)
        members, mean = rng.normal(size=(12, 2)), rng.normal(size=2)
        members[5] = np.nan  # worst of all, and counted
        archive.append(mean)
        found = novelty(members, np.array(archive, np.float32), 10)
        by_hand = weight * centered_rank(fitness.reshape(6, 2))
        by_hand += (1 - weight) * centered_rank(found.reshape(6, 2))
        own = type(openai_es(configured("openai-es")).init(state.key, START))(
            state.mean, state.optimizer_state, state.generation, state.key
        )
        expected, _ = openai_es(configured("openai-es")).follow(own, by_hand, fitness)
        state, info = strategy.tell(state, fitness, behaviour(members, mean))
        for leaf, other in zip(
            jax.tree.leaves(state.mean), jax.tree.leaves(expected.mean), strict=True
        ):
            np.testing.assert_allclose(leaf, other, rtol=1e-6, atol=1e-7)
        assert info.num_nonfinite_descriptors == 1 and info.fitness_weight == weight
        assert info.novelty_mean == pytest.approx(np.nanmean(found), rel=1e-6)
    np.testing.assert_allclose(state.archive[:3], archive, rtol=1e-6)


def test_parents_take_turns_and_keep_what_is_theirs():
    """Each has its θ, its optimizer's state and its descriptor, wherever it stands."""
    config = configured(parents=3, archive_size=5)

    def draw(key):
        return {"x": jax.random.normal(key, (2,)), "y": jnp.zeros((2, 2))}

    strategy, rng = novelty_search(config, 1, draw=draw), np.random.default_rng(2)
    state = strategy.init(jax.random.key(0), START)
    starts = {float(state.mean["x"][0]), *map(float, state.others[0]["x"][:, 0])}
    assert len(starts) == 3
    turns = []
    for generation in range(9):
        before = whole(state)
        turns.append(float(state.mean["x"][0]))
        seen = behaviour(rng.normal(size=(12, 1)), [10.0 * generation])
        state, _ = strategy.tell(state, rng.normal(size=12), seen)
        after = whole(state)
        # One has moved; the others are to the bit what they were.
        assert len(before) == len(after) == 3 and len({*before} & {*after}) == 2
        assert state.descriptors.ravel().tolist().count(10.0 * generation) == 1
    assert {*turns[:3]} == starts  # first of all, each is evaluated once
    # The oldest four of nine gave way.
    assert state.archive.ravel().tolist() == [50.0, 60.0, 70.0, 80.0, 40.0]
    assert int(state.archived) == 9


def whole(state):
    """The parents' θ, optimizer states and descriptors as bytes, one entry each."""
    first = state.mean, state.optimizer_state
    rows = [first] + [
        jax.tree.map(lambda leaf, i=i: leaf[i], state.others)
        for i in range(len(state.descriptors) - 1)
    ]
    return [b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(r)) for r in rows]


def test_a_parent_without_a_finite_descriptor_is_left_out():
    strategy = novelty_search(configured(parents=2), 2)
    state = strategy.init(jax.random.key(0), START)
    members = np.full((12, 2), np.nan)
    state, info = strategy.tell(state, np.zeros(12), behaviour(members, [np.nan, 0]))
    assert int(state.archived) == 0 and info.num_nonfinite_descriptors == 13
    assert np.isnan(info.novelty_mean) and info.update_norm == pytest.approx(
        0.005 * float(jnp.sqrt(14)), rel=1e-5
    )  # nothing to tell members apart: weight decay alone
    with pytest.raises(ValueError, match=r"shapes \(12, 2\) and \(2,\), got \(12, 1\)"):
        strategy.tell(state, np.zeros(12), behaviour(members[:, :1], [0, 0]))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"weight": 1}, "novelty has no hyperparameter weight; it has archive_size"),
        (
            {"fitness_weight": 1.5},
            r"fitness_weight must be in \[0, 1\] or adaptive, go",
        ),
        ({"fitness_weight": "nsr"}, "or adaptive, got 'nsr'; the default is 0.0"),
        ({"parents": 0}, "es.kwargs.parents must be at least 1, got 0"),
        ({"neighbors": 2.5}, "es.kwargs.neighbors must be int, got 2.5; leave it out"),
        ({"weight_step": 2}, r"es.kwargs.weight_step must be in \(0, 1\], got 2"),
    ],
)
def test_a_hyperparameter_that_cannot_be_is_named(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        novelty_search(configured(**kwargs), 2)
