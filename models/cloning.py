"""What a policy that learns from recorded actions offers: a loss for each of them.

Behaviour cloning knows windows of recorded steps; how a network reads them, and how far
its outputs are from the recorded actions, is told here. All are in the environment's
own units, as they were recorded.
"""

import abc
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_es.models.policy import (
    ActionSpec,
    BinaryActions,
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    PolicyConfig,
    from_environment,
)


class ClonablePolicy(abc.ABC):
    """A policy whose network can predict all actions of a window at once."""

    config: PolicyConfig
    actions: ActionSpec

    @property
    @abc.abstractmethod
    def window_length(self) -> int:
        """Steps of the windows it is trained on (T)."""

    @abc.abstractmethod
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
        """Predicts the action of every step from it and the steps before it.

        No step sees a later one, so what stands after the window's last real step
        changes no prediction up to it; padding repeats that step. (On images, "window"
        attention tells all steps the timestep of the window's last one.)

        Args:
            variables: Flax collections, ``{"params": θ}``.
            returns_to_go: ``[T]``, in the environment's reward unit.
            observations: ``[T, …]``, as policies see them.
            actions: ``[T, A]`` or ``[T]``, in the environment's unit.
            timesteps: ``[T]`` integers from 0.
            dropout: share that is dropped at random (transformers only).
            key: consumed by dropout; without it nothing is dropped.

        Returns:
            ``[T, num_outputs]``: actions before their tanh, or logits.
        """

    def imitation_loss(
        self,
        variables: Mapping[str, Any],
        returns_to_go: jax.Array,
        observations: jax.Array,
        actions: jax.Array,
        timesteps: jax.Array,
        dropout: float = 0.0,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Returns ``[T]``, each step's distance from its recorded action.

        Arguments are those of :meth:`predict`.
        """
        outputs = self.predict(
            variables, returns_to_go, observations, actions, timesteps, dropout, key
        )
        chosen = from_environment(self.config, self.actions, actions)
        return action_loss(self.actions, outputs, chosen)


def action_loss(
    actions: ActionSpec, outputs: jax.Array, chosen: jax.Array
) -> jax.Array:
    """Compares outputs with actions in the network's own unit.

    Args:
        actions: the action space.
        outputs: ``[T, num_outputs]``.
        chosen: the network's own: ``[T, A]`` in [-1, 1], ``[T]`` integers from 0, or
            ``[T, num_outputs]`` ones and zeros.

    Returns:
        ``[T]``: mean squared error of tanh(outputs) over the A dimensions (Chen et al.
        2021), or −log softmax(outputs)[chosen]; of bins their mean over the A
        dimensions, the bin nearest to ``chosen`` being the right one; of several
        choices or switches the mean over them.
    """
    if isinstance(actions, BoxActions):
        if actions.bins is None:
            return jnp.square(jnp.tanh(outputs) - chosen).mean(axis=-1)
        outputs = outputs.reshape(*chosen.shape, actions.bins)
        nearest = jnp.round((chosen + 1.0) / 2.0 * (actions.bins - 1)).astype(int)
        of_each = jax.vmap(action_loss, in_axes=(None, 1, 1))
        choice = DiscreteActions(actions.bins)
        return of_each(choice, outputs, nearest).mean(axis=0)
    if isinstance(actions, BinaryActions):
        surprise = jax.nn.softplus(outputs) - chosen * outputs
        return surprise.mean(axis=-1)
    if isinstance(actions, MultiDiscreteActions):
        parts = zip(actions.factors(outputs), actions.factors(chosen), strict=True)
        logs = [(jax.nn.log_softmax(x) * one).sum(axis=-1) for x, one in parts]
        return -jnp.stack(logs).mean(axis=0)
    log_shares = jax.nn.log_softmax(outputs, axis=-1)
    return -jnp.take_along_axis(log_shares, chosen[:, None], axis=-1)[:, 0]
