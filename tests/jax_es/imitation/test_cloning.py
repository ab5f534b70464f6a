"""Gradient descent on windows: by hand, over devices, and does it learn?"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_es.imitation.cloning import Cloner, warmed_up_adamw
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.datasets import Episodes
from jax_es.imitation.windows import random_starts, statistics_of, steps_of
from jax_es.models import (
    BoxActions,
    DecisionTransformerConfig,
    DiscreteActions,
    MLPConfig,
    make_policy,
)
from jax_es.rollout.devices import Devices
from jax_es.rollout.observation_statistics import View

BOX = BoxActions((-2.0,), (2.0,))
KEY = jax.random.key(0)
CONFIG = CloningConfig(
    steps_per_epoch=10, batch_size=6, warmup_steps=4, learning_rate=1e-2, dropout=0.1
)
LINEAR = make_policy(MLPConfig(hidden_sizes=()), 3, BOX)
MLP = make_policy(MLPConfig(hidden_sizes=(16,)), 3, BOX)
TRANSFORMER = make_policy(
    DecisionTransformerConfig(context_length=4, width=8, num_layers=1), 3, BOX
)


def episodes(actions="box", seed=0, num_episodes=8):
    """A linear teacher: its action is tanh(o·w), scaled to the bounds."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 12, num_episodes)
    observations = random.normal(size=(lengths.sum(), 3)).astype(np.float32)
    score = observations @ np.float32([0.5, -1.0, 0.25])
    chosen = 2.0 * np.tanh(score)[:, None]
    if actions == "choice":
        chosen = (score > 0).astype(np.int32)
    rewards = random.normal(size=lengths.sum()).astype(np.float32)
    return Episodes(observations, chosen, rewards, lengths)


@functools.cache
def drawn(policy):
    """Initial weights; to compile what draws them takes seconds."""
    return jax.jit(policy.init)(KEY)


def cloner_of(policy, config=CONFIG, num_devices=1, statistics=None):
    devices = Devices(jax.local_devices()[:num_devices])
    return Cloner(policy, config, devices, View(statistics), KEY)


def learn(policy, config, data, num_devices=1, num_steps=8, statistics=None):
    cloner = cloner_of(policy, config, num_devices, statistics)
    state, steps = cloner.place(cloner.init(drawn(policy))), steps_of(data)
    losses = []
    everywhere = np.arange(len(steps.last))
    starts = random_starts(everywhere, num_steps, config.batch_size, 0, 0)
    for batch in starts:
        state, loss = cloner.descend(state, steps, batch)
        losses.append(float(loss))
    return jax.device_get(state), losses


def test_optimizer_by_hand():
    """AdamW's first steps: m̂/√v̂ = ±1, on gradients clipped to a norm of ¼."""
    config = CloningConfig(learning_rate=0.1, warmup_steps=4, weight_decay=0.01)
    optimizer = warmed_up_adamw(config)
    theta = {"w": jnp.float32([3.0, 4.0])}
    state = optimizer.init(theta)
    gradient = {"w": jnp.float32([3.0, -4.0])}
    _, (_, (adam, *_)) = optimizer.update(gradient, state, theta)
    np.testing.assert_allclose(adam.mu["w"], [0.1 * 0.15, -0.1 * 0.2], rtol=1e-5)
    expected = np.array([3.0, 4.0])
    for warmth in (0.25, 0.5, 0.75, 1.0, 1.0):
        updates, state = optimizer.update(gradient, state, theta)
        theta = optax.apply_updates(theta, updates)
        rate = 0.1 * warmth
        # The same gradient each time, so both moments' corrected means are exact.
        expected = expected - rate * np.sign([3.0, -4.0]) - rate * 0.01 * expected
        np.testing.assert_allclose(theta["w"], expected, rtol=1e-5)


def test_one_step_is_the_gradient_of_the_mean_over_real_steps(strict_jax):
    """Against a plain loop over windows, steps and no padding at all."""
    data = episodes()
    steps = steps_of(data)
    starts = np.array([0, steps.last[0] - 1])
    config = dataclasses.replace(CONFIG, dropout=0.0, warmup_steps=0)
    cloner = cloner_of(TRANSFORMER, config)
    mean = drawn(TRANSFORMER)
    state, loss = cloner.descend(cloner.place(cloner.init(mean)), steps, starts)

    def mean_loss(mean):
        losses = []
        for start in starts:
            window = slice(start, min(start + 4, steps.last[start] + 1))
            losses.append(
                TRANSFORMER.imitation_loss(
                    {"params": mean},
                    steps.returns_to_go[window],
                    data.observations[window],
                    data.actions[window],
                    steps.timesteps[window],
                )
            )
        return jnp.concatenate(losses).mean()

    @jax.jit
    def step(mean):
        loss, gradient = jax.value_and_grad(mean_loss)(mean)
        optimizer = warmed_up_adamw(config)
        updates, _ = optimizer.update(gradient, optimizer.init(mean), mean)
        return loss, optax.apply_updates(mean, updates)

    expected, expected_mean = step(mean)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5),
        state.mean,
        expected_mean,
    )
    assert int(state.step) == 1


