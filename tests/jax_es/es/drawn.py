"""ε and members as full arrays, whichever family of noise they come from."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.es.noise import member_key
from tests.models.perturbed import materialised


def flat(tree) -> np.ndarray:
    """All numbers of a tree in one row."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def written_out(member, mean):
    """The weights of members of θ = ``mean``, float64; leaves may have leading axes."""
    if "params" in member:
        return jax.tree.map(np.float64, member["params"])
    return jax.tree.map(np.add, mean, materialised(member["perturbation"], mean))


@functools.partial(jax.jit, static_argnums=0)
def _draw(noise, generation_key, pairs, zero):
    def draw(pair):
        epsilon = noise.sample(member_key(generation_key, pair), zero)
        return noise.member(zero, epsilon, jnp.float32(1))

    return jax.vmap(draw)(pairs)


def drawn(noise, generation_key, pairs, mean):
    """The pairs' ε, ``[N, …]`` like ``mean``: members θ + 1·ε of θ = 0."""
    zero = jax.tree.map(jnp.zeros_like, mean)
    members = _draw(noise, generation_key, np.asarray(pairs, np.int32), zero)
    return written_out(members, zero)
