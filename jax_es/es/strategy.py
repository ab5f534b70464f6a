"""What every strategy is: pure functions over an explicit state."""

from typing import Any, Protocol

import jax

from jax_es.types import PyTree


class StrategyState(Protocol):
    """What the next generation needs; a pytree, which checkpoints hold."""

    @property
    def mean(self) -> PyTree:
        """θ, a weight pytree: what is evaluated, kept as the best and reloaded."""
        ...

    @property
    def generation(self) -> jax.Array:
        """``[]`` int32, generations told so far."""
        ...


class Strategy(Protocol):
    """Decides who is evaluated, and how θ moves.

    Two machines compute it alike: it holds nothing but its hyperparameters. (The types
    are ``Any`` since pyright takes functions in a NamedTuple's fields for methods.)
    """

    @property
    def init(self) -> Any:
        """``(key, mean) → state``."""
        ...

    @property
    def ask(self) -> Any:
        """``state → Population``; the same state gives the same members."""
        ...

    @property
    def tell(self) -> Any:
        """``(state, fitness [P]) → (state, info)``; larger fitness is better.

        ``info`` has ``update_norm``, ``mean_norm`` and ``num_nonfinite``, each ``[]``;
        strategies that estimate a gradient add its ``gradient_norm``.
        """
        ...
