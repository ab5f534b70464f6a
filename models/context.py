"""What a transformer keeps of its past between steps: a window, or a cache.

Each environment step is three tokens: return-to-go, state, action. Token ``3t + p``
is number ``p`` of step ``t``. ``K`` is the context length in steps, ``d`` the width of
a token, ``H`` the number of heads.

A *window* holds the last steps' embedded tokens, which are all encoded again at every
step. A *cache* holds their keys and values in every layer, so that a step computes its
new tokens only. The two are not the same function: in a window the oldest token sees
nothing before it, in a cache it was computed when it still did.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Window(NamedTuple):
    """Embedded tokens of the previous steps.

    They are kept embedded: the timestep embedding is absolute, so a step's three
    tokens do not change as the window moves on.
    """

    tokens: jax.Array
    """``[K - 1, 3, d]``, the latest step last; as many belong to this episode as it
    has had steps."""


class Cache(NamedTuple):
    """Keys and values of the tokens that may still be attended to, layer by layer.

    A ring of ``K + 1`` steps. What a step adds is its *block*, in this order: the
    action of the step before (known only now), its own return-to-go and state. That
    action belongs to the step before and still sees the step that is just leaving the
    context, hence the one step more.
    """

    keys: tuple[jax.Array, ...]
    """``[H, d/H, K + 1, 3]`` a layer."""
    values: tuple[jax.Array, ...]
    """``[H, K + 1, 3, d/H]`` a layer; always finite, since even a masked value is
    multiplied by 0."""
    action: jax.Array
    """The network's action of the step before, ``[A]`` float32 or ``[]`` int32."""


def append(window: Window, step: jax.Array) -> Window:
    """Adds a step's tokens ``[3, d]`` and forgets the oldest step's."""
    return Window(jnp.concatenate([window.tokens, step[None]])[1:])


def window_tokens(
    window: Window, given: jax.Array, timestep: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The tokens a step sees, and which of them attend to which.

    Args:
        window: the previous steps.
        given: ``[2, d]``, return-to-go and state tokens of this step.
        timestep: ``[]`` int32, of this step.

    Returns:
        Tokens ``[L, d]`` and their mask ``[L, L]``, L = 3K - 1. Early in an episode the
        left is padding: zero, and masked out.
    """
    num_past, _, width = window.tokens.shape
    in_episode = jnp.arange(num_past) >= num_past - timestep  # [K - 1]
    # Zeroed as well as masked: stale tokens may hold NaN, and 0 · NaN = NaN.
    past = jnp.where(in_episode[:, None, None], window.tokens, 0.0)
    past = past.reshape(3 * num_past, width)  # [K - 1, 3, d] → [3K - 3, d]
    tokens = jnp.concatenate([past, given])
    real = jnp.concatenate([jnp.repeat(in_episode, 3), jnp.ones(2, bool)])
    position = jnp.arange(tokens.shape[0])
    return tokens, banded_causal_mask(position, position, num_past + 1) & real[None, :]


def block_position(timestep: jax.Array, context_length: int) -> jax.Array:
    """Where in the ring a step's block goes, ``[]`` int32 in [0, K]."""
    return timestep % (context_length + 1)


def cache_mask(timestep: jax.Array, context_length: int) -> jax.Array:
    """Which cached tokens the tokens of a step's block attend to.

    Args:
        timestep: ``[]`` int32, of the step whose block was written last.
        context_length: K.

    Returns:
        ``[3, 3(K + 1)]`` bool, for the tokens of the block over the ring in order.
    """
    ring = jnp.arange(context_length + 1)
    # The latest step that was written at each position; negative if there was none.
    step = timestep - (timestep - ring) % (context_length + 1)
    in_block = jnp.arange(3) - 1  # the action before, return-to-go, state
    cached = (3 * step[:, None] + in_block[None, :]).ravel()  # [3(K + 1)]
    attends = banded_causal_mask(3 * timestep + in_block, cached, context_length)
    return attends & (cached >= 0)[None, :]


def banded_causal_mask(
    queries: jax.Array, keys: jax.Array, context_length: int
) -> jax.Array:
    """A token attends to itself and what came before it, in the last ``K`` steps.

    Args:
        queries: ``[Q]`` integer numbers of tokens, ``3t + p``.
        keys: ``[L]``, likewise.
        context_length: K.

    Returns:
        ``[Q, L]`` bool.
    """
    queries, keys = queries[:, None], keys[None, :]
    return (keys <= queries) & (keys // 3 > queries // 3 - context_length)
