"""What every policy owes its caller, whatever network is inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.es.noise import LowRankNoise
from jax_es.models import (
    AfterstateConfig,
    BinaryActions,
    BoxActions,
    DecisionTransformerConfig,
    DiscreteActions,
    LSTMConfig,
    MLPConfig,
    MultiDiscreteActions,
    make_policy,
)
from jax_es.types import Policy
from tests.models.perturbed import (
    inputs_of,
    random_inputs,
    random_member,
    run,
    steps,
)

OBSERVATION_SIZE = 5
NUM_STEPS = 7
BOX = BoxActions((-0.4, -3.0), (0.4, 1.0))
CHOICE = DiscreteActions(3)
DIALS = MultiDiscreteActions((2, 3), (0, 1), (2,))
SWITCHES = BinaryActions((2,))
SMALL = {"context_length": 3, "width": 8, "num_layers": 2, "num_heads": 2}

CASES = {
    "mlp-box": (MLPConfig(hidden_sizes=(8, 8)), BOX),
    "mlp-bins": (MLPConfig(hidden_sizes=(8,), action_bins=3), BOX),
    "mlp-discrete": (MLPConfig(hidden_sizes=(8, 8)), CHOICE),
    "mlp-dials": (MLPConfig(hidden_sizes=(8, 8)), DIALS),
    "lstm-switches": (LSTMConfig(width=8), SWITCHES),
    "transformer-dials": (DecisionTransformerConfig(**SMALL), DIALS),
    "cache-switches": (DecisionTransformerConfig(**SMALL, attention="cache"), SWITCHES),
    "mlp-sampled": (MLPConfig(hidden_sizes=(8,), sample_actions=True), CHOICE),
    "lstm-box": (LSTMConfig(width=8), BOX),
    "afterstate": (AfterstateConfig(hidden_sizes=(4,)), DiscreteActions(5)),
    "lstm-discrete": (LSTMConfig(width=8), CHOICE),
    "lstm-commanded": (LSTMConfig(width=8, target_return=900.0), BOX),
    "transformer-box": (DecisionTransformerConfig(**SMALL), BOX),
    "transformer-discrete": (DecisionTransformerConfig(**SMALL), CHOICE),
    "transformer-sampled": (
        DecisionTransformerConfig(**SMALL, sample_actions=True),
        CHOICE,
    ),
    "cache-box": (DecisionTransformerConfig(**SMALL, attention="cache"), BOX),
    "cache-discrete": (DecisionTransformerConfig(**SMALL, attention="cache"), CHOICE),
    "cache-no-past": (
        DecisionTransformerConfig(
            context_length=1, width=8, num_layers=1, attention="cache"
        ),
        BOX,
    ),
}
POLICIES = {
    name: make_policy(config, OBSERVATION_SIZE, actions)
    for name, (config, actions) in CASES.items()
}
# Members of a population, by the two ways to give them weights of their own.
MEMBERS = {name: (policy, None) for name, policy in POLICIES.items()} | {
    f"{name}-low-rank": (POLICIES[name], LowRankNoise(1))
    for name in (
        "transformer-box",
        "cache-discrete",
    )
}


@pytest.fixture(params=MEMBERS.values(), ids=MEMBERS.keys())
def member(request):
    return request.param


@pytest.fixture
def policy(member):
    return member[0]


@pytest.fixture
def draw_variables(member, random_params):
    """Draws a member's variables: params of its own, or shared and a perturbation."""
    policy, noise = member

    def draw(seed=0):
        if noise is None:
            return {"params": random_params(policy, seed)}
        mean = random_params(policy)
        return {**noise.shared(mean), **random_member(noise, mean, seed=seed)}

    return draw


@pytest.fixture
def variables(draw_variables):
    return draw_variables()


def episode(seed=0):
    """Observations, rewards, first and keys of ``NUM_STEPS`` steps."""
    return random_inputs(NUM_STEPS, OBSERVATION_SIZE, seed)


def actions_of(policy, variables, inputs):
    """All actions of an episode."""
    return np.asarray(run(policy, variables, policy.initial_carry(), inputs)[1][1])


# How a context is read, or an action chosen, has nothing to do with the start.
@pytest.mark.parametrize(
    "policy",
    [
        POLICIES[f"{name}-{kind}"]
        for name in ("mlp", "lstm")
        for kind in ("box", "discrete")
    ]
    + [POLICIES["transformer-box"], POLICIES["cache-discrete"]],
)
def test_init_depends_on_the_key_only(policy):
    # This kind of key compiles ten times faster than the default.
    keys = [jax.random.key(seed, impl="unsafe_rbg") for seed in (0, 0, 1)]
    params, again, other = map(jax.jit(policy.init), keys)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert (params["head"]["kernel"] != other["head"]["kernel"]).all()


