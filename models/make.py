"""From a config to its policy: one ``match``, no registry of strings."""

from typing import TypeAlias

from models.decision_transformer import (
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
)
from models.lstm import LSTMConfig, LSTMPolicy
from models.mlp import MLPConfig, MLPPolicy
from models.policy import ActionSpec

AnyPolicy: TypeAlias = MLPPolicy | LSTMPolicy | DecisionTransformerPolicy
AnyPolicyConfig: TypeAlias = MLPConfig | LSTMConfig | DecisionTransformerConfig


def make_policy(
    config: AnyPolicyConfig, observation_size: int, actions: ActionSpec
) -> AnyPolicy:
    """Builds the policy that a config describes.

    Args:
        config: the network and how its outputs become actions.
        observation_size: ``O``, the length of an observation vector.
        actions: the action space.
    """
    match config:
        case MLPConfig():
            return MLPPolicy(config, observation_size, actions)
        case LSTMConfig():
            return LSTMPolicy(config, observation_size, actions)
        case DecisionTransformerConfig():
            return DecisionTransformerPolicy(config, observation_size, actions)
    raise ValueError(
        f"config must be the config of a policy, got {type(config).__name__}: "
        "pass MLPConfig, LSTMConfig or DecisionTransformerConfig"
    )
