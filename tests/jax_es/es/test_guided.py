"""Guided ES: its distribution, its estimate, and a share that follows what is seen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import ESConfig
from jax_es.es.fitness import SHAPINGS
from jax_es.es.guided import guided, guided_options
from jax_es.es.openai_es import openai_es
from tests.comparing import assert_equal_bits, variables_of

START = {"x": jnp.array([3.0, -2.0]), "y": jnp.full((2, 2), 0.5)}
NUM_WEIGHTS = 6
SLOPE = np.array([1.0, -2.0, 0.5, 0.0, 3.0, -0.7])


def configured(num_pairs=6, strategy="guided", **kwargs):
    return ESConfig(
        strategy=strategy,
        kwargs=kwargs,
        num_pairs=num_pairs,
        sigma=0.1,
        learning_rate=0.1,
        shaping="centered_rank",
    )


def shaped(vector):
    """Six numbers as START is shaped."""
    vector = jnp.asarray(vector, jnp.float32)
    return {"x": vector[:2], "y": vector[2:].reshape(2, 2)}


def rows(tree):
    """``[P, 6]`` of weights with a leading axis."""
    return np.concatenate(
        [np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(tree)], 1
    )


def row(tree):
    """``[6]`` of weights."""
    return rows(jax.tree.map(lambda leaf: leaf[None], tree))[0]


def test_without_a_share_it_is_openai_es_to_the_bit():
    config, rng = configured(share=0.0, min_share=0.0), np.random.default_rng(0)
    plain = dataclasses.replace(config, strategy="openai-es", kwargs={})
    here, there = guided(config), openai_es(plain)
    key = jax.random.key(3)
    mine, theirs = here.init(key, START), there.init(key, START)
    for _ in range(4):
        held = jax.jit(variables_of)(here.ask(mine))
        assert_equal_bits(held, jax.jit(variables_of)(there.ask(theirs)))
        fitness = rng.normal(size=12)
        mine, info = here.tell(mine, fitness)
        theirs, expected = there.tell(theirs, fitness)
        assert_equal_bits(mine[:4], tuple(theirs))
        assert_equal_bits(info[:4], tuple(expected))
        assert info.own["share"] == 0 and np.isnan(info.own["correlation"])
        mine = here.guide(mine, shaped(SLOPE))  # which it does not follow
        assert mine.share == 0 and not row(mine.direction).any()


def test_a_direction_that_is_none_leaves_openai_es():
    es = guided(configured())
    state = es.init(jax.random.key(0), START)
    for none in (np.zeros(6), np.full(6, np.nan), np.array([np.inf, 0, 0, 0, 0, 0])):
        told = es.guide(state, shaped(none))
        assert_equal_bits(told._replace(correlation=state.correlation), state)


def test_a_share_of_the_variance_lies_along_the_direction():
    es = guided(configured(20_000, share=0.8, min_share=0.8))
    state = es.guide(es.init(jax.random.key(1), START), shaped(7.0 * SLOPE))
    u = SLOPE / np.linalg.norm(SLOPE)
    np.testing.assert_allclose(row(state.direction), u, rtol=1e-5)
    population = es.ask(state)
    theta = row(START)
    members = rows(jax.jit(lambda p: p.members)(population))
    np.testing.assert_allclose(members[::2] - theta, theta - members[1::2], atol=1e-5)
    epsilon = (members[::2] - theta) / 0.1
    expected = 0.2 * np.eye(6) + 0.8 * NUM_WEIGHTS * np.outer(u, u)
    # Standard errors of a variance v: v √(2/N).
    errors = np.sqrt(
        (expected**2 + np.outer(np.diag(expected), np.diag(expected))) / 20_000
    )
    found = epsilon.T @ epsilon / 20_000
    assert (np.abs(found - expected) < 5 * errors).all()
    # θ itself is not perturbed, and no pair's z is that of another.
    held = population.variables(population.group(jnp.int32(3)), jnp.int32(-1))
    assert_equal_bits(held["params"], START)
    along = epsilon @ u
    assert len(np.unique(along.round(4))) > 15_000


def estimate(slope, direction, num_pairs, key):
    """g of one generation on a linear fitness, whose gradient is ``slope``."""
    with pytest.MonkeyPatch.context() as patch:
        # Everything but the shaping, which makes g an estimate of something else.
        patch.setitem(SHAPINGS, "standardize", lambda f: f[:, 0] - f[:, 1])
        config = ESConfig(
            strategy="guided",
            kwargs={"share": 0.6, "min_share": 0.6},
            num_pairs=num_pairs,
            sigma=0.1,
            learning_rate=1.0,
            weight_decay=0.0,
            optimizer="sgd",
            shaping="standardize",
        )
        es = guided(config)

    def generation(key, direction):
        state = es.guide(es.init(key, shaped(jnp.zeros(6))), shaped(direction))
        members = es.ask(state).members
        fitness = members["x"] @ slope[:2] + members["y"].reshape(-1, 4) @ slope[2:]
        told, _ = es.tell(state, fitness)
        return jnp.concatenate([jnp.ravel(leaf) for leaf in told.mean.values()])

    return jax.jit(jax.vmap(generation))(
        jax.random.split(key, len(direction)), direction
    )


def test_the_estimate_is_unbiased():
    """Its mean is Σ∇F for one direction, and ∇F over directions drawn at random."""
    slope = jnp.asarray(SLOPE, jnp.float32)
    draws = jax.random.normal(jax.random.key(5), (4000, NUM_WEIGHTS))
    u = np.array([0.0, 0.6, 0.0, 0.0, 0.8, 0.0])  # not the gradient's
    fixed = jnp.broadcast_to(jnp.asarray(u, jnp.float32), draws.shape)
    sigma = 0.4 * np.eye(NUM_WEIGHTS) + 0.6 * NUM_WEIGHTS * np.outer(u, u)
    for directions, expected, otherwise in (
        (draws, SLOPE, sigma @ SLOPE),
        (fixed, sigma @ SLOPE, SLOPE),
    ):
        found = np.float64(estimate(slope, directions, 4, jax.random.key(2)))
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        deviation = (found.mean(axis=0) - expected) / error
        # χ² with 6 degrees of freedom, 99 %; informative, since the other is far.
        assert np.abs(deviation).max() < 4 and (deviation**2).sum() < 16.8
        assert np.abs((otherwise - expected) / error).max() > 15


def test_the_share_follows_the_correlation_that_is_seen():
    es = guided(configured(50, share=0.6, min_share=0.1))
    shares = {}
    for sign in (1.0, -1.0):  # where fitness rises along u, and where it falls
        state = es.init(jax.random.key(0), START)
        assert state.correlation == 0.5
        for _ in range(12):
            state = es.guide(state, shaped(SLOPE))
            length = np.linalg.norm(row(state.direction))
            assert length == pytest.approx(1.0, rel=1e-5)
            before = float(state.correlation)
            members = rows(es.ask(state).members)
            state, info = es.tell(state, sign * members @ SLOPE)
            seen = float(info.own["correlation"])
            assert seen * sign > 0.2  # with a share of 0.1 u is one of many
            assert info.own["mean_correlation"] == pytest.approx(
                before + 0.2 * (seen - before), rel=1e-5
            )
        shares[sign] = float(es.guide(state, shaped(SLOPE)).share)
    assert shares[1.0] > 0.5 and shares[-1.0] == pytest.approx(0.1)


def test_it_climbs_faster_with_a_good_direction():
    """Its surrogate is the gradient and as much noise, 100 weights and four pairs."""
    ends = {}
    for share in (0.0, 0.5):
        es = guided(
            dataclasses.replace(
                configured(4, share=share, min_share=0.0),
                optimizer="clipup",
                learning_rate=0.3,
                weight_decay=0.0,
            )
        )
        theta = {"x": jnp.full(100, 3.0)}
        state = es.init(jax.random.key(0), theta)
        for generation in range(60):
            members = es.ask(state).members["x"]
            state, _ = es.tell(state, -jnp.sum(members**2, axis=1))
            key = jax.random.fold_in(jax.random.key(7), generation)
            noise = jax.random.normal(key, (100,))
            surrogate = -state.mean["x"] + 3.0 * noise
            state = es.guide(state, {"x": surrogate})
        ends[share] = float(jnp.linalg.norm(state.mean["x"]))
    assert ends[0.5] < 0.7 * ends[0.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shares": 0.1}, "guided has no hyperparameter shares; it has batch_size, "),
        ({"share": 1.0}, r"es.kwargs.share must be in \[0, 1\), got 1"),
        ({"share": 0.1, "min_share": 0.2}, "min_share must be at most es.kwargs.share"),
        ({"batch_size": "x"}, "es.kwargs.batch_size"),
        ({"replay_ratio": -1.0}, "replay_ratio must be at least 0 and finite"),
    ],
)
def test_a_hyperparameter_that_cannot_be_is_named(given, words):
    with pytest.raises(ConfigError, match=words):
        guided_options(given)


def test_noise_in_factors_is_refused():
    config = dataclasses.replace(configured(), perturbation="low-rank")
    with pytest.raises(ConfigError, match=r"es.perturbation low-rank has no meaning"):
        guided(config)
