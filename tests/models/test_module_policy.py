"""Any Flax module as a policy: its noise reaches every weight, in whichever form."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.es.noise import FullNoise, LowRankNoise, member_key
from jax_es.models import layers
from jax_es.models.config import PolicyConfig
from jax_es.models.module_policy import (
    FullWeightsPolicy,
    ModulePolicy,
    RecurrentModulePolicy,
)
from jax_es.models.policy import BoxActions, DiscreteActions

BOX = BoxActions((-2.0, -1.0), (2.0, 1.0))
SHAPE = (10, 9, 3)


class Step(nn.Module):
    """What ``nn.scan`` repeats; no perturbation reaches its layer."""

    @nn.compact
    def __call__(self, carry, _):
        return nn.tanh(nn.Dense(7)(carry)), None


class Everything(nn.Module):
    """Layers that read factors, layers that do not, weights of its own."""

    num_outputs: int

    @nn.compact
    def __call__(self, observation):
        x = nn.relu(nn.Conv(8, (3, 3), strides=2, padding="VALID")(observation))
        x = nn.relu(nn.Conv(8, (2, 2), feature_group_count=8)(nn.LayerNorm()(x)))
        x = x.reshape(-1)
        own = self.param("own", nn.initializers.lecun_normal(), (x.size, 9))
        x = nn.Embed(9, 9)(jnp.argmax(observation[0, :, 0])) + x @ own
        x = layers.LayerNorm()(nn.Dense(12)(x))
        x = nn.Dense(7, use_bias=False)(x)
        scan = nn.scan(
            Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=3
        )
        x, _ = scan()(x, None)
        tied = nn.Embed(6, 7, name="tied")
        x = tied(jnp.argmax(tied.attend(x))) + x
        return layers.Dense(self.num_outputs)(x)


class Counter(nn.Module):
    """Returns how many steps of the episode there were."""

    num_outputs: int = 2

    def initial_carry(self):
        return {"steps": jnp.ones(())}

    @nn.compact
    def __call__(self, carry, observation):
        outputs = 0.0 * nn.Dense(self.num_outputs)(observation)
        steps = carry["steps"]
        return {"steps": steps + 1}, outputs + steps / 10


@pytest.fixture(scope="module")
def policy():
    return ModulePolicy(PolicyConfig(), Everything(4), SHAPE, DiscreteActions(4))


@pytest.fixture(scope="module")
def mean(policy):
    return jax.jit(policy.init)(jax.random.key(0))


@pytest.mark.parametrize("noise", [FullNoise(), LowRankNoise(1), LowRankNoise(2)])
def test_a_member_acts_as_its_materialised_weights(policy, mean, noise):
    observation = jax.random.normal(jax.random.key(1), SHAPE)
    key, scale = jax.random.key(3), jnp.float32(0.1)

    @jax.jit
    def act_both_ways():
        # ε as the update has it: Σ wᵢ εᵢ over a single pair.
        full = noise.weighted_sum(key, jnp.arange(1), jnp.ones(1), mean)
        weights = jax.tree.map(lambda m, e: m + scale * e, mean, full)
        epsilon = noise.sample(member_key(key, 0), mean)
        member = {**noise.shared(mean), **noise.member(mean, epsilon, scale)}
        return (
            policy.outputs(member, observation),
            policy.module.apply({"params": weights}, observation),
            policy.module.apply({"params": mean}, observation),
        )

    acted, expected, unperturbed = act_both_ways()
    np.testing.assert_allclose(acted, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(expected, unperturbed, rtol=1e-2)


def test_only_what_layers_read_stays_in_factors(policy):
    read = {"/".join(path) for path in policy.read_by_layers}
    assert read == {
        *("Dense_0/kernel", "Dense_0/bias", "Dense_1/kernel"),
        *("LayerNorm_1/scale", "LayerNorm_1/bias"),
        *("Dense_2/kernel", "Dense_2/bias"),
    }


def test_a_recurrent_module_starts_again_with_every_episode():
    policy = RecurrentModulePolicy(PolicyConfig(), Counter(), (3,), BOX)
    variables = {"params": policy.init(jax.random.key(0))}
    carry, key, actions = {"steps": jnp.float32(jnp.nan)}, jax.random.key(0), []
    for first in (True, False, False, True):
        carry, action = policy.apply(
            variables, carry, jnp.zeros(3), jnp.float32(0), jnp.asarray(first), key
        )
        actions.append(np.arctanh(action[1]) * 10)
    np.testing.assert_allclose(actions, [1, 2, 3, 1], rtol=1e-4)


def test_a_policy_that_knows_params_alone_gets_full_weights():
    class Linear:
        def init(self, key):
            return {"w": jnp.zeros((6, 5))}

        def initial_carry(self):
            return ()

        def apply(self, variables, carry, observation, reward, first, key):
            return carry, observation @ variables["params"]["w"]

    policy, noise = FullWeightsPolicy(Linear(), (6,)), LowRankNoise(1)
    mean = policy.init(jax.random.key(0))
    epsilon = noise.sample(jax.random.key(1), mean)
    change = dict(noise.member(mean, epsilon, jnp.float32(1.0)))
    a, b = change["perturbation"]["w"]
    _, action = policy.apply(
        {**noise.shared(mean), **change},
        (),
        jnp.ones(6),
        jnp.zeros(()),
        jnp.asarray(True),
        jax.random.key(0),
    )
    np.testing.assert_allclose(action, jnp.ones(6) @ (a @ b.T), rtol=1e-5)


class Complex(nn.Module):
    @nn.compact
    def __call__(self, observation):
        return 1j * nn.Dense(2)(observation)


class Integers(nn.Module):
    @nn.compact
    def __call__(self, observation):
        weights = self.param("w", lambda key: jnp.ones((3, 2), jnp.int32))
        return observation @ weights


class WithoutWeights(nn.Module):
    @nn.compact
    def __call__(self, observation):
        return observation[:2]


class Plain:
    """A policy of its own, which flax knows nothing of."""

    def __init__(self, weight):
        self.weight = weight

    def init(self, key):
        return self.weight

    def initial_carry(self):
        return ()

    def apply(self, variables, carry, observation, reward, first, key):
        return carry, observation[:2] * variables["params"].sum()


class Normalised(nn.Module):
    @nn.compact
    def __call__(self, observation):
        return nn.BatchNorm(use_running_average=False)(observation)


class Forgetful(Counter):
    def initial_carry(self):
        return {"steps": jnp.ones(()), "forgotten": jnp.ones(())}


def test_what_cannot_act_is_rejected():
    config = PolicyConfig()
    with pytest.raises(ValueError, match=r"shape \(2,\).*returns float32\[4\]"):
        ModulePolicy(config, nn.Dense(4), (3,), BOX)
    with pytest.raises(ValueError, match=r"keeps batch_stats.*LayerNorm"):
        ModulePolicy(config, Normalised(), (2,), BOX)
    with pytest.raises(ValueError, match="same shapes and types"):
        RecurrentModulePolicy(config, Forgetful(), (3,), BOX)
    with pytest.raises(ValueError, match="Complex returns complex64, expected real"):
        ModulePolicy(config, Complex(), (3,), BOX)
    with pytest.raises(ValueError, match="weights of int32, expected at least one"):
        ModulePolicy(config, Integers(), (3,), BOX)
    with pytest.raises(ValueError, match="weights of no kind, expected at least one"):
        ModulePolicy(config, WithoutWeights(), (3,), BOX)
    for weight, words in (
        (jnp.ones(2, int), "of int32"),
        (1j * jnp.ones(2), "of c"),
    ):
        with pytest.raises(ValueError, match=f"weights {words}"):
            FullWeightsPolicy(Plain(weight), (3,))
