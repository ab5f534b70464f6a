"""How an error names a setting: as its reader types it.

A message is written once: a field as Python has it (``es.sigma 0.1``), what is no field
as the option that it is (``--resume``). Python's users read :func:`spelled`, and a
program prints :func:`as_options`.
"""

import contextlib
import re
from collections.abc import Collection, Iterator
from contextvars import ContextVar

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
