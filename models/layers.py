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
the collection they are Linen's layers, with the weights of Linen's layers.
Source: EGGROLL, arXiv 2511.16652.
"""

import math
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


class Conv(nn.Module):
    """A square convolution without padding, perturbed; weights as ``nn.Conv`` has them.

    It is computed as products of matrices (:func:`convolve`): on a CPU XLA's own
    convolution is slower where each member has a kernel of its own, and no faster where
    all share one.
    """

    features: int
    kernel_size: int
    stride: int
    use_bias: bool = True
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps ``[..., H, W, channels]`` to ``[..., H', W', features]``.

        Raises:
            ValueError: ``stride`` does not divide ``kernel_size``, or an image is
                smaller than the kernel.
        """
        if self.kernel_size % self.stride:
            raise ValueError(
                f"stride must divide kernel_size, got {self.stride} and "
                f"{self.kernel_size}: choose another of the two"
            )
        if min(images.shape[-3:-1]) < self.kernel_size:
            raise ValueError(
                f"images [..., H, W, channels] must be at least kernel_size = "
                f"{self.kernel_size} high and wide, got the shape {images.shape}"
            )
        size, channels = (self.kernel_size,) * 2, images.shape[-1]
        shape = *size, channels, self.features
        kernel = self.param("kernel", self.kernel_init, shape)
        outputs = convolve(images, kernel, self.stride)
        match perturbation(self, "kernel"):
            case None:
                pass
            case (a, b):  # A makes r channels, B spreads them
                own = a.reshape(*size, channels, -1)
                outputs += convolve(images, own, self.stride, self.features) @ b.T
            case own:
                outputs += convolve(images, own, self.stride)
        if not self.use_bias:
            return outputs
        bias = self.param("bias", self.bias_init, (self.features,))
        own_bias = perturbation(self, "bias")
        return shift(outputs, bias if own_bias is None else bias + own_bias)


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


def dropped_out(module: nn.Module, x: jax.Array, rate: float) -> jax.Array:
    """Sets a random share of ``x`` to 0 and scales up the rest, in training alone.

    Source: Srivastava et al. 2014. Each entry keeps its expectation.

    Args:
        module: ``x`` is returned as it is unless this was given a ``"dropout"`` key.
        x: any shape.
        rate: share of entries to drop, in [0, 1), rounded to a 65 536th.
    """
    num_kept = round((1.0 - rate) * 2**16)
    if num_kept == 2**16 or not module.has_rng("dropout"):
        return x
    # Half a word an entry: drawing whole ones would take twice as long.
    words = jax.random.bits(module.make_rng("dropout"), (-(-x.size // 2),))
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16).ravel()[: x.size]
    kept = halves.reshape(x.shape) < num_kept
    return jnp.where(kept, x * (2**16 / num_kept), 0.0)


def perturbation(module: nn.Module, name: str) -> Any:
    """Returns what is added to the weight ``name``; ``None`` if nothing is."""
    return module.get_variable("perturbation", name)


def convolve(
    images: jax.Array, kernel: jax.Array, stride: int, beside: int = 0
) -> jax.Array:
    """Convolves by products of matrices, without padding.

    Args:
        images: ``[..., H, W, c]``.
        kernel: ``[k, k, c, d]``.
        stride: s, divides k.
        beside: features of another kernel that is applied to the same images; what is
            put together for that one then serves both.

    Returns:
        ``[..., (H - k)/s + 1, (W - k)/s + 1, d]``, rounded down.
    """
    *lead, height, width, _ = images.shape
    size, _, channels, features = kernel.shape
    # Blocks of s × s pixels, each one row; a kernel has q × q taps of that size. They
    # are put together from every s-th row of pixels, since moving axes is slower.
    taps = size // stride
    rows, columns = ((n - size) // stride + taps for n in (height, width))
    images = images[..., : rows * stride, : columns * stride, :]
    lines = images.reshape(*lead, rows * stride, columns, stride * channels)
    blocks = [lines[..., first::stride, :, :] for first in range(stride)]
    blocks = jnp.concatenate(blocks, axis=-1).reshape(*lead, rows * columns, -1)
    kernel = kernel.reshape(taps, stride, taps, stride, channels, features)
    kernel = kernel.transpose(0, 2, 1, 3, 4, 5)
    down, right = rows - taps + 1, columns - taps + 1

    def moved(blocks: jax.Array, i: int, j: int) -> jax.Array:
        return blocks[..., i : i + down, j : j + right, :]

    places = [(i, j) for i in range(taps) for j in range(taps)]
    depth = blocks.shape[-1]
    # What is written in between is the smaller of the two: what each output sees, or
    # what each block gives to all the outputs that see it.
    if depth < max(features, beside):
        blocks = blocks.reshape(*lead, rows, columns, depth)
        seen = jnp.concatenate([moved(blocks, i, j) for i, j in places], axis=-1)
        seen = seen.reshape(*lead, down * right, -1)
        return (seen @ kernel.reshape(-1, features)).reshape(*lead, down, right, -1)
    kernel = kernel.transpose(2, 3, 4, 0, 1, 5).reshape(depth, -1)
    products = (blocks @ kernel).reshape(*lead, rows, columns, taps, taps, features)
    return sum(
        (moved(products[..., i, j, :], i, j) for i, j in places),
        start=jnp.zeros((), images.dtype),
    )


def times(x: jax.Array, matrix: Any) -> jax.Array:
    """Returns ``x [..., a]`` times a matrix, or times the product of its factors."""
    if not isinstance(matrix, tuple):
        return x @ matrix
    a, b = matrix
    return (x @ a) @ b.T


def shift(x: jax.Array, bias: jax.Array) -> jax.Array:
    """Adds ``[d]`` to ``[..., d]``."""
    return x + jnp.broadcast_to(bias, x.shape)


def fan_in_dense(fan_in: int, features: int, scale: float = 1.0) -> Dense:
    """A dense layer with PyTorch's default initialisation.

    Kernel and bias are drawn from U(-1/√fan_in, 1/√fan_in), as ``torch.nn.Linear``
    draws them, so that networks start where those of the paper's code start.

    Args:
        fan_in: size of the layer's input. Linen would infer it for the kernel, but a
            bias initialiser never sees it.
        features: size of the layer's output.
        scale: factor on the bound.
    """
    initialiser = symmetric_uniform(scale / math.sqrt(fan_in))
    return Dense(features, kernel_init=initialiser, bias_init=initialiser)


def symmetric_uniform(bound: float) -> Initializer:
    """Returns an initialiser that draws from U(-bound, bound)."""

    def initialise(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, minval=-bound, maxval=bound)

    return initialise
