"""POET's rules by hand: mutation, criterion, PATA-EC, transfers, retirement, ANNECS."""

import contextlib

import jax
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.niches.mutation import Mutator, described, moves
from jax_es.niches.niche import (
    NEVER,
    Niche,
    annecs,
    foremost,
    stacked,
    unstacked,
)
from jax_es.niches.selection import (
    best_of,
    meets_criterion,
    pata_ec,
    retiring,
    worth_a_step,
)
from jax_es.niches.settings import PRESET_SETTINGS, PoetConfig, settings_of
from jax_es.presets import preset
from jax_es.training.build import make_env

NEUTRAL = {"roughness": 0.0, "wind": 1.0, "pit-gap-low": 0.0, "pit-gap-high": 0.0}
MUTATIONS = (("roughness", 0.6, 0.0, 10.0), ("pit-gap", 0.4, 0.0, 8.0))


class Drawn:
    """Random numbers that are known: shares of a range, and choices."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def uniform(self, low, high):
        return low + self.numbers.pop(0) * (high - low)

    def integers(self, count):
        number = self.numbers.pop(0)
        assert number < count
        return number


class TestMutation:
    def test_a_number_moves_by_at_most_a_step(self):
        mutator = Mutator(MUTATIONS[:1], NEUTRAL)
        assert mutator.names == ("roughness",) and mutator.first.tolist() == [0.0]
        child = mutator.mutated(Drawn(0.75), np.array([2.0]))
        assert child.tolist() == [2.3]  # −0.6 + 0.75 · 1.2
        assert mutator.mutated(Drawn(0.0), np.array([2.0])).tolist() == [1.4]
        assert mutator.mutated(Drawn(0.0), np.array([0.5])).tolist() == [0.0]
        assert mutator.mutated(Drawn(1.0), np.array([9.7])).tolist() == [10.0]

    def test_a_range_begins_at_its_lowest(self):
        mutator = Mutator(MUTATIONS, NEUTRAL)
        assert mutator.names == ("roughness", "pit-gap-low", "pit-gap-high")
        child = mutator.mutated(Drawn(0.5, 0), mutator.first)
        assert child.tolist() == [0.0, 0.0, 0.8]

    def test_a_range_moves_an_end_or_both(self):
        # As those of uber-research/poet, whose upper end stays at or above 0.8.
        expected = [(0.0, 0.8), (0.0, 1.2), (0.4, 1.2), (0.8, 0.8), (0.8, 1.2)]
        assert moves((0.4, 0.8), 0.4, 0.0, 8.0) == expected
        assert moves((7.6, 8.0), 0.4, 0.0, 8.0) == [
            *((7.2, 7.6), (7.2, 8.0)),
            *((7.6, 7.6), (8.0, 8.0)),
        ]
        mutator = Mutator(MUTATIONS[1:], NEUTRAL)
        assert mutator.mutated(Drawn(3), np.array([0.4, 0.8])).tolist() == [0.8, 0.8]

    def test_what_the_environment_lacks_is_refused(self):
        words = "mutate slope: the environment's variations have no such number; choose"
        with pytest.raises(ConfigError, match=words):
            Mutator([("slope", 1.0, 0.0, 1.0)], NEUTRAL)
        with pytest.raises(ConfigError, match="choose an environment that has"):
            Mutator([("slope", 1.0, 0.0, 1.0)], {})
        with pytest.raises(ConfigError, match=r"begins at 1; .*: mutate wind 0.1 1 3"):
            Mutator([("wind", 0.1, 2.0, 3.0)], NEUTRAL)
        with pytest.raises(ConfigError, match=r"an end of .*; write mutate pit-gap\."):
            Mutator([("pit-gap-low", 0.4, 0.0, 8.0)], NEUTRAL)

    def test_a_narrow_range_widens_to_where_one_begins(self):
        assert moves((0.0, 0.05), 0.1, 0.0, 2.0) == [(0.0, 0.2)]
        # Two steps lead beyond the bound, and the range moves all the same.
        assert moves((0.0, 0.0), 0.5, 0.0, 0.8) == [(0.0, 0.8)]
        assert moves((0.0, 0.8), 0.5, 0.0, 0.8) == [(0.5, 0.8)]

    @pytest.mark.parametrize("name", PRESET_SETTINGS)
    def test_all_that_a_preset_mutates_changes(self, name):
        config = preset(name)
        with contextlib.closing(make_env(config.env, 1, 1)) as env:
            mutator = Mutator(PRESET_SETTINGS[name].mutate, env.variations)
        rng, terrain = np.random.default_rng(0), mutator.first
        for _ in range(20):
            terrain = mutator.mutated(rng, terrain)
        assert (terrain != mutator.first).all()

    def test_samples_are_at_the_bounds(self):
        found = np.stack(Mutator(MUTATIONS, NEUTRAL).samples())
        assert found[:4].tolist() == [[0, 0, 0], [10, 0, 0], [0, 0, 0], [0, 8, 8]]
        assert (found[4:, 2] == 0.8).all()

    def test_a_terrain_is_written_for_people(self):
        names = ["roughness", "pit-gap-low", "pit-gap-high", "ridge-high"]
        said = described(names, np.array([0.5, 0.0, 0.8, 2.0]))
        assert said == "roughness 0.5, pit-gap 0 to 0.8, ridge-high 2"


def test_the_minimal_criterion_includes_its_ends():
    scores = np.array([24.9, 25.0, 340.0, 340.1, np.nan])
    found = meets_criterion(scores, 25.0, 340.0)
    assert found.tolist() == [False, True, True, False, False]


def test_pata_ec_compares_how_terrains_rank_policies():
    # Of policies (rows) in three terrains; below 50 and above 300 all count alike.
    scores = np.array([[0, 300, 10], [200, 900, 60], [100, 40, 20], [310, 50, np.nan]])
    found = pata_ec(scores, 50.0, 300.0)
    third = 1 / 3
    np.testing.assert_allclose(
        found,
        [
            [-0.5, third - 0.5 + third, third - 0.5, 0.5],
            [third, third, -third, -third],  # ranks 2.5, 2.5, 0.5, 0.5 of 0 to 3
            [-0.5 + third, 0.5, -0.5 + third, -0.5 + third],
        ],
        atol=1e-7,
    )
    assert pata_ec(np.array([[7.0, 9.0]]), 0.0, 10.0).tolist() == [[0.0], [0.0]]


def test_a_transfer_beats_the_best_of_the_last_scores():
    recent = [50.0, 80.0, 60.0, np.nan, 70.0]
    found = worth_a_step(np.array([80.0, 80.1, np.nan]), recent)
    assert found.tolist() == [False, True, False]
    assert worth_a_step(np.array([-9.0]), [np.nan]).tolist() == [True]
    assert best_of(np.array([np.nan, 3.0, 5.0, 5.0])) == 2


def test_the_oldest_retire():
    assert retiring([7, 2, 9, 4], 2) == [2, 4]
    assert retiring([7, 2], 2) == []


def niche(number, parent=0, **changes):
    return Niche(number, parent, number, np.zeros(1), ())._replace(**changes)


def test_annecs_counts_what_was_new_and_then_solved():
    niches = [
        niche(0, parent=NEVER, is_novel=True, solved=3),  # not created
        niche(1, is_novel=True, solved=5, retired=9),
        niche(2, is_novel=True),  # not solved
        niche(3, solved=7),  # too easy for one that had retired
        niche(4, is_novel=True, solved=8),
    ]
    assert annecs(niches) == 2
    assert foremost(niches).number == 4
    assert foremost(niches[:4]).number == 3
    assert foremost([niches[1], niches[2]]).number == 2


def test_a_niche_keeps_five_scores_and_when_it_was_solved():
    one = niche(0)
    for generation, score in enumerate([1.0, 9.0, 2.0, 9.5, 3.0, 4.0]):
        one = one.scored(score, generation, solved_at=5.5)
    assert one.scores == (9.0, 2.0, 9.5, 3.0, 4.0) and one.solved == 5


def test_a_niche_is_solved_by_five_scores_not_by_a_high_one():
    one = niche(0)
    for generation, score in enumerate([99.0, 99.0, np.nan, 99.0, 99.0, 1.0]):
        one = one.scored(score, generation, solved_at=9.0)
        assert one.solved == NEVER
    for generation in (6, 7, 8):
        one = one.scored(9.0, generation, solved_at=9.0)
    assert one.solved == 7  # the first five without what is none


def test_niches_are_arrays_and_back():
    from jax_es.config import ESConfig
    from jax_es.es.openai_es import openai_es

    es = openai_es(ESConfig(num_pairs=2, optimizer="adam"))
    states = [
        es.init(jax.random.key(i), {"w": np.full(3, i, np.float32)}) for i in range(3)
    ]
    niches = [
        niche(0, parent=NEVER, es=states[0], scores=(1.0, np.nan)),
        niche(1, es=states[1], is_novel=True, solved=4),
        niche(2, es=states[2], scores=(1.0,) * 5),
    ]
    niches[1] = niches[1].left(generation=6)
    back = unstacked(stacked(niches), states[0])
    for before, after in zip(niches, back, strict=True):
        np.testing.assert_array_equal(before.mean["w"], after.mean["w"])
        np.testing.assert_array_equal(before.scores, after.scores)
        assert before._replace(es=0, terrain=0, scores=0) == after._replace(
            es=0, terrain=0, scores=0
        )
    keys = [jax.random.key_data(each.es.key).tolist() for each in (niches[2], back[2])]
    assert keys[0] == keys[1]


class TestSettings:
    def test_they_survive_json(self):
        settings = PRESET_SETTINGS["bipedal-terrain"]
        assert settings_of(settings.method()) == settings

    def test_of_several_mutations_of_a_number_the_last_counts(self):
        given = ("a", 1.0, 0.0, 1.0), ("b", 1.0, 0.0, 1.0), ("a", 0.5, 0.0, 2.0)
        assert PoetConfig(mutate=given).mutate == (given[2], given[1])
        assert PoetConfig(mutate=(*given, ("a", 0.0, 0.0, 1.0))).mutate == given[1:2]

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"mutate": (("a", -1.0, 0.0, 1.0),)}, "mutate must be a name with three"),
            ({"mutate": (("a", 1.0, 2.0, 1.0),)}, "mutate must be a name with three"),
            ({"criterion_low": 400.0}, "criterion-low must be below criterion-high"),
            ({"max_niches": 0}, "max-niches must be at least 1"),
            ({"admitted": 9}, "admitted must be at most children 8, got 9"),
        ],
    )
    def test_wrong_ones_are_refused(self, given, words):
        with pytest.raises(ConfigError, match=words.replace("-", "[-_]")):
            PoetConfig(**given)
