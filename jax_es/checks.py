"""Checks of values from outside: each failure is one line that says what to do."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

T = TypeVar("T")


class ConfigError(ValueError):
    """Bad input: one line that names the argument, the value and the remedy."""


def require(condition: bool, message: str) -> None:
    """Raises :class:`ConfigError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(message)


LARGE = ("max_env_steps", "steps", "buffer_size")
"""Fields that count environment steps, of which there may be more than 2^31."""


def check_integers(values: Mapping[str, object]) -> None:
    """Checks that integers fit into the arrays and files that they end up in.

    Args:
        values: by the names of fields; others than integers are passed over.

    Raises:
        ConfigError: for the first that does not.
    """
    for name, value in values.items():
        bits = 63 if name.rpartition(".")[2] in LARGE else 31
        for number in value if isinstance(value, tuple) else (value,):
            require(
                not isinstance(number, int) or abs(number) < 2**bits,
                f"{name} must be below 2^{bits}, got {number}.",
            )


def from_json(cls: type[T], values: Any) -> T:
    """Builds a dataclass from plain values, nested dataclasses and tuples included.

    Raises:
        ConfigError: for unknown fields, as another version may have written.
        TypeError: if a value is not of its field's type.
    """
    hints = typing.get_type_hints(cls)
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in check_types(values).items()
    }
    unknown = sorted(set(arguments) - set(hints))
    if unknown:
        raise ConfigError(
            f"{cls.__name__} has no field {', '.join(unknown)}; the configuration was "
            "written by another version of jax-es."
        )
    for name, value in arguments.items():
        if dataclasses.is_dataclass(hints[name]):
            arguments[name] = from_json(hints[name], value)
    return cls(**check_types(arguments, **{name: hints[name] for name in arguments}))


def check_types(values: Any, **expected: Any) -> dict[str, Any]:
    """Checks the entries of a JSON object that there must be.

    Args:
        values: anything that was JSON.
        **expected: the type of each entry, by its name.

    Returns:
        The values.

    Raises:
        TypeError: naming the entry.
    """
    if not isinstance(values, dict):
        raise TypeError(f"an object is expected, got {_short(values)}")
    for name, kind in expected.items():
        if not is_of_type(values.get(name), kind):
            raise TypeError(
                f"{name} must be {getattr(kind, '__name__', kind)}, got "
                f"{_short(values.get(name))}"
            )
    return values


def is_of_type(value: object, hint: Any) -> bool:
    """Returns whether a value is what a field with this type hint may hold.

    Example:
        >>> is_of_type(1, float), is_of_type(True, int), is_of_type((1,), tuple[int])
        (True, False, True)
    """
    kind, arguments = typing.get_origin(hint), typing.get_args(hint)
    if kind is Literal:
        return value in arguments
    if kind in (typing.Union, types.UnionType):
        return any(is_of_type(value, each) for each in arguments)
    if kind is tuple:
        return isinstance(value, tuple) and all(
            is_of_type(each, arguments[0]) for each in value
        )
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
