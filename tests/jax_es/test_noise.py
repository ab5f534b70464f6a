"""ε: standard normal, independent, antithetic, and the same wherever it is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.config import ESConfig
from jax_es.noise import FullNoise, member_key, unflatten
from jax_es.openai_es import openai_es

pytestmark = pytest.mark.usefixtures("strict_jax")

NOISE = FullNoise()
KEY = jax.random.fold_in(jax.random.key(7), 3)
MEAN = {
    "dense": {"kernel": jnp.zeros((6, 4)), "bias": jnp.zeros(4)},
    "scale": jnp.zeros(()),
    "table": jnp.zeros((6, 4)),
}


ES = openai_es(ESConfig(num_pairs=8, sigma=0.02))
# Compiled once for the whole file: threefry is slow to compile.
WEIGHTED_SUM = jax.jit(NOISE.weighted_sum)
MEMBERS = jax.jit(lambda state: ES.ask(state).members(NOISE)["params"])


@jax.jit
def draw(generation_key, pair) -> dict:
    epsilon = NOISE.sample(member_key(generation_key, pair), MEAN)
    return NOISE.member(MEAN, epsilon, jnp.float32(1))["params"]


def drawn(generation_key, pair: int) -> dict:
    """One pair's ε, shaped like the weights: θ + 1·ε at θ = 0."""
    return draw(generation_key, np.int32(pair))


def weighted_sum(pairs, weights) -> dict:
    return WEIGHTED_SUM(KEY, np.int32(pairs), np.float32(weights), MEAN)


def flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_epsilon_has_the_shape_of_the_weights():
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), MEAN)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), drawn(KEY, 0)) == shapes


def test_epsilon_does_not_depend_on_who_draws_it():
    alone = flat(drawn(KEY, 5))
    together = jax.vmap(draw, in_axes=(None, 0))(KEY, jnp.arange(8))
    other_device = jax.device_put(KEY, jax.devices()[-1])
    assert jax.devices()[-1] != jax.devices()[0]
    assert (flat(drawn(other_device, 5)) == alone).all()
    # Other programs may round the last digit of the inverse error function otherwise;
    # 0 + 1·ε adds no digit, and 0·ε of other pairs nothing.
    for epsilon in (
        jax.tree.map(lambda leaf: leaf[5], together),
        weighted_sum([5] + 11 * [0], [1] + 11 * [0]),
        weighted_sum(np.arange(12), np.eye(12)[5]),
    ):
        np.testing.assert_allclose(flat(epsilon), alone, rtol=1e-6, atol=0)


def test_epsilon_does_not_depend_on_the_mean():
    moved = jax.tree.map(lambda leaf: leaf + 3, MEAN)
    assert (NOISE.sample(KEY, moved) == NOISE.sample(KEY, MEAN)).all()


def test_weighted_sum_equals_a_loop():
    random = np.random.default_rng(0)
    pairs = random.choice(1000, 12, replace=False)
    weights = random.normal(size=12).astype(np.float32)
    expected = sum(
        np.float64(weight) * flat(drawn(KEY, pair)).astype(np.float64)
        for weight, pair in zip(weights, pairs, strict=True)
    )
    total = weighted_sum(pairs, weights)
    np.testing.assert_allclose(flat(total), expected, atol=1e-5)
    assert jax.tree.structure(total) == jax.tree.structure(MEAN)


def test_weighted_sum_does_not_depend_on_order_or_chunks():
    weights = np.random.default_rng(1).normal(size=12).astype(np.float32)
    whole = flat(weighted_sum(np.arange(12), weights))
    backwards = flat(weighted_sum(np.arange(12)[::-1], weights[::-1]))
    chunks = [
        flat(weighted_sum(np.arange(i, i + 4), weights[i : i + 4]))
        for i in range(0, 12, 4)
    ]
    np.testing.assert_allclose(backwards, whole, atol=5e-6)
    np.testing.assert_allclose(sum(chunks), whole, atol=5e-6)


def test_pairs_are_exactly_antithetic():
    # θ = 0: the two members are each other's negative, bit for bit.
    members = MEMBERS(ES.init(KEY, MEAN))
    for leaf in jax.tree.leaves(members):
        assert (leaf[:, 0] == -leaf[:, 1]).all()
        assert (leaf[:, 0] != 0).all()


