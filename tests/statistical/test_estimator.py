"""g estimates the gradient of the smoothed objective, and following it finds optima.

Fixed seeds, so a test passes or fails for good; the tolerances are the sampling
errors that were measured in the same sample, not numbers tried out.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.config import ESConfig
from jax_es.es.fitness import SHAPINGS
from jax_es.es.noise import FullNoise, LowRankNoise, Noise
from jax_es.es.openai_es import openai_es
from tests.comparing import variables_of
from tests.jax_es.es.drawn import drawn

SIGMA = 0.5
NUM_PAIRS = 40_000
THETA = np.array([0.4, -1.1, 0.7, 0.2, -0.3])
LINEAR = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
CURVATURE = np.array(
    [
        [-2.0, 0.7, 0.0, 0.3, 0.0],
        [0.7, -1.0, 0.4, 0.0, 0.0],
        [0.0, 0.4, 0.5, 0.0, -0.6],
        [0.3, 0.0, 0.0, -3.0, 0.2],
        [0.0, 0.0, -0.6, 0.2, 1.0],
    ]
)
AMPLITUDE = np.array([2.0, 0.0, -3.0, 1.0, 2.0])
FREQUENCY = np.array([2.0, 1.0, 3.0, 4.0, 2.5])


def objective(x):
    """a·x + ½ xᵀHx + Σ cᵢ sin(kᵢ xᵢ): odd and even parts, and waves to smooth."""
    return (
        x @ LINEAR + 0.5 * x @ CURVATURE @ x + AMPLITUDE @ jnp.sin(FREQUENCY * x) + 7.0
    )


def smoothed_gradient(x: np.ndarray, sigma: float) -> np.ndarray:
    """∇ E[f(x + σε)]: smoothing scales a wave of frequency k by exp(−k²σ²/2)."""
    damping = np.exp(-((FREQUENCY * sigma) ** 2) / 2)
    wave = AMPLITUDE * FREQUENCY * damping * np.cos(FREQUENCY * x)
    return LINEAR + CURVATURE @ x + wave


# A matrix, for noise that is made of factors. One cube, so that it stands out.
MATRIX = np.random.default_rng(0).normal(0.0, 0.5, size=(10, 11))
SLOPE = np.random.default_rng(1).normal(0.0, 0.5, size=(10, 11))
CUBE = np.zeros((10, 11))
CUBE[2, 3] = 3.0


def matrix_objective(x):
    """⟨a, x⟩ + ½ ‖x₀ − x₁‖² − ¼ ‖x‖² + Σ cᵢⱼ xᵢⱼ³, with x₀ and x₁ the first rows."""
    couples = 0.5 * jnp.sum((x[0] - x[1]) ** 2) - 0.25 * jnp.sum(x**2)
    return jnp.sum(SLOPE * x) + couples + jnp.sum(CUBE * x**3)


def matrix_expectation(x: np.ndarray, fourth_moment: float) -> np.ndarray:
    """E[f(x + σε) ε]/σ for uncorrelated ε of variance 1, whatever its distribution.

    That is the gradient as long as f is quadratic. A cube (x + σε)³ adds σ² E[ε⁴],
    where normal noise has 3: other noise estimates the gradient of another smoothing.
    """
    coupled = np.zeros_like(x)
    coupled[0], coupled[1] = x[0] - x[1], x[1] - x[0]
    cubes = CUBE * (3 * x**2 + fourth_moment * SIGMA**2)
    return SLOPE + coupled - 0.5 * x + cubes


class Case(NamedTuple):
    """An objective, and what g must and must not estimate."""

    noise: Noise
    theta: np.ndarray
    objective: Callable
    expected: np.ndarray
    otherwise: np.ndarray


def matrix_case(noise: Noise, fourth_moment: float, otherwise: float) -> Case:
    expected, other = (
        matrix_expectation(MATRIX, m) for m in (fourth_moment, otherwise)
    )
    return Case(noise, MATRIX, matrix_objective, expected, other)


CASES = {
    "waves": Case(
        FullNoise(),
        THETA,
        objective,
        smoothed_gradient(THETA, SIGMA),
        smoothed_gradient(THETA, 0.0),  # of f itself
    ),
    "matrix": matrix_case(FullNoise(), 3, 0),
    # 3 + 6/r (tests/jax_es/es/test_noise.py); otherwise, what normal noise would give.
    "matrix-rank-1": matrix_case(LowRankNoise(1), 9, 3),
    "matrix-rank-4": matrix_case(LowRankNoise(4), 4.5, 3),
}


@functools.cache
def sample_of(name: str):
    """g, fitness ``[N, 2]`` and ε ``[N, |θ|]`` of one generation."""
    noise, theta, objective, *_ = CASES[name]
    config = ESConfig(
        num_pairs=NUM_PAIRS,
        sigma=SIGMA,
        learning_rate=1.0,
        weight_decay=0.0,
        optimizer="sgd",
        shaping="standardize",
    )
    with pytest.MonkeyPatch.context() as patch:
        # Everything but the shaping, which makes g an estimate of something else.
        patch.setitem(SHAPINGS, "standardize", lambda f: f[:, 0] - f[:, 1])
        es = openai_es(config, noise)
    theta = jnp.asarray(theta, jnp.float32)
    state = es.init(jax.random.key(5), {"x": theta})
    key = es.ask(state).key
    epsilon = drawn(noise, key, range(NUM_PAIRS), {"x": theta})["x"]
    members = theta + SIGMA * np.stack([epsilon, -epsilon], axis=1)
    fitness = jax.jit(jax.vmap(jax.vmap(objective)))(np.float32(members))
    told, _ = es.tell(state, fitness)
    # A plain step of length 1 along g: its difference is g.
    gradient = np.asarray(told.mean["x"], np.float64) - np.asarray(theta)
    return gradient.ravel(), np.float64(fitness), epsilon.reshape(NUM_PAIRS, -1)


@pytest.mark.parametrize("name", CASES)
def test_gradient_estimate_is_unbiased(name):
    gradient, fitness, epsilon = sample_of(name)
    terms = (fitness[:, :1] - fitness[:, 1:]) * epsilon / (2 * SIGMA)
    error = terms.std(axis=0, ddof=1) / np.sqrt(NUM_PAIRS)
    expected, otherwise = CASES[name].expected.ravel(), CASES[name].otherwise.ravel()
    # Informative: the sample tells g from one that is 15 % off (which would add more
    # than 100 to the χ² below), and from what it must not be.
    assert np.linalg.norm(0.15 * expected / error) > 10
    assert np.abs((otherwise - expected) / error).max() > 8
    # Five standard errors in each coordinate; and in all of them together the 99 %
    # quantile of χ² with 5 or 110 degrees of freedom.
    deviation = (gradient - expected) / error
    assert np.abs(deviation).max() < 5
    assert (deviation**2).sum() < {5: 15.1, 110: 147.4}[gradient.size]


def test_antithetic_pairs_cancel_even_parts():
    # One-sided estimates carry the variance of the constant and the curvature.
    _, fitness, epsilon = sample_of("waves")
    paired = (fitness[:, :1] - fitness[:, 1:]) * epsilon / (2 * SIGMA)
    one_sided = fitness[:, :1] * epsilon / SIGMA
    assert paired.var(axis=0).sum() < 0.5 * one_sided.var(axis=0).sum()


# Ranks damp what sticks out, as the cube in the matrix does.
@pytest.mark.parametrize(
    ("name", "agreement"),
    [("waves", 0.9), ("matrix-rank-1", 0.8), ("matrix-rank-4", 0.8)],
)
@pytest.mark.parametrize("shaping", list(SHAPINGS))
def test_shaped_gradient_points_uphill(shaping, name, agreement):
    _, fitness, epsilon = sample_of(name)
    weights = np.asarray(jax.jit(SHAPINGS[shaping])(np.float32(fitness)))
    direction, expected = weights @ epsilon, CASES[name].expected.ravel()
    cosine = direction @ expected / np.linalg.norm(direction) / np.linalg.norm(expected)
    assert cosine > agreement


@functools.cache
def learner(shaping: str, optimizer: str, noise: Noise):
    """Returns ``informed → distances to the optimum`` before and after a run.

    150 generations of noisy returns; uninformed, a pair gets another pair's.
    """
    optimum = jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)
    scale = jnp.logspace(0.0, 1.0, 12).reshape(3, 4)
    es = openai_es(
        ESConfig(
            num_pairs=24,
            sigma=0.05,
            learning_rate=0.05,
            momentum=0.8,
            weight_decay=0.0,
            optimizer=optimizer,
            shaping=shaping,
        ),
        noise,
    )

    def members(state):
        population = variables_of(es.ask(state))
        if "params" in population:
            return population["params"]["x"]  # [N, 2, 3, 4]
        a, b = population["perturbation"]["x"]
        return state.mean["x"] + jnp.einsum("nsar,nsbr->nsab", a, b)

    @jax.jit
    def learn(informed):
        def generation(state, _):
            error = members(state) - optimum
            returns = -jnp.sum(scale * error**2, axis=(2, 3))
            luck_key = jax.random.fold_in(jax.random.key(99), state.generation)
            # An episode's luck, common to the pair, as common seeds make it.
            returns += jax.random.normal(luck_key, (24, 1))
            fitness = jnp.where(informed, returns, jnp.roll(returns, 7, axis=0))
            return es.tell(state, fitness)[0], None

        state = es.init(jax.random.key(1), {"x": jnp.zeros((3, 4))})
        last, _ = jax.lax.scan(generation, state, length=150)
        ends = jnp.stack([state.mean["x"], last.mean["x"]])
        return jnp.sqrt(jnp.sum((ends - optimum) ** 2, axis=(1, 2)))

    return learn


@pytest.mark.parametrize(
    ("shaping", "optimizer", "noise"),
    [
        ("pair_rank", "momentum", FullNoise()),
        ("centered_rank", "adam", FullNoise()),
        ("pair_rank", "momentum", LowRankNoise(1)),
    ],
)
def test_learns_the_optimum_of_a_probe(shaping, optimizer, noise):
    before, after = learner(shaping, optimizer, noise)(True)
    assert after < 0.15 * before


@pytest.mark.parametrize("noise", [FullNoise(), LowRankNoise(1)])
def test_returns_of_other_members_teach_nothing(noise):
    # The gate of the test above: without information θ does not get there.
    before, after = learner("pair_rank", "momentum", noise)(False)
    assert after > 0.9 * before
