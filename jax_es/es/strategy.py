"""What every strategy is: pure functions over an explicit state."""

import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import ConfigError, check_types, require
from jax_es.types import PyTree

T = TypeVar("T")


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
        strategies that estimate a gradient add its ``gradient_norm``. One
        whose ``descriptor_size`` (B) is at least 1 takes a :class:`Behaviour`, too.
        """
        ...


class StrategyFunctions(NamedTuple):
    """A strategy; what its states and populations are, its builder says."""

    init: Callable[..., Any]
    ask: Callable[..., Any]
    tell: Callable[..., Any]
    descriptor_size: int = 0
    """B, of one that reads descriptors."""


class FollowingFunctions(NamedTuple):
    """A strategy that a critic may show the way after each ``tell``."""

    init: Callable[..., Any]
    ask: Callable[..., Any]
    tell: Callable[..., Any]
    judged: Callable[..., Any]
    """``state → policies`` that the critic is asked about; shaped like θ, or with a
    leading axis for several."""
    guide: Callable[..., Any]
    """``(state, advice) → state``; the advice is shaped like the policies. Without it
    the next generation is as if there were no critic."""
    options: Any
    """:class:`~jax_es.es.critic.CriticOptions`."""


class Behaviour(NamedTuple):
    """What the episodes of a generation did."""

    members: np.ndarray
    """``[P, B]``, each member's mean descriptor."""
    mean: np.ndarray
    """``[B]``, that of θ's evaluation."""
    worth: float
    """What makes θ the best one so far: the mean return of its evaluation, −∞ if one is
    not finite, or minus its error under commanded returns."""


def check_floats(name: str, theta: PyTree) -> None:
    """Checks that weights are floats: a step within whole numbers would be cut off.

    Raises:
        ConfigError: they are not.
    """
    for leaf in jax.tree.leaves(theta):
        try:
            kind = str(jnp.result_type(leaf))
        except TypeError:
            kind = type(leaf).__name__
        require(
            "float" in kind,
            f"{name} has weights of {kind}, expected floats; make them "
            "jnp.float32(weights).",
        )


def read_options(cls: type[T], name: str, given: Mapping[str, Any]) -> T:
    """Reads a configuration's ``es.kwargs`` into a strategy's own dataclass.

    Args:
        cls: the dataclass.
        name: of the strategy.
        given: values by name.

    Raises:
        ConfigError: for an unknown name, or a value that cannot be.
    """
    hints = typing.get_type_hints(cls)
    for option in given:
        require(
            option in hints,
            f"es.kwargs.{option}: {name} has no hyperparameter {option}; it has "
            f"{', '.join(sorted(hints))}.",
        )
    try:
        check_types(dict(given), **{option: hints[option] for option in given})
    except TypeError as error:
        raise ConfigError(
            f"es.kwargs.{error}; leave it out for the default."
        ) from error
    return cls(**given)
