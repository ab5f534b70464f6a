"""Weights of a lower precision: what is left of θ when it is stored in fewer bits.

Pure functions over a pytree of weights. The rounded values come back as float32, so
that the same program computes with them: what is tested is the weights' precision, not
that of the arithmetic.

- Real formats (``bfloat16``, ``float16``, ``float8_e4m3``: the one without infinities,
  largest value 448): each weight becomes the nearest value of the format, ties to even,
  without any scale. What is beyond the largest value becomes the largest.
- Integers (``int8``, ``int4``): symmetric and per channel. A channel is an index of the
  last axis, which is a layer's output; its scale s is its largest magnitude over 127 or
  7, and w becomes s · round(w/s), ties to even. Where a channel would be one weight
  (biases, the scales of norms, a matrix of one row), which its own scale would keep as
  it is, the whole array shares one scale: every weight is rounded, none is left out.

In every format zeros stay zeros, weights that are not finite stay as they are, and
rounding twice is rounding once.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.config import Precision
from jax_es.types import PyTree

_REAL = {
    "float32": jnp.float32,
    "bfloat16": jnp.bfloat16,
    "float16": jnp.float16,
    "float8_e4m3": jnp.float8_e4m3fn,
}

_LARGEST_INTEGER = {"int8": 127, "int4": 7}
"""The most negative integer, −128 or −8, goes unused: the grid is symmetric."""


def round_weights(mean: PyTree, precision: Precision) -> PyTree:
    """Rounds every array of a pytree, into float32 NumPy arrays; see the module.

    Example:
        >>> round_weights({"bias": np.array([0.1, -1.0])}, "int4")
        {'bias': array([ 0.14285715, -1.        ], dtype=float32)}
    """
    if precision in _LARGEST_INTEGER:
        largest = _LARGEST_INTEGER[precision]
        return jax.tree.map(lambda leaf: _round_to_integers(leaf, largest), mean)
    return jax.tree.map(lambda leaf: _round_to_reals(leaf, _REAL[precision]), mean)


def _round_to_reals(weights: np.ndarray, dtype: type) -> np.ndarray:
    weights = np.asarray(weights, np.float32)
    largest = float(jnp.finfo(dtype).max)
    rounded = np.clip(weights, -largest, largest).astype(dtype).astype(np.float32)
    return np.where(np.isfinite(weights), rounded, weights)


def _round_to_integers(weights: np.ndarray, largest: int) -> np.ndarray:
    weights = np.asarray(weights, np.float32)
    finite = np.isfinite(weights)
    # In float64, where no scale of float32 weights is rounded to 0, and the largest
    # weight comes back exactly.
    exact = np.where(finite, weights, 0.0).astype(np.float64)
    channels = exact.shape[-1:] != (exact.size,)
    axes = tuple(range(exact.ndim - 1)) if channels else None
    scale = np.abs(exact).max(axis=axes, keepdims=True, initial=0.0) / largest
    scale = np.where(scale == 0.0, 1.0, scale)  # a channel of zeros
    rounded = scale * np.rint(exact / scale)
    return np.where(finite, rounded.astype(np.float32), weights)
