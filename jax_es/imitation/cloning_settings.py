"""Settings of behaviour cloning and of what goes on from it, checked when built.

A docstring under a field is its ``--help``.
"""

import dataclasses
from typing import Any

from jax_es.checks import (
    Count,
    Finite,
    Fraction,
    NotNegative,
    NotNegativeFinite,
    Positive,
    check_fields,
    require,
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
    weight_noise: NotNegativeFinite | None = None
    """Standard deviation of the normal noise that each step of gradient descent adds to
    all weights before it measures the loss: θ becomes one that σ of evolution does not
    break; none if not given, as in runs from before there was such noise."""
    holdout: Fraction = 0.05
    """Share of the episodes that is not learnt from (at least one, unless 0), but
    measures the loss on what was never seen; not read with online_episodes."""
    online_episodes: NotNegative = 0
    """Episodes that θ plays before each epoch, and learns from as from the dataset's;
    with 0 it learns from the dataset alone."""
    online_noise: NotNegativeFinite = 0.1
    """Standard deviation of the noise on these episodes' actions, in halves of their
    range."""
    online_return: Finite | None = None
    """Return that they are asked for; the best that is remembered if not given."""
    replay_episodes: Count = 1000
    """Most episodes that are remembered: of the dataset the best, then the latest."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ONLINE_ONLY:
            option, value = f"--{name.replace('_', '-')}", getattr(self, name)
            require(
                self.online_episodes > 0 or value == getattr(CloningConfig, name),
                f"{option} {value} has no meaning without --online-episodes; leave it "
                "out, or add --online-episodes 10.",
            )

    @property
    def read(self) -> dict[str, Any]:
        """The settings that count, by name."""
        unread = () if self.online_episodes else ("online_episodes", *ONLINE_ONLY)
        settings = dataclasses.asdict(self)
        return {name: v for name, v in settings.items() if name not in unread}


ONLINE_ONLY = ("online_noise", "online_return", "replay_episodes")
"""Fields of ``CloningConfig`` that are read with ``online_episodes`` alone."""
