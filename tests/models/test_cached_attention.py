"""Acting from a cache of keys and values against the network's parallel form.

The two share no code but the layers: one writes a ring step by step, the other reads
a whole trajectory under a mask. ``test_decision_transformer_reference.py`` compares
with NumPy.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.es.noise import FullNoise, LowRankNoise
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
    "policy",
    [SMALL, SMALL_CHOICE, ONE_LAYER, ONE_STEP],
    ids=["layers=2", "choice-layers=3", "layers=1", "K=1"],
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
        # One layer's keys and values are made of their own tokens alone, and so are
        # all layers' where a step sees nothing but itself.
        (ONE_LAYER, None),
        (ONE_STEP, None),
    ],
    ids=["layers=2", "choice-layers=3", "layers=1", "K=1"],
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


def test_both_attentions_have_the_same_weights():
    config = dataclasses.replace(SMALL.config, attention="window")
    windowed = dataclasses.replace(SMALL, config=config)
    assert jax.eval_shape(SMALL.init, jax.random.key(0)) == jax.eval_shape(
        windowed.init, jax.random.key(0)
    )


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


@pytest.mark.parametrize("policy", [SMALL, SMALL_CHOICE], ids=["box", "choice"])
def test_an_old_episode_is_forgotten(policy, random_params):
    """Bit for bit, wherever in the ring it stopped and whatever it saw."""
    variables = {"params": random_params(policy)}
    observations, rewards, *_ = random_inputs(NUM_STEPS, OBSERVATION_SIZE)
    fresh = outputs_of(policy, variables, inputs_of(observations, rewards))
    for length in (1, 2, 3, 4, 5, 11):
        for strange in (1.0, 1e30, np.nan, np.inf):
            old_observations = np.array(random_inputs(length, OBSERVATION_SIZE, 1)[0])
            old_observations[length // 2 :, ::2] *= strange
            new = slice(None, NUM_STEPS - length)
            timestep = np.arange(NUM_STEPS)
            inputs = inputs_of(
                np.concatenate([old_observations, observations[new]]),
                # A failed simulation's last reward comes with the next observation.
                np.concatenate([rewards[:length], [strange], rewards[1:][new][:-1]]),
                (timestep == 0) | (timestep == length),
            )
            outputs = outputs_of(policy, variables, inputs)
            if not np.isfinite(strange):
                assert np.isnan(outputs[:length]).any()
            np.testing.assert_array_equal(outputs[length:], fresh[new])


@pytest.mark.parametrize("policy", [SMALL, SMALL_CHOICE], ids=["box", "choice"])
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


def test_what_is_cached_is_finite(random_params):
    """0 · NaN = NaN: a masked value still counts in the sum, so it must be finite."""
    observations, rewards, *_ = random_inputs(NUM_STEPS, OBSERVATION_SIZE)
    for strange in (np.nan, np.inf, 1e37):
        seen = observations.copy()
        seen[5:] *= strange
        inputs = inputs_of(seen, rewards)
        variables = {"params": random_params(SMALL)}
        carry, _ = run(SMALL, variables, SMALL.initial_carry(), inputs)
        for values in carry.context.values:
            assert np.isfinite(values).all()


# The compiled step

SLOTS = 6


def act_in_slots(policy, noise):
    """The step of all slots, the carry's buffers donated; and the arguments' types."""

    def act(shared, members, carry, observations, rewards, first):
        def one(member, *inputs):
            return policy.apply({**shared, **member}, *inputs, jax.random.key(0))

        return jax.vmap(one)(members, carry, observations, rewards, first)

    def arguments():
        mean = policy.init(jax.random.key(0))
        epsilon = noise.sample(jax.random.key(0), mean)
        one_slot = (
            noise.member(mean, epsilon, jnp.float32(1.0)),
            policy.initial_carry(),
            jnp.zeros(OBSERVATION_SIZE),
            jnp.float32(0.0),
            jnp.bool(False),
        )
        slots = jax.tree.map(lambda leaf: jnp.stack(SLOTS * [leaf]), one_slot)
        return noise.shared(mean), *slots

    return jax.jit(act, donate_argnums=2), jax.eval_shape(arguments)


def buffers_made(program: str, size: int) -> list[str]:
    """What the entry of a compiled program computes into arrays of ``size`` numbers."""
    entry = program[program.index("\nENTRY") :]
    made = []
    for line in entry.splitlines():
        match = re.match(r"\s*(?:ROOT )?%(\S+) = f32\[([\d,]+)\]\S* ([\w-]+)\(", line)
        if match and np.prod([int(n) for n in match[2].split(",")]) == size:
            made.append((match[1], match[3]))
    # Arguments, and other names for the same buffer.
    free = ("parameter", "bitcast", "get-tuple-element")
    return [name for name, operation in made if operation not in free]


@pytest.mark.parametrize(
    ("noise", "num_heads"),
    [
        (FullNoise(), 1),
        (LowRankNoise(1), 1),
        (LowRankNoise(1), 2),
    ],
    ids=["full", "low-rank", "low-rank-2-heads"],
)
def test_a_step_copies_no_cache(noise, num_heads):
    """It writes into the buffers it was given; a copy would cost more than the step."""
    policy = make(
        context_length=50, width=32, num_heads=num_heads, num_layers=2, max_timestep=3
    )
    step, arguments = act_in_slots(policy, noise)
    with jax.default_device(jax.devices("cpu")[0]):  # what is read below is XLA CPU's
        compiled = step.lower(*arguments).compile()
    memory = compiled.memory_analysis()
    context = arguments[2].context
    carry_size = sum(leaf.size for leaf in jax.tree.leaves(arguments[2]))
    assert memory.alias_size_in_bytes == 4 * carry_size
    assert memory.temp_size_in_bytes < 4 * context.keys[0].size
    # One write into each, and nothing else of that size.
    made = buffers_made(compiled.as_text(), context.keys[0].size)
    assert len(made) == 2 * policy.config.num_layers, made
    assert not [name for name in made if "copy" in name or "transpose" in name]


def test_the_second_step_compiles_nothing(compilations):
    step, types = act_in_slots(ONE_LAYER, LowRankNoise(1))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), types)
    shared, members, carry, *inputs = zeros
    compilations.clear()
    given = jax.tree.leaves(carry)
    carry, _ = jax.block_until_ready(step(shared, members, carry, *inputs))
    assert compilations
    assert all(leaf.is_deleted() for leaf in given)
    compilations.clear()
    for _ in range(2):
        carry, _ = jax.block_until_ready(step(shared, members, carry, *inputs))
    assert not compilations
