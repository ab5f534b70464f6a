"""What policies predict of recorded windows, and how wrong that is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.models import (
    BoxActions,
    CNNConfig,
    DecisionTransformerConfig,
    DiscreteActions,
    ImageDecisionTransformerConfig,
    LSTMConfig,
    MLPConfig,
    make_policy,
)
from jax_es.models.cloning import action_loss
from jax_es.models.image_decision_transformer import ImageDecisionTransformerPolicy
from jax_es.models.policy import from_environment, to_environment
from jax_es.types import ClonablePolicy
from tests.models.perturbed import random_inputs, run

BOX = BoxActions((-0.4, -3.0), (0.4, 1.0))
CHOICE = DiscreteActions(3, start=2)
SMALL = {"width": 8, "num_layers": 2, "num_heads": 2, "context_length": 4}


def transformer(actions=BOX, **fields):
    return make_policy(DecisionTransformerConfig(**{**SMALL, **fields}), 5, actions)


def images(**fields):
    config = ImageDecisionTransformerConfig(**SMALL, sample_actions=False, **fields)
    return make_policy(config, (1, 36, 36), CHOICE)


def test_who_can_be_cloned():
    clonable = [
        transformer(),
        make_policy(MLPConfig(), 5, BOX),
        make_policy(CNNConfig(), (1, 36, 36), CHOICE),
        images(),
    ]
    assert all(isinstance(policy, ClonablePolicy) for policy in clonable)
    for config in (LSTMConfig(), LSTMConfig(target_return=1.0)):
        assert not isinstance(make_policy(config, 5, BOX), ClonablePolicy)
    lengths = [policy.window_length for policy in clonable]
    assert lengths == [4, 1, 1, 4]
    # In a cache each of the 2 layers has read 4 steps further back.
    assert transformer(attention="cache").window_length == 12


@pytest.mark.parametrize(
    ("policy", "num_steps"),
    [
        (transformer(), 4),
        (transformer(attention="cache"), 20),
        (transformer(attention="cache", context_length=1), 12),
        (transformer(CHOICE, attention="cache"), 20),
        (transformer(attention="cache", action_bins=4), 12),
        (transformer(film=True), 4),
        (images(attention="cache", max_timestep=9), 20),
        (make_policy(MLPConfig(hidden_sizes=(8,)), 5, BOX), 6),
        (make_policy(MLPConfig(hidden_sizes=(8,), target_return=1.0), 5, BOX), 6),
    ],
    ids=[
        *("window", "cache", "cache-K=1", "cache-choice", "cache-bins", "film"),
        *("images-cache", "mlp", "mlp-commanded"),
    ],
)
def test_predictions_of_an_episode_are_those_of_acting(
    policy, num_steps, random_params
):
    """Its own episode, from its first step; what was asked for was then earned."""
    observations, rewards, first, keys = random_inputs(num_steps, 5)
    if isinstance(policy, ImageDecisionTransformerPolicy):
        random = np.random.default_rng(0)
        observations = np.float32(random.uniform(size=(num_steps, 1, 36, 36)))
    earned = rewards[1:].sum() + 200.0  # step t's reward is handed in at t + 1
    if policy.config.target_return is not None:
        config = dataclasses.replace(policy.config, target_return=float(earned))
        policy = dataclasses.replace(policy, config=config)
    variables = {"params": random_params(policy)}
    inputs = observations, rewards, first, keys
    _, (outputs, actions) = run(policy, variables, policy.initial_carry(), inputs)
    returns_to_go = earned - np.concatenate([[0.0], np.cumsum(rewards[1:])])
    predict = jax.jit(policy.predict)
    predicted = predict(
        variables,
        jnp.float32(returns_to_go),
        observations,
        actions,
        jnp.arange(num_steps),
    )
    np.testing.assert_allclose(predicted, outputs, rtol=1e-4, atol=2e-5)
    assert np.abs(np.diff(outputs, axis=0)).max() > 0.01


def test_losses_by_hand():
    outputs = jnp.arctanh(jnp.float32([[0.5, -0.5], [0.0, 0.9]]))
    chosen = jnp.float32([[0.0, 0.5], [0.0, -0.1]])
    losses = action_loss(BOX, outputs, chosen)
    np.testing.assert_allclose(losses, [(0.25 + 1.0) / 2, 1.0 / 2], rtol=1e-5)
    logits = jnp.log(jnp.float32([[0.1, 0.2, 0.7], [3.0, 3.0, 6.0]]))
    losses = action_loss(CHOICE, logits, jnp.array([2, 0]))
    np.testing.assert_allclose(losses, [-np.log(0.7), -np.log(0.25)], rtol=1e-5)
    # Two joints with bins at −1, 0 and 1; 0.4 is nearest to the middle one.
    bins = dataclasses.replace(BOX, bins=3)
    (loss,) = action_loss(bins, logits.reshape(1, 6), jnp.float32([[1.0, 0.4]]))
    np.testing.assert_allclose(loss, -(np.log(0.7) + np.log(0.25)) / 2, rtol=1e-5)


@pytest.mark.parametrize("scale", ["bounds", "none"])
def test_from_environment_undoes_to_environment(scale):
    config = MLPConfig(action_scale=scale)
    own = jnp.float32([0.3, -0.8])
    there = to_environment(config, BOX, own)
    both = jnp.stack([there, there])
    np.testing.assert_allclose(from_environment(config, BOX, both)[1], own, rtol=1e-5)


def test_actions_that_no_network_chooses():
    config = MLPConfig()
    beyond = from_environment(config, BOX, jnp.float32([9.0, -3.0]))
    np.testing.assert_array_equal(beyond, [1.0, -1.0])
    unscaled = MLPConfig(action_scale="none")
    beyond = from_environment(unscaled, BOX, jnp.float32([0.7, -2.5]))
    np.testing.assert_allclose(beyond, [0.7, -1.0])
    chosen = from_environment(config, CHOICE, jnp.array([2, 4]))
    np.testing.assert_array_equal(chosen, [0, 2])


@pytest.mark.parametrize("attention", ["window", "cache"])
def test_later_steps_change_no_earlier_loss(attention, random_params):
    policy = transformer(attention=attention)
    variables = {"params": random_params(policy)}
    random = np.random.default_rng(0)

    def window(rows):
        return (
            jnp.float32(random.normal(size=rows)),
            jnp.float32(random.normal(size=(rows, 5))),
            jnp.float32(random.uniform(-0.3, 0.3, (rows, 2))),
            jnp.arange(rows),
        )

    real, padding, other = window(2), window(2), window(2)
    loss = jax.jit(policy.imitation_loss)
    losses = [
        loss(variables, *(jnp.concatenate(p) for p in zip(real, rest, strict=True)))
        for rest in (padding, other)
    ]
    np.testing.assert_array_equal(losses[0][:2], losses[1][:2])
    assert (losses[0][2:] != losses[1][2:]).all()
