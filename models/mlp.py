"""Feed-forward policy: dense layers; without hidden ones, linear."""

import dataclasses
import functools
import itertools
import math
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.feed_forward import FeedForwardPolicy
from models.layers import fan_in_dense
from models.policy import (
    ActionSpec,
    PolicyConfig,
    check_sizes,
    require,
)

ACTIVATIONS = {"tanh": nn.tanh, "relu": nn.relu}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLPConfig(PolicyConfig):
    """A feed-forward network (``mlp``)."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    """Width of each hidden layer, in units; empty for a linear policy."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity of the hidden layers."""
    head_scale: float = 1.0
    """Factor on the head's initial weights; with 0 actions begin in the middle of
    their bounds."""

    def __post_init__(self):
        """Checks the fields."""
        super().__post_init__()
        require(
            all(size >= 1 for size in self.hidden_sizes),
            "hidden_sizes",
            self.hidden_sizes,
            "every width must be at least 1, for example 256 256",
        )
        require(
            0.0 <= self.head_scale < math.inf,
            "head_scale",
            self.head_scale,
            "it must be at least 0 and finite; 1 begins as PyTorch does",
        )
        require(
            self.activation in ACTIVATIONS,
            "activation",
            self.activation,
            'choose "tanh" or "relu"',
        )


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
