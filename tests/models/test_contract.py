"""What every policy owes its caller, whatever network is inside."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.types import Policy
from models import (
    BoxActions,
    DecisionTransformerConfig,
    DiscreteActions,
    LSTMConfig,
    MLPConfig,
    make_policy,
)

OBSERVATION_SIZE = 5
NUM_STEPS = 7
BOX = BoxActions((-0.4, -3.0), (0.4, 1.0))
CHOICE = DiscreteActions(3)
SMALL = {"context_length": 3, "width": 8, "num_layers": 2, "num_heads": 2}
KEY = jax.random.key(0)

CASES = {
    "mlp-box": (MLPConfig(hidden_sizes=(8, 8)), BOX),
    "mlp-discrete": (MLPConfig(hidden_sizes=(8, 8)), CHOICE),
    "mlp-sampled": (MLPConfig(hidden_sizes=(8,), sample_actions=True), CHOICE),
    "mlp-unscaled": (MLPConfig(hidden_sizes=(8,), action_scale="none"), BOX),
    "linear-box": (MLPConfig(hidden_sizes=()), BOX),
    "lstm-box": (LSTMConfig(width=8), BOX),
    "lstm-discrete": (LSTMConfig(width=8), CHOICE),
    "transformer-box": (DecisionTransformerConfig(**SMALL), BOX),
    "transformer-discrete": (DecisionTransformerConfig(**SMALL), CHOICE),
    "transformer-sampled": (
        DecisionTransformerConfig(**SMALL, sample_actions=True),
        CHOICE,
    ),
    "transformer-no-past": (
        DecisionTransformerConfig(context_length=1, width=8, num_layers=1),
        CHOICE,
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def policy(request):
    config, actions = request.param
    return make_policy(config, OBSERVATION_SIZE, actions)


def episode(seed=0):
    """Observations, rewards, first and keys of ``NUM_STEPS`` steps."""
    random = np.random.default_rng(seed)
    return (
        jnp.float32(random.normal(size=(NUM_STEPS, OBSERVATION_SIZE))),
        jnp.float32(random.normal(size=NUM_STEPS)),
        jnp.arange(NUM_STEPS) == 0,
        jax.random.split(jax.random.key(seed), NUM_STEPS),
    )


@functools.partial(jax.jit, static_argnums=0)
def run(policy, params, carry, inputs):
    """Acts through ``inputs`` and returns the last carry and all actions."""

    def step(carry, inputs):
        return policy.apply({"params": params}, carry, *inputs)

    return jax.lax.scan(step, carry, inputs)


def test_fulfils_the_protocol(policy):
    assert isinstance(policy, Policy)


def test_init_depends_on_the_key_only(policy):
    # This kind of key compiles ten times faster than the default.
    keys = [jax.random.key(seed, impl="unsafe_rbg") for seed in (0, 0, 1)]
    params, again, other = map(jax.jit(policy.init), keys)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert (params["head"]["kernel"] != other["head"]["kernel"]).all()


def test_actions_fit_the_space(policy, random_params):
    params = random_params(policy)
    _, actions = run(policy, params, policy.initial_carry(), episode())
    if isinstance(policy.actions, DiscreteActions):
        assert actions.dtype == jnp.int32
        assert actions.shape == (NUM_STEPS,)
        assert set(np.asarray(actions).tolist()) <= {0, 1, 2}
        return
    assert actions.dtype == jnp.float32
    assert actions.shape == (NUM_STEPS, 2)
    low, high = np.float32(policy.actions.low), np.float32(policy.actions.high)
    if policy.config.action_scale == "none":
        low, high = np.float32(-1.0), np.float32(1.0)
    assert np.all(np.asarray(actions) >= low)
    assert np.all(np.asarray(actions) <= high)
    assert np.ptp(np.asarray(actions), axis=0).min() > 0.0  # it reads what it is given


def test_carry_keeps_its_type(policy, random_params):
    """Else ``lax.scan`` would refuse it, or the second step compile anew."""

    def types(carry):
        return jax.tree.map(lambda leaf: jax.typeof(leaf), carry)

    carry = policy.initial_carry()
    inputs = jax.tree.map(lambda leaf: leaf[0], episode())
    step = jax.jit(policy.apply).trace(
        {"params": random_params(policy)}, carry, *inputs
    )
    after = jax.tree.map(
        lambda leaf: jax.core.ShapedArray(leaf.shape, leaf.dtype, leaf.weak_type),
        step.out_info[0],
    )
    assert after == types(carry)


def test_first_forgets_whatever_was_carried(policy, random_params):
    params = random_params(policy)
    garbage = jax.tree.map(
        lambda leaf: jnp.full_like(leaf, jnp.nan if leaf.dtype.kind == "f" else 10**6),
        policy.initial_carry(),
    )
    observations, rewards, first, keys = episode()
    rewards = rewards.at[0].set(jnp.nan)  # a failed simulation's last words
    inputs = (observations, rewards, first, keys)
    _, expected = run(policy, params, policy.initial_carry(), inputs)
    _, actual = run(policy, params, garbage, inputs)
    assert not np.isnan(np.asarray(actual, np.float64)).any()
    np.testing.assert_array_equal(actual, expected)


def test_second_episode_equals_the_first(policy, random_params):
    params = random_params(policy)
    carry, actions = run(policy, params, policy.initial_carry(), episode())
    _, again = run(policy, params, carry, episode())
    np.testing.assert_array_equal(actions, again)


def test_vmap_equals_loop(policy, random_params):
    """Each member has its own weights, its own episode and its own clock."""
    members = [random_params(policy, seed) for seed in range(3)]
    inputs = [episode(seed) for seed in range(3)]
    inputs[1] = (*inputs[1][:2], jnp.arange(NUM_STEPS) % 3 == 0, inputs[1][3])
    carry = policy.initial_carry()
    expected = [
        run(policy, params, carry, member)[1]
        for params, member in zip(members, inputs, strict=True)
    ]

    def stack(*leaves):
        return jnp.stack(leaves)

    apply = jax.vmap(policy.apply, in_axes=({"params": 0}, 0, 0, 0, 0, 0))
    variables = {"params": jax.tree.map(stack, *members)}
    carry = jax.tree.map(stack, carry, carry, carry)
    steps = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *inputs)
    _, actions = jax.jit(
        lambda: jax.lax.scan(lambda c, x: apply(variables, c, *x), carry, steps)
    )()
    for member in range(3):
        np.testing.assert_allclose(
            actions[:, member], expected[member], rtol=1e-5, atol=1e-5
        )


def test_only_sampling_uses_the_key(policy, random_params):
    params = random_params(policy)
    carry = policy.initial_carry()
    observations, rewards, _, _ = episode()
    first = jnp.ones(NUM_STEPS, bool)  # so that one draw does not lead to another
    actions = [
        run(policy, params, carry, (observations, rewards, first, episode(seed)[3]))[1]
        for seed in range(5)
    ]
    varies = any((other != actions[0]).any() for other in actions[1:])
    assert varies == policy.config.sample_actions


# An index has no gradient; the transformer's tests look at logits.
@pytest.mark.parametrize(
    "policy", [case for case in CASES.values() if case[1] is BOX], indirect=True
)
def test_every_parameter_influences_the_action(policy, random_params):
    observations, rewards, first, keys = episode()
    weights = jax.random.normal(KEY, (NUM_STEPS, 2))

    def loss(params):
        inputs = (observations, rewards, first, keys)
        _, actions = run(policy, params, policy.initial_carry(), inputs)
        return jnp.sum(weights * actions)

    gradient = jax.jit(jax.grad(loss))(random_params(policy))
    for path, leaf in jax.tree.leaves_with_path(gradient):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name.endswith("key/bias"):
            continue  # adds the same to every score of a query: softmax cancels it
        assert np.abs(leaf).max() > 1e-4, name
