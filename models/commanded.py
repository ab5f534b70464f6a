"""Policies of vectors that also read which return is still asked for.

What a Decision Transformer reads as a token, others read as one number more of their
observation: the return-to-go. (Schmidhuber 2019, arXiv 1912.02875, calls it a command.)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.cloning import ClonablePolicy
from models.config import CommandedConfig
from models.lstm import LSTMPolicy
from models.mlp import MLPPolicy
from models.policy import ActionSpec
from models.return_to_go import next_return_to_go


class CommandedCarry(NamedTuple):
    """What the next step needs."""

    return_to_go: jax.Array
    """``[]`` float32, scaled, as the previous step read it."""
    inner: Any
    """The network's own."""


@dataclasses.dataclass(frozen=True)
class CommandedPolicy:
    """A policy whose observation ends with the return-to-go."""

    inner: MLPPolicy | LSTMPolicy
    """For observations of one number more."""
    reads_command = True
    """Says that the collection ``"command"`` is read."""

    @property
    def config(self) -> CommandedConfig:
        """Of the network; it has a target return."""
        return self.inner.config

    @property
    def actions(self) -> ActionSpec:
        """The action space."""
        return self.inner.actions

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        return self.inner.init(key)

    def initial_carry(self) -> CommandedCarry:
        """Returns the carry before the first step of an episode."""
        return CommandedCarry(jnp.float32(0.0), self.inner.initial_carry())

    def apply(
        self,
        variables: Mapping[str, Any],
        carry: CommandedCarry,
        observation: jax.Array,
        reward: jax.Array,
        first: jax.Array,
        key: jax.Array,
    ) -> tuple[CommandedCarry, jax.Array]:
        """Chooses the action of one step."""
        remaining = next_return_to_go(
            self.config, variables, carry.return_to_go, reward, first
        )
        observation = jnp.append(observation, remaining)  # [O] → [O + 1]
        inner, action = self.inner.apply(
            variables, carry.inner, observation, reward, first, key
        )
        return CommandedCarry(remaining, inner), action


@dataclasses.dataclass(frozen=True)
class CommandedMLPPolicy(CommandedPolicy, ClonablePolicy):
    """One without a memory, which can be cloned, too."""

    inner: MLPPolicy
    """For observations of one number more."""

    @property
    def window_length(self) -> int:
        """1: nothing but the step itself decides its action."""
        return self.inner.window_length

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
        scaled = returns_to_go[:, None] * self.config.reward_scale
        seen = jnp.concatenate([observations, scaled], axis=1)  # [T, O + 1]
        return self.inner.predict(
            variables, returns_to_go, seen, actions, timesteps, dropout, key
        )
