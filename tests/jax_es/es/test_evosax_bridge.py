"""evosax under our conventions, and our algorithm against evosax's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from evosax.algorithms import SNES, Open_ES

from jax_es.config import ESConfig
from jax_es.es.evosax_bridge import evosax_strategy
from jax_es.es.openai_es import openai_es
from jax_es.es.optimizers import make_optimizer

MEAN = {"bias": jnp.array([3.0, -2.0]), "kernel": jnp.full((2, 2), 0.5)}
CENTRE = 1.5


def negative_distance(members) -> jax.Array:
    """−‖θ − c‖², ``[…]``: the optimum is every weight at ``CENTRE``."""
    bias = jnp.sum((members["bias"] - CENTRE) ** 2, axis=-1)
    return -bias - jnp.sum((members["kernel"] - CENTRE) ** 2, axis=(-2, -1))


def unlike_anything(members) -> np.ndarray:
    """Not symmetric; has a maximum nowhere near."""
    flat = np.concatenate(
        [np.asarray(members["bias"]), np.asarray(members["kernel"]).reshape(-1, 4)],
        axis=-1,
    )
    return np.sin(2 * flat).sum(-1) + flat @ np.linspace(-1, 1, 6)


def close(first, second, atol) -> None:
    for one, two in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=atol)


def test_updates_equal_those_of_evosax():
    # Several generations, with ties and failed members: the shaping of Salimans et
    # al., our optax chain with its decay, and everything between.
    config = ESConfig(
        num_pairs=8,
        sigma=0.1,
        learning_rate=0.05,
        weight_decay=0.02,
        shaping="centered_rank",
    )
    es = openai_es(config)
    algorithm = Open_ES(
        2 * config.num_pairs,
        MEAN,
        # evosax hands its optimizer a gradient to descend, ours one to climb.
        optimizer=optax.chain(optax.scale(-1.0), make_optimizer(config)),
        std_schedule=optax.constant_schedule(config.sigma),
    )
    key, params = jax.random.key(0), algorithm.default_params
    theirs = algorithm.init(key, MEAN, params)
    state = es.init(jax.random.key(4), MEAN)
    ask = jax.jit(lambda state: es.ask(state).members)
    for _ in range(4):
        members = ask(state)
        fitness = np.round(unlike_anything(members), 1)
        fitness[[0, 7, 11]] = np.nan
        state, _ = es.tell(state, fitness)
        cost = -jnp.asarray(fitness, jnp.float32)  # evosax minimises
        theirs, _ = algorithm.tell(key, members, cost, theirs, params)
        close(state.mean, algorithm.get_mean(theirs), atol=2e-5)
    assert abs(state.mean["bias"] - MEAN["bias"]).max() > 0.01


@pytest.fixture(scope="module")
def snes():
    return evosax_strategy(SNES, 6, MEAN, std_init=0.3)


def test_ask_and_tell_are_pure(snes):
    state = snes.init(jax.random.key(0), MEAN)
    members = snes.ask(state).members
    fitness = negative_distance(members)
    first, info = snes.tell(state, fitness)
    second, _ = snes.tell(state, fitness)
    close(first.mean, second.mean, atol=0)
    close(snes.ask(state).members, members, atol=0)
    # The next generation has other members, and the mean has moved by what info says.
    assert (snes.ask(first).members["bias"] != members["bias"]).all()
    moved = jax.tree.map(jnp.subtract, first.mean, state.mean)
    assert info.update_norm == pytest.approx(float(optax.tree.norm(moved)), rel=1e-5)
    assert info.update_norm > 0
    other = snes.init(jax.random.key(1), MEAN)
    assert (snes.ask(other).members["bias"] != members["bias"]).all()


def test_failed_members_rank_worst(snes):
    state = snes.init(jax.random.key(0), MEAN)
    fitness = negative_distance(snes.ask(state).members)
    failed, info = snes.tell(state, fitness.at[2].set(jnp.nan).at[4].set(jnp.inf))
    poor, _ = snes.tell(state, fitness.at[2].set(-1e6).at[4].set(-1e6))
    assert info.num_nonfinite == 2
    close(failed.mean, poor.mean, atol=1e-6)


def test_second_generation_compiles_nothing(snes, compilations):
    state = snes.init(jax.random.key(0), MEAN)
    for generation in range(3):
        if generation == 2:
            compilations.clear()
        snes.ask(state)
        state, _ = snes.tell(state, np.arange(6.0))
    assert not compilations


@pytest.mark.parametrize("shape", [(5,), (6, 1)])
def test_wrong_fitness_shape_says_what_is_expected(snes, shape):
    with pytest.raises(ValueError, match=r"\[population_size\] = \(6,\)") as caught:
        snes.tell(snes.init(jax.random.key(0), MEAN), jnp.zeros(shape))
    assert str(shape) in str(caught.value)
