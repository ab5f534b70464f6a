"""Decision Transformer on images: Atari frames encoded by convolutions.

It is the network of Chen et al. 2021 (arXiv 2106.01345) for Atari, as Lorenc & Neruda
(arXiv 2501.13883) evolve it. From the network on vectors it differs in its embeddings:
the return-to-go, the encoded frames and the action each pass through tanh; there is no
normalisation before the blocks; and a token's place is told in two ways,

- ``window`` attention: a learned embedding of the token's position in the window, plus
  one of the episode's current timestep, the same for all tokens of the window;
- ``cache`` attention: a token is computed once, while windows move on, so there is no
  position in a window. Its own step's timestep embedding tells its place instead.

Frames are encoded once, when they are seen: both contexts hold encoded states.
"""

import dataclasses
import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_es.models.decision_transformer import (
    DecisionTransformer,
    DecisionTransformerPolicy,
)
from jax_es.models.layers import Conv, Dense, Embed, LayerNorm, symmetric_uniform
from jax_es.models.policy import DiscreteActions, check_image
from jax_es.models.transformer import Block

SMALLEST_IMAGE = 36
"""Rows and columns of which the three convolutions leave one."""

_normal = nn.initializers.normal(0.02)
"""How minGPT, which the paper's network is made of, begins kernels and tables."""


class ImageEncoder(nn.Module):
    """Three convolutions and a dense layer, ``[C, H, W]`` → ``[width]`` in (-1, 1).

    Source: Mnih et al. 2015; here with tanh at the end.
    """

    image_shape: tuple[int, int, int]
    width: int

    def setup(self):
        """Names the layers."""
        channels = self.image_shape[0]
        layers = []
        for features, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            bound = 1.0 / math.sqrt(channels * kernel * kernel)
            layers.append(
                Conv(
                    features,
                    kernel,
                    stride,
                    kernel_init=symmetric_uniform(bound),
                    bias_init=symmetric_uniform(bound),
                )
            )
            channels = features
        self.convolutions = layers
        self.project = Dense(self.width, kernel_init=_normal)

    def __call__(self, image: jax.Array) -> jax.Array:
        """Encodes one observation, or ``[..., C, H, W]``."""
        x = jnp.moveaxis(image, -3, -1)  # Linen convolves with the channels last
        for layer in self.convolutions:
            x = nn.relu(layer(x))
        return nn.tanh(self.project(x.reshape(*x.shape[:-3], -1)))


class ImageDecisionTransformer(DecisionTransformer):
    """The network; acts among choices only."""

    def setup(self):
        """Names the layers."""
        config, width = self.config, self.config.width
        from_table = functools.partial(Embed, features=width)
        self.embed_timestep = from_table(
            config.max_timestep, embedding_init=nn.initializers.zeros
        )
        if config.attention == "window":
            # One row more than is ever read, as in the paper's network.
            self.embed_position = from_table(
                3 * config.context_length + 1, embedding_init=nn.initializers.zeros
            )
        self.embed_return = Dense(width, kernel_init=_normal)
        self.encode_state = ImageEncoder(self.observation_shape, width)
        self.embed_action = from_table(self.actions.num_outputs, embedding_init=_normal)
        self.blocks = [
            Block(width, config.num_heads, config.activation, self.dropout)
            for _ in range(config.num_layers)
        ]
        self.final_norm = LayerNorm()
        self.head = Dense(
            self.actions.num_outputs,
            use_bias=False,
            kernel_init=nn.initializers.normal(0.02 * config.head_scale),
        )

    def embed_return_and_state(
        self, returns_to_go: jax.Array, observations: jax.Array, timesteps: jax.Array
    ) -> jax.Array:
        """Embeds what is given: ``[T]`` and ``[T, C, H, W]`` → ``[T, 2, d]``."""
        returns = nn.tanh(self.embed_return(returns_to_go[:, None]))
        tokens = jnp.stack([returns, self.encode_state(observations)], axis=1)
        return self._tell_time(tokens, timesteps[:, None])

    def embed_action_taken(self, actions: jax.Array, timesteps: jax.Array) -> jax.Array:
        """Embeds the network's own actions, ``[T]`` → ``[T, d]``."""
        return self._tell_time(nn.tanh(self.embed_action(actions)), timesteps)

    def place(
        self, tokens: jax.Array, positions: jax.Array, timestep: jax.Array
    ) -> jax.Array:
        """Adds where tokens ``[L, d]`` of a window are in it, and what time it is."""
        if self.config.attention == "cache":
            return tokens
        now = self._embed_time(timestep[None])
        return tokens + self.embed_position(positions) + now

    def _tell_time(self, tokens: jax.Array, timesteps: jax.Array) -> jax.Array:
        """Adds tokens' own timesteps, where no window will tell."""
        if self.config.attention == "window":
            return tokens
        return tokens + self._embed_time(timesteps)


@dataclasses.dataclass(frozen=True)
class ImageDecisionTransformerPolicy(DecisionTransformerPolicy):
    """An ``ImageDecisionTransformer`` as a policy of ``jax_es.types``."""

    def __post_init__(self):
        """Checks that the config fits the environment."""
        if not isinstance(self.actions, DiscreteActions):
            raise ValueError(
                "policy image-decision-transformer chooses among discrete actions, "
                "this environment's are real-valued: choose another env.id"
            )
        kind = "image-decision-transformer"
        check_image(kind, self.observation_shape, SMALLEST_IMAGE)

    @functools.cached_property
    def network(self) -> ImageDecisionTransformer:
        """The Flax module."""
        return ImageDecisionTransformer(
            self.config, self.observation_shape, self.actions
        )
