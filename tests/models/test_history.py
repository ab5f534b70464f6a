"""A transformer that acts on a vector of its last steps acts as its policy does."""

import dataclasses

import jax
import numpy as np
import pytest

from jax_es.envs.history import HistoryObservation
from jax_es.models import (
    BoxActions,
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
    DiscreteActions,
    HistoryActor,
)
from jax_es.models.policy import from_environment
from tests.envs.test_history import Counting

ACTIONS = BoxActions((0.0, -1.0), (4.0, 1.0))
CONFIG = DecisionTransformerConfig(
    context_length=4,
    width=8,
    num_layers=2,
    target_return=5.0,
    reward_scale=0.1,
    max_timestep=9,
)


@pytest.mark.parametrize("context_length", [1, 4])
def test_acts_as_the_policy_does_step_by_step(context_length, random_params):
    """On the vectors of ``envs/history.py``, whose layout ``tests/envs`` tests."""
    config = dataclasses.replace(CONFIG, context_length=context_length)
    policy = DecisionTransformerPolicy(config, 2, ACTIONS)
    variables = {"params": random_params(policy)}
    apply, act = jax.jit(policy.apply), jax.jit(HistoryActor(policy).apply)
    env = HistoryObservation(Counting(), context_length, 5.0, 0.1, 9)
    history, _ = env.reset(seed=0)
    carry, reward, chosen = policy.initial_carry(), 0.0, []
    # Longer than the context, and than the table of timesteps.
    for t in range(12):
        observation, key = np.float32([t, -t]), jax.random.key(0)
        carry, action = apply(variables, carry, observation, reward, t == 0, key)
        (found,) = act(variables, history[None])
        own = from_environment(config, ACTIONS, action)
        np.testing.assert_allclose(found, own, atol=2e-5)
        history, reward, *_ = env.step(np.asarray(action))
        chosen.append(own)
    assert np.ptp(chosen, axis=0).min() > 0.01


def test_refuses_a_cache_and_discrete_actions():
    config = dataclasses.replace(CONFIG, attention="cache")
    with pytest.raises(ValueError, match=r"policy\.attention='cache' is not possible"):
        HistoryActor(DecisionTransformerPolicy(config, 3, ACTIONS))
    with pytest.raises(ValueError, match="real numbers"):
        HistoryActor(DecisionTransformerPolicy(CONFIG, 3, DiscreteActions(2)))
