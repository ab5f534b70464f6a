"""ClipUp on steps worked out by hand, and schedules at the generations that matter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_es.checks import ConfigError
from jax_es.config import ESConfig
from jax_es.es.openai_es import openai_es
from jax_es.es.optimizers import change_optimizer, clipup, make_optimizer


def steps(config, gradients):
    """The steps that a chain makes of gradient estimates, one after the other."""
    optimizer = make_optimizer(config)
    mean = jax.tree.map(jnp.zeros_like, gradients[0])
    state = optimizer.init(mean)
    for gradient in gradients:
        step, state = optimizer.update(gradient, state, mean)
        yield step


def clipup_config(**fields):
    return ESConfig(
        **{
            "optimizer": "clipup",
            "learning_rate": 0.1,
            "momentum": 0.9,
            "weight_decay": 0.0,
            **fields,
        }
    )


def test_clipup_equals_steps_worked_out_by_hand():
    """Toklu et al. 2020, algorithm 1: step size 0.1, momentum 0.9, max speed 0.15.

    g₁ = (3, 4): v = 0.1·(0.6, 0.8) = (0.06, 0.08), of length 0.1.
    g₂ = (0, −7): v = (0.054, 0.072 − 0.1) = (0.054, −0.028).
    g₃ = (1e-6, 0): v = (0.1486, −0.0252), of length 0.15072…: cut to 0.15.
    """
    gradients = [jnp.array(g) for g in ([3.0, 4.0], [0.0, -7.0], [1e-6, 0.0])]
    first, second, third = steps(clipup_config(max_speed=0.15), gradients)
    np.testing.assert_allclose(first, [0.06, 0.08], rtol=1e-6)
    np.testing.assert_allclose(second, [0.054, -0.028], rtol=1e-6)
    long = np.array([0.1486, -0.0252])
    np.testing.assert_allclose(third, long * 0.15 / np.linalg.norm(long), rtol=1e-6)


def test_clipups_default_bound_is_twice_the_step():
    *_, last = steps(clipup_config(), [jnp.array([1.0])] * 20)
    np.testing.assert_allclose(last, [0.2], rtol=1e-6)


def test_clipup_without_a_gradient_only_slows_down():
    optimizer = clipup(momentum=0.5, max_speed=2.0)
    state = optimizer.init(jnp.zeros(1))
    _, state = optimizer.update(jnp.ones(1), state)
    step, _ = optimizer.update(jnp.zeros(1), state)
    np.testing.assert_allclose(step, [0.5])


@pytest.mark.parametrize(
    ("kind", "halfway"),
    [("linear", 0.55), ("cosine", 0.55), ("exponential", np.sqrt(0.1))],
)
def test_learning_rates_follow_their_schedule(kind, halfway):
    config = ESConfig(
        optimizer="sgd",
        learning_rate=1.0,
        learning_rate_end=0.1,
        schedule=kind,
        schedule_generations=10,
        weight_decay=0.0,
    )
    taken = [float(step) for step in steps(config, [jnp.float32(1.0)] * 21)]
    np.testing.assert_allclose(taken[0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(taken[5], halfway, rtol=1e-6)
    np.testing.assert_allclose(taken[10:], 0.1, rtol=1e-5)


def test_a_scheduled_sigma_perturbs_and_divides_by_itself():
    """After the schedule both are those of the final σ, or the step would not be."""
    fields = {"num_pairs": 4, "optimizer": "sgd", "weight_decay": 0.0}
    changing = openai_es(
        ESConfig(sigma=0.1, sigma_end=0.4, schedule_generations=2, **fields)
    )
    constant = openai_es(ESConfig(sigma=0.4, **fields))
    mean, key = {"x": jnp.zeros(3)}, jax.random.key(0)
    states = [es.init(key, mean) for es in (changing, constant)]
    at_end = [state._replace(generation=jnp.int32(2)) for state in states]
    sigma = [
        es.ask(s).sigma for es, s in zip((changing, constant), at_end, strict=True)
    ]
    np.testing.assert_allclose(*sigma, rtol=1e-6)
    np.testing.assert_allclose(changing.ask(states[0]).sigma, 0.1, rtol=1e-6)
    fitness = np.arange(8.0).reshape(4, 2) ** 2
    told = [
        es.tell(s, fitness)[0].mean["x"]
        for es, s in zip((changing, constant), at_end, strict=True)
    ]
    assert optax.tree.norm(told[0]) > 0
    np.testing.assert_allclose(*told, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["momentum", "sgd", "adam", "clipup"])
def test_anchored_decay_shrinks_the_way_from_the_start_instead_of_the_weights(
    optimizer,
):
    """Seen from θ₀ it is the ordinary decay: θ = θ₀ + x, and x decays to 0."""
    fields = {"optimizer": optimizer, "weight_decay": 0.1, "learning_rate": 0.5}
    anchored = make_optimizer(ESConfig(**fields, weight_decay_anchor="start"))
    plain = make_optimizer(ESConfig(**fields))
    start = mean = jnp.array([5.0, -3.0])
    way = jnp.zeros(2)
    state, plain_state = anchored.init(mean), plain.init(way)
    for gradient in jax.random.normal(jax.random.key(0), (6, 2)):
        update, state = anchored.update(gradient, state, mean)
        plain_update, plain_state = plain.update(gradient, plain_state, way)
        mean, way = mean + update, way + plain_update
    np.testing.assert_allclose(mean - start, way, rtol=1e-5, atol=1e-6)


def test_a_new_optimizer_keeps_the_anchor_and_a_like_one_everything():
    config = ESConfig(weight_decay_anchor="start")
    begun = make_optimizer(config).init(jnp.zeros(2))
    moved = jnp.ones(2)
    faster = dataclasses.replace(config, learning_rate=0.5)
    assert change_optimizer(faster, begun, moved) is begun
    adam = dataclasses.replace(config, optimizer="adam")
    assert change_optimizer(adam, begun, moved)[-1].anchor.tolist() == [0.0, 0.0]
    free = change_optimizer(ESConfig(), begun, moved)
    again = change_optimizer(config, free, moved)
    assert again[-1].anchor.tolist() == [1.0, 1.0]


def test_an_anchor_without_decay_is_refused():
    with pytest.raises(ConfigError, match=r"weight_decay_anchor start.*weight_decay 0"):
        ESConfig(weight_decay=0.0, weight_decay_anchor="start")
