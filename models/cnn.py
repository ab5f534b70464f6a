"""Convolutional policy for Atari with virtual batch normalisation.

Two convolutions (or one) and a dense layer, each normalised before its ReLU: the
network with which Salimans et al. 2017 (arXiv 1703.03864) play Atari. Normalisation
makes a member's actions depend on what it sees: without, many perturbed networks always
choose the same action, whatever the frame.

*Virtual* batch normalisation takes mean and variance from a fixed batch of
observations, the reference, chosen at the start (2017, §2.2; where it was first
proposed, in Salimans et al. 2016, arXiv 1606.03498, the normalised example itself
counts besides). They are statistics of the *activations*, so each member has its own:
:meth:`CNNPolicy.prepare` sends the reference through a member's weights, once, before
its episodes. Lorenc & Neruda (arXiv 2501.13883) call something else by that name,
running statistics of the *observations*, one for all members, which grow from
generation to generation (``jax_es/rollout/observation_statistics.py``). Either can be
had without the other.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_es.models.config import CNNConfig
from jax_es.models.layers import (
    Conv,
    Dense,
    fan_in_dense,
    perturbation,
    shift,
    symmetric_uniform,
)
from jax_es.models.policy import ActionSpec, check_sizes
from jax_es.models.stepwise import FeedForwardPolicy


def convolutions(
    sides: tuple[int, ...], features: tuple[int, ...] = (16, 32)
) -> tuple[tuple[int, int, int], ...]:
    """Returns features, kernel and stride of each convolution for an image's sides.

    Kernels and strides are those of the paper from 20 rows and columns on. Smaller
    images (a grid world's) get 3 × 3 without stride, or as much as there is.

    Example:
        >>> convolutions((84, 84)), convolutions((10, 10), (16,))
        (((16, 8, 4), (32, 4, 2)), ((16, 3, 1),))
    """
    if min(sides) >= 20:
        sizes = [(8, 4), (4, 2)]
    else:
        first = min(3, *sides)
        sizes = [(first, 1), (min(3, *(n - first + 1 for n in sides)), 1)]
    return tuple((count, *size) for count, size in zip(features, sizes, strict=False))


def channels_last(shape: tuple[int, ...]) -> bool:
    """Returns whether images ``[H, W, C]`` are meant, as most environments give them.

    At most four channels are told from rows by that; else they come first.

    Example:
        >>> channels_last((96, 96, 3)), channels_last((4, 84, 84))
        (True, False)
    """
    return shape[-1] <= 4 < min(shape[:2])


class VirtualBatchNorm(nn.Module):
    """Normalises each feature by what a reference batch has of it.

    y = γ (x − μ)/√(v + ε) + β with γ and β as weights. Where the collection
    ``"batch_stats"`` is mutable, the input is the reference batch itself: its mean μ
    and variance v, over all axes but the last, are stored there.
    """

    features: int
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Normalises ``[..., features]``."""
        size = self.features
        scale = self.param("scale", nn.initializers.ones, (size,))
        bias = self.param("bias", nn.initializers.zeros, (size,))
        own_scale, own_bias = (perturbation(self, n) for n in ("scale", "bias"))
        scale = scale if own_scale is None else scale + own_scale
        bias = bias if own_bias is None else bias + own_bias
        mean = self.variable("batch_stats", "mean", jnp.zeros, (size,))
        variance = self.variable("batch_stats", "variance", jnp.ones, (size,))
        if self.is_mutable_collection("batch_stats") and not self.is_initializing():
            batch = inputs.reshape(-1, size)
            mean.value = batch.mean(axis=0)
            variance.value = jnp.square(shift(batch, -mean.value)).mean(axis=0)
        factor = scale * jax.lax.rsqrt(variance.value + self.epsilon)
        centred = shift(inputs, -mean.value)
        return shift(jnp.einsum("...d,d->...d", centred, factor), bias)


class CNN(nn.Module):
    """Maps images, ``[..., C, H, W]`` or ``[..., H, W, C]``, to outputs."""

    config: CNNConfig
    image_shape: tuple[int, ...]
    num_outputs: int

    def setup(self):
        """Names the layers."""
        is_normalised = self.config.normalization == "virtual-batch"
        layers, norms = [], []
        if channels_last(self.image_shape):
            *sides, channels = self.image_shape
        else:
            channels, *sides = self.image_shape
        counts = self.config.features
        for features, kernel, stride in convolutions(tuple(sides), counts):
            start = symmetric_uniform(1.0 / math.sqrt(channels * kernel * kernel))
            # A bias before a normalisation would be subtracted again.
            layers.append(
                Conv(features, kernel, stride, not is_normalised, start, start)
            )
            channels, sides = features, [(n - kernel) // stride + 1 for n in sides]
        self.convolutions = layers
        fan_in = channels * math.prod(sides)
        start = symmetric_uniform(1.0 / math.sqrt(fan_in))
        self.hidden = Dense(
            self.config.hidden_size,
            use_bias=not is_normalised,
            kernel_init=start,
            bias_init=start,
        )
        if is_normalised:
            norms = [VirtualBatchNorm(n) for n in (*counts, self.config.hidden_size)]
        self.norms = norms
        self.head = fan_in_dense(self.config.hidden_size, self.num_outputs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Returns the action before its tanh, or logits."""
        # Convolutions have the channels last.
        is_last = channels_last(self.image_shape)
        x = images if is_last else jnp.moveaxis(images, -3, -1)
        for i, layer in enumerate(self.convolutions):
            x = nn.relu(self._normalise(i, layer(x)))
        x = self.hidden(x.reshape(*x.shape[:-3], -1))
        return self.head(nn.relu(self._normalise(-1, x)))

    def _normalise(self, layer: int, x: jax.Array) -> jax.Array:
        """Normalises a layer's outputs, if the network does so."""
        return self.norms[layer](x) if self.norms else x


@dataclasses.dataclass(frozen=True)
class CNNPolicy(FeedForwardPolicy):
    """A ``CNN`` as a policy of ``jax_es.types``; its carry is empty."""

    config: CNNConfig
    observation_shape: tuple[int, ...]
    actions: ActionSpec

    def __post_init__(self):
        """Checks that the config fits the environment."""
        check_sizes(self.config, math.prod(self.observation_shape), self.actions)

    @functools.cached_property
    def network(self) -> CNN:
        """The Flax module."""
        return CNN(self.config, self.observation_shape, self.actions.num_outputs)

    @property
    def reference_size(self) -> int:
        """How many observations :meth:`prepare` takes; 0 if it is not needed."""
        is_normalised = self.config.normalization == "virtual-batch"
        return self.config.reference_size if is_normalised else 0

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        return self.network.init(key, jnp.zeros(self.observation_shape))["params"]

    def prepare(
        self, variables: Mapping[str, Any], reference: jax.Array
    ) -> Mapping[str, Any]:
        """Returns the collection ``"batch_stats"`` for a member's weights.

        Args:
            variables: the member's Flax collections.
            reference: ``[reference_size, C, H, W]``, normalised as observations are.
        """
        _, statistics = self.network.apply(
            dict(variables), reference, mutable=["batch_stats"]
        )
        return statistics
