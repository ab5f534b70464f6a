"""Shared by tests: what a perturbation stands for, and outputs instead of actions."""

import functools
import sys
from typing import Any

import jax
import numpy as np
import pytest

from jax_es.models.policy import select_action


def materialised(perturbation: Any, mean: Any) -> Any:
    """Returns the full arrays that a perturbation means, float64, like ``mean``.

    Leaves of the perturbation may have leading axes. Written without ``models`` and
    ``jax_es``, from the definition: a pair (A, B) is the matrix A Bᵀ.
    """

    def full(leaf, part):
        if not isinstance(part, tuple):
            return np.float64(part)
        a, b = map(np.float64, part)
        lead = a.shape[:-2]
        return (a @ np.swapaxes(b, -1, -2)).reshape(*lead, *leaf.shape)

    return jax.tree.map(full, mean, perturbation)


def perturbed(mean: Any, perturbation: Any) -> Any:
    """Returns the weights θ + δ as float32 arrays; leading axes as above."""
    full = materialised(perturbation, mean)
    return jax.tree.map(lambda m, d: np.float32(np.float64(m) + d), mean, full)


def random_perturbation(mean: Any, rank: int | None, seed: int = 0) -> Any:
    """Draws factors of every matrix, or full arrays (``None``); a number is about ½."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return np.float32(0.5 * random.normal(size=shape))

    def draw_leaf(leaf):
        if rank is None or leaf.ndim < 2:
            return draw(*leaf.shape)
        rows = leaf.size // leaf.shape[-1]
        return draw(rows, rank), draw(leaf.shape[-1], rank)

    return jax.tree.map(draw_leaf, mean)


@functools.partial(jax.jit, static_argnums=0)
def _member(noise, mean, epsilon, scale):
    return noise.member(mean, epsilon, scale)


def random_member(noise, mean, scale: float = 0.3, seed: int = 0) -> Any:
    """A member's own collections; ε is NumPy's, since threefry compiles slowly."""
    length = jax.eval_shape(noise.sample, jax.random.key(0), mean).shape
    epsilon = np.random.default_rng(seed).normal(size=length)
    return _member(noise, mean, np.float32(epsilon), np.float32(scale))


def apply(policy, variables, carry, *inputs):
    """Like ``policy.apply``, but returns ``(carry, (network outputs, action))``.

    Outputs are what actions are selected from: an index has no gradient and hides
    small differences.
    """
    seen = []

    def select(config, actions, outputs, key):
        seen.append(outputs)
        return select_action(config, actions, outputs, key)

    module = sys.modules[type(policy).apply.__module__]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "select_action", select)
        carry, action = policy.apply(variables, carry, *inputs)
    (outputs,) = seen
    return carry, (outputs, action)


def steps(policy, variables, carry, inputs):
    """Acts through ``inputs [T, …]``: ``(last carry, (outputs, actions) [T, …])``."""
    return jax.lax.scan(
        lambda carry, inputs: apply(policy, variables, carry, *inputs), carry, inputs
    )


run = jax.jit(steps, static_argnums=0)


def inputs_of(observations, rewards, first=None, seed=0):
    """Completes the inputs of an episode with ``first`` and keys."""
    num_steps = len(observations)
    if first is None:
        first = np.arange(num_steps) == 0
    keys = jax.random.split(jax.random.key(seed), num_steps)
    return np.float32(observations), np.float32(rewards), np.array(first), keys


def random_inputs(num_steps: int, observation_size: int, seed: int = 0):
    """Draws the inputs of one episode; rewards suit a target return in thousands."""
    random = np.random.default_rng(seed)
    observations = random.normal(size=(num_steps, observation_size))
    rewards = random.normal(100.0, 300.0, size=num_steps)
    return inputs_of(observations, rewards, seed=seed)
