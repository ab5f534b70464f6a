"""Dropout: off when acting, right on average in training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.models import (
    BoxActions,
    DecisionTransformerConfig,
    DiscreteActions,
    ImageDecisionTransformerConfig,
    decision_transformer,
    make_policy,
    transformer,
)
from jax_es.models.layers import Dense, dropped_out
from jax_es.models.transformer import attend

SMALL = {"context_length": 3, "width": 8, "num_layers": 2, "num_heads": 2}
POLICY = make_policy(
    DecisionTransformerConfig(**SMALL), 5, BoxActions((-1.0, -1.0), (1.0, 1.0))
)
IMAGES = make_policy(
    ImageDecisionTransformerConfig(**SMALL), (1, 36, 36), DiscreteActions(3)
)


class Dropping(Dense):
    """A layer that does nothing but drop."""

    rate: float = 0.0

    def __call__(self, x):
        return dropped_out(self, x, self.rate)


def drop(x, rate, seed=0):
    key = jax.random.key(seed)
    return Dropping(features=1, rate=rate).apply({}, x, rngs={"dropout": key})


def test_shares_and_expectation():
    rate = 0.1
    kept = np.asarray(drop(jnp.full((101, 999), 2.0), rate))
    share = np.mean(kept == 0.0)
    # Five standard errors of a share among n independent entries.
    assert abs(share - rate) < 5 * np.sqrt(rate * (1 - rate) / kept.size)
    np.testing.assert_allclose(kept[kept != 0.0], 2.0 / (1 - rate), rtol=1e-4)
    error = 5 * 2.0 * np.sqrt(rate / (1 - rate) / kept.size)
    assert abs(kept.mean() - 2.0) < error
    # Neighbours share a random word, but no fate.
    lost = (kept == 0.0).ravel()
    pairs = lost[: len(lost) // 2 * 2].reshape(-1, 2).all(axis=1).mean()
    assert abs(pairs - rate**2) < 5 * np.sqrt(rate**2 / (len(lost) / 2))


def test_attention_drops_weights_not_their_sum():
    """softmax, then dropout: what is kept does not make up for what is not."""
    values = jnp.arange(1.0, 5.0).reshape(1, 4, 1)
    equal, everything = jnp.zeros((1, 1, 1)), jnp.ones((1, 4), bool)
    dropped = attend(
        equal,
        jnp.zeros((1, 1, 4)),
        values,
        everything,
        lambda weights: weights * jnp.array([[[0.0, 2.0, 0.0, 2.0]]]),
    )
    # Weights are ¼ each: ¼ · (2 · 2 + 2 · 4).
    np.testing.assert_allclose(dropped, [[[3.0]]], rtol=1e-6)


def trajectory(policy):
    random = np.random.default_rng(0)
    if policy is POLICY:
        observations = random.normal(size=(3, 5))
        actions = jnp.float32(random.uniform(-1, 1, (3, 2)))
    else:
        observations, actions = random.uniform(size=(3, 1, 36, 36)), jnp.arange(3)
    return (
        jnp.float32([900.0, 500.0, 100.0]),
        jnp.float32(observations),
        actions,
        jnp.arange(3),
    )


@pytest.mark.parametrize("policy", [POLICY, IMAGES], ids=["vectors", "images"])
def test_a_network_drops_only_with_a_key(policy, random_params):
    assert policy.network.dropout == 0.0
    inputs = {"params": random_params(policy)}, *trajectory(policy)
    predict = jax.jit(policy.predict, static_argnums=5)
    plain = predict(*inputs, 0.0)
    np.testing.assert_array_equal(predict(*inputs, 0.5), plain)
    first, again, other = (
        predict(*inputs, 0.5, jax.random.key(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    assert (first != plain).all()
    nothing = predict(*inputs, 0.0, jax.random.key(0))
    np.testing.assert_array_equal(nothing, plain)


def test_every_place_is_dropped(random_params):
    """Tokens, attention weights and both residual branches of both blocks."""
    seen = []

    def count(module, x, rate):
        if module.has_rng("dropout") and rate == 0.5:
            seen.append((".".join(module.path) or "network", x.shape))
        return x

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision_transformer, "dropped_out", count)
        patch.setattr(transformer, "dropped_out", count)
        inputs = {"params": random_params(POLICY)}, *trajectory(POLICY)
        jax.eval_shape(lambda key: POLICY.predict(*inputs, 0.5, key), jax.random.key(0))
    # 3 steps are 9 tokens; the last block has the 3 state tokens as queries only.
    assert seen == [
        ("network", (9, 8)),
        ("blocks_0", (2, 9, 9)),
        ("blocks_0", (9, 8)),
        ("blocks_0", (9, 8)),
        ("blocks_1", (2, 3, 9)),
        ("blocks_1", (3, 8)),
        ("blocks_1", (3, 8)),
    ]
