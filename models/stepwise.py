"""Policies that read one step at a time: its observation, and what they carry along.

With a target return they read it as well. What a Decision Transformer reads as a token,
these read as one number more of their observation: the return-to-go. (Schmidhuber 2019,
arXiv 1912.02875, calls it a command.)
"""

import abc
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_es.models.cloning import ClonablePolicy
from jax_es.models.config import PolicyConfig
from jax_es.models.policy import ActionSpec, select_action, to_environment
from jax_es.models.return_to_go import next_return_to_go


class StepwisePolicy(abc.ABC):
    """A policy of ``jax_es.types``; its carry is the network's, after the return-to-go.

    There is no return-to-go without a target return.
    """

    config: PolicyConfig
    actions: ActionSpec

    @property
    def reads_command(self) -> bool:
        """Whether it reads the return-to-go, and so the collection ``"command"``."""
        return getattr(self.config, "target_return", None) is not None

    def blank(self) -> Any:
        """Returns the network's carry before the first step of an episode."""
        return ()

    @abc.abstractmethod
    def advance(
        self, variables: Mapping[str, Any], carry: Any, observation: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Returns the next carry, and the action before its tanh, or logits."""

    def initial_carry(self) -> Any:
        """Returns the carry before the first step of an episode."""
        return (jnp.float32(0.0), self.blank()) if self.reads_command else self.blank()

    def apply(
        self,
        variables: Mapping[str, Any],
        carry: Any,
        observation: jax.Array,
        reward: jax.Array,
        first: jax.Array,
        key: jax.Array,
    ) -> tuple[Any, jax.Array]:
        """Chooses the action of one step."""
        remaining, inner = carry if self.reads_command else (None, carry)
        if remaining is not None:
            config: Any = self.config
            remaining = next_return_to_go(config, variables, remaining, reward, first)
            observation = jnp.append(observation, remaining)  # [O] → [O + 1]
        # A select, not a product, so that even NaN in an old carry is forgotten.
        inner = jax.tree.map(
            lambda begun, old: jnp.where(first, begun, old), self.blank(), inner
        )
        inner, outputs = self.advance(variables, inner, observation)
        action = select_action(self.config, self.actions, outputs, key)
        carry = inner if remaining is None else (remaining, inner)
        return carry, to_environment(self.config, self.actions, action)


class FeedForwardPolicy(StepwisePolicy, ClonablePolicy):
    """One without a memory: its network maps an observation to outputs."""

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

    def advance(
        self, variables: Mapping[str, Any], carry: Any, observation: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Returns the empty carry and the outputs."""
        return carry, self.outputs(variables, observation)

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
        del actions, timesteps, dropout, key
        if self.reads_command:
            config: Any = self.config
            scaled = returns_to_go[:, None] * config.reward_scale
            observations = jnp.concatenate([observations, scaled], axis=1)  # [T, O + 1]
        return jax.vmap(lambda seen: self.outputs(variables, seen))(observations)
