"""What every policy shares: the action space it serves and its output rule.

A network returns one number per action dimension, per bin of each dimension, per choice
(of each factor) or per switch. This file turns them into an action, in two steps:
``select_action`` gives the *network's* action (in [-1, 1], an index, or ones and
zeros), which a Decision Transformer reads back as a token; ``to_environment`` gives the
same action in the environment's own unit.
"""

import dataclasses
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.models.config import PolicyConfig


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


@dataclasses.dataclass(frozen=True)
class MultiDiscreteActions:
    """Several choices at once: factor i among ``start[i], …, start[i] + nvec[i] − 1``.

    The network's own action has a 1 for what is chosen in each factor, else 0.
    """

    nvec: tuple[int, ...]
    """How many choices each factor has, in the order of the space's array."""
    start: tuple[int, ...]
    """The first choice of each factor."""
    shape: tuple[int, ...]
    """Of the space's array."""

    @property
    def num_outputs(self) -> int:
        """How many numbers the network returns: a logit per choice, all factors."""
        return sum(self.nvec)

    @property
    def size(self) -> int:
        """How many numbers the network's own action has."""
        return self.num_outputs

    def factors(self, values: jax.Array) -> list[jax.Array]:
        """Cuts ``[..., num_outputs]`` into ``[..., nvec[i]]``."""
        return jnp.split(values, np.cumsum(self.nvec)[:-1], axis=-1)


@dataclasses.dataclass(frozen=True)
class BinaryActions:
    """Switches, each 0 or 1; the network's own action is the same as floats."""

    shape: tuple[int, ...]
    """Of the space's array."""

    @property
    def num_outputs(self) -> int:
        """How many numbers the network returns: one logit per switch, on above 0."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """How many numbers an action has."""
        return self.num_outputs


ActionSpec: TypeAlias = (
    BoxActions | DiscreteActions | MultiDiscreteActions | BinaryActions
)
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
        outputs: ``[num_outputs]``: ``[A]``, or logits.
        key: consumed where actions are sampled, ignored elsewhere.

    Returns:
        ``[A]`` float32 in [-1, 1], tanh(outputs) or the chosen bins; ``[]`` int32 in
        [0, num_actions); or ``[num_outputs]`` float32, 1 for what is chosen, else 0.
        Chosen is the largest logit's index or a draw from their softmax; a switch is on
        if its logit is above 0, or with the probability of its sigmoid.
    """
    if isinstance(actions, DiscreteActions):
        return _chosen(config, outputs, key)
    if isinstance(actions, MultiDiscreteActions):
        factors = actions.factors(outputs)
        keys = jax.random.split(key, len(factors))
        chosen = [
            jax.nn.one_hot(_chosen(config, logits, own), logits.size)
            for logits, own in zip(factors, keys, strict=True)
        ]
        return jnp.concatenate(chosen)
    if isinstance(actions, BinaryActions):
        threshold = 0.0
        if config.sample_actions:  # u < sigmoid(x) just if logit(u) < x
            threshold = jax.random.logistic(key, outputs.shape)
        return (outputs > threshold).astype(jnp.float32)
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
        action: ``[..., A]``, ``[...]`` integers, or ``[..., *shape]`` integers of
            several choices.

    Returns:
        What :func:`to_environment` makes that action of; an action that the network
        cannot choose, since it is out of [-1, 1], becomes the nearest that it can.
    """
    if isinstance(actions, DiscreteActions):
        return action - actions.start
    if isinstance(actions, MultiDiscreteActions | BinaryActions):
        lead = action.shape[: action.ndim - len(actions.shape)]
        action = action.reshape(*lead, -1)
        if isinstance(actions, BinaryActions):
            return action.astype(jnp.float32)
        chosen = [
            jax.nn.one_hot(action[..., i] - actions.start[i], count)
            for i, count in enumerate(actions.nvec)
        ]
        return jnp.concatenate(chosen, axis=-1)
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
        ``[A]`` float32, low + (action + 1)/2 · (high - low) or unscaled; ``[]`` int32,
        start + action; or ``shape`` int32 of several choices.
    """
    if isinstance(actions, DiscreteActions):
        return action + actions.start
    if isinstance(actions, BinaryActions):
        return action.astype(jnp.int32).reshape(actions.shape)
    if isinstance(actions, MultiDiscreteActions):
        chosen = [part.argmax().astype(jnp.int32) for part in actions.factors(action)]
        return (jnp.stack(chosen) + np.array(actions.start, np.int32)).reshape(
            actions.shape
        )
    if config.action_scale == "none":
        return action
    low, high = jnp.asarray(actions.low), jnp.asarray(actions.high)
    # Clipped because rounding may step over a bound that Gymnasium checks exactly.
    return jnp.clip(low + 0.5 * (action + 1.0) * (high - low), low, high)
