"""A transformer that acts on a vector of its last steps acts as its policy does."""

import jax
import numpy as np
import pytest

from models import (
    BoxActions,
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
    DiscreteActions,
    HistoryActor,
)

ACTIONS = BoxActions((-1.0, -1.0), (1.0, 1.0))
CONFIG = DecisionTransformerConfig(
    context_length=4,
    width=8,
    num_layers=2,
    target_return=5.0,
    reward_scale=0.1,
    max_timestep=9,
)


def vector(config, observations, actions, rewards, t):
    """The history at step ``t``, laid out by hand: oldest step first, then zeros."""
    K = config.context_length
    steps = range(t - K + 1, t + 1)
    remaining = config.target_return - np.concatenate([[0.0], np.cumsum(rewards)])
    returns = [remaining[s] * config.reward_scale if s >= 0 else 0.0 for s in steps]
    seen = [observations[s] if s >= 0 else np.zeros(3) for s in steps]
    acted = [actions[s] if s >= 0 else np.zeros(2) for s in steps[:-1]]
    parts = returns, np.ravel(seen), np.ravel(acted), [t / config.max_timestep]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("context_length", [1, 4])
def test_acts_as_the_policy_does_step_by_step(context_length, random_params):
    config = DecisionTransformerConfig(
        **{**vars(CONFIG), "context_length": context_length}
    )
    policy = DecisionTransformerPolicy(config, 3, ACTIONS)
    variables = {"params": random_params(policy)}
    actor = HistoryActor(policy)
    rng = np.random.default_rng(0)
    # Longer than the context, and than the table of timesteps.
    observations = rng.normal(size=(12, 3)).astype(np.float32)
    rewards = rng.normal(size=12).astype(np.float32)

    carry, actions = policy.initial_carry(), []
    apply = jax.jit(policy.apply)
    for t in range(12):
        carry, action = apply(
            variables,
            carry,
            observations[t],
            rewards[t - 1] if t else np.float32(0),
            t == 0,
            jax.random.key(0),
        )
        actions.append(np.asarray(action))
    histories = np.stack(
        [vector(config, observations, actions, rewards, t) for t in range(12)]
    )
    found = jax.jit(actor.apply)(variables, histories)
    np.testing.assert_allclose(found, actions, atol=2e-5)


def test_refuses_a_cache_and_discrete_actions():
    config = DecisionTransformerConfig(**{**vars(CONFIG), "attention": "cache"})
    with pytest.raises(ValueError, match=r"policy\.attention='cache' is not possible"):
        HistoryActor(DecisionTransformerPolicy(config, 3, ACTIONS))
    with pytest.raises(ValueError, match="real numbers"):
        HistoryActor(DecisionTransformerPolicy(CONFIG, 3, DiscreteActions(2)))