def test_actions_fit_the_space(policy, variables):
    actions = actions_of(policy, variables, episode())
    if isinstance(policy.actions, DiscreteActions):
        assert actions.dtype == jnp.int32
        assert actions.shape == (NUM_STEPS,)
        assert set(actions.tolist()) <= set(range(policy.actions.num_actions))
        return
    assert actions.shape == (NUM_STEPS, 2)
    if not isinstance(policy.actions, BoxActions):
        assert actions.dtype == jnp.int32
        low, count = (0, 2) if policy.actions == SWITCHES else ([0, 1], [2, 3])
        assert (actions >= low).all() and (actions < np.add(low, count)).all()
        return
    assert actions.dtype == jnp.float32
    assert isinstance(policy, Policy)
    low, high = np.float32(policy.actions.low), np.float32(policy.actions.high)
    assert np.all(actions >= low)
    assert np.all(actions <= high)
    assert np.ptp(actions, axis=0).min() > 0.0  # it reads what it is given


def test_carry_keeps_its_type(policy, variables):
    """Else ``lax.scan`` would refuse it, or the second step compile anew."""

    def types(carry):
        return jax.tree.map(lambda leaf: jax.typeof(leaf), carry)

    carry = policy.initial_carry()
    inputs = jax.tree.map(lambda leaf: leaf[0], episode())
    step = jax.jit(policy.apply).trace(variables, carry, *inputs)
    after = jax.tree.map(
        lambda leaf: jax.core.ShapedArray(leaf.shape, leaf.dtype, leaf.weak_type),
        step.out_info[0],
    )
    assert after == types(carry)


def garbage(policy, variables):
    """What a carry may hold where a new episode begins.

    A cache is read where it is masked, times 0. Its contract is therefore not to
    forget anything at all, but whatever the policy itself has left in it.
    """
    if getattr(policy.config, "attention", None) == "cache":
        observations, rewards, _, _ = episode(seed=1)
        observations[3:, ::2] = np.nan
        observations[4:] = np.inf
        rewards[5] = np.nan
        inputs = inputs_of(observations, rewards)
        carry, (outputs, _) = run(policy, variables, policy.initial_carry(), inputs)
        assert np.isnan(outputs[-1]).all()
        return carry
    return jax.tree.map(
        lambda leaf: np.full_like(leaf, np.nan if leaf.dtype.kind == "f" else 10**6),
        policy.initial_carry(),
    )


@pytest.mark.compiled
def test_first_forgets_whatever_was_carried(policy, variables):
    observations, rewards, first, keys = episode()
    rewards[0] = np.nan  # a failed simulation's last words
    inputs = (observations, rewards, first, keys)
    stale = garbage(policy, variables)
    _, (expected, _) = run(policy, variables, policy.initial_carry(), inputs)
    _, (actual, _) = run(policy, variables, stale, inputs)
    assert not np.isnan(actual).any()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.compiled
def test_vmap_equals_loop(policy, draw_variables):
    """Each member has its own weights, its own episode and its own clock."""
    members = [draw_variables(seed) for seed in range(3)]
    inputs = [episode(seed) for seed in range(3)]
    inputs[1] = (*inputs[1][:2], np.arange(NUM_STEPS) % 3 == 0, inputs[1][3])
    carry = policy.initial_carry()
    expected = [
        run(policy, variables, carry, member)[1][0]
        for variables, member in zip(members, inputs, strict=True)
    ]

    def stack(*leaves):
        return jnp.stack(leaves)

    own = "perturbation" if "perturbation" in members[0] else "params"
    variables = {**members[0], own: jax.tree.map(stack, *(m[own] for m in members))}
    axes = {name: 0 if name == own else None for name in variables}
    together = jax.vmap(steps, in_axes=(None, axes, None, 0))
    _, (outputs, _) = jax.jit(together, static_argnums=0)(
        policy, variables, carry, jax.tree.map(stack, *inputs)
    )
    for member in range(3):
        np.testing.assert_allclose(
            outputs[member], expected[member], rtol=1e-4, atol=2e-5
        )
    assert np.abs(expected[0] - expected[2]).max() > 0.01


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_only_sampling_uses_the_key(policy, random_params):
    variables = {"params": random_params(policy)}
    observations, rewards, _, _ = episode()
    first = np.ones(NUM_STEPS, bool)  # so that one draw does not lead to another
    actions = [
        actions_of(policy, variables, (observations, rewards, first, keys))
        for _, _, _, keys in map(episode, range(5))
    ]
    varies = any((other != actions[0]).any() for other in actions[1:])
    assert varies == policy.config.sample_actions
