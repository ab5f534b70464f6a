"""Acting from a cache of keys and values against the network's parallel form.

The two share no code but the layers: one writes a ring step by step, the other reads
a whole trajectory under a mask. ``test_decision_transformer_reference.py`` compares
with NumPy.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import (
    BoxActions,
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
    DiscreteActions,
)
from tests.models.perturbed import (
    QUICKLY,
    inputs_of,
    random_inputs,
    run,
)

OBSERVATION_SIZE = 5
BOX = BoxActions((-1.0, -1.0), (1.0, 1.0))
CHOICE = DiscreteActions(3)
NUM_STEPS = 22


def make(actions=BOX, **fields) -> DecisionTransformerPolicy:
    fields = {"attention": "cache", "width": 8, "context_length": 3, **fields}
    config = DecisionTransformerConfig(**fields)
    return DecisionTransformerPolicy(config, OBSERVATION_SIZE, actions)


# Few networks, so that few programs are compiled.
SMALL = make(num_layers=2, num_heads=2)
SMALL_CHOICE = make(CHOICE, context_length=4, num_layers=3, max_timestep=9)
ONE_LAYER = make(context_length=5, num_layers=1)
ONE_STEP = make(context_length=1, num_layers=2)


def outputs_of(policy, variables, inputs):
    """The network's outputs through an episode from an empty cache."""
    return np.asarray(run(policy, variables, policy.initial_carry(), inputs)[1][0])


# The parallel form


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def forward(policy, variables, *trajectory):
    return policy.network.apply(variables, *trajectory)


@pytest.mark.parametrize(
    "policy", [SMALL, SMALL_CHOICE, ONE_STEP], ids=["box", "choice", "K=1"]
)
def test_acting_equals_the_parallel_form(policy, random_params):
    """On a trajectory of more than 4K steps, at once."""
    assert 4 * policy.config.context_length < NUM_STEPS
    variables = {"params": random_params(policy)}
    inputs = random_inputs(NUM_STEPS, OBSERVATION_SIZE)
    carry = policy.initial_carry()
    _, (outputs, actions) = run(policy, variables, carry, inputs)
    paid = np.cumsum(np.asarray(inputs[1], np.float64)) - np.float64(inputs[1][0])
    expected = forward(
        policy,
        variables,
        jnp.float32((policy.config.target_return - paid) * policy.config.reward_scale),
        inputs[0],
        jnp.tanh(outputs) if policy.actions is BOX else actions,
        jnp.arange(NUM_STEPS),
    )
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=2e-5)
    # They have something to disagree about.
    assert np.ptp(outputs, axis=0).min() > 0.1
    if policy.actions is CHOICE:
        assert len(set(np.asarray(actions).tolist())) > 1


# The window


@pytest.mark.parametrize(
    ("policy", "parts_at"),
    [
        (SMALL, 3),
        (SMALL_CHOICE, 4),
        # Keys and values of steps that see nothing but themselves are their own.
        (ONE_STEP, None),
    ],
    ids=["box", "choice", "K=1"],
)
def test_cache_equals_window_for_the_first_steps(policy, parts_at, random_params):
    config = dataclasses.replace(policy.config, attention="window")
    windowed = dataclasses.replace(policy, config=config)
    variables = {"params": random_params(policy)}
    inputs = random_inputs(NUM_STEPS, OBSERVATION_SIZE)
    cached = outputs_of(policy, variables, inputs)
    difference = np.abs(cached - outputs_of(windowed, variables, inputs)).max(axis=1)
    assert np.all(difference[:parts_at] < 2e-5)
    if parts_at is not None:
        # From then on the window forgets what its oldest tokens had read.
        assert np.all(difference[parts_at:] > 1e-4)


@pytest.mark.parametrize("policy", [SMALL, ONE_LAYER], ids=["layers=2", "layers=1"])
def test_each_layer_looks_back_the_context_length(policy, random_params):
    """One layer reads K steps, its own included; each further layer K − 1 more."""
    params = dict(random_params(policy))
    # Blind to its past actions, which would hand the change on for ever.
    params["embed_action"] = jax.tree.map(jnp.zeros_like, params["embed_action"])
    variables = {"params": params}
    observations, rewards, *_ = random_inputs(NUM_STEPS, OBSERVATION_SIZE)
    before = outputs_of(policy, variables, inputs_of(observations, rewards))
    changed = observations.copy()
    changed[3] += 1.0
    after = outputs_of(policy, variables, inputs_of(changed, rewards))
    differs = np.abs(after - before).max(axis=1)
    config = policy.config
    sees = slice(3, 3 + config.num_layers * (config.context_length - 1) + 1)
    assert np.all(differs[sees] > 1e-6)
    differs[sees] = 0.0
    assert not differs.any()


# A new episode


@pytest.mark.parametrize("policy", [SMALL], ids=["box"])
def test_stale_contents_are_ignored(policy, random_params):
    """Whatever finite values, and any keys at all."""
    variables = {"params": random_params(policy)}
    inputs = random_inputs(NUM_STEPS, OBSERVATION_SIZE)
    fresh = outputs_of(policy, variables, inputs)
    random = np.random.default_rng(0)
    empty = policy.initial_carry()
    for size, key in [(1.0, 1.0), (1e38, -1e38), (3e38, np.nan), (1.0, np.inf)]:
        context = empty.context._replace(
            keys=tuple(
                np.float32(key * random.uniform(-1.0, 1.0, size=k.shape))
                for k in empty.context.keys
            ),
            values=tuple(
                np.float32(size * random.uniform(-1.0, 1.0, size=v.shape))
                for v in empty.context.values
            ),
            action=np.full_like(
                empty.context.action, np.nan if policy is SMALL else -(10**6)
            ),
        )
        for timestep in (0, 2, 10**6):
            carry = empty._replace(
                context=context,
                timestep=np.int32(timestep),
                return_to_go=np.float32(np.nan),
            )
            _, (outputs, _) = run(policy, variables, carry, inputs)
            np.testing.assert_array_equal(outputs, fresh)
