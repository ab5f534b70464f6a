"""What policies without a memory share: an empty carry, and one look at a time."""

import abc
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from models.cloning import ClonablePolicy
from models.policy import select_action, to_environment


class FeedForwardPolicy(ClonablePolicy):
    """A policy of ``jax_es.types`` whose network maps an observation to outputs."""

    @property
    def window_length(self) -> int:
        """1: nothing but the step itself decides its action."""
        return 1

    @property
    @abc.abstractmethod
    def network(self) -> nn.Module:
        """The Flax module: an observation → the action before its tanh, or logits."""

    def outputs(self, variables: Mapping[str, Any], observation: jax.Array) -> Any:
        """Applies the network to one member's variables."""
        network: Any = self.network.bind(variables)
        return network(observation)

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
        outputs = self.outputs(variables, observation)
        action = select_action(self.config, self.actions, outputs, key)
        return carry, to_environment(self.config, self.actions, action)

    def predict(
        self,
        variables: Mapping[str, Any],
        returns_to_go: jax.Array,
        observations: jax.Array,
        actions: jax.Array,
        timesteps: jax.Array,
        dropout: float = 0.0,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Predicts all actions of a window at once, each from its observation."""
        del returns_to_go, actions, timesteps, dropout, key
        return jax.vmap(lambda seen: self.outputs(variables, seen))(observations)