def test_members_are_mean_plus_and_minus_sigma_epsilon():
    random = np.random.default_rng(2)
    mean = jax.tree.map(
        lambda leaf: jnp.asarray(random.normal(size=leaf.shape), jnp.float32), MEAN
    )
    state = ES.init(KEY, mean)
    members = MEMBERS(state)
    epsilon = jax.vmap(draw, in_axes=(None, 0))(ES.ask(state).key, jnp.arange(8))
    for member, unit, centre in zip(
        *map(jax.tree.leaves, (members, epsilon, mean)), strict=True
    ):
        step, centre = 0.02 * np.asarray(unit, np.float64), np.asarray(centre)
        np.testing.assert_allclose(member[:, 0], centre + step, rtol=3e-7, atol=1e-7)
        np.testing.assert_allclose(member[:, 1], centre - step, rtol=3e-7, atol=1e-7)


def rows(generations: int, pairs: int, size: int) -> np.ndarray:
    """ε of ``generations × pairs`` pairs, one a row, as the algorithm keys them."""
    generation, pair = jnp.divmod(jnp.arange(generations * pairs), pairs)
    mean = {"first": jnp.zeros(size // 2), "second": jnp.zeros(size // 2)}

    @jax.vmap
    def draw(generation, pair):
        generation_key = jax.random.fold_in(jax.random.key(0), generation)
        return NOISE.sample(member_key(generation_key, pair), mean)

    return np.asarray(jax.jit(draw)(generation, pair), np.float64)


def test_epsilon_is_standard_normal():
    sample = rows(10, 20, 2000).ravel()
    error = 1 / np.sqrt(sample.size)
    # Moments of N(0, 1), and the standard errors of their estimates, at 4.5 of them.
    assert abs(sample.mean()) < 4.5 * error
    assert abs((sample**2).mean() - 1) < 4.5 * error * np.sqrt(2)
    assert abs((sample**3).mean()) < 4.5 * error * np.sqrt(15)
    assert abs((sample**4).mean() - 3) < 4.5 * error * np.sqrt(96)
    # The tails too: 4.55 % lie beyond two standard deviations.
    beyond = 0.0455003
    assert abs((abs(sample) > 2).mean() - beyond) < 4.5 * error * np.sqrt(beyond)


def test_pairs_generations_and_leaves_are_uncorrelated():
    # Halves of a row belong to two leaves; each half is a row of its own here.
    size = 4000
    sample = rows(5, 6, 2 * size).reshape(60, size)
    correlation = np.corrcoef(sample) - np.eye(60)
    # 1 770 correlations of standard error 1/√size: 5.5 of them, once in 10⁴ draws.
    assert np.abs(correlation).max() < 5.5 / np.sqrt(size)
    assert len(np.unique(sample[:, 0])) == 60


def test_runs_with_other_keys_are_uncorrelated():
    first, second = (
        NOISE.sample(jax.random.key(seed), {"w": jnp.zeros(20_000)}) for seed in (0, 1)
    )
    assert abs(np.corrcoef(first, second)[0, 1]) < 4.5 / np.sqrt(20_000)


def test_memory_of_weighted_sum_does_not_grow_with_pairs():
    mean = {"w": jax.ShapeDtypeStruct((10_000,), jnp.float32)}

    def scratch_bytes(num_pairs: int) -> int:
        pairs = jax.ShapeDtypeStruct((num_pairs,), jnp.int32)
        weights = jax.ShapeDtypeStruct((num_pairs,), jnp.float32)
        compiled = jax.jit(NOISE.weighted_sum).lower(KEY, pairs, weights, mean)
        return compiled.compile().memory_analysis().temp_size_in_bytes

    one_epsilon = 4 * 10_000
    assert scratch_bytes(4) >= one_epsilon
    # Nothing but the two vectors of inputs may grow, far less than one ε.
    assert scratch_bytes(4000) - scratch_bytes(4) <= 4000 * 8
    # The accumulator, one ε, and the integers that threefry makes it from.
    assert scratch_bytes(4000) < 8 * one_epsilon


def test_unflatten_cuts_in_the_order_of_leaves():
    tree = unflatten(jnp.arange(53.0), MEAN)
    assert flat(tree).tolist() == list(range(53))
    assert tree["scale"].shape == ()
    assert tree["table"][-1, -1] == 52
