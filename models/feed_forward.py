"""What policies without a memory share: an empty carry, and one look at a time."""

import abc
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from models.policy import ActionSpec, PolicyConfig, select_action, to_environment


class FeedForwardPolicy(abc.ABC):
    """A policy of ``jax_es.types`` whose network maps an observation to outputs."""

    config: PolicyConfig
    actions: ActionSpec

    @property
    @abc.abstractmethod
    def network(self) -> nn.Module:
        """The Flax module: an observation → the action before its tanh, or logits."""

    def initial_carry(self) -> tuple[()]:
        """Returns the empty carry."""
        return ()

    def apply(
        self,
        variables: Mapping[str, Any],
        carry: tuple[()],
        observation: jax.Array,
        reward: jax.Array,
        first: jax.Array,
        key: jax.Array,
    ) -> tuple[tuple[()], jax.Array]:
        """Chooses the action of one step; reads the observation only."""
        del reward, first
        network: Any = self.network.bind(variables)
        action = select_action(self.config, self.actions, network(observation), key)
        return carry, to_environment(self.config, self.actions, action)
