"""A Decision Transformer as a function of one vector, the last steps in a row.

Learners such as TD3 store observations and know of no carry; to them the last steps
are the observation. Its weights are the policy's, and act alike in both forms.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jax_es.models.decision_transformer import DecisionTransformerPolicy
from jax_es.models.policy import BoxActions


@dataclasses.dataclass(frozen=True)
class HistoryActor:
    """Maps vectors of ``jax_es.envs.history.HistoryObservation`` to actions.

    Raises:
        ValueError: the policy keeps a cache, or its actions are discrete.
    """

    policy: DecisionTransformerPolicy
    """Whose weights they are; with "window" attention."""

    def __post_init__(self):
        """Checks that a window is all that an action depends on."""
        config = self.policy.config
        config.require(
            config.attention == "window",
            "attention",
            'of a vector of the last steps only "window" can be computed; choose it',
        )
        if not isinstance(self.policy.actions, BoxActions):
            raise ValueError("actions must be real numbers: choose another env.id")

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Draws the initial variables; ``key`` is consumed."""
        return {"params": self.policy.init(key)}

    def apply(self, variables: dict[str, Any], histories: jax.Array) -> jax.Array:
        """Returns the network's actions, ``[B, A]`` in [-1, 1].

        Args:
            variables: from :meth:`init`.
            histories: ``[B, H]``, as ``HistoryObservation`` lays them out.
        """
        return jax.vmap(self._apply_one, (None, 0))(variables, histories)

    def _apply_one(self, variables: dict[str, Any], history: jax.Array) -> jax.Array:
        config, num_actions = self.policy.config, self.policy.actions.num_outputs
        length, size = config.context_length, self.policy.observation_shape
        sizes = (length, length * size, (length - 1) * num_actions, 1)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
        returns_to_go, observations, actions, time = jnp.split(history, ends)
        observations = observations.reshape(length, size)  # [K·O] → [K, O]
        actions = actions.reshape(length - 1, num_actions)  # [(K-1)·A] → [K-1, A]
        # The current step's action is not read.
        actions = jnp.concatenate([actions, jnp.zeros((1, num_actions))])
        timestep = jnp.round(time[0] * config.max_timestep).astype(jnp.int32)
        num_steps = jnp.minimum(timestep + 1, length)
        # Padding goes from the front to the end, where causality hides it.
        window = [
            jnp.roll(part, num_steps, axis=0)
            for part in (returns_to_go, observations, actions)
        ]
        timesteps = timestep - num_steps + 1 + jnp.arange(length)
        network: Any = self.policy.network
        outputs = network.apply(variables, *window, timesteps)
        return jnp.tanh(outputs[num_steps - 1])
