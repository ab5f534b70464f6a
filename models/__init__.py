"""Policies as Flax modules: what acts, whatever trains it."""

from models.decision_transformer import (
    DecisionTransformer,
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
)
from models.lstm import LSTM, LSTMConfig, LSTMPolicy
from models.make import AnyPolicy, AnyPolicyConfig, make_policy
from models.mlp import MLP, MLPConfig, MLPPolicy
from models.policy import ActionSpec, BoxActions, DiscreteActions, PolicyConfig

__all__ = [
    "LSTM",
    "MLP",
    "ActionSpec",
    "AnyPolicy",
    "AnyPolicyConfig",
    "BoxActions",
    "DecisionTransformer",
    "DecisionTransformerConfig",
    "DecisionTransformerPolicy",
    "DiscreteActions",
    "LSTMConfig",
    "LSTMPolicy",
    "MLPConfig",
    "MLPPolicy",
    "PolicyConfig",
    "make_policy",
]
