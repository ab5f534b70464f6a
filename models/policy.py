"""What every policy shares: the action space it serves and its output rule.

A network returns one number per action dimension, per bin of each dimension, or per
choice. This file turns them into an action, in two steps: ``select_action`` gives the
*network's* action (in [-1, 1], or an index), which a Decision Transformer reads back as
a token; ``to_environment`` gives the same action in the environment's own unit.
"""

import dataclasses
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp

from models.config import PolicyConfig


@dataclasses.dataclass(frozen=True)
class BoxActions:
    """Real-valued actions, one interval for each of the ``A`` dimensions."""

    low: tuple[float, ...]
    """Lower bounds; infinite ones need ``action_scale="none"``."""
    high: tuple[float, ...]
    """Upper bounds."""
    bins: int | None = None
    """How many values each dimension may have, from -1 to 1; any if not given."""

    def __post_init__(self):
        """Stores plain floats (so that it hashes) and checks the bounds."""
        object.__setattr__(self, "low", tuple(map(float, self.low)))
        object.__setattr__(self, "high", tuple(map(float, self.high)))
        if not self.low or len(self.low) != len(self.high):
            raise ValueError(
                f"low and high need the same length of at least 1, got {len(self.low)} "
                f"and {len(self.high)}: pass one bound per action dimension"
            )
        for low, high in zip(self.low, self.high, strict=True):
            if not low < high:
                raise ValueError(
                    f"low must be below high, got [{low}, {high}]: check the "
                    "environment's action space"
                )

    @property
    def num_outputs(self) -> int:
        """How many numbers the network returns: ``A``, or ``A · bins`` logits."""
        return self.size * (self.bins or 1)

    @property
    def size(self) -> int:
        """How many numbers an action has: ``A``."""
        return len(self.low)


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """A choice among ``start, ..., start + num_actions - 1``."""

    num_actions: int
    """How many choices there are."""
    start: int = 0
    """The first choice; 0 except in unusual environments."""

    def __post_init__(self):
        """Checks that there is a choice."""
        if self.num_actions < 1:
            raise ValueError(
                f"num_actions must be at least 1, got {self.num_actions}: check the "
                "environment's action space"
            )

    @property
    def num_outputs(self) -> int:
        """How many numbers the network returns: one logit per choice."""
        return self.num_actions


ActionSpec: TypeAlias = BoxActions | DiscreteActions
"""What a policy must know of an action space, whatever library defined it."""


def binned(config: PolicyConfig, actions: ActionSpec) -> ActionSpec:
    """Returns the action space with as many bins as the config says.

    Raises:
        ValueError: there are no real numbers to put into bins.
    """
    if config.action_bins is None:
        return actions
    config.require(
        isinstance(actions, BoxActions),
        "action_bins",
        "the environment's actions are choices already; leave it out",
    )
    return dataclasses.replace(actions, bins=config.action_bins)


def check_sizes(
    config: PolicyConfig, observation_size: int, actions: ActionSpec
) -> None:
    """Raises ``ValueError`` where a config does not fit its environment."""
    if observation_size < 1:
        raise ValueError(
            f"policy.observation_size={observation_size} is not possible: it must be "
            "at least 1; flatten the observation into a vector"
        )
    if isinstance(actions, BoxActions):
        bounded = all(map(math.isfinite, actions.low + actions.high))
        config.require(
            bounded or config.action_scale == "none",
            "action_scale",
            "the action space has infinite bounds, nothing to scale to; "
            "set policy.action_scale none",
        )
        config.require(
            not config.sample_actions or actions.bins is not None,
            "sample_actions",
            "only discrete actions are sampled, these are real-valued; leave it out, "
            "or set policy.action_bins",
        )


def check_image(kind: str, shape: tuple[int, ...], smallest: int) -> None:
    """Raises ``ValueError`` unless an image has so many rows and columns."""
    if min(shape[1:]) < smallest:
        raise ValueError(
            f"policy {kind} takes images (C, H, W) of at least {smallest} × {smallest} "
            f"pixels, got the shape {shape}: put the channels first, or choose another "
            "env.id"
        )


def select_action(
    config: PolicyConfig, actions: ActionSpec, outputs: jax.Array, key: jax.Array
) -> jax.Array:
    """Turns the network's outputs into its action.

    Args:
        config: says whether choices are sampled.
        actions: the action space.
        outputs: ``[A]``, ``[A · bins]`` logits or ``[num_actions]`` logits.
        key: consumed where actions are sampled, ignored elsewhere.

    Returns:
        ``[A]`` float32 in [-1, 1], tanh(outputs) or the chosen bins; or ``[]`` int32 in
        [0, num_actions). Chosen is the largest logit's index or a draw from their
        softmax.
    """
    if isinstance(actions, DiscreteActions):
        return _chosen(config, outputs, key)
    if actions.bins is None:
        return jnp.tanh(outputs)
    logits = outputs.reshape(actions.size, actions.bins)
    return jnp.linspace(-1.0, 1.0, actions.bins)[_chosen(config, logits, key)]


def _chosen(config: PolicyConfig, logits: jax.Array, key: jax.Array) -> jax.Array:
    """Returns an int32 index into the last axis."""
    if config.sample_actions:
        return jax.random.categorical(key, logits).astype(jnp.int32)
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def from_environment(
    config: PolicyConfig, actions: ActionSpec, action: jax.Array
) -> jax.Array:
    """Translates an action of the environment's unit into the network's own.

    Args:
        config: says whether real-valued actions are scaled.
        actions: the action space.
        action: ``[..., A]``, or ``[...]`` integers, whoever chose it.

    Returns:
        What :func:`to_environment` makes that action of; an action that the network
        cannot choose, since it is out of [-1, 1], becomes the nearest that it can.
    """
    if isinstance(actions, DiscreteActions):
        return action - actions.start
    if config.action_scale == "bounds":
        low, high = jnp.asarray(actions.low), jnp.asarray(actions.high)
        shape = action.shape
        low, high = jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)
        action = 2.0 * (action - low) / (high - low) - 1.0
    return jnp.clip(action, -1.0, 1.0)


def to_environment(
    config: PolicyConfig, actions: ActionSpec, action: jax.Array
) -> jax.Array:
    """Translates the network's action into the environment's own unit.

    Args:
        config: says whether real-valued actions are scaled.
        actions: the action space.
        action: what ``select_action`` returned.

    Returns:
        ``[A]`` float32, low + (action + 1)/2 · (high - low) or unscaled; or ``[]``
        int32, start + action.
    """
    if isinstance(actions, DiscreteActions):
        return action + actions.start
    if config.action_scale == "none":
        return action
    low, high = jnp.asarray(actions.low), jnp.asarray(actions.high)
    # Clipped because rounding may step over a bound that Gymnasium checks exactly.
    return jnp.clip(low + 0.5 * (action + 1.0) * (high - low), low, high)
