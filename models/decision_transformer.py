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
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers import fan_in_dense
from models.policy import (
    ActionSpec,
    BoxActions,
    PolicyConfig,
    check_sizes,
    require,
    select_action,
    to_environment,
)
from models.transformer import ACTIVATIONS, Block, causal_mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionTransformerConfig(PolicyConfig):
    """A Decision Transformer (``decision-transformer``); defaults for Humanoid."""

    attention: Literal["window"] = "window"
    """How the past is read: "window" encodes all of it anew at every step (paper)."""
    context_length: int = 20
    """What the transformer sees, in environment steps (three tokens each)."""
    width: int = 128
    """Size of a token's embedding, in units."""
    num_layers: int = 3
    """Number of transformer blocks."""
    num_heads: int = 1
    """Attention heads per block; divides width."""
    activation: Literal["relu", "gelu"] = "relu"
    """Nonlinearity of the blocks' feed-forward part."""
    target_return: float = 7000.0
    """The episode return asked for, in the environment's reward unit."""
    reward_scale: float = 0.001
    """Factor from rewards and target_return to the return-to-go the network reads."""
    max_timestep: int = 1000
    """Length of the timestep table, in environment steps; later ones share a row."""

    def __post_init__(self):
        """Checks the fields."""
        super().__post_init__()
        require(
            self.attention == "window", "attention", self.attention, 'choose "window"'
        )
        sizes = ("context_length", "width", "num_layers", "num_heads", "max_timestep")
        for name in sizes:
            value = getattr(self, name)
            require(value >= 1, name, value, "it must be at least 1")
        require(
            self.width % self.num_heads == 0,
            "num_heads",
            self.num_heads,
            f"it must divide width={self.width}",
        )
        require(
            self.activation in ACTIVATIONS,
            "activation",
            self.activation,
            'choose "relu" or "gelu"',
        )
        require(
            math.isfinite(self.target_return),
            "target_return",
            self.target_return,
            "it must be finite; ask for a high but reachable return",
        )
        require(
            math.isfinite(self.reward_scale) and self.reward_scale > 0.0,
            "reward_scale",
            self.reward_scale,
            "it must be positive, for example 0.001 for returns in the thousands",
        )


class DecisionTransformer(nn.Module):
    """The network: tokens from the parts of a step, and actions from tokens.

    ``__call__`` is its parallel form, for a whole trajectory whose actions are known.
    Acting step by step uses the same parts in a policy's ``apply``.
    """

    config: DecisionTransformerConfig
    observation_size: int
    actions: ActionSpec

    def setup(self):
        """Names the layers."""
        config, width = self.config, self.config.width
        from_table = functools.partial(
            nn.Embed, features=width, embedding_init=nn.initializers.normal(1.0)
        )
        self.embed_timestep = from_table(config.max_timestep)
        self.embed_return = fan_in_dense(1, width)
        self.embed_state = fan_in_dense(self.observation_size, width)
        if isinstance(self.actions, BoxActions):
            self.embed_action = fan_in_dense(self.actions.num_outputs, width)
        else:
            self.embed_action = from_table(self.actions.num_outputs)
        self.embed_norm = nn.LayerNorm(epsilon=1e-5)
        self.blocks = [
            Block(width, config.num_heads, config.activation)
            for _ in range(config.num_layers)
        ]
        self.final_norm = nn.LayerNorm(epsilon=1e-5)
        self.head = fan_in_dense(width, self.actions.num_outputs)

    def __call__(
        self,
        returns_to_go: jax.Array,
        observations: jax.Array,
        actions: jax.Array,
        timesteps: jax.Array,
    ) -> jax.Array:
        """Predicts the action of every step from it and the steps before it.

        Args:
            returns_to_go: ``[T]``, scaled; ``T`` at most ``K``.
            observations: ``[T, O]``.
            actions: ``[T, A]`` in [-1, 1], or ``[T]`` integers from 0. The last one
                is not read: it comes after the last prediction.
            timesteps: ``[T]`` integers.

        Returns:
            ``[T, num_outputs]``: actions before their tanh, or logits.
        """
        num_steps = returns_to_go.shape[0]
        if num_steps > self.config.context_length:
            raise ValueError(
                f"trajectory of {num_steps} steps exceeds context_length="
                f"{self.config.context_length}: pass at most that many steps"
            )
        given = self.embed_return_and_state(returns_to_go, observations, timesteps)
        chosen = self.embed_action_taken(actions, timesteps)[:, None]
        tokens = jnp.concatenate([given, chosen], axis=1)  # [T, 3, d]
        tokens = tokens.reshape(3 * num_steps, -1)  # [T, 3, d] → [3T, d]
        return self.decode(tokens, causal_mask(3 * num_steps), slice(1, None, 3))

    def embed_return_and_state(
        self, returns_to_go: jax.Array, observations: jax.Array, timesteps: jax.Array
    ) -> jax.Array:
        """Embeds what is given before acting: ``[T]``, ``[T, O]`` → ``[T, 2, d]``."""
        returns = self.embed_return(returns_to_go[:, None])
        states = self.embed_state(observations)
        tokens = jnp.stack([returns, states], axis=1)
        return self.embed_norm(tokens + self._embed_time(timesteps)[:, None])

    def embed_action_taken(self, actions: jax.Array, timesteps: jax.Array) -> jax.Array:
        """Embeds the network's own actions, ``[T, A]`` or ``[T]`` → ``[T, d]``."""
        return self.embed_norm(self.embed_action(actions) + self._embed_time(timesteps))

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

    def _embed_time(self, timesteps: jax.Array) -> jax.Array:
        """``[T]`` → ``[T, d]``; a row past the table's end would read NaN."""
        return self.embed_timestep(jnp.minimum(timesteps, self.config.max_timestep - 1))


