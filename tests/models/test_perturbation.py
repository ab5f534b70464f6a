"""A member with a perturbation acts as one whose weights are θ + s·ε, all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.es.noise import LowRankNoise
from tests.models.perturbed import (
    QUICKLY,
    perturbed,
    random_member,
    run,
    steps,
)
from tests.models.test_contract import POLICIES, episode

CASES = [
    *((name, 1) for name in ("mlp-box", "lstm-discrete")),
    *((name, 1) for name in ("transformer-box", "cache-discrete")),
    # Here rank 4 factors some of the matrices and leaves others full.
    ("cache-box", 4),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-rank-{case[1]}")
def case(request, random_params):
    """A policy, θ, and the perturbations of an antithetic pair."""
    name, rank = request.param
    noise, mean = LowRankNoise(rank), random_params(POLICIES[name])
    pair = [random_member(noise, mean, scale) for scale in (0.3, -0.3)]
    assert noise.shared(mean) == {"params": mean}
    assert all(set(variables) == {"perturbation"} for variables in pair)
    return POLICIES[name], mean, [variables["perturbation"] for variables in pair]


def test_it_acts_as_its_written_out_weights(case):
    policy, mean, pair = case
    carry, inputs = policy.initial_carry(), episode()
    unperturbed = run(policy, {"params": mean}, carry, inputs)[1][0]
    for perturbation in pair:
        variables = {"params": mean, "perturbation": perturbation}
        _, (actual, actions) = run(policy, variables, carry, inputs)
        written_out = {"params": perturbed(mean, perturbation)}
        _, (expected, expected_actions) = run(policy, written_out, carry, inputs)
        np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(actions, expected_actions, rtol=2e-4, atol=2e-5)
        assert np.abs(expected - unperturbed).max(axis=1).min() > 0.01


@pytest.mark.parametrize(
    "name", ["mlp-box", "lstm-box", "transformer-discrete", "cache-box"]
)
def test_outputs_depend_on_every_perturbation(name, random_params):
    """One that nobody reads, for its name is another, would train nothing."""
    policy = POLICIES[name]
    mean = random_params(policy)

    def total(perturbation):
        variables = {"params": mean, "perturbation": perturbation}
        _, (outputs, _) = steps(policy, variables, policy.initial_carry(), episode())
        return jnp.square(outputs).sum()

    slope = jax.jit(jax.grad(total), compiler_options=QUICKLY)
    member = random_member(LowRankNoise(1), mean, seed=4)
    for path, gradient in jax.tree.leaves_with_path(slope(member["perturbation"])):
        size = np.abs(gradient).max()
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith("key/bias"):
            # Adds the same to every score of a query, which softmax cancels.
            assert size < 1e-4
        else:
            assert size > 1e-3, path
