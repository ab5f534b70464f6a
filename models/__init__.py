"""Policies as Flax modules: what acts, whatever trains it."""

from models.cnn import CNN, CNNConfig, CNNPolicy
from models.decision_transformer import (
    DecisionTransformer,
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
)
from models.history import HistoryActor
from models.image_decision_transformer import (
    ImageDecisionTransformer,
    ImageDecisionTransformerConfig,
    ImageDecisionTransformerPolicy,
)
from models.lstm import LSTM, LSTMConfig, LSTMPolicy
from models.make import (
    IMAGE_POLICIES,
    AnyPolicy,
    AnyPolicyConfig,
    make_policy,
)
from models.mlp import MLP, MLPConfig, MLPPolicy
from models.policy import ActionSpec, BoxActions, DiscreteActions, PolicyConfig
from models.target_return import asking_for

__all__ = [
    "CNN",
    "IMAGE_POLICIES",
    "LSTM",
    "MLP",
    "ActionSpec",
    "AnyPolicy",
    "AnyPolicyConfig",
    "BoxActions",
    "CNNConfig",
    "CNNPolicy",
    "DecisionTransformer",
    "DecisionTransformerConfig",
    "DecisionTransformerPolicy",
    "DiscreteActions",
    "HistoryActor",
    "ImageDecisionTransformer",
    "ImageDecisionTransformerConfig",
    "ImageDecisionTransformerPolicy",
    "LSTMConfig",
    "LSTMPolicy",
    "MLPConfig",
    "MLPPolicy",
    "PolicyConfig",
    "asking_for",
    "make_policy",
]
