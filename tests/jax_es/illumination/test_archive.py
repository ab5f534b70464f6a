"""The archive's arithmetic on members made by hand."""

import dataclasses

import jax
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import ESConfig
from jax_es.es.openai_es import openai_es
from jax_es.illumination.archive import Archive
from jax_es.illumination.emitters import (
    Candidates,
    EvolutionStrategies,
    IsoLine,
    Weights,
    iso_line,
)
from jax_es.illumination.settings import ArchiveConfig, axes_of, settings_of
from jax_es.illumination.wall import different
from jax_es.runs.state_arrays import as_stored

GRID = ArchiveConfig(cells=(2, 3), low=(0.0,), high=(1.0, 3.0), qd_offset=-10.0)


def made(config=GRID, num_weights=2):
    return Archive(config, axes_of(config, ("0", "3"), 2), num_weights)


def filled(config=GRID):
    archive = made(config)
    weights = np.arange(12, dtype=np.float32).reshape(6, 2)
    places = [[0.1, 0.1], [0.2, 0.9], [0.9, 2.5], [5, -1], [np.nan, 1], [0.5, np.inf]]
    added = archive.add(weights, [1.0, 4.0, -3.0, 2.0, 9.0, 9.0], places)
    return archive, added


def test_members_made_by_hand_go_where_they_belong():
    archive, added = filled()
    # The first two share a cell; two others have no finite place.
    assert added == (3, 0, 1, 2)
    elites = archive.elites()
    assert elites.cell.tolist() == [0, 3, 5]
    assert elites.weights.tolist() == [[2, 3], [6, 7], [4, 5]]
    assert elites.fitness.tolist() == [4.0, 2.0, -3.0]
    assert elites.descriptors.tolist() == [[0.2, 0.9], [1.0, 0.0], [0.9, 2.5]]
    assert archive.coverage == 3 / 6
    assert archive.qd_score == 4 + 2 - 3 + 3 * 10
    assert archive.best == 0
    # A better one, an equal one (which is none), a worse one, and two for one cell.
    places = [[0.9, 2.9], [0.1, 0.2], [0.9, 0.0], [0.9, 2.1], [0.1, 1.5]]
    assert archive.add(np.ones((5, 2)), [0, 4, 1, -1, 0], places) == (1, 1, 0, 0)
    assert archive.elites().fitness.tolist() == [4.0, 0.0, 2.0, 0.0]
    nothing = archive.add(np.ones((1, 2)), [np.inf], [[0.1, 0.1]])
    assert nothing == (0, 0, 0, 1)


def test_a_wall_shows_elites_that_differ():
    archive, _ = filled()
    assert different(archive, 9) == [0, 1]  # of three, those not below the median
    places = [[x, 1.5] for x in (0.1, 0.6)] + [[0.1, 2.5], [0.6, 0.5]]
    archive.add(np.ones((4, 2)), [9.0, 8.0, 7.0, 6.0], places)
    chosen = different(archive, 2)
    assert chosen[0] == archive.best and len({*chosen}) == 2


