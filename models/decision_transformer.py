"""Decision Transformer: an action from what was asked for, seen and done so far.

The last ``K`` environment steps are a sequence of tokens, three per step: the
return-to-go R (what remains of the return asked for), the state s (the observation)
and the action a,

    R₁ s₁ a₁  R₂ s₂ a₂  ...  R_K s_K  →  a_K

A causal transformer reads it, and its output at the last state token is the action.
Source: Chen et al. 2021, arXiv 2106.01345; as an evolved policy, Lorenc & Neruda,
arXiv 2501.13883. In shapes, ``d`` is the width of a token and ``L`` a number of
tokens; the other letters are those of ``jax_es.types``.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jax_es.models.cloning import ClonablePolicy
from jax_es.models.config import DecisionTransformerConfig
from jax_es.models.context import (
    Cache,
    Window,
    append,
    banded_causal_mask,
    block_position,
    cache_mask,
    window_tokens,
)
from jax_es.models.layers import Embed, LayerNorm, dropped_out, fan_in_dense
from jax_es.models.policy import (
    ActionSpec,
    DiscreteActions,
    check_sizes,
    from_environment,
    select_action,
    to_environment,
)
from jax_es.models.return_to_go import next_return_to_go
from jax_es.models.transformer import Block


class DecisionTransformer(nn.Module):
    """The network: tokens from the parts of a step, and actions from tokens.

    ``__call__`` is its parallel form, for a whole trajectory whose actions are known.
    Acting step by step uses the same parts in a policy's ``apply``.
    """

    config: DecisionTransformerConfig
    observation_shape: Any
    """``O`` (an image's network: ``(C, H, W)``)."""
    actions: ActionSpec
    dropout: float = 0.0
    """Share that training drops of the tokens and, as ``Block`` says, inside blocks;
    only where a ``"dropout"`` key is given, so never when acting."""

    def setup(self):
        """Names the layers."""
        config, width = self.config, self.config.width
        self.embed_timestep = _table(config.max_timestep, width, config.timestep_scale)
        self.embed_return = fan_in_dense(1, width)
        if config.film:
            self.film = fan_in_dense(1, 2 * width)
        self.embed_state = fan_in_dense(self.observation_shape, width)
        if isinstance(self.actions, DiscreteActions):
            self.embed_action = _table(self.actions.num_outputs, width)
        else:
            self.embed_action = fan_in_dense(self.actions.size, width)
        self.embed_norm = LayerNorm()
        self.blocks = [
            Block(width, config.num_heads, config.activation, self.dropout)
            for _ in range(config.num_layers)
        ]
        self.final_norm = LayerNorm()
        self.head = fan_in_dense(width, self.actions.num_outputs, config.head_scale)

    def __call__(
        self,
        returns_to_go: jax.Array,
        observations: jax.Array,
        actions: jax.Array,
        timesteps: jax.Array,
    ) -> jax.Array:
        """Predicts the action of every step from it and the steps before it.

        Args:
            returns_to_go: ``[T]``, scaled; with "window" attention ``T`` is at most
                ``K``, with "cache" each token attends to the last ``K`` steps.
            observations: ``[T, O]``.
            actions: ``[T, A]``, or ``[T]`` integers from 0: the network's own. The
                last one is not read: it comes after the last prediction.
            timesteps: ``[T]`` integers.

        Returns:
            ``[T, num_outputs]``: actions before their tanh, or logits.
        """
        num_steps = returns_to_go.shape[0]
        context_length = self.config.context_length
        if self.config.attention == "window" and num_steps > context_length:
            raise ValueError(
                f"trajectory of {num_steps} steps exceeds context_length="
                f"{context_length}: pass at most that many steps"
            )
        given = self.embed_return_and_state(returns_to_go, observations, timesteps)
        chosen = self.embed_action_taken(actions, timesteps)[:, None]
        tokens = jnp.concatenate([given, chosen], axis=1)  # [T, 3, d]
        tokens = tokens.reshape(3 * num_steps, -1)  # [T, 3, d] → [3T, d]
        position = jnp.arange(3 * num_steps)
        tokens = self.place(tokens, position, timesteps[-1])
        tokens = dropped_out(self, tokens, self.dropout)
        mask = banded_causal_mask(position, position, context_length)
        return self.decode(tokens, mask, slice(1, None, 3))

    def embed_return_and_state(
        self, returns_to_go: jax.Array, observations: jax.Array, timesteps: jax.Array
    ) -> jax.Array:
        """Embeds what is given before acting: ``[T]``, ``[T, O]`` → ``[T, 2, d]``."""
        returns = self.embed_return(returns_to_go[:, None])
        states = self.embed_state(observations)
        tokens = jnp.stack([returns, states], axis=1)
        tokens = self.embed_norm(tokens + self._embed_time(timesteps)[:, None])
        if not self.config.film:
            return tokens
        scale, shift = jnp.split(self.film(returns_to_go[:, None]), 2, axis=1)
        return tokens.at[:, 1].set(tokens[:, 1] * (1.0 + scale) + shift)

    def embed_action_taken(self, actions: jax.Array, timesteps: jax.Array) -> jax.Array:
        """Embeds the network's own actions, ``[T, A]`` or ``[T]`` → ``[T, d]``."""
        return self.embed_norm(self.embed_action(actions) + self._embed_time(timesteps))

    def place(
        self, tokens: jax.Array, positions: jax.Array, timestep: jax.Array
    ) -> jax.Array:
        """Adds what depends on the window that tokens are read in: nothing, here.

        Args:
            tokens: ``[L, d]``, as embedded.
            positions: ``[L]`` integers, where they are in the window, from 0.
            timestep: ``[]`` int32, of the window's last step.
        """
        del positions, timestep
        return tokens

    def decode(self, tokens: jax.Array, mask: jax.Array, states: slice) -> jax.Array:
        """Runs the blocks, and the head on the state tokens.

        Args:
            tokens: ``[L, d]``.
            mask: ``[L, L]`` bool, whether a token (row) attends to another (column).
            states: which of the tokens are state tokens that predict an action.

        Returns:
            ``[number of those, num_outputs]``.
        """
        for block in self.blocks[:-1]:
            tokens = block(tokens, *block.keys_and_values(tokens), mask)
        # Nothing reads the last block's other outputs, so they are not computed.
        last = self.blocks[-1]
        outputs = last(tokens[states], *last.keys_and_values(tokens), mask[states])
        return self.head(self.final_norm(outputs))

    def decode_block(
        self, tokens: jax.Array, cache: Cache, timestep: jax.Array
    ) -> tuple[Cache, jax.Array]:
        """Runs the blocks on a step's new tokens, and the head on its state token.

        Args:
            tokens: ``[3, d]``: the action before, return-to-go, state.
            cache: of the steps before.
            timestep: ``[]`` int32, of this step.

        Returns:
            The cache with the new tokens' keys and values, and ``[num_outputs]``.
        """
        context_length = self.config.context_length
        position = block_position(timestep, context_length)
        mask = cache_mask(timestep, context_length)
        cached_keys, cached_values = [], []
        for block, keys, values in zip(
            self.blocks, cache.keys, cache.values, strict=True
        ):
            new_keys, new_values = block.keys_and_values(tokens)
            keys = keys.at[:, :, position].set(new_keys)
            values = values.at[:, position].set(jnp.nan_to_num(new_values))
            cached_keys.append(keys)
            cached_values.append(values)
            if block is self.blocks[-1]:  # nothing reads its other outputs
                tokens, mask = tokens[-1:], mask[-1:]
            num_heads, width, *_ = keys.shape
            ring_keys = keys.reshape(num_heads, width, -1)  # [H, d/H, 3(K + 1)]
            ring_values = values.reshape(num_heads, -1, width)  # [H, 3(K + 1), d/H]
            tokens = block(tokens, ring_keys, ring_values, mask)
        cache = cache._replace(keys=tuple(cached_keys), values=tuple(cached_values))
        return cache, self.head(self.final_norm(tokens[-1]))

    def _embed_time(self, timesteps: jax.Array) -> jax.Array:
        """``[T]`` → ``[T, d]``; a row past the table's end would read NaN."""
        return self.embed_timestep(jnp.minimum(timesteps, self.config.max_timestep - 1))


class DecisionTransformerCarry(NamedTuple):
    """Context of one episode."""

    context: Window | Cache
    """The previous steps, as ``attention`` reads them."""
    return_to_go: jax.Array
    """``[]`` float32, scaled, as the previous step read it."""
    timestep: jax.Array
    """``[]`` int32, index of the coming step in its episode."""


def _table(num_rows: int, width: int, scale: float = 1.0) -> Embed:
    return Embed(num_rows, width, embedding_init=nn.initializers.normal(scale))


@dataclasses.dataclass(frozen=True)
class DecisionTransformerPolicy(ClonablePolicy):
    """A ``DecisionTransformer`` as a policy (the protocol of ``jax_es.types``)."""

    config: DecisionTransformerConfig
    observation_shape: Any
    """``O`` (an image's network: ``(C, H, W)``)."""
    actions: ActionSpec
    reads_command = True
    """Says that the collection ``"command"`` is read."""

    def __post_init__(self):
        """Checks that the config fits the environment."""
        check_sizes(self.config, self.observation_shape, self.actions)

    @functools.cached_property
    def network(self) -> DecisionTransformer:
        """The Flax module."""
        return DecisionTransformer(self.config, self.observation_shape, self.actions)

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        actions = self.actions
        return self.network.init(
            key,
            jnp.zeros(1),
            jnp.zeros((1, *np.atleast_1d(self.observation_shape))),
            jnp.zeros(1, int)
            if isinstance(actions, DiscreteActions)
            else jnp.zeros((1, actions.size)),
            jnp.zeros(1, int),
        )["params"]

    def initial_carry(self) -> DecisionTransformerCarry:
        """Returns an empty context."""
        config, actions = self.config, self.actions
        if config.attention == "window":
            context = Window(jnp.zeros((config.context_length - 1, 3, config.width)))
        else:
            num_heads, ring = config.num_heads, (config.context_length + 1, 3)
            width = config.width // num_heads
            action = jnp.int32(0)
            if not isinstance(actions, DiscreteActions):
                action = jnp.zeros(actions.size)
            context = Cache(
                keys=(jnp.zeros((num_heads, width, *ring)),) * config.num_layers,
                values=(jnp.zeros((num_heads, *ring, width)),) * config.num_layers,
                action=action,
            )
        return DecisionTransformerCarry(
            context=context,
            return_to_go=jnp.float32(config.target_return * config.reward_scale),
            timestep=jnp.int32(0),
        )

    def apply(
        self,
        variables: Mapping[str, Any],
        carry: DecisionTransformerCarry,
        observation: jax.Array,
        reward: jax.Array,
        first: jax.Array,
        key: jax.Array,
    ) -> tuple[DecisionTransformerCarry, jax.Array]:
        """Chooses the action of one step from the last ``K`` steps."""
        config = self.config
        network = self.network.bind(variables)
        carry = carry._replace(
            return_to_go=next_return_to_go(
                config, variables, carry.return_to_go, reward, first
            ),
            # Old contexts stay as they are: at timestep 0 nothing of them is read.
            timestep=jnp.where(first, 0, carry.timestep),
        )
        given = network.embed_return_and_state(
            carry.return_to_go[None], observation[None], carry.timestep[None]
        )[0]  # [2, d]
        now = carry.timestep, given, key
        if isinstance(carry.context, Cache):
            context, action = self._act_cached(network, carry.context, *now)
        else:
            context, action = self._act_windowed(network, carry.context, *now)
        carry = carry._replace(context=context, timestep=carry.timestep + 1)
        return carry, to_environment(config, self.actions, action)

    @property
    def window_length(self) -> int:
        """Steps of the windows it is trained on: all that an action depends on.

        In a cache each layer has read ``K`` steps further back; of windows that long
        the last steps see what they would see when acting.
        """
        config = self.config
        cached = config.attention == "cache"
        return config.context_length * (config.num_layers + 1 if cached else 1)

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
        """Predicts all actions of a window at once, by the parallel form."""
        network: Any = self.network.clone(dropout=dropout)
        return network.apply(
            variables,
            returns_to_go * self.config.reward_scale,
            observations,
            from_environment(self.config, self.actions, actions),
            timesteps,
            rngs=None if key is None else {"dropout": key},
        )

    def _act_windowed(
        self,
        network: DecisionTransformer,
        window: Window,
        timestep: jax.Array,
        given: jax.Array,
        key: jax.Array,
    ) -> tuple[Window, jax.Array]:
        """Encodes the whole window; embeds its own action for the steps to come."""
        tokens, mask = window_tokens(window, given, timestep)
        num_padding = 3 * jnp.maximum(window.tokens.shape[0] - timestep, 0)
        positions = jnp.maximum(jnp.arange(len(tokens)) - num_padding, 0)
        tokens = network.place(tokens, positions, timestep)
        outputs = network.decode(tokens, mask, slice(-1, None))[0]
        action = select_action(self.config, self.actions, outputs, key)
        chosen = network.embed_action_taken(action[None], timestep[None])
        return append(window, jnp.concatenate([given, chosen])), action

    def _act_cached(
        self,
        network: DecisionTransformer,
        cache: Cache,
        timestep: jax.Array,
        given: jax.Array,
        key: jax.Array,
    ) -> tuple[Cache, jax.Array]:
        """Encodes the action of the step before and what is given now."""
        # At the first step there is none: whatever it is, nothing attends to it.
        chosen = network.embed_action_taken(
            cache.action[None], jnp.maximum(timestep - 1, 0)[None]
        )
        tokens = jnp.concatenate([chosen, given])  # [3, d]
        cache, outputs = network.decode_block(tokens, cache, timestep)
        action = select_action(self.config, self.actions, outputs, key)
        return cache._replace(action=action), action
