"""Policies as Flax modules: what acts, whatever trains it.

Their settings are there at once; what needs JAX is imported when it is first used. The
networks themselves are in their own files.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jax_es.models.config import (
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
    from jax_es.models.critic import TwinCritic
    from jax_es.models.decision_transformer import DecisionTransformerPolicy
    from jax_es.models.history import HistoryActor
    from jax_es.models.make import make_policy
    from jax_es.models.policy import (
        ActionSpec,
        BinaryActions,
        BoxActions,
        DiscreteActions,
        MultiDiscreteActions,
    )

_HOME = {
    "ActionSpec": "policy",
    "BinaryActions": "policy",
    "MultiDiscreteActions": "policy",
    "BoxActions": "policy",
    "DecisionTransformerPolicy": "decision_transformer",
    "DiscreteActions": "policy",
    "HistoryActor": "history",
    "TwinCritic": "critic",
    "make_policy": "make",
}

__all__ = [
    "IMAGE_POLICIES",
    "ActionSpec",
    "AfterstateConfig",
    "AnyPolicyConfig",
    "BinaryActions",
    "BoxActions",
    "CNNConfig",
    "DecisionTransformerConfig",
    "DecisionTransformerPolicy",
    "DiscreteActions",
    "HistoryActor",
    "ImageDecisionTransformerConfig",
    "LSTMConfig",
    "LinearConfig",
    "MLPConfig",
    "MultiDiscreteActions",
    "PolicyConfig",
    "TwinCritic",
    "make_policy",
]


def __getattr__(name: str) -> Any:
    """Imports what needs JAX on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'jax_es.models' has no attribute {name!r}")
    return getattr(importlib.import_module(f"jax_es.models.{_HOME[name]}"), name)


if __name__ != "jax_es.models":  # from a clone, for one version more
    importlib.import_module("jax_es.old_names").be_called(__name__)
