"""A member with a perturbation acts as one whose weights are θ + s·ε, all of them."""

import functools

import jax
import numpy as np
import pytest

from jax_es.es.noise import LowRankNoise
from models import BoxActions
from tests.models.perturbed import (
    QUICKLY,
    perturbed,
    random_member,
    run,
    steps,
)
from tests.models.test_contract import NUM_STEPS, POLICIES, episode

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


def is_factors(node) -> bool:
    return isinstance(node, tuple)


def test_there_is_one_perturbation_for_each_weight(case):
    """A name of its own for one, and it would be read by nobody."""
    _, mean, (perturbation, _) = case
    own = dict(jax.tree.leaves_with_path(perturbation, is_leaf=is_factors))
    weights = dict(jax.tree.leaves_with_path(mean))
    assert own.keys() == weights.keys()
    for path, part in own.items():
        weight = weights[path]
        if is_factors(part):
            a, b = part
            assert a.shape == (weight.size // weight.shape[-1], b.shape[1])
            assert b.shape == (weight.shape[-1], a.shape[1])
        else:
            assert part.shape == weight.shape


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


# It reaches every weight


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def derivatives(policy, mean, perturbation, directions):
    """Of all outputs along ``M`` directions: ``[M, T, num_outputs]``; and the actions.

    Outputs, not actions: an index has no derivative.
    """

    def act(perturbation):
        variables = {"params": mean, "perturbation": perturbation}
        return steps(policy, variables, policy.initial_carry(), episode())[1]

    def along(direction):
        _, derivative, actions = jax.jvp(
            act, (perturbation,), (direction,), has_aux=True
        )
        return derivative, actions

    return jax.vmap(along, out_axes=(0, None))(directions)


def numpy_derivatives(policy, mean, perturbation, directions):
    """The same for a list of directions."""
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *directions)
    return map(np.asarray, derivatives(policy, mean, perturbation, stacked))


def one_leaf(tree, index: int, row: int | None = None):
    """A random direction in which a single leaf changes, or one row of it."""
    leaves, structure = jax.tree.flatten(jax.tree.map(np.zeros_like, tree))
    chosen = leaves[index] if row is None else leaves[index][row]
    chosen[...] = np.random.default_rng(index).normal(size=chosen.shape)
    return structure.unflatten(leaves)


def leaf_names(tree) -> list[str]:
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree.leaves_with_path(tree)
    ]


REACHED = ["mlp-box", "lstm-box", "transformer-discrete", "cache-box"]


@pytest.mark.parametrize("name", REACHED)
def test_outputs_depend_on_every_perturbation(name, random_params):
    """In every step of an episode, so that what is remembered counts as well.

    Of a table, on the rows of the steps that are still seen, and on no other.
    """
    policy = POLICIES[name]
    mean = random_params(policy)
    perturbation = random_member(LowRankNoise(1), mean, seed=4)["perturbation"]
    names = leaf_names(perturbation)
    directions = [one_leaf(perturbation, index) for index in range(len(names))]
    tables = []
    for table in ("embed_timestep/embedding/0", "embed_action/embedding/0"):
        if table in names:
            num_rows = NUM_STEPS + 1 if "timestep" in table else 3
            tables.append((len(directions), num_rows))
            directions += [
                one_leaf(perturbation, names.index(table), row)
                for row in range(num_rows)
            ]
    derivative, actions = numpy_derivatives(policy, mean, perturbation, directions)
    size = np.abs(derivative).max(axis=2)  # [M, T]
    for path, by_step in zip(names, size, strict=False):
        if path.endswith("key/bias"):
            # Adds the same to every score of a query, which softmax cancels.
            assert by_step.max() < 1e-5
            continue
        # The first step has no action and no memory before it.
        first = int(path.startswith(("embed_action", "hidden_gates")))
        assert not by_step[:first].any(), path
        assert by_step[first:].min() > 1e-5, path
    if name.startswith(("transformer", "cache")):
        (start, num_rows), *rest = tables
        reads = size[start : start + num_rows].T != 0  # [T, rows]
        assert reads.tolist() == [
            [step in seen(policy, t) for step in range(num_rows)]
            for t in range(NUM_STEPS)
        ]
    if name.endswith("discrete"):
        assert len(set(actions[:-1].tolist())) > 1
        ((start, num_rows),) = rest
        reads = size[start : start + num_rows].T != 0  # [T, choices]
        assert reads.tolist() == [
            [choice in actions[list(seen(policy, t))[:-1]] for choice in range(3)]
            for t in range(NUM_STEPS)
        ]


def seen(policy, timestep: int) -> range:
    """The steps that an output depends on, its own the last.

    A layer looks back K − 1 steps, and a cached token did so when it was computed.
    Real actions hand on the whole past.
    """
    config = policy.config
    if isinstance(policy.actions, BoxActions):
        return range(timestep + 1)
    layers = config.num_layers if config.attention == "cache" else 1
    reach = layers * (config.context_length - 1)
    return range(max(0, timestep - reach), timestep + 1)