@pytest.mark.parametrize("kind", ["grid", "cvt"])
def test_a_restored_archive_goes_on_as_the_saved_one(kind):
    """To the bit, whatever the order in which elites came in."""
    config = GRID
    if kind == "cvt":
        config = dataclasses.replace(GRID, archive="cvt", cells=(8,))
    first, _ = filled(config)
    state = {k: v for k, v in first.state().items() if v.size}
    second = Archive(config, first.axes, 2, centroids=state.get("centroids"))
    second.restore(state)
    rng = np.random.default_rng(0)
    for archive in (first, second):
        rng = np.random.default_rng(0)
        for _ in range(3):
            places, weights = rng.uniform(-1, 4, (40, 2)), rng.normal(size=(40, 2))
            archive.add(weights, rng.normal(size=40), places)
    for a, b in zip(first.elites(), second.elites(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.qd_score == second.qd_score
    assert first.num_cells == (8 if kind == "cvt" else 6)


@pytest.mark.parametrize(
    ("changes", "descriptor", "size", "words"),
    [
        ({}, (), 0, "env.descriptor must say what describes an episode"),
        ({"low": (), "high": ()}, ("0", "3"), 2, "low and high are needed"),
        ({"low": (1.0,)}, ("0", "3"), 2, "low must be below high, got 1.0 and 1.0"),
        ({"cells": (2, 2, 2)}, ("0", "3"), 2, "cells must be one number, or one for"),
    ],
)
def test_axes_that_cannot_be(changes, descriptor, size, words):
    with pytest.raises(ConfigError, match=words):
        axes_of(dataclasses.replace(GRID, **changes), descriptor, size)


def test_axes_follow_the_descriptor():
    axes = axes_of(ArchiveConfig(), ("gait",), 4)
    assert axes.low == (-30, -30, 0, 0) and axes.high == (30, 30, 1, 1)
    assert axes.names[:2] == ("x (m)", "y (m)") and axes.cells == (5,) * 4
    assert axes_of(ArchiveConfig(), ("feet",), 2).cells == (32, 32)
    assert axes_of(ArchiveConfig(archive="cvt"), ("feet",), 2).cells == (1024,)
    assert settings_of(GRID.method()) == GRID


def test_an_archive_that_does_not_fit_is_refused_before_it_is_made():
    config = dataclasses.replace(GRID, cells=(50_000, 50_000))
    with pytest.raises(ConfigError, match="cells 50000 50000, each with its elite"):
        made(config, num_weights=10_000)


def test_descriptors_of_another_length_are_named():
    for wrong in ([[0.5]], [0.5, 1.0]):
        with pytest.raises(ConfigError, match=r"descriptors must be \[P, 2\], numbers"):
            made().cell_of(wrong)


def test_iso_line_moves_along_the_way_between_two_elites():
    elites = np.array([[0.0, 0.0], [1.0, 1.0]], np.float32)
    along = iso_line(np.random.default_rng(0), elites, 1000, 0.0, 0.5)
    np.testing.assert_array_equal(along[:, 0], along[:, 1])
    moved = along[:, 0] - np.round(along[:, 0])
    assert len(np.unique(along)) > 400  # half of all pairs are the same elite twice
    assert np.abs(moved).max() > 0.1
    around = iso_line(np.random.default_rng(0), elites, 20_000, 0.1, 0.0)
    noise = around - np.round(around)
    assert abs(noise.std() - 0.1) < 0.002 and abs(noise.mean()) < 0.002


class TestEmitters:
    """On a task without a simulator: the descriptor is the weights themselves."""

    weights = Weights(lambda key: {"x": 0.01 * jax.random.normal(key, 2)})

    def test_iso_line_draws_from_the_elites_alone(self):
        config = ArchiveConfig(batch_size=6, initial_batches=1)
        archive, _ = filled()
        asked = [
            IsoLine(config, self.weights, seed).ask(4, archive.elites())
            for seed in (0, 0, 1)
        ]
        same, again, other = (np.asarray(p.members["x"]) for p in asked)
        np.testing.assert_array_equal(same, again)
        assert (same != other).any()
        np.testing.assert_array_equal(asked[0].mean["x"], [2, 3])  # the best elite

    def test_es_explores_then_exploits(self):
        config = ArchiveConfig(emitter="es", steps_per_parent=3)
        es = openai_es(ESConfig(num_pairs=16, sigma=0.1, learning_rate=0.2))
        emitter = EvolutionStrategies(config, self.weights, 0, es)
        archive = made(dataclasses.replace(GRID, low=(-4.0,), high=(4.0,), cells=(8,)))
        distance = []
        for generation in range(12):
            population = emitter.ask(generation, archive.elites())
            mean = np.asarray(population.mean["x"])[None]
            distance.append(float(np.abs(mean).sum()))
            members = np.asarray(population.members["x"])
            told = emitter.tell(
                generation,
                Candidates(mean[:0], -np.abs(mean).sum(axis=1), mean),
                Candidates(mean[:0], -np.abs(members).sum(axis=1), members),
            )
            np.testing.assert_array_equal(told.weights, mean)
            archive.add(*told)
            if generation == 7:  # in the middle of a parent's steps
                twin = EvolutionStrategies(config, self.weights, 0, es)
                twin.restore(as_stored(emitter.state()))
                a, b = (e.ask(8, archive.elites()).mean["x"] for e in (emitter, twin))
                np.testing.assert_array_equal(a, b)
        # Novelty leads away from what was seen, fitness towards 0.
        assert distance[2] > distance[0] and distance[11] < distance[9] + 0.2
