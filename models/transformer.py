"""The transformer block, knowing nothing of what its tokens stand for.

``L`` is a number of tokens, ``d`` their width, ``H`` the number of heads.
"""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_es.models.layers import Dense, LayerNorm, dropped_out

ACTIVATIONS = {"relu": nn.relu, "gelu": functools.partial(nn.gelu, approximate=False)}


class Block(nn.Module):
    """Pre-norm transformer block: attention, then a feed-forward part.

    Keys and values are handed in, so that they may come from these very tokens or
    from wherever an earlier step left them.
    """

    width: int
    num_heads: int
    activation: str
    dropout: float = 0.0
    """Share of attention weights, and of what each part adds to a token, that training
    drops; only where a ``"dropout"`` key is given."""

    def setup(self):
        """Names the layers; N(0, 0.02) kernels and zero biases, as in GPT-2."""
        dense = functools.partial(Dense, kernel_init=nn.initializers.normal(0.02))
        self.attention_norm = LayerNorm()
        self.query = dense(self.width)
        self.key = dense(self.width)
        self.value = dense(self.width)
        self.projection = dense(self.width)
        self.mlp_norm = LayerNorm()
        self.expand = dense(4 * self.width)
        self.contract = dense(self.width)

    def keys_and_values(self, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What other tokens attend to.

        Laid out as attention multiplies by them: a cache that is kept so need not be
        transposed at every step.

        Args:
            tokens: ``[L, d]``.

        Returns:
            Keys ``[H, d/H, L]`` and values ``[H, L, d/H]``.
        """
        x = self.attention_norm(tokens)
        keys, values = self._split_heads(self.key(x)), self._split_heads(self.value(x))
        return keys.transpose(1, 2, 0), values.transpose(1, 0, 2)

    def __call__(
        self, tokens: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
    ) -> jax.Array:
        """Transforms tokens that attend to the given keys and values.

        Args:
            tokens: ``[Q, d]``.
            keys: ``[H, d/H, L]``.
            values: ``[H, L, d/H]``.
            mask: ``[Q, L]`` bool, whether token q attends to key l.

        Returns:
            ``[Q, d]``.
        """
        queries = self._split_heads(self.query(self.attention_norm(tokens)))
        attended = attend(queries, keys, values, mask, self._drop)  # [Q, H, d/H]
        tokens += self._drop(self.projection(attended.reshape(tokens.shape)))
        hidden = ACTIVATIONS[self.activation](self.expand(self.mlp_norm(tokens)))
        return tokens + self._drop(self.contract(hidden))

    def _drop(self, x: jax.Array) -> jax.Array:
        return dropped_out(self, x, self.dropout)

    def _split_heads(self, x: jax.Array) -> jax.Array:
        """Reshapes ``[L, d]`` → ``[L, H, d/H]``."""
        return x.reshape(-1, self.num_heads, self.width // self.num_heads)


def attend(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    mask: jax.Array,
    drop: Callable[[jax.Array], jax.Array] = lambda weights: weights,
) -> jax.Array:
    """Scaled dot-product attention, softmax(q k/√(d/H)) v, for every head.

    Args:
        queries: ``[Q, H, d/H]``.
        keys: ``[H, d/H, L]``.
        values: ``[H, L, d/H]``; finite even where masked, since 0 · NaN = NaN.
        mask: ``[Q, L]`` bool. A query that may attend to nothing gets finite
            nonsense instead of NaN, so that padding cannot spread.
        drop: dropout of the attention weights ``[H, Q, L]``.

    Returns:
        ``[Q, H, d/H]``.
    """
    scale = 1.0 / math.sqrt(queries.shape[-1])
    scores = jnp.einsum("qhd,hdl->hql", queries * scale, keys)
    scores = jnp.where(mask[None], scores, jnp.finfo(scores.dtype).min)
    # The softmax is divided by its sum last, where there is least to divide.
    weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))  # [H, Q, L]
    attended = jnp.einsum("hql,hld->hqd", drop(weights), values)
    attended /= weights.sum(axis=-1, keepdims=True)
    return attended.transpose(1, 0, 2)
