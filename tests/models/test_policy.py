import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.models import (
    AfterstateConfig,
    BinaryActions,
    BoxActions,
    DiscreteActions,
    MLPConfig,
    MultiDiscreteActions,
    make_policy,
)
from jax_es.models.cloning import action_loss
from jax_es.models.mlp import MLPPolicy
from jax_es.models.policy import (
    PolicyConfig,
    binned,
    from_environment,
    select_action,
    to_environment,
)

BOX = BoxActions(low=(-0.4, 0.0, -1.0), high=(0.4, 10.0, 1.0))
KEY = jax.random.key(0)


def act(config, actions, outputs, key=KEY):
    action = select_action(config, actions, jnp.asarray(outputs, jnp.float32), key)
    return to_environment(config, actions, action)


def test_scaled_box_actions_reach_the_bounds_and_never_leave_them():
    low, high = (-0.4, 0.1, -1 / 3), (0.7, 0.3, 1e-3)
    actions = BoxActions(low, high)
    outputs = jnp.linspace(-20.0, 20.0, 20001)
    scaled = jax.vmap(lambda x: act(PolicyConfig(), actions, jnp.full(3, x)))(outputs)
    assert np.all(np.asarray(scaled) >= np.float32(low))
    assert np.all(np.asarray(scaled) <= np.float32(high))
    for output, bounds in ((-99.0, BOX.low), (99.0, BOX.high)):
        reached = act(PolicyConfig(), BOX, [output] * 3)
        np.testing.assert_array_equal(reached, np.float32(bounds))


def test_unscaled_actions_need_no_bounds():
    outputs = [-1.0, 0.2, 30.0]
    endless = BoxActions((-math.inf,) * 3, (math.inf,) * 3)
    action = act(PolicyConfig(action_scale="none"), endless, outputs)
    np.testing.assert_allclose(action, np.tanh(outputs), rtol=1e-6)
    policy = MLPPolicy(MLPConfig(action_scale="none"), 3, endless)
    assert policy.actions == endless


def test_bins_are_evenly_spaced_from_bound_to_bound():
    config = PolicyConfig(action_bins=3)
    actions = binned(config, BOX)
    logits = np.float32([[3, 1, 2], [0, 1, 0], [-5, -7, -4]])
    assert actions.num_outputs == 9 and actions.size == 3
    chosen = act(config, actions, logits.ravel())
    np.testing.assert_allclose(chosen, [-0.4, 5.0, 1.0])
    assert binned(PolicyConfig(), BOX) is BOX
    sampled = PolicyConfig(action_bins=3, sample_actions=True)
    keys = jax.random.split(KEY, 500)
    draws = jax.vmap(lambda key: act(sampled, actions, logits.ravel(), key))(keys)
    share = np.exp(1.0) / (np.exp(1.0) + 2.0)  # of the second joint's middle bin
    assert abs(np.mean(np.asarray(draws)[:, 1] == 5.0) - share) < 0.1
    assert set(np.unique(draws[:, 0])) == set(np.float32([-0.4, 0.0, 0.4]))


def test_sampled_actions_follow_the_softmax():
    logits = np.array([0.0, 1.0, -1.0, 2.0])
    config = PolicyConfig(sample_actions=True)
    keys = jax.random.split(jax.random.key(1), 20000)
    draws = jax.vmap(lambda key: act(config, DiscreteActions(4), logits, key))(keys)
    assert draws.dtype == jnp.int32
    expected = np.exp(logits) / np.exp(logits).sum()
    frequency = np.bincount(np.asarray(draws), minlength=4) / keys.size
    standard_error = np.sqrt(expected * (1.0 - expected) / keys.size)
    assert np.all(np.abs(frequency - expected) < 4.0 * standard_error)


DIALS = MultiDiscreteActions((2, 3, 2, 1), (0, 5, -1, 0), (2, 2))
SWITCHES = BinaryActions((3,))


