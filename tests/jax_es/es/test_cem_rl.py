"""CEM-RL: its distribution, its update by hand, and how many members climb."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.es.cem_rl import RUNNING, CEMRLOptions, cem_rl, cem_rl_options
from jax_es.es.strategies import strategy
from tests.comparing import assert_equal_bits

START = {"x": jnp.array([3.0, -2.0]), "y": jnp.full((2, 2), 0.5)}
FLAT = np.array([3.0, -2.0, 0.5, 0.5, 0.5, 0.5])


def made(size=8, sigma=0.5, **options):
    es = cem_rl(size, START, sigma, CEMRLOptions(**options))
    return es, es.init(jax.random.key(0), START)


def rows(tree):
    """``[P, 6]`` of weights with a leading axis."""
    return np.concatenate(
        [np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(tree)], 1
    )


def test_members_that_climbed_take_the_place_of_the_first_ones():
    es, state = made()
    drawn = rows(es.ask(state).members)
    assert drawn.shape == (8, 6) and np.std(drawn - FLAT) == pytest.approx(0.5, rel=0.3)
    told = es.judged(state)
    np.testing.assert_array_equal(rows(told), drawn[:4])
    better = jax.tree.map(lambda leaf: leaf[:3] + 1.0, told)
    guided = es.guide(state, better)
    found = rows(es.ask(guided).members)
    np.testing.assert_array_equal(found[3:], drawn[3:])
    np.testing.assert_allclose(found[:3], drawn[:3] + 1.0, rtol=1e-6)
    assert_equal_bits(es.ask(guided).mean, START)
    # The rest of a wider advice is not kept beyond its generation.
    state, _ = es.tell(guided, np.arange(8.0))
    assert state.num_climbed == 0 and not rows(state.climbed).any()


def test_an_update_is_the_papers_by_hand():
    es, state = made(extra_std=0.3, extra_std_end=0.1, extra_decay=0.5)
    state = es.guide(state, jax.tree.map(lambda leaf: 2 * leaf, es.judged(state)))
    lambdas = np.log(5.0) - np.log([1, 2, 3, 4])
    lambdas /= lambdas.sum()
    mean, climbed = FLAT, 4
    for generation in range(3):
        members = rows(es.ask(state).members)
        fitness = np.random.default_rng(generation).normal(size=8)
        fitness[5] = np.nan
        best = sorted(range(8), key=lambda i: -np.nan_to_num(fitness[i], nan=-9))[:4]
        left = 0.09 * 0.5**generation + 0.01 * (1 - 0.5**generation)
        variance = lambdas @ (members[best] - mean) ** 2 + left
        before, mean = mean, lambdas @ members[best]
        state, info = es.tell(state, fitness)
        np.testing.assert_allclose(
            rows(jax.tree.map(lambda x: x[None], state.mean))[0], mean, rtol=1e-5
        )
        np.testing.assert_allclose(state.variance, variance, rtol=1e-4)
        assert info.update_norm == pytest.approx(
            np.linalg.norm(mean - before), rel=1e-4
        )
        assert info.num_nonfinite == 1 and info.own["num_climbed"] == climbed
        share = np.mean(np.array(best) < climbed) if climbed else np.nan
        np.testing.assert_allclose(info.own["elite_share"], share)
        climbed = 0
    assert int(state.generation) == 3


def test_as_many_climb_as_their_share_of_the_elites():
    es, state = made(size=20)

    def told(state, climbers_win):
        state = es.guide(state, es.judged(state))
        fitness = np.where(np.arange(20) < state.num_climbed, climbers_win, 0.0)
        state, info = es.tell(state, fitness)
        return state, int(info.own["num_climbed"]), float(info.own["elite_share"])

    counts, share = [], 0.5
    for _ in range(12):
        state, count, seen = told(state, -1.0)
        counts.append(count)
        share += RUNNING * (seen - share)
        assert float(state.share) == pytest.approx(share, rel=1e-5)
    assert counts[0] == 10 and counts == sorted(counts, reverse=True)
    assert counts[-1] == 1  # never none: it may be right again
    for _ in range(40):
        state, count, seen = told(state, 1.0)
    assert (count, seen) == (10, 1.0)  # never more than the half
    # Without a critic nothing is learned of it.
    before = state.share
    state, info = es.tell(state, np.zeros(20))
    assert state.share == before and np.isnan(info.own["elite_share"])


def test_from_python_it_is_built_by_its_name():
    es = strategy("cem-rl", START, size=8, sigma=0.5, width=16)
    assert es.options == CEMRLOptions(width=16)
    state = es.init(jax.random.key(1), START)
    for _ in range(80):
        # A critic that knows the way: the optimum is 1.
        near = jax.tree.map(lambda leaf: 0.5 * (leaf + 1.0), es.judged(state))
        state = es.guide(state, near)
        members = rows(es.ask(state).members)
        state, _ = es.tell(state, -np.sum((members - 1.0) ** 2, axis=1))
    assert np.abs(rows(jax.tree.map(lambda x: x[None], state.mean)) - 1.0).max() < 0.1


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"share": 0.1}, "cem-rl has no hyperparameter share; it has actor_delay, act"),
        ({"actor_delay": 0}, "es.kwargs.actor_delay must be at least 1, got 0"),
        ({"extra_std": -1.0}, "es.kwargs.extra_std must be at least 0 and finite"),
        ({"actor_learning_rate": "x"}, "es.kwargs.actor_learning_rate must be"),
        ({"discount": 1.0}, "es.kwargs.discount must be"),
    ],
)
def test_what_a_hyperparameter_cannot_be_is_one_line(kwargs, words):
    with pytest.raises(ConfigError, match=words) as caught:
        cem_rl_options(kwargs)
    assert "\n" not in str(caught.value)
