"""The transformer block, knowing nothing of what its tokens stand for.

``L`` is a number of tokens, ``d`` their width, ``H`` the number of heads.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

ACTIVATIONS = {"relu": nn.relu, "gelu": functools.partial(nn.gelu, approximate=False)}


class Block(nn.Module):
    """Pre-norm transformer block: attention, then a feed-forward part.

    Keys and values are handed in, so that they may come from these very tokens or
    from wherever an earlier step left them.
    """

    width: int
    num_heads: int
    activation: str

    def setup(self):
        """Names the layers; N(0, 0.02) kernels and zero biases, as in GPT-2."""
        dense = functools.partial(nn.Dense, kernel_init=nn.initializers.normal(0.02))
        self.attention_norm = nn.LayerNorm(epsilon=1e-5)
        self.query = dense(self.width)
        self.key = dense(self.width)
        self.value = dense(self.width)
        self.projection = dense(self.width)
        self.mlp_norm = nn.LayerNorm(epsilon=1e-5)
        self.expand = dense(4 * self.width)
        self.contract = dense(self.width)

    def keys_and_values(self, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What other tokens attend to: ``[L, d]`` → keys and values ``[L, H, d/H]``."""
        x = self.attention_norm(tokens)
        return self._split_heads(self.key(x)), self._split_heads(self.value(x))

    def __call__(
        self, tokens: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
    ) -> jax.Array:
        """Transforms tokens that attend to the given keys and values.

        Args:
            tokens: ``[Q, d]``.
            keys: ``[L, H, d/H]``.
            values: ``[L, H, d/H]``.
            mask: ``[Q, L]`` bool, whether token q attends to key l.

        Returns:
            ``[Q, d]``.
        """
        queries = self._split_heads(self.query(self.attention_norm(tokens)))
        attended = attend(queries, keys, values, mask)
        attended = attended.reshape(tokens.shape)  # [Q, H, d/H] → [Q, d]
        tokens += self.projection(attended)
        hidden = ACTIVATIONS[self.activation](self.expand(self.mlp_norm(tokens)))
        return tokens + self.contract(hidden)

    def _split_heads(self, x: jax.Array) -> jax.Array:
        """Reshapes ``[L, d]`` → ``[L, H, d/H]``."""
        return x.reshape(x.shape[0], self.num_heads, self.width // self.num_heads)


def attend(
    queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
) -> jax.Array:
    """Scaled dot-product attention, softmax(q kᵀ/√(d/H)) v, for every head.

    Args:
        queries: ``[Q, H, d/H]``.
        keys: ``[L, H, d/H]``.
        values: ``[L, H, d/H]``; finite even where masked, since 0 · NaN = NaN.
        mask: ``[Q, L]`` bool. A query that may attend to nothing gets finite
            nonsense instead of NaN, so that padding cannot spread.

    Returns:
        ``[Q, H, d/H]``.
    """
    scale = 1.0 / math.sqrt(queries.shape[-1])
    scores = jnp.einsum("qhd,lhd->hql", queries * scale, keys)
    scores = jnp.where(mask[None], scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("hql,lhd->qhd", nn.softmax(scores), values)


def causal_mask(num_tokens: int) -> jax.Array:
    """``[L, L]`` bool: a token attends to itself and to what came before it."""
    position = jnp.arange(num_tokens)
    return position[:, None] >= position[None, :]
