"""Layers whose weights may be perturbed, and how they begin.

A member of a population can have weights of its own (it is then applied to other
``"params"``), or share ``"params"`` with all the others and bring a ``"perturbation"``
collection that mirrors them. A leaf of it is what is added to the weight of the same
name, in one of two forms:

- an array of the weight's shape;
- factors ``(A [a, r], B [b, r])`` of the matrix A Bᵀ, for a weight whose last axis has
  size b and whose other axes together have size a.

These layers never build A Bᵀ: x(W + A Bᵀ) = xW + (xA)Bᵀ, and under ``jax.vmap`` over
members, with ``"params"`` unmapped, xW is one matrix product for all of them. Without
the collection they are Linen's own layers, with Linen's own weights.
Source: EGGROLL, arXiv 2511.16652.
"""

import math
import typing
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer


class Dense(nn.Dense):
    """``nn.Dense``, perturbed: x(W + δW) + (b + δb)."""

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Maps ``[..., a]`` to ``[..., features]``."""
        outputs = super().__call__(inputs)
        kernel, bias = perturbation(self, "kernel"), perturbation(self, "bias")
        if kernel is not None:
            outputs += times(inputs, kernel)
        return outputs if bias is None else shift(outputs, bias)


class Embed(nn.Embed):
    """``nn.Embed``, perturbed; only the rows that are looked up are computed."""

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Maps integers ``[...]`` to rows ``[..., features]``."""
        rows = super().__call__(inputs)
        match perturbation(self, "embedding"):
            case None:
                return rows
            case (a, b):
                return rows + a[inputs] @ b.T
            case table:
                return rows + table[inputs]


class Conv(nn.Conv):
    """``nn.Conv`` without groups and masks, perturbed.

    A convolves to r channels, which B spreads.

    A is a kernel ``[*kernel_size, channels, r]`` with all but its last axis flattened.
    """

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Maps ``[..., *spatial, channels]`` to ``[..., *spatial, features]``."""
        outputs = super().__call__(inputs)
        kernel, bias = perturbation(self, "kernel"), perturbation(self, "bias")
        match kernel:
            case None:
                pass
            case (a, b):
                outputs += self._convolve(inputs, self._unflatten(inputs, a)) @ b.T
            case _:
                outputs += self._convolve(inputs, kernel)
        return outputs if bias is None else shift(outputs, bias)

    def _unflatten(self, inputs: jax.Array, kernel: jax.Array) -> jax.Array:
        """Reshapes ``[a, r]`` → ``[*kernel_size, channels, r]``."""
        size = self.kernel_size
        spatial = (size,) if isinstance(size, int) else tuple(size)
        return kernel.reshape(*spatial, inputs.shape[-1], -1)

    def _convolve(self, inputs: jax.Array, kernel: jax.Array) -> jax.Array:
        """Convolves as this layer does, with another kernel and without bias."""
        layer = nn.Conv(
            kernel.shape[-1],
            self.kernel_size,
            self.strides,
            self.padding,
            self.input_dilation,
            self.kernel_dilation,
            use_bias=False,
            parent=None,
        )
        outputs = layer.apply({"params": {"kernel": kernel}}, inputs)
        return typing.cast(jax.Array, outputs)


class LayerNorm(nn.Module):
    """Layer normalisation, perturbed, with the weights of ``nn.LayerNorm``.

    Written out, since Linen's own returns only what it has scaled already.
    """

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Normalises the last axis of ``[..., d]``."""
        size = inputs.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (size,))
        bias = self.param("bias", nn.initializers.zeros, (size,))
        for_scale, for_bias = (perturbation(self, n) for n in ("scale", "bias"))
        scale = scale if for_scale is None else scale + for_scale
        bias = bias if for_bias is None else bias + for_bias
        centred = inputs - inputs.mean(axis=-1, keepdims=True)
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + self.epsilon)
        return shift(jnp.einsum("...d,d->...d", normal, scale), bias)


def perturbation(module: nn.Module, name: str) -> Any:
    """Returns what is added to the weight ``name``; ``None`` if nothing is."""
    return module.get_variable("perturbation", name)


def times(x: jax.Array, matrix: Any) -> jax.Array:
    """Returns ``x [..., a]`` times a matrix, or times the product of its factors."""
    if not isinstance(matrix, tuple):
        return x @ matrix
    a, b = matrix
    return (x @ a) @ b.T


def shift(x: jax.Array, bias: jax.Array) -> jax.Array:
    """Adds ``[d]`` to ``[..., d]``."""
    return x + jnp.broadcast_to(bias, x.shape)


def fan_in_dense(fan_in: int, features: int) -> Dense:
    """A dense layer with PyTorch's default initialisation.

    Kernel and bias are drawn from U(-1/√fan_in, 1/√fan_in), as ``torch.nn.Linear``
    draws them, so that networks start where those of the paper's code start.

    Args:
        fan_in: size of the layer's input. Linen would infer it for the kernel, but a
            bias initialiser never sees it.
        features: size of the layer's output.
    """
    initialiser = symmetric_uniform(1.0 / math.sqrt(fan_in))
    return Dense(features, kernel_init=initialiser, bias_init=initialiser)


def symmetric_uniform(bound: float) -> Initializer:
    """Returns an initialiser that draws from U(-bound, bound)."""

    def initialise(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, minval=-bound, maxval=bound)

    return initialise
