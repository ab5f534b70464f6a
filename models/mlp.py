"""Feed-forward policy: dense layers; without hidden ones, linear."""

import dataclasses
import functools
import itertools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config import MLPConfig
from models.feed_forward import FeedForwardPolicy
from models.layers import fan_in_dense
from models.policy import ActionSpec, check_sizes

ACTIVATIONS = {"tanh": nn.tanh, "relu": nn.relu}


class MLP(nn.Module):
    """Maps ``[O]`` to ``[num_outputs]`` through hidden layers."""

    observation_size: int
    hidden_sizes: tuple[int, ...]
    num_outputs: int
    activation: str = "tanh"
    head_scale: float = 1.0

    def setup(self):
        """Names the layers ``hidden_0``, ``hidden_1``, ... and ``head``."""
        inputs = (self.observation_size, *self.hidden_sizes)
        self.hidden = [fan_in_dense(*sizes) for sizes in itertools.pairwise(inputs)]
        self.head = fan_in_dense(inputs[-1], self.num_outputs, self.head_scale)

    def __call__(self, observation: jax.Array) -> jax.Array:
        """Returns the action before its tanh, or logits."""
        x = observation
        for layer in self.hidden:
            x = ACTIVATIONS[self.activation](layer(x))
        return self.head(x)


@dataclasses.dataclass(frozen=True)
class MLPPolicy(FeedForwardPolicy):
    """An ``MLP`` as a policy (the protocol of ``jax_es.types``); its carry is empty."""

    config: MLPConfig
    observation_size: int
    actions: ActionSpec

    def __post_init__(self):
        """Checks that the config fits the environment."""
        check_sizes(self.config, self.observation_size, self.actions)

    @functools.cached_property
    def network(self) -> MLP:
        """The Flax module."""
        return MLP(
            self.observation_size,
            self.config.hidden_sizes,
            self.actions.num_outputs,
            self.config.activation,
            self.config.head_scale,
        )

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        return self.network.init(key, jnp.zeros(self.observation_size))["params"]
