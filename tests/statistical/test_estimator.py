"""g estimates the gradient of the smoothed objective, and following it finds optima.

Fixed seeds, so a test passes or fails for good; the tolerances are the sampling
errors that were measured in the same sample, not numbers tried out.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.config import ESConfig
from jax_es.fitness import SHAPINGS
from jax_es.noise import member_key
from jax_es.openai_es import openai_es

SIGMA = 0.5
NUM_PAIRS = 20_000
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


@pytest.fixture(scope="module")
def sample():
    """Fitness ``[N, 2]`` and ε ``[N, 5]`` of one generation, and its algorithm."""
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
        es = openai_es(config)
    state = es.init(jax.random.key(5), {"x": jnp.asarray(THETA, jnp.float32)})
    population = es.ask(state)
    members = jax.jit(lambda: population.members(es.noise))()
    fitness = jax.jit(jax.vmap(jax.vmap(objective)))(members["params"]["x"])
    draw = jax.vmap(
        lambda i: es.noise.sample(member_key(population.key, i), state.mean)
    )
    epsilon = jax.jit(draw)(jnp.arange(NUM_PAIRS))
    told, _ = es.tell(state, fitness)
    # A plain step of length 1 along g: its difference is g.
    gradient = np.asarray(told.mean["x"], np.float64) - np.float32(THETA)
    return gradient, np.asarray(fitness, np.float64), np.asarray(epsilon, np.float64)


def test_gradient_estimate_is_unbiased(sample):
    gradient, fitness, epsilon = sample
    terms = (fitness[:, :1] - fitness[:, 1:]) * epsilon / (2 * SIGMA)
    error = terms.std(axis=0, ddof=1) / np.sqrt(NUM_PAIRS)
    expected = smoothed_gradient(THETA, SIGMA)
    # Informative: the sample tells g from one that is 10 % off, and from the gradient
    # of f itself.
    assert np.abs(0.1 * expected / error).max() > 10
    unsmoothed = smoothed_gradient(THETA, 0.0)
    assert np.abs((unsmoothed - expected) / error).max() > 20
    # Five standard errors in each of five coordinates, and 15.1 is the 99 % quantile
    # of χ² with 5 degrees of freedom.
    deviation = (gradient - expected) / error
    assert np.abs(deviation).max() < 5
    assert (deviation**2).sum() < 15.1


def test_antithetic_pairs_cancel_even_parts(sample):
    # One-sided estimates carry the variance of the constant and the curvature.
    _, fitness, epsilon = sample
    paired = (fitness[:, :1] - fitness[:, 1:]) * epsilon / (2 * SIGMA)
    one_sided = fitness[:, :1] * epsilon / SIGMA
    assert paired.var(axis=0).sum() < 0.5 * one_sided.var(axis=0).sum()


@pytest.mark.parametrize("shaping", list(SHAPINGS))
def test_shaped_gradient_points_uphill(shaping, sample):
    _, fitness, epsilon = sample
    weights = np.asarray(jax.jit(SHAPINGS[shaping])(np.float32(fitness)))
    direction = weights @ epsilon
    expected = smoothed_gradient(THETA, SIGMA)
    cosine = direction @ expected / np.linalg.norm(direction) / np.linalg.norm(expected)
    assert cosine > 0.9


@functools.cache
def learner(shaping: str, optimizer: str):
    """Returns ``informed → distances to the optimum`` before and after a run.

    150 generations of noisy returns; uninformed, a pair gets another pair's.
    """
    optimum = jnp.linspace(-1.0, 1.0, 12)
    scale = jnp.logspace(0.0, 1.0, 12)
    es = openai_es(
        ESConfig(
            num_pairs=24,
            sigma=0.05,
            learning_rate=0.05,
            momentum=0.8,
            weight_decay=0.0,
            optimizer=optimizer,
            shaping=shaping,
        )
    )

    @jax.jit
    def learn(informed):
        def generation(state, _):
            members = es.ask(state).members(es.noise)["params"]["x"]
            returns = -jnp.sum(scale * (members - optimum) ** 2, axis=-1)
            luck_key = jax.random.fold_in(jax.random.key(99), state.generation)
            # An episode's luck, common to the pair, as common seeds make it.
            returns += jax.random.normal(luck_key, (24, 1))
            fitness = jnp.where(informed, returns, jnp.roll(returns, 7, axis=0))
            return es.tell(state, fitness)[0], None

        state = es.init(jax.random.key(1), {"x": jnp.zeros(12)})
        last, _ = jax.lax.scan(generation, state, length=150)
        ends = jnp.stack([state.mean["x"], last.mean["x"]])
        return jnp.linalg.norm(ends - optimum, axis=1)

    return learn


@pytest.mark.parametrize(
    ("shaping", "optimizer"), [("pair_rank", "momentum"), ("centered_rank", "adam")]
)
def test_learns_the_optimum_of_a_probe(shaping, optimizer):
    before, after = learner(shaping, optimizer)(True)
    assert after < 0.15 * before


def test_returns_of_other_members_teach_nothing():
    # The gate of the test above: without information θ does not get there.
    before, after = learner("pair_rank", "momentum")(False)
    assert after > 0.9 * before
