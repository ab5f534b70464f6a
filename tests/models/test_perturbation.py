"""A member with a perturbation acts as one whose weights are θ + s·ε, all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.es.noise import LowRankNoise
from tests.models.perturbed import (
    perturbed,
    random_member,
    run,
    steps,
)
from tests.models.test_contract import POLICIES, episode
from tests.models.test_image_decision_transformer import CACHE, WINDOW
from tests.models.test_image_decision_transformer import episode as frames

# A policy, the rank of its noise, an episode, and tolerances.
VECTORS, IMAGES = (2e-4, 2e-5), (1e-3, 1e-4)
CASES = {
    name: (POLICIES[name], 1, episode, VECTORS)
    for name in ("mlp-box", "lstm-discrete", "transformer-box", "cache-discrete")
}
# Here rank 4 factors some of the matrices and leaves others full.
CASES["cache-box-rank-4"] = POLICIES["cache-box"], 4, episode, VECTORS
CASES["image-window"] = WINDOW, 1, frames, IMAGES
CASES["image-cache"] = CACHE, 1, frames, IMAGES


@pytest.mark.parametrize(
    ("policy", "rank", "episode", "tolerances"), CASES.values(), ids=CASES.keys()
)
def test_it_acts_as_its_written_out_weights(
    policy, rank, episode, tolerances, random_params
):
    """Both members of an antithetic pair."""
    mean, carry, inputs = random_params(policy), policy.initial_carry(), episode()
    rtol, atol = tolerances
    unperturbed = run(policy, {"params": mean}, carry, inputs)[1][0]
    for scale in (0.3, -0.3):
        member = random_member(LowRankNoise(rank), mean, scale)
        _, (actual, actions) = run(policy, {"params": mean, **member}, carry, inputs)
        written_out = {"params": perturbed(mean, member["perturbation"])}
        _, (expected, expected_actions) = run(policy, written_out, carry, inputs)
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
        np.testing.assert_allclose(actions, expected_actions, rtol=rtol, atol=atol)
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

    slope = jax.jit(jax.grad(total))
    member = random_member(LowRankNoise(1), mean, seed=4)
    for path, gradient in jax.tree.leaves_with_path(slope(member["perturbation"])):
        size = np.abs(gradient).max()
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith("key/bias"):
            # Adds the same to every score of a query, which softmax cancels.
            assert size < 1e-4
        else:
            assert size > 1e-3, path
