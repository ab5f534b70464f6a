"""Each step of a generation of POET, by hand: with scores that are known."""

import dataclasses

import jax
import numpy as np
import pytest

from jax_es.niches.generations import Poet
from jax_es.niches.niche import NEVER, Niche
from tests.jax_es.niches.world import SETTINGS


class Scripted:
    """Instead of episodes: a policy of weights b scores 100 − 100 |b − slope|.

    A step moves it by 0.1.
    """

    def __init__(self):
        self.evaluated = []

    def scores(self, means, terrains, which, generation):
        self.evaluated.append(len(which))
        return np.array(
            [100 - 100 * abs(value(means[m]) - terrains[t][0]) for m, t in which]
        )

    def improve(self, states, terrains, generation, num_evaluations=0):
        def step(state):
            return state._replace(mean=jax.tree.map(lambda x: x + 0.1, state.mean))

        class Improved:
            states = ()

        improved = Improved()
        improved.states = [step(state) for state in states]
        return improved


def value(mean):
    return float(jax.tree.leaves(mean)[0].ravel()[0])


@pytest.fixture
def scripted(parts):
    """A POET without episodes, and a function that gives it niches."""
    poet = Poet(parts, SETTINGS)
    poet._trials = Scripted()
    poet.generation = 7

    def given(*niches):
        """Each is its slope, its policy's weights, and its last scores."""
        mean = poet.niches[0].mean
        poet.niches = []
        for number, (slope, weight, scores) in enumerate(niches):
            filled = jax.tree.map(lambda x, w=weight: np.full_like(x, w), mean)
            es = parts.strategy.init(jax.random.key(number), filled)
            poet.niches.append(
                Niche(number, 0 if number else NEVER, 0, np.array([slope]), es, scores)
            )
        return poet

    return given


