"""What ``--help`` of a program shows, and what only ``--help-all`` does."""

import contextlib
import dataclasses
import functools
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

from tyro import _arguments as tyro_arguments
from tyro import _strings as tyro_strings

from jax_es.checks import is_own, option
from jax_es.config import ESConfig
from jax_es.runs.trust import find

HELP_ALL_OPTION = "--help-all"
"""As ``--help``, with the options that few need."""

FEW_NEED = re.compile(
    r"--env\.(game|sticky-actions|reward-clipping|noop-max|terminate-on-life-loss"
    r"|full-action-space|observation|frame-size|frame-stack)"
    r"|--es\.(command|obedience)-.*|--policy\.film"
)
"""Options that only games or obedience need; ``--help`` leaves them out."""


def own_arguments(default: Any) -> list[str]:
    """Says which arguments the user's own strategy and objective take."""
    es = getattr(getattr(default, "config", default), "es", None)
    if not isinstance(es, ESConfig):
        return []
    parts = (
        # What training itself gives them is no option.
        ("strategy", es.strategy, 2, "kwargs", es.kwargs),
        ("objective", es.objective, 1, "objective-kwargs", es.objective_kwargs),
    )
    said = []
    for what, target, skipped, where, values in parts:
        if not is_own(target):
            continue
        known = inspect.signature(find(f"--{what}", target)).parameters.values()
        options = [
            f"--es.{where}.{p.name} (default: {values.get(p.name, p.default)})"
            if p.name in values or p.default is not p.empty
            else f"--es.{where}.{p.name} (needed)"
            for p in list(known)[skipped:]
            if p.name not in ("population_size", "sigma")
            and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        said.append(f"{target}: {', '.join(options) or 'no options of its own'}.")
    return said


def wrapped(text: str) -> str:
    """Fills paragraphs, which tyro leaves as they are."""
    fill = functools.partial(textwrap.fill, break_on_hyphens=False)
    width = shutil.get_terminal_size().columns
    return "\n\n".join(fill(part, width) for part in text.split("\n\n"))


def unread(default: Any) -> set[str]:
    """Returns the options of ``es`` that the strategy of the defaults does not read."""
    es = getattr(getattr(default, "config", default), "es", None)
    fields = dataclasses.fields(es) if isinstance(es, ESConfig) else ()
    return {option(f"es.{f.name}") for f in fields if es and not es.reads(f.name)}


@contextlib.contextmanager
def short_help(argv: list[str], left_out: set[str], has_all: bool) -> Iterator[None]:
    """Leaves out of ``--help`` what nothing reads, and what only ``--help-all`` has."""
    tyros = tyro_arguments.ArgumentDefinition.is_suppressed

    def is_left_out(argument: tyro_arguments.ArgumentDefinition) -> bool:
        return tyros(argument) or any(
            name in left_out or (FEW_NEED.fullmatch(name) and not has_all)
            for name in argument.lowered.name_or_flags
        )

    if {"-h", "--help"} & {*argv}:
        setattr(tyro_arguments.ArgumentDefinition, tyros.__name__, is_left_out)
    try:
        yield
    finally:
        setattr(tyro_arguments.ArgumentDefinition, tyros.__name__, tyros)


# tyro's own keeps the line breaks of indented docstrings, and wraps once more.
tyro_strings.remove_single_line_breaks = lambda text: re.sub(r"\n +", " ", text)
