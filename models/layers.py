"""Layers that more than one network uses."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer


def fan_in_dense(fan_in: int, features: int) -> nn.Dense:
    """A dense layer with PyTorch's default initialisation.

    Kernel and bias are drawn from U(-1/√fan_in, 1/√fan_in), as ``torch.nn.Linear``
    draws them, so that networks start where those of the paper's code start.

    Args:
        fan_in: size of the layer's input. Linen would infer it for the kernel, but a
            bias initialiser never sees it.
        features: size of the layer's output.
    """
    initialiser = symmetric_uniform(1.0 / math.sqrt(fan_in))
    return nn.Dense(features, kernel_init=initialiser, bias_init=initialiser)


def symmetric_uniform(bound: float) -> Initializer:
    """Returns an initialiser that draws from U(-bound, bound)."""

    def initialise(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, minval=-bound, maxval=bound)

    return initialise
