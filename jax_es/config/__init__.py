"""Settings of a run's parts, checked when built: strategy, environment, rollout.

Each has its own frozen dataclass; networks keep theirs in ``models``, and
``train_config.py`` puts them together. A docstring under a field is its ``--help``.
"""

from jax_es.config.es import (
    ESTIMATING,
    STRATEGIES,
    ESConfig,
    LearningRate,
    Shaping,
    StrategyName,
)
from jax_es.config.task import EnvConfig, EvaluationConfig, Precision, RolloutConfig

__all__ = [
    "ESTIMATING",
    "STRATEGIES",
    "ESConfig",
    "EnvConfig",
    "EvaluationConfig",
    "LearningRate",
    "Precision",
    "RolloutConfig",
    "Shaping",
    "StrategyName",
]