@pytest.mark.slow
def test_devices_differ_by_rounding_only():
    """Dropout and noise included, although 6 windows are no multiple of 4."""
    config = dataclasses.replace(CONFIG, weight_noise=0.05)
    alone, losses = learn(TRANSFORMER, config, episodes())
    spread, again = learn(TRANSFORMER, config, episodes(), num_devices=4)
    np.testing.assert_allclose(losses, again, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        alone.mean,
        spread.mean,
    )


@pytest.mark.slow
def test_dropout_is_of_training_alone():
    """What is measured is the same twice, and not what a step of training has."""
    data, config = steps_of(episodes()), dataclasses.replace(CONFIG, dropout=0.5)
    cloner = cloner_of(TRANSFORMER, config)
    state = cloner.place(cloner.init(drawn(TRANSFORMER)))
    measured = [cloner.loss(state.mean, data, np.arange(6)) for _ in range(2)]
    _, loss = cloner.descend(state, data, np.arange(6))
    assert measured[0] == measured[1]
    assert abs(measured[0] - float(loss)) > 1e-3


def test_noise_on_weights_is_of_the_size_that_was_asked_for():
    """The mean loss of steps that hardly move θ, beside that of noise drawn here."""
    data, size = episodes(), 0.3
    config = dataclasses.replace(CONFIG, weight_noise=size, learning_rate=1e-12)
    cloner, steps = cloner_of(LINEAR, config), steps_of(data)
    state, starts = cloner.place(cloner.init(drawn(LINEAR))), np.arange(6)
    losses, expected = [], []
    for key in jax.random.split(jax.random.key(1), 400):
        state, loss = cloner.descend(state, steps, starts)
        losses.append(float(loss))
        noisy = optax.tree.add_scale(
            drawn(LINEAR), size, optax.tree.random_like(key, drawn(LINEAR))
        )
        expected.append(cloner.loss(noisy, steps, starts))
    assert np.std(losses) == pytest.approx(np.std(expected), rel=0.2)
    error = np.std(losses) * np.sqrt(2 / 400)
    assert abs(np.mean(losses) - np.mean(expected)) < 4 * error
    assert abs(np.mean(losses) - cloner.loss(state.mean, steps, starts)) > 4 * error


@pytest.mark.slow
def test_a_clone_learns_to_bear_noise_on_its_weights():
    data, size = episodes(num_episodes=60), 0.4
    steps, starts = steps_of(data), np.arange(60)
    config = CloningConfig(
        batch_size=32, warmup_steps=20, learning_rate=0.03, dropout=0.0
    )
    under_noise = []
    for trained_with in (0.0, size):
        noisy_config = dataclasses.replace(config, weight_noise=trained_with)
        state, _ = learn(MLP, noisy_config, data, num_steps=320)
        cloner = cloner_of(MLP, config)
        draws = [
            optax.tree.add_scale(
                state.mean, size, optax.tree.random_like(key, state.mean)
            )
            for key in jax.random.split(jax.random.key(2), 50)
        ]
        under_noise.append(np.mean([cloner.loss(d, steps, starts) for d in draws]))
    assert under_noise[1] < 0.7 * under_noise[0]


def test_loss_of_windows_is_the_mean_over_their_steps():
    data = episodes()
    steps, mean = steps_of(data), drawn(LINEAR)
    cloner = cloner_of(LINEAR, CONFIG, num_devices=4)
    starts = np.arange(17)  # three batches of 6, the last not full
    losses = LINEAR.imitation_loss(
        {"params": mean},
        steps.returns_to_go[starts],
        data.observations[starts],
        data.actions[starts],
        steps.timesteps[starts],
    )
    actual = cloner.loss(mean, steps, starts)
    np.testing.assert_allclose(actual, losses.mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("policy", "kind", "limit"),
    [
        (LINEAR, "box", 1e-4),
        (make_policy(MLPConfig(hidden_sizes=()), 3, DiscreteActions(2)), "choice", 0.1),
        pytest.param(TRANSFORMER, "box", 0.02, marks=pytest.mark.slow),
    ],
    ids=["linear", "linear-choice", "transformer"],
)
def test_a_linear_teacher_is_cloned(policy, kind, limit):
    config = CloningConfig(batch_size=32, warmup_steps=20, learning_rate=0.03)
    _, losses = learn(policy, config, episodes(kind, num_episodes=60), num_steps=320)
    assert losses[0] > 0.2
    assert losses[-1] < limit


def test_statistics_are_what_it_sees_through():
    """Observations on another scale, and the same ones seen through statistics."""
    data = episodes()
    odd = data._replace(observations=data.observations * 100 + 7)
    statistics = statistics_of(odd)
    config = dataclasses.replace(CONFIG, dropout=0.0)
    _, plain = learn(LINEAR, config, odd)
    _, seen = learn(LINEAR, config, odd, statistics=statistics)
    mean, std = odd.observations.mean(axis=0), odd.observations.std(axis=0)
    by_hand = odd._replace(observations=((odd.observations - mean) / std))
    _, expected = learn(LINEAR, config, by_hand)
    np.testing.assert_allclose(seen, expected, rtol=1e-4)
    assert abs(plain[0] - seen[0]) > 1e-3
