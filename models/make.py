"""From a config to its policy: one ``match``, no registry of strings."""

from typing import TypeAlias

from jax_es.models.cnn import CNNPolicy
from jax_es.models.config import (
    IMAGE_POLICIES,
    AfterstateConfig,
    AnyPolicyConfig,
    CNNConfig,
    DecisionTransformerConfig,
    ImageDecisionTransformerConfig,
    LSTMConfig,
    MLPConfig,
)
from jax_es.models.decision_transformer import DecisionTransformerPolicy
from jax_es.models.image_decision_transformer import ImageDecisionTransformerPolicy
from jax_es.models.lstm import LSTMPolicy
from jax_es.models.mlp import AfterstatePolicy, MLPPolicy
from jax_es.models.policy import ActionSpec, binned

AnyPolicy: TypeAlias = (
    MLPPolicy
    | LSTMPolicy
    | DecisionTransformerPolicy
    | CNNPolicy
    | ImageDecisionTransformerPolicy
)


def make_policy(
    config: AnyPolicyConfig,
    observation_shape: int | tuple[int, ...],
    actions: ActionSpec,
) -> AnyPolicy:
    """Builds the policy that a config describes.

    Args:
        config: the network and how its outputs become actions.
        observation_shape: ``O`` or ``(O,)`` for vectors, ``(C, H, W)`` for images.
        actions: the action space.

    Raises:
        ValueError: the policy takes vectors and these are images, or the reverse; or it
            shall put choices into bins.
    """
    is_int = isinstance(observation_shape, int)
    shape = (observation_shape,) if is_int else tuple(observation_shape)
    takes_images = isinstance(config, IMAGE_POLICIES)
    if len(shape) != (3 if takes_images else 1):
        takes = "images (C, H, W)" if takes_images else "vectors"
        remedy = "one that takes vectors" if len(shape) == 1 else "one for images"
        raise ValueError(
            f"policy: {type(config).__name__} takes {takes}, and observations have the "
            f"shape {shape}; choose {remedy}, or another env.id"
        )
    actions = binned(config, actions)
    match config:
        case AfterstateConfig():
            return AfterstatePolicy(config, shape[0], actions)
        case MLPConfig():
            return MLPPolicy(config, shape[0], actions)
        case LSTMConfig():
            return LSTMPolicy(config, shape[0], actions)
        case CNNConfig():
            return CNNPolicy(config, shape, actions)
        case ImageDecisionTransformerConfig():
            return ImageDecisionTransformerPolicy(config, shape, actions)
        case DecisionTransformerConfig():
            return DecisionTransformerPolicy(config, shape[0], actions)
    raise ValueError(
        f"config must be the config of a policy, got {type(config).__name__}: "
        "pass MLPConfig, AfterstateConfig, LSTMConfig, DecisionTransformerConfig, "
        "CNNConfig or ImageDecisionTransformerConfig"
    )
