"""Recurrent policy: one LSTM layer and a linear head."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_es.models.config import LSTMConfig
from jax_es.models.layers import Dense, fan_in_dense, symmetric_uniform
from jax_es.models.policy import ActionSpec, check_sizes
from jax_es.models.stepwise import StepwisePolicy


class LSTMState(NamedTuple):
    """What the cell remembers."""

    cell: jax.Array
    """``[width]``, the long memory."""
    hidden: jax.Array
    """``[width]`` in [-1, 1], the cell's last output."""


class LSTM(nn.Module):
    """Long short-term memory (Hochreiter & Schmidhuber 1997) and a linear head.

    Written out rather than Linen's cell: one kernel per input for all four gates is
    several times faster when every member has its own weights.
    """

    width: int
    num_outputs: int

    def setup(self):
        """Names the layers; PyTorch scales an LSTM's kernels by its width."""
        self.input_gates = fan_in_dense(self.width, 4 * self.width)
        self.hidden_gates = Dense(
            4 * self.width,
            use_bias=False,
            kernel_init=symmetric_uniform(1.0 / math.sqrt(self.width)),
        )
        self.head = fan_in_dense(self.width, self.num_outputs)

    def __call__(
        self, state: LSTMState, observation: jax.Array
    ) -> tuple[LSTMState, jax.Array]:
        """Advances one step.

        c ← sigmoid(f) c + sigmoid(i) tanh(g), h ← sigmoid(o) tanh(c), the gates i, f, g
        and o being linear in the observation and the previous h.

        Args:
            state: what the cell remembers.
            observation: ``[O]``.

        Returns:
            The next state; and ``[num_outputs]``, actions before their tanh, or logits.
        """
        gates = self.input_gates(observation) + self.hidden_gates(state.hidden)
        i, f, g, o = jnp.split(gates, 4)  # [4 · width] → four [width]
        cell = nn.sigmoid(f) * state.cell + nn.sigmoid(i) * nn.tanh(g)
        hidden = nn.sigmoid(o) * nn.tanh(cell)
        return LSTMState(cell, hidden), self.head(hidden)


@dataclasses.dataclass(frozen=True)
class LSTMPolicy(StepwisePolicy):
    """An ``LSTM`` as a policy (the protocol of ``jax_es.types``)."""

    config: LSTMConfig
    observation_size: int
    actions: ActionSpec

    def __post_init__(self):
        """Checks that the config fits the environment."""
        check_sizes(self.config, self.observation_size, self.actions)

    @functools.cached_property
    def network(self) -> LSTM:
        """The Flax module."""
        return LSTM(self.config.width, self.actions.num_outputs)

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        observation = jnp.zeros(self.observation_size + self.reads_command)
        return self.network.init(key, self.blank(), observation)["params"]

    def blank(self) -> LSTMState:
        """Returns a blank memory."""
        width = self.config.width
        return LSTMState(cell=jnp.zeros(width), hidden=jnp.zeros(width))

    def advance(
        self, variables: Mapping[str, Any], carry: LSTMState, observation: jax.Array
    ) -> tuple[LSTMState, jax.Array]:
        """Advances the cell by one member's variables."""
        return self.network.bind(variables)(carry, observation)
