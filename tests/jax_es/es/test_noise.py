"""ε: uncorrelated, antithetic, and the same wherever it is drawn; full or factored."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import ESConfig
from jax_es.es.noise import FullNoise, LowRankNoise, make_noise
from jax_es.es.openai_es import openai_es
from jax_es.es.optimizers import change_optimizer
from tests.comparing import assert_equal_bits, variables_of
from tests.jax_es.es.drawn import drawn, flat, written_out

pytestmark = pytest.mark.usefixtures("strict_jax")

FULL = FullNoise()
FAMILIES = {"full": FULL, "rank-1": LowRankNoise(1), "rank-4": LowRankNoise(4)}
KEY = jax.random.fold_in(jax.random.key(7), 3)
MEAN = {
    "conv": jnp.zeros((2, 2, 3, 10)),
    "dense": {"kernel": jnp.zeros((6, 4)), "bias": jnp.zeros(4)},
    "scale": jnp.zeros(()),
    "table": jnp.zeros((12, 9)),
    "thin": jnp.zeros((2, 2)),
}
FACTORED = {
    "full": set(),
    "rank-1": {"conv", "dense", "table"},
    "rank-4": {"conv", "table"},
}
NUM_PAIRS = 130  # more than two blocks of the low-rank sum, and not a multiple


ES = {
    name: openai_es(ESConfig(num_pairs=8, sigma=0.02), noise)
    for name, noise in FAMILIES.items()
}


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


@pytest.fixture
def noise(name):
    return FAMILIES[name]


@functools.partial(jax.jit, static_argnums=0)
def members_of(es, state):
    return variables_of(es.ask(state))


@functools.partial(jax.jit, static_argnums=0)
def _weighted_sum(noise, pairs, weights):
    return noise.weighted_sum(KEY, pairs, weights, MEAN)


def weighted_sum(noise, pairs, weights):
    return _weighted_sum(noise, np.int32(pairs), np.float32(weights))


# Shapes and draws


@pytest.mark.parametrize("name", ["rank-1", "rank-4"])
def test_a_matrix_is_factored_where_that_is_smaller(name, noise):
    rank = noise.rank
    epsilon = jax.eval_shape(noise.sample, KEY, MEAN)
    member = jax.eval_shape(noise.member, MEAN, epsilon, jnp.float32(1))
    perturbation = member["perturbation"]
    matrices = {**perturbation, "dense": perturbation["dense"]["kernel"]}
    sizes = {"conv": (12, 10), "dense": (6, 4), "table": (12, 9)}
    for matrix, (a, b) in sizes.items():
        if matrix in FACTORED[name]:
            assert rank * (a + b) < a * b
            left, right = matrices[matrix]
            assert (left.shape, right.shape) == ((a, rank), (b, rank))
        else:
            assert rank * (a + b) >= a * b
            assert matrices[matrix].shape == (a, b)
    assert perturbation["thin"].shape == (2, 2)  # factors would be just as large
    assert perturbation["dense"]["bias"].shape == (4,)
    assert perturbation["scale"].shape == ()


def test_epsilon_does_not_depend_on_who_draws_it(name, noise):
    # Summing four products may cancel digits; nothing else is added to anything.
    cancelled = 1e-6 if name == "rank-4" else 0
    alone = flat(drawn(noise, KEY, [5], MEAN))
    together = drawn(noise, KEY, range(NUM_PAIRS), MEAN)
    other_device = jax.device_put(KEY, jax.devices()[-1])
    assert jax.devices()[-1] != jax.devices()[0]
    assert (flat(drawn(noise, other_device, [5], MEAN)) == alone).all()
    # Other programs may round the last digit of the inverse error function otherwise;
    # 0 + 1·ε adds no digit, and 0·ε of other pairs nothing.
    for epsilon in (
        flat(jax.tree.map(lambda leaf: leaf[5], together)),
        flat(weighted_sum(noise, [5] + 11 * [0], [1] + 11 * [0])),
        flat(weighted_sum(noise, np.arange(12), np.eye(12)[5])),
    ):
        np.testing.assert_allclose(epsilon, alone, rtol=2e-6, atol=cancelled)


# Members


def test_pairs_are_exactly_antithetic(name):
    # θ = 0: the two members are each other's negative, bit for bit.
    members = written_out(members_of(ES[name], ES[name].init(KEY, MEAN)), MEAN)
    for leaf in jax.tree.leaves(members):
        assert (leaf[:, 0] == -leaf[:, 1]).all()
        assert (leaf[:, 0] != 0).all()


def test_members_are_mean_plus_and_minus_sigma_epsilon(name, noise):
    random = np.random.default_rng(2)
    mean = jax.tree.map(
        lambda leaf: jnp.asarray(random.normal(size=leaf.shape), jnp.float32), MEAN
    )
    state = ES[name].init(KEY, mean)
    weights = written_out(members_of(ES[name], state), mean)
    shared = {} if name == "full" else {"params": mean}
    assert_equal_bits(noise.shared(mean), shared)
    epsilon = drawn(noise, ES[name].ask(state).key, range(8), mean)
    for member, unit, centre in zip(
        *map(jax.tree.leaves, (weights, epsilon, mean)), strict=True
    ):
        step, centre = 0.02 * unit, np.asarray(centre)
        np.testing.assert_allclose(member[:, 0], centre + step, rtol=3e-7, atol=1e-7)
        np.testing.assert_allclose(member[:, 1], centre - step, rtol=3e-7, atol=1e-7)


FACTORS = (("dense", 0.5), ("dense/bias", 0.0), ("table", 2.0))
LEAF_FACTORS = {
    "conv": 1.0,
    "dense": {"kernel": 0.5, "bias": 0.0},
    "scale": 1.0,
    "table": 2.0,
    "thin": 1.0,
}


def test_weights_have_a_sigma_of_their_own(name, noise):
    """Members, the sum and the update: the same normals, times the factors."""
    own = dataclasses.replace(noise, factors=FACTORS)
    plain, scaled = (drawn(n, KEY, range(3), MEAN) for n in (noise, own))
    for leaf, other, factor in zip(
        *map(jax.tree.leaves, (scaled, plain, LEAF_FACTORS)), strict=True
    ):
        np.testing.assert_allclose(leaf, factor * other, rtol=1e-6, atol=1e-6)
    weights = np.float32(np.random.default_rng(0).normal(size=NUM_PAIRS))
    plain, scaled = (weighted_sum(n, range(NUM_PAIRS), weights) for n in (noise, own))
    for leaf, other, factor in zip(
        *map(jax.tree.leaves, (scaled, plain, LEAF_FACTORS)), strict=True
    ):
        np.testing.assert_allclose(leaf, factor * other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("anchor", ["zero", "start"])
@pytest.mark.parametrize("optimizer", ["momentum", "clipup"])
def test_weights_without_a_sigma_do_not_move(optimizer, anchor):
    """From the start, and in a later phase, whose optimizer goes on."""
    config = ESConfig(
        num_pairs=8,
        optimizer=optimizer,
        weight_decay=0.1,
        weight_decay_anchor=anchor,
        perturbation="low-rank",
        sigma_factor=FACTORS,
    )
    later = dataclasses.replace(config, sigma_factor=(("table", 0.0),))
    state = openai_es(config).init(KEY, jax.tree.map(lambda leaf: leaf + 1.0, MEAN))
    for each, frozen in ((config, {"bias"}), (later, {"table"}), (config, {"bias"})):
        es, before = openai_es(each, make_noise(each, MEAN)), state.mean
        slow = change_optimizer(each, state.optimizer_state, before)
        assert_equal_bits(slow, state.optimizer_state)
        for seed in range(2):
            fitness = np.random.default_rng(seed).normal(size=16)
            state, _ = es.tell(state, fitness)
        same = jax.tree.map(np.array_equal, state.mean, before)
        found, _ = jax.tree_util.tree_flatten_with_path(same)
        still = {path[-1].key for path, is_same in found if is_same}
        assert still == frozen


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((("dens/", 0.5),), "sigma_factor dens/ 0.5: no weight's name begins so; choo"),
        ((("", 0.0),), "sigma_factor is 0 for all weights"),
        ([["a", 0.5]], "sigma_factor a 0.5: no weight's name begins so; choose of con"),
        (("a", 0.5), "sigma_factor must be a name with a finite number of at least 0"),
    ],
)
def test_names_that_no_weight_has_are_refused(factors, words):
    with pytest.raises(ConfigError, match=words):
        make_noise(ESConfig(num_pairs=8, sigma_factor=factors), MEAN)


# The weighted sum


def test_weighted_sum_equals_numpys(noise):
    """Over the written-out ε's, in float64; several blocks and a rest."""
    weights = np.float32(np.random.default_rng(0).normal(size=NUM_PAIRS))
    epsilons = drawn(noise, KEY, range(NUM_PAIRS), MEAN)
    expected = jax.tree.map(lambda e: np.tensordot(weights, e, axes=1), epsilons)
    total = weighted_sum(noise, range(NUM_PAIRS), weights)
    assert jax.tree.structure(total) == jax.tree.structure(MEAN)
    for leaf, other, centre in zip(
        *map(jax.tree.leaves, (total, expected, MEAN)), strict=True
    ):
        assert (leaf.shape, leaf.dtype) == (centre.shape, centre.dtype)
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "few", "most"),
    # Full: the accumulator, one ε, and the integers that threefry makes it from.
    # Low-rank: the sum and its addend, and 64 ε's of 500 numbers, likewise.
    [(FULL, 4, 8 * 60_000), (LowRankNoise(1), 128, 3 * 60_000 + 8 * 64 * 500)],
    ids=["full", "rank-1"],
)
def test_memory_of_weighted_sum_does_not_grow_with_pairs(noise, few, most):
    mean = {"w": jax.ShapeDtypeStruct((300, 200), jnp.float32)}

    def scratch_bytes(num_pairs: int) -> int:
        pairs = jax.ShapeDtypeStruct((num_pairs,), jnp.int32)
        weights = jax.ShapeDtypeStruct((num_pairs,), jnp.float32)
        compiled = jax.jit(noise.weighted_sum).lower(KEY, pairs, weights, mean)
        return compiled.compile().memory_analysis().temp_size_in_bytes

    little, much = scratch_bytes(few), scratch_bytes(4000)
    # Nothing but copies of the two vectors of inputs may grow.
    assert much - little <= 4000 * 16
    assert much < 4 * most


