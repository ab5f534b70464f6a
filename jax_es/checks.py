"""Checks of values from outside: each failure is one line that says what to do.

A message is written once: a field as Python has it (``es.sigma 0.1``), what is no field
as the option that it is (``--resume``). Python's users read :func:`spelled`, and a
program prints :func:`as_options`.
"""

import contextlib
import dataclasses
import functools
import math
import re
import reprlib
import types
import typing
import unicodedata
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import ContextVar
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class ConfigError(ValueError):
    """Bad input: one line that names the argument, the value and the remedy.

    The values may be somebody else's: what would forge a line of its own is escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))

    def __str__(self) -> str:
        """Spells it for its reader."""
        return spelled(super().__str__())


def printable(text: str) -> str:
    r"""Escapes what is no visible character: line ends, codes that terminals obey.

    Example:
        >>> print(printable("one line\nand no other"))
        one line\nand no other
    """
    return "".join(
        c if c.isprintable() or unicodedata.category(c) == "Zs" else repr(c)[1:-1]
        for c in text
    )


def require(condition: bool, message: str) -> None:
    """Raises :class:`ConfigError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(message)


@contextlib.contextmanager
def optional(what: str, extra: str) -> Iterator[None]:
    """Raises :class:`ConfigError` if a package that is imported inside is missing.

    Args:
        what: needs which package, as ``"plots need matplotlib"``.
        extra: that installs it.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{what} ({error}); pip install -e '.[{extra}]'.") from error


class Range(NamedTuple):
    """The values that a field may have, beside its type: ``Annotated[int, Range(…)]``.

    Attributes:
        words: what a value must be.
        holds: whether one is; false of NaN.
    """

    words: str
    holds: Callable[[Any], bool]


Count: TypeAlias = Annotated[int, Range("at least 1", lambda n: n >= 1)]
Thousands: TypeAlias = Annotated[int, Range("in [1, 4096]", lambda n: 1 <= n <= 4096)]
NotNegative: TypeAlias = Annotated[int, Range("at least 0", lambda n: n >= 0)]
Finite: TypeAlias = Annotated[float, Range("finite", math.isfinite)]
Positive: TypeAlias = Annotated[
    float, Range("positive and finite", lambda x: 0 < x < math.inf)
]
NotNegativeFinite: TypeAlias = Annotated[
    float, Range("at least 0 and finite", lambda x: 0 <= x < math.inf)
]
Fraction: TypeAlias = Annotated[float, Range("in [0, 1)", lambda x: 0 <= x < 1)]
Weight: TypeAlias = Annotated[float, Range("in [0, 1]", lambda x: 0 <= x <= 1)]
Share: TypeAlias = Annotated[float, Range("in (0, 1]", lambda x: 0 < x <= 1)]


def is_index(text: str) -> bool:
    """Returns whether it is an index or a slice as Python writes them: 2, -1, 5:8."""
    return re.fullmatch(r"-?\d+|(-?\d+)?:(-?\d+)?", text) is not None


def is_own(name: object) -> bool:
    """Returns whether it names something of the user's own, as ``module:Name``."""
    return isinstance(name, str) and all(name.partition(":"))


def is_descriptor(texts: Sequence[str]) -> bool:
    """Returns whether it is one of the walkers' descriptors, or indices."""
    words = (("position",), ("feet",), ("gait",))
    return tuple(texts) in words or all(text.isdecimal() for text in texts)


def listed(value: Any) -> Any:
    """Returns a field of several words as they are typed; others as they are."""
    if not (isinstance(value, tuple) and any(isinstance(v, tuple) for v in value)):
        return value
    return ", ".join(" ".join(map(str, each)) for each in value)


def check_fields(config: Any, prefix: str = "") -> None:
    """Checks a dataclass' fields against their types and their :class:`Range`.

    Of a tuple, each element is checked.

    Args:
        config: a dataclass.
        prefix: what is put before its fields, such as ``"es."``.

    Raises:
        ConfigError: for the first that does not hold.
    """
    hints = _hints(type(config))
    for field in dataclasses.fields(config):
        name, value, hint = field.name, getattr(config, field.name), hints[field.name]
        default = field.default
        remedy = f"the default is {default}"
        if default in (None, (), dataclasses.MISSING):
            remedy = "choose another" if default else "leave it out"
        shown = listed(value)
        if shown is value:
            shown = repr(value)
        else:
            remedy = "choose another"
        for words in _violated(hint, value):
            raise ConfigError(
                f"{option(prefix + name)} must be {words}, got {shown}; {remedy}."
            )


def _violated(hint: Any, value: Any) -> Iterator[str]:
    """Yields what a value must be by its type hint, and is not."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal and value not in arguments:
        yield f"one of {', '.join(arguments)}"
    elif origin is tuple and isinstance(value, tuple | list):
        hints = arguments[:1] * len(value) if ... in arguments else arguments
        if len(hints) != len(value):
            yield str(hint)
        for kind, element in zip(hints, value, strict=False):
            yield from _violated(kind, element)
    elif origin in (typing.Union, types.UnionType):
        found = [next(_violated(kind, value), "") for kind in arguments]
        if all(found):
            yield " or ".join(each for each in found if each != "NoneType")
    elif origin is Annotated:
        found = [*_violated(arguments[0], value)]
        ranges = [each for each in arguments[1:] if isinstance(each, Range)]
        if not found:
            yield from (each.words for each in ranges if not each.holds(value))
        elif ranges and typing.get_origin(arguments[0]) is tuple:
            # What is in a tuple says more than that it is one.
            yield from (each.words for each in ranges)
        else:
            yield from found
    elif origin is not Literal and not is_of_type(value, hint):
        yield getattr(hint, "__name__", str(hint))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


LARGE = ("max_env_steps", "steps", "buffer_size")
"""Fields that count environment steps, of which there may be more than 2^31."""


def check_numbers(values: Mapping[str, object]) -> None:
    """Checks that numbers fit into the arrays and files that they end up in.

    Values are given by the names of fields; others than numbers are passed over, and
    so are floats that an environment alone reads.
    """
    for name, value in values.items():
        bits = 63 if name.rpartition(".")[2] in LARGE else 31
        for number in value if isinstance(value, tuple) else (value,):
            require(
                not isinstance(number, int) or abs(number) < 2**bits,
                f"{option(name)} must be below 2^{bits}, got {number}.",
            )
            # Zero, NaN and infinity are what a field's range is about.
            if isinstance(number, float) and number and math.isfinite(number):
                require(
                    1e-37 <= abs(number) <= 1e38 or name.startswith("env.kwargs."),
                    f"{option(name)} must be 0, or between 1e-37 and 1e+38 in size, "
                    f"got {number}.",
                )


def from_json(
    cls: type[T],
    values: Any,
    remedy: str = "the configuration was written by another version of jax-es",
) -> T:
    """Builds a dataclass from plain values, nested dataclasses and tuples included.

    Raises:
        ConfigError: for unknown fields and values of another type, as another version
            may have written; ``remedy`` ends it.
    """
    hints = typing.get_type_hints(cls)
    try:
        arguments = dict(check_types(values))
        unknown = ", ".join(sorted(set(arguments) - set(hints)))
        require(not unknown, f"{cls.__name__} has no field {unknown}; {remedy}.")
        for name, value in arguments.items():
            if dataclasses.is_dataclass(hints[name]):
                arguments[name] = from_json(hints[name], value, remedy)
            elif isinstance(value, list | tuple):
                of: Any = next(iter(typing.get_args(hints[name])), None)
                if isinstance(of, type) and dataclasses.is_dataclass(of):
                    value = [from_json(of, each, remedy) for each in value]
                arguments[name] = as_tuple(value)
        check_types(arguments, **{name: hints[name] for name in arguments})
    except TypeError as error:
        raise ConfigError(f"{cls.__name__}: {error}; {remedy}.") from error
    return cls(**arguments)


def as_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """Returns a list, and the lists in it, as tuples."""
    return tuple(as_tuple(each) if isinstance(each, list) else each for each in value)


def check_types(values: Any, **expected: Any) -> dict[str, Any]:
    """Returns what was a JSON object, if it has entries of the expected types.

    Raises:
        TypeError: naming the entry.
    """
    if not isinstance(values, dict):
        raise TypeError(f"an object is expected, got {reprlib.repr(values)}")
    for name, kind in expected.items():
        if not is_of_type(values.get(name), kind):
            found = (typing.get_origin(kind), typing.get_args(kind))
            kinds = found[1] if found[0] in (typing.Union, types.UnionType) else [kind]
            names = [getattr(each, "__name__", str(each)) for each in kinds]
            words = " or ".join(names).replace("NoneType", "None")
            got = reprlib.repr(values.get(name))
            raise TypeError(f"{name} must be {words}, got {got}")
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
    if kind is dict:
        return isinstance(value, dict)
    if kind is tuple:
        if not isinstance(value, tuple):
            return False
        hints = arguments[:1] * len(value) if ... in arguments else arguments
        return len(hints) == len(value) and all(map(is_of_type, value, hints))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


_is_program: ContextVar[bool] = ContextVar("_is_program", default=False)

_COMMAND = r"(?:python -m jax_es\.|jax-es )[^;,()]*"
_TAKEN_UP = r"--resume(?: --(?:name|runs-dir|workers) \S+| --trust)+"
_OPTION = r"(?<![\w-])--(?P<part>[a-z]+\.)?(?P<no>no-)?(?P<name>[a-z][\w.-]*\w)"
_IN_PYTHON = re.compile(f"(?P<command>{_COMMAND})|(?P<resume>{_TAKEN_UP})|{_OPTION}")

_ARGUMENTS = {
    "resume": "resume=True",
    "trust": "trust=True",
    "name": "path",
    "seeds": "num_seeds",
    "cluster": "address",
    "strategy": "es.strategy",
}
"""Options → the arguments of Python's functions, where they have another name."""


@contextlib.contextmanager
def program_runs() -> Iterator[None]:
    """Says that errors are read by somebody who typed a command line."""
    token = _is_program.set(True)
    try:
        yield
    finally:
        _is_program.reset(token)


def spelled(text: str) -> str:
    """Returns a message for Python's users; as it is while a program runs.

    Example:
        >>> spelled("continue with --resume or choose another --name")
        'continue with resume=True or choose another path'
        >>> spelled("add --rollout.no-observation-statistics or --es.num-pairs 3")
        'add rollout.observation_statistics False or es.num_pairs 3'
    """
    return text if _is_program.get() else as_fields(text)


def as_fields(text: str) -> str:
    """Returns a message as Python's users, and files of settings, spell it."""
    return _IN_PYTHON.sub(_as_argument, text)


def _as_argument(match: re.Match[str]) -> str:
    if match["command"]:
        return match[0]  # typed into a shell in either case
    if match["resume"]:
        return _ARGUMENTS["resume"]
    name = match["name"].replace("-", "_")
    if match["part"] is None and not match["no"]:
        return _ARGUMENTS.get(name, name)
    return f"{match['part'] or ''}{name}{' False' * bool(match['no'])}"


def as_options(text: str, fields: Collection[str]) -> str:
    """Returns a message with options in the place of fields that it names.

    Args:
        text: the message.
        fields: those that are options, by dotted name. One that could be an ordinary
            word (``seed``) is left as it is.

    Example:
        >>> as_options("es.num_pairs=0; the default is 9", ["es.num_pairs"])
        '--es.num-pairs 0; the default is 9'
    """
    named = [re.escape(each) for each in fields if "." in each or "_" in each]
    kwargs = [r"(?:env|es)\.kwargs\.\w+"]
    pattern = rf"(?<![\w./:'\"-])({'|'.join([*kwargs, *named])})(?![\w/]|\.\w)(=?)"

    return re.sub(pattern, lambda m: option(m[1]) + " " * bool(m[2]), text)


def option(field: str) -> str:
    """Returns the option that sets a field given by its dotted name."""
    part, kwargs, name = field.partition(".kwargs.")
    return f"--{part.replace('_', '-')}{kwargs}{name}"