class DecisionTransformerCarry(NamedTuple):
    """Context of one episode.

    Tokens are kept embedded: the timestep embedding is absolute, so a step's three
    tokens do not change as the window moves on.
    """

    tokens: jax.Array
    """``[K - 1, 3, d]``, embeddings of the previous steps, the latest last. Only
    the last ``timestep`` of them belong to this episode."""
    return_to_go: jax.Array
    """``[]`` float32, scaled, as the previous step read it."""
    timestep: jax.Array
    """``[]`` int32, index of the coming step in its episode."""


@dataclasses.dataclass(frozen=True)
class DecisionTransformerPolicy:
    """A ``DecisionTransformer`` as a policy (the protocol of ``jax_es.types``)."""

    config: DecisionTransformerConfig
    observation_size: int
    actions: ActionSpec

    def __post_init__(self):
        """Checks that the config fits the environment."""
        check_sizes(self.config, self.observation_size, self.actions)

    @functools.cached_property
    def network(self) -> DecisionTransformer:
        """The Flax module."""
        return DecisionTransformer(self.config, self.observation_size, self.actions)

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        box = isinstance(self.actions, BoxActions)
        return self.network.init(
            key,
            jnp.zeros(1),
            jnp.zeros((1, self.observation_size)),
            jnp.zeros((1, self.actions.num_outputs)) if box else jnp.zeros(1, int),
            jnp.zeros(1, int),
        )["params"]

    def initial_carry(self) -> DecisionTransformerCarry:
        """Returns an empty context."""
        config = self.config
        return DecisionTransformerCarry(
            tokens=jnp.zeros((config.context_length - 1, 3, config.width)),
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
        carry = advance(config, carry, reward, first)
        timestep = carry.timestep[None]
        given = network.embed_return_and_state(
            carry.return_to_go[None], observation[None], timestep
        )  # [1, 2, d]
        outputs = network.decode(*window(carry, given), slice(-1, None))[0]
        action = select_action(config, self.actions, outputs, key)
        chosen = network.embed_action_taken(action[None], timestep)[:, None]
        step = jnp.concatenate([given, chosen], axis=1)  # [1, 3, d]
        carry = carry._replace(
            tokens=jnp.concatenate([carry.tokens, step])[1:],
            timestep=carry.timestep + 1,
        )
        return carry, to_environment(config, self.actions, action)


def advance(
    config: DecisionTransformerConfig,
    carry: DecisionTransformerCarry,
    reward: jax.Array,
    first: jax.Array,
) -> DecisionTransformerCarry:
    """Pays the reward out of the return-to-go, or starts a new episode.

    R₀ = target_return · reward_scale and R_t = R_{t-1} - reward_{t-1} · reward_scale.
    Old tokens stay where they are: at timestep 0 none of them is read.
    """
    target = config.target_return * config.reward_scale
    remaining = carry.return_to_go - reward * config.reward_scale
    return carry._replace(
        return_to_go=jnp.where(first, target, remaining),
        timestep=jnp.where(first, 0, carry.timestep),
    )


def window(
    carry: DecisionTransformerCarry, given: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The tokens a step sees, and which of them attend to which.

    Args:
        carry: the previous steps.
        given: ``[1, 2, d]``, return-to-go and state tokens of this step.

    Returns:
        Tokens ``[L, d]`` and their mask ``[L, L]``, L = 3K - 1. Early in an episode the
        left is padding: zero, and masked out.
    """
    num_past, _, width = carry.tokens.shape
    in_episode = jnp.arange(num_past) >= num_past - carry.timestep  # [K - 1]
    # Zeroed as well as masked: stale tokens may hold NaN, and 0 · NaN = NaN.
    past = jnp.where(in_episode[:, None, None], carry.tokens, 0.0)
    past = past.reshape(3 * num_past, width)  # [K - 1, 3, d] → [3K - 3, d]
    tokens = jnp.concatenate([past, given[0]])
    real = jnp.concatenate([jnp.repeat(in_episode, 3), jnp.ones(2, bool)])
    return tokens, causal_mask(tokens.shape[0]) & real[None, :]