# Statistics


def entries(generations: int, pairs: int, size: int) -> np.ndarray:
    """ε of ``generations × pairs`` pairs, one a row, as the algorithm keys them."""
    mean = {"first": jnp.zeros(size // 2), "second": jnp.zeros(size // 2)}
    keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(generations)]
    parts = [drawn(FULL, key, range(pairs), mean) for key in keys]
    return np.concatenate([np.hstack([*part.values()]) for part in parts])


def test_epsilon_is_standard_normal():
    sample = entries(10, 20, 2000).ravel()
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
    sample = entries(5, 6, 2 * size).reshape(60, size)
    correlation = np.corrcoef(sample) - np.eye(60)
    # 1 770 correlations of standard error 1/√size: 5.5 of them, once in 10⁴ draws.
    assert np.abs(correlation).max() < 5.5 / np.sqrt(size)
    assert len(np.unique(sample[:, 0])) == 60


NUM_DRAWS = 20_000


@pytest.fixture(scope="module", params=[1, 4])
def low_rank_draws(request):
    """r, and matrices ε ``[N, 10, 11]`` with vectors ``[N, 6]`` of as many pairs."""
    mean = {"matrix": jnp.zeros((10, 11)), "vector": jnp.zeros(6)}
    full = drawn(LowRankNoise(request.param), KEY, range(NUM_DRAWS), mean)
    return request.param, full["matrix"], full["vector"]


def deviations(sample: np.ndarray, expected) -> np.ndarray:
    """How many of its standard errors the mean of ``[N, …]`` is from ``expected``."""
    error = sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
    return np.abs(sample.mean(axis=0) - expected) / error


def test_covariance_of_low_rank_noise_is_the_identity(low_rank_draws):
    """E[ε εᵀ] = I, which is what makes g an estimate of the gradient."""
    _, matrix, vector = low_rank_draws
    epsilon = np.concatenate([matrix.reshape(NUM_DRAWS, -1), vector], axis=1)
    size = epsilon.shape[1]
    assert deviations(epsilon, 0.0).max() < 5
    # Of all 6 786 products; their standard errors are measured too.
    covariance = epsilon.T @ epsilon / NUM_DRAWS
    error = np.sqrt((epsilon**2).T @ (epsilon**2) / NUM_DRAWS - covariance**2)
    error /= np.sqrt(NUM_DRAWS)
    assert (np.abs(covariance - np.eye(size)) / error).max() < 5.5
    # A factor of 1.05 in ε would not have passed.
    assert (0.1 / np.diag(error)).mean() > 4


def test_low_rank_noise_is_not_normal(low_rank_draws):
    """An entry is a sum of r products of two normals: E ε⁴ = 3 + 6/r, and not 3."""
    rank, matrix, vector = low_rank_draws
    # One number a draw, because the entries of a matrix are not independent.
    fourth = (matrix**4).mean(axis=(1, 2))
    assert deviations(fourth, 3 + 6 / rank) < 4.5
    assert deviations(fourth, 3) > 10
    assert deviations((vector**4).mean(axis=1), 3) < 4.5
    # Entries of a row share a factor: uncorrelated, yet large or small together.
    together = (matrix[:, :, 0] ** 2 * matrix[:, :, 1] ** 2).mean(axis=1)
    assert deviations(together, 1 + 2 / rank) < 4.5
    # Those that share no row and no column share nothing, at rank 1 at least.
    apart = (matrix[:, 0, 0] * matrix[:, 1, 1]) ** 2
    assert deviations(apart, 1) < 4.5
