"""Policies as Flax modules: what acts, whatever trains it.

Their settings are there at once; a network is imported when it is first used, so that
reading settings does not start JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from models.config import (
    IMAGE_POLICIES,
    AfterstateConfig,
    AnyPolicyConfig,
    CNNConfig,
    DecisionTransformerConfig,
    ImageDecisionTransformerConfig,
    LinearConfig,
    LSTMConfig,
    MLPConfig,
    PolicyConfig,
)

if TYPE_CHECKING:
    from models.cnn import CNN, CNNPolicy
    from models.decision_transformer import (
        DecisionTransformer,
        DecisionTransformerPolicy,
    )
    from models.history import HistoryActor
    from models.image_decision_transformer import (
        ImageDecisionTransformer,
        ImageDecisionTransformerPolicy,
    )
    from models.lstm import LSTM, LSTMPolicy
    from models.make import AnyPolicy, make_policy
    from models.mlp import MLP, MLPPolicy
    from models.policy import ActionSpec, BoxActions, DiscreteActions

_HOME = {
    "ActionSpec": "policy",
    "AnyPolicy": "make",
    "BoxActions": "policy",
    "CNN": "cnn",
    "CNNPolicy": "cnn",
    "DecisionTransformer": "decision_transformer",
    "DecisionTransformerPolicy": "decision_transformer",
    "DiscreteActions": "policy",
    "HistoryActor": "history",
    "ImageDecisionTransformer": "image_decision_transformer",
    "ImageDecisionTransformerPolicy": "image_decision_transformer",
    "LSTM": "lstm",
    "LSTMPolicy": "lstm",
    "MLP": "mlp",
    "MLPPolicy": "mlp",
    "make_policy": "make",
}

__all__ = [
    "CNN",
    "IMAGE_POLICIES",
    "LSTM",
    "MLP",
    "ActionSpec",
    "AfterstateConfig",
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
    "LinearConfig",
    "MLPConfig",
    "MLPPolicy",
    "PolicyConfig",
    "make_policy",
]


def __getattr__(name: str) -> Any:
    """Imports a network on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'models' has no attribute {name!r}")
    return getattr(importlib.import_module(f"models.{_HOME[name]}"), name)
