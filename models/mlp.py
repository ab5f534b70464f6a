"""Feed-forward policy: dense layers; without hidden ones, linear."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_es.models.config import AfterstateConfig, MLPConfig
from jax_es.models.layers import fan_in_dense
from jax_es.models.policy import ActionSpec, check_sizes
from jax_es.models.stepwise import FeedForwardPolicy

ACTIVATIONS = {"tanh": nn.tanh, "relu": nn.relu}


class MLP(nn.Module):
    """Maps ``[O]`` to ``[num_outputs]`` through hidden layers."""

    config: MLPConfig
    observation_size: int
    num_outputs: int

    def setup(self):
        """Names the layers ``hidden_0``, ``hidden_1``, ... and ``head``."""
        inputs = (self.observation_size, *self.config.hidden_sizes)
        self.hidden = [fan_in_dense(*sizes) for sizes in itertools.pairwise(inputs)]
        self.head = fan_in_dense(inputs[-1], self.num_outputs, self.config.head_scale)

    def __call__(self, observation: jax.Array) -> jax.Array:
        """Returns the action before its tanh, or logits."""
        x, activate = observation, ACTIVATIONS[self.config.activation]
        for layer in self.hidden:
            x = activate(layer(x))
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
        size = self.observation_size + self.reads_command
        return MLP(self.config, size, self.actions.num_outputs)

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        network = self.network
        return network.init(key, jnp.zeros(network.observation_size))["params"]


@dataclasses.dataclass(frozen=True)
class AfterstatePolicy(MLPPolicy):
    """An ``MLP`` that rates every choice by what the observation says of it."""

    config: AfterstateConfig

    def __post_init__(self):
        """Checks that there are equally many numbers for each choice."""
        super().__post_init__()
        num_choices = getattr(self.actions, "num_actions", 0)
        if not num_choices or self.observation_size % num_choices:
            raise ValueError(
                "policy.kind='afterstate' is not possible: observations of "
                f"{self.observation_size} numbers do not describe each of "
                f"{num_choices} choices; choose --policy mlp, or Tetris-v0"
            )

    @functools.cached_property
    def network(self) -> MLP:
        """The Flax module, which rates one choice."""
        size = self.observation_size // self.actions.num_outputs
        return MLP(self.config, size, 1)

    def outputs(self, variables: Mapping[str, Any], observation: jax.Array) -> Any:
        """Rates every choice by one member's variables: ``[num_actions]``."""
        network: Any = self.network.bind(variables)
        choices = observation.reshape(self.actions.num_outputs, -1)  # [A · F] → [A, F]
        return jax.vmap(network)(choices)[:, 0]
