"""Settings of behaviour cloning, checked when built.

A docstring under a field is its ``--help``.
"""

import dataclasses

from jax_es.checks import (
    Count,
    Fraction,
    NotNegative,
    NotNegativeFinite,
    Positive,
    check_fields,
)
from jax_es.config import LearningRate


@dataclasses.dataclass(frozen=True)
class CloningConfig:
    """Settings of behaviour cloning. Defaults: Lorenc & Neruda, arXiv 2501.13883."""

    steps_per_epoch: Count = 10_000
    """Steps of gradient descent before each evaluation."""
    epochs: Count = 10
    """Epochs to train for, counted from the start of the run."""
    batch_size: Count = 128
    """Windows in a step of gradient descent."""
    learning_rate: LearningRate = 1e-4
    """Learning rate of AdamW after the warm-up."""
    warmup_steps: NotNegative = 10_000
    """Steps over which the learning rate rises linearly from 0; 0 for none."""
    weight_decay: NotNegativeFinite = 1e-4
    """λ of AdamW's decoupled decay θ ← θ − learning rate · λ θ."""
    gradient_clip: Positive = 0.25
    """Largest Euclidean norm of a gradient; longer ones are shortened to it."""
    dropout: Fraction = 0.1
    """Share of activations that is dropped in training, and never when acting; read by
    transformers only."""
    holdout: Fraction = 0.05
    """Share of the episodes that is not learnt from (at least one, unless 0), but
    measures the loss on what was never seen."""

    def __post_init__(self) -> None:
        check_fields(self)