def test_each_factor_takes_its_largest_logit_and_each_switch_its_sign():
    assert DIALS.num_outputs == 8 and SWITCHES.num_outputs == 3
    logits = [0.0, 1.0, 3.0, 2.0, 4.0, -1.0, -2.0, 9.0]
    action = act(PolicyConfig(), DIALS, logits)
    assert action.dtype == jnp.int32
    np.testing.assert_array_equal(action, [[1, 7], [-1, 0]])
    switched = act(PolicyConfig(), SWITCHES, [-0.1, 0.2, 5.0])
    assert switched.dtype == jnp.int32 and switched.tolist() == [0, 1, 1]


def test_sampled_factors_and_switches_follow_softmax_and_sigmoid():
    config = PolicyConfig(sample_actions=True)
    keys = jax.random.split(jax.random.key(1), 4000)
    logits = jnp.array([0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    draws = jax.vmap(lambda key: act(config, DIALS, logits, key))(keys)
    share = np.mean(np.asarray(draws)[:, 0, 1] == 6)
    assert abs(share - np.exp(2) / (np.exp(2) + 2)) < 0.03
    switches = jax.vmap(lambda key: act(config, SWITCHES, [0.0, 2.0, -9.0], key))(keys)
    rates = np.asarray(switches).mean(axis=0)
    np.testing.assert_allclose(rates, [0.5, 0.881, 0.0], atol=0.03)
    joint = np.corrcoef(np.asarray(draws)[:, 0, 0], np.asarray(draws)[:, 1, 0])[0, 1]
    assert abs(joint) < 0.06


@pytest.mark.parametrize("actions", [DIALS, SWITCHES], ids=["dials", "switches"])
def test_the_networks_own_action_is_the_environments(actions):
    config, keys = PolicyConfig(sample_actions=True), jax.random.split(KEY, 50)
    logits = jnp.zeros(actions.num_outputs)
    own = jax.vmap(lambda key: select_action(config, actions, logits, key))(keys)
    theirs = jax.vmap(lambda action: to_environment(config, actions, action))(own)
    assert theirs.shape == (50, *actions.shape)
    np.testing.assert_array_equal(from_environment(config, actions, theirs), own)
    # What was recorded is the likeliest where the outputs say so.
    surprise = action_loss(actions, 20.0 * (own - 0.5), own)
    assert surprise.shape == (50,) and surprise.max() < 0.01
    even = action_loss(actions, jnp.zeros_like(own), own)
    factors = getattr(actions, "nvec", (2, 2, 2))
    np.testing.assert_allclose(even, np.log(factors).mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BoxActions((), ()), "length of at least 1, got 0 and 0"),
        (lambda: BoxActions((-1.0,), (1.0, 2.0)), "got 1 and 2"),
        (lambda: BoxActions((1.0,), (1.0,)), r"low must be below high, got \[1.0, 1.0"),
        (lambda: BoxActions((math.nan,), (1.0,)), "low must be below high"),
        (lambda: DiscreteActions(0), "num_actions must be at least 1, got 0"),
        (
            lambda: PolicyConfig(action_scale="unit"),
            "action_scale='unit' is not possible: choose",
        ),
        (lambda: MLPPolicy(MLPConfig(), 0, BOX), "observation_size=0 is not possible"),
        (
            lambda: MLPPolicy(MLPConfig(), 3, BoxActions((-math.inf,), (1.0,))),
            "action_scale='bounds'.*infinite bounds.*set policy.action_scale none",
        ),
        (
            lambda: MLPPolicy(MLPConfig(sample_actions=True), 3, BOX),
            "sample_actions=True.*leave it out",
        ),
        (lambda: PolicyConfig(action_bins=1), "action_bins=1.*at least 2"),
        (
            lambda: binned(PolicyConfig(action_bins=3), DiscreteActions(2)),
            "action_bins=3.*choices already; leave it out",
        ),
        (
            lambda: make_policy(AfterstateConfig(), 7, DiscreteActions(3)),
            "afterstate.*7 numbers do not describe each of 3 choices",
        ),
    ],
)
def test_errors_name_argument_value_and_remedy(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_bounds_from_arrays_are_hashable():
    bounds = np.array([-1.0, -2.0], np.float32)
    actions = BoxActions(bounds, -bounds)
    assert actions == BoxActions((-1.0, -2.0), (1.0, 2.0))
    assert hash(actions) == hash(BoxActions((-1.0, -2.0), (1.0, 2.0)))
