"""What an action is worth: the twin critic of TD3 (arXiv 1802.09477).

Its layers are normalised as in Ball et al. 2023 (arXiv 2302.02948): it learns from
steps that other policies took.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


class QNetwork(nn.Module):
    """Maps observations ``[B, O]`` and actions ``[B, A]`` to a number each."""

    width: int

    @nn.compact
    def __call__(self, observations: jax.Array, actions: jax.Array) -> jax.Array:
        """Returns ``[B]``, the discounted sums of the rewards to come."""
        x = jnp.concatenate([observations, actions], axis=1)  # [B, O + A]
        for _ in range(2):
            # Normalised, values stay bounded for actions that nobody took yet.
            x = nn.relu(nn.LayerNorm()(nn.Dense(self.width)(x)))
        return nn.Dense(1)(x)[:, 0]


@dataclasses.dataclass(frozen=True)
class TwinCritic:
    """Two networks of equal shape, drawn independently; the lower one is believed."""

    observation_size: int
    action_size: int
    width: int

    def init(self, key: jax.Array) -> Any:
        """Draws both networks' weights, a leading axis of 2 per leaf."""
        inputs = [jnp.zeros((1, n)) for n in (self.observation_size, self.action_size)]
        keys = jax.random.split(key)
        return jax.vmap(lambda own: QNetwork(self.width).init(own, *inputs))(keys)

    def apply(self, weights: Any, observations: jax.Array, actions: jax.Array) -> Any:
        """Returns ``[2, B]``, what either network says of a batch of steps."""
        network: Any = QNetwork(self.width)

        def value(which: int) -> Any:
            own = jax.tree.map(lambda leaf: leaf[which], weights)
            return network.apply(own, observations, actions)

        # On a CPU two products are faster than a batch of two.
        return jnp.stack([*map(value, range(len(jax.tree.leaves(weights)[0])))])