class TestSteps:
    def test_transfers(self, scripted):
        poet = scripted(
            (0.0, 0.0, (100.0,)),  # nobody is better here
            (0.5, 0.1, (60.0, 60.0, 70.0, 66.0)),
            (0.6, 0.35, (75.0,)),
        )
        poet._transfer()
        # In niche 1, niche 2's policy scores 85 > 70, takes a step and scores 95. In
        # niche 2 nobody's is above 75: that of niche 1 scores 50, that of niche 0 40.
        assert poet.transfers == [(7, 2, 1)]
        np.testing.assert_allclose(
            [value(n.mean) for n in poet.niches], [0.0, 0.45, 0.35], atol=1e-6
        )
        assert poet.niches[1].scores == pytest.approx((60.0, 60.0, 70.0, 66.0, 95.0))
        assert poet.niches[1].solved == 7  # 70 in the mean are enough
        assert int(poet.niches[1].es.generation) == 0  # with a new optimizer
        assert poet._trials.evaluated == [9, 1]

    def test_a_step_that_makes_it_worse_is_no_transfer(self, scripted):
        poet = scripted((0.5, 0.2, (92.0,)), (0.9, 0.55, (65.0,)))
        poet._transfer()
        # 0.55 scores 95 in niche 0, and 85 after a step.
        assert poet.transfers == [] and poet._trials.evaluated == [4, 1]
        assert poet.niches[0].scores == (92.0,)

    def test_what_the_niches_own_policy_has_become_counts(self, scripted):
        poet = scripted((0.5, 0.46, (70.0,)), (0.4, 0.4, (100.0,)))
        poet._transfer()
        # 0.4 scores 90 in niche 0, more than 70, but its own scores 96 by now.
        assert poet.transfers == [] and poet._trials.evaluated == [4, 0]

    def test_a_new_niche_and_a_transfer_into_it_draw_other_noise(self, scripted):
        poet = scripted((0.0, 0.0, (100.0,)), (0.5, 0.45, (60.0,)))
        child = poet.niches[1]._replace(terrain=np.array([0.42]), scores=(40.0,))
        poet.settings = dataclasses.replace(SETTINGS, criterion_high=101.0)
        begun = poet._begun(child)
        filled = jax.tree.map(lambda x: np.full_like(x, 0.1), begun.mean)
        poet.niches.append(
            begun._replace(es=begun.es._replace(mean=filled), scores=(20.0,))
        )
        poet._transfer()
        assert [row[2] for row in poet.transfers] == [2]
        first, second = begun.es.key, poet.niches[2].es.key
        assert not np.array_equal(*map(jax.random.key_data, (first, second)))

    def test_children(self, scripted, monkeypatch):
        poet = scripted((0.0, 0.0, (100.0,)), (0.5, 0.25, (39.0,)))
        poet.settings = dataclasses.replace(SETTINGS, criterion_high=96.0, neighbours=1)
        drawn = iter([0.15, 0.27, 0.15, 0.24, 0.9, 0.0, 0.45, 0.03])
        monkeypatch.setattr(
            poet.mutator, "mutated", lambda rng, parent: np.array([next(drawn)])
        )
        poet._reproduce()
        # Only niche 0 may have children. 0.9 is too hard for its policy (10 < 20), 0.03
        # too easy (97 > 96), 0.0 is there already, as is the second 0.15. By their
        # distance to 0 or 0.5 the others are tried as 0.24, 0.27, 0.15, 0.45. In the
        # first two niche 1's policy scores 99 and 98, too much. In 0.15 it scores 90;
        # the best, with 95, is niche 0's after a step.
        added = poet.niches[-1]
        assert (added.number, added.parent, added.created) == (2, 0, 7)
        assert added.terrain.tolist() == [0.15] and added.scores == ()
        assert value(added.mean) == pytest.approx(0.1)
        assert added.is_novel and len(poet.niches) == 3
        # There is room for two: the oldest retires, with the θ that it had.
        assert [n.retired for n in poet.niches] == [7, NEVER, NEVER]
        assert value(poet.niches[0].mean) == 0.0

    def test_one_that_is_easy_for_a_retired_policy_is_not_novel(self, scripted):
        poet = scripted((0.0, 0.25, (75.0,)), (0.5, 0.9, (60.0,)))
        poet.niches[0] = poet.niches[0].left(5)
        child = poet.niches[1]._replace(terrain=np.array([0.3]), scores=(40.0,))
        begun = poet._begun(child)
        # The best of the active: niche 1's, 40. That of the retired one: 95.
        assert value(begun.mean) == pytest.approx(0.9) and not begun.is_novel
        assert poet._begun(child._replace(terrain=np.array([0.0]))) is None

    def test_without_transfers_a_child_has_its_parents_policy(self, scripted):
        poet = scripted((0.0, 0.25, (75.0,)), (0.5, 0.5, (60.0,)))
        poet.settings = dataclasses.replace(SETTINGS, transfer_every=0)
        child = poet.niches[0]._replace(terrain=np.array([0.5]), scores=(75.0,))
        begun = poet._begun(child)
        assert value(begun.mean) == pytest.approx(0.25)
        assert not begun.is_novel  # niche 1's policy scores 100 there
        assert poet._begun(child._replace(terrain=np.array([0.1]))).is_novel

    def test_novelty(self, scripted):
        poet = scripted((0.0, 0.0, (100.0,)), (0.5, 0.5, (100.0,)))
        poet.settings = dataclasses.replace(SETTINGS, neighbours=1)
        terrains = [np.array([slope]) for slope in (0.1, 0.3, 0.9)]
        np.testing.assert_allclose(poet._novelty(terrains), [0.1, 0.2, 0.4], rtol=1e-6)
        poet.settings = dataclasses.replace(poet.settings, novelty="pata-ec")
        # Scores of both: 90 60 (flat first), 70 80, 20 (10) 60; as in niches 0 and 1
        # either the one or the other is better, so that nothing is novel.
        np.testing.assert_allclose(poet._novelty(terrains), 0.0, atol=1e-7)
        assert poet._trials.evaluated == [10]
        # Equal ranks are: both are too good (0.25 with a bound of 70).
        poet.settings = dataclasses.replace(poet.settings, criterion_high=70.0)
        found = poet._novelty([np.array([0.25])])
        np.testing.assert_allclose(found, [np.sqrt(0.5)], rtol=1e-6)
