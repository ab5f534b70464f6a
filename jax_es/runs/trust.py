"""Which modules a run may bring along: none, unless the user says so.

The environment ``module:id`` is made by importing ``module``, and so is the policy
``module:Name``; a module may run any code. Named on this command line, or in a
configuration that a Python program passes, it is the user's own word. Read from a run's
folder it is not, whether to evaluate the run, to begin with it or to resume it, and
wherever it was made: a folder cannot prove that. Arguments of an environment count,
too: some are imported by it.
"""

import importlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from jax_es.checks import ConfigError, require
from jax_es.runs.directory import RunDirectory, seed_runs
from jax_es.train_config import TrainConfig, imported

_named: set[str] = set()
"""What the user named or trusted in this process, as ``module:Name``."""

_given: dict[tuple[str, str], Any] = {}
"""What a Python program handed over that cannot be imported by name: option and
``module:Name`` → the object."""

_of_runs: dict[Path, dict[tuple[str, str], Any]] = {}
"""The same of each run that this process trained: two parts may have one name."""


def check_imports(
    config: TrainConfig, path: Path, trust: bool = False, named: Collection[str] = ()
) -> None:
    """Raises ``ConfigError`` unless the user named or trusts all that a run imports.

    It does not matter what is imported already: ``os:system`` would be called.

    Args:
        config: the run's.
        path: the run, for the message.
        trust: whether the user trusts it.
        named: what the user typed on this command line.
    """
    for target in imported(config):
        require(
            trust or target in named or target in _named,
            f"{path} names {target}, for which the module {target.partition(':')[0]} "
            "would be used, and a module may run any code; if you trust it add --trust "
            f"(from Python: jax_es.load_policy({str(path)!r}, trust=True) first).",
        )
    remember(config)
    give(_of_runs.get(path.resolve(), {}))


def remember(config: TrainConfig) -> None:
    """Notes what a configuration imports that its user named, or trusts.

    Its run can then be read in this process without a question.
    """
    _named.update(imported(config))


def trust_source(init: str) -> None:
    """Trusts the modules of the run that ``--init`` names, or of its seeds."""
    path = Path(init)
    for run in (RunDirectory(path), *seed_runs(path)):
        if run.exists():
            check_imports(run.config(), run.path, trust=True)


def target_of(option: str, thing: Callable[..., Any]) -> str:
    """Returns ``module:Name`` of something of the user's own, for a configuration.

    What cannot be imported by that name (a lambda, a class of a notebook's cell) is
    kept: :func:`find` returns it for as long as this process lives.

    Args:
        option: that names such a thing on a command line.
        thing: a class or a function.
    """
    name = getattr(thing, "__qualname__", f"{type(thing).__qualname__}()")
    target = f"{getattr(thing, '__module__', '__main__')}:{name}"
    if is_importable(target):
        try:
            if find(option, target) is thing:
                _given.pop((option, target), None)
                return target
        except ConfigError:
            pass
    _given[option, target] = thing
    return target


def is_importable(target: str) -> bool:
    """Returns whether another process might import ``module:Name``."""
    return not target.startswith("__main__:") and not {*"<("} & {*target}


def given(config: TrainConfig) -> dict[tuple[str, str], Any]:
    """Returns what a configuration names that this process alone has."""
    named = imported(config)
    return {key: thing for key, thing in _given.items() if key[1] in named}


def note_unnamed(config: TrainConfig, run: Path) -> list[str]:
    """Says which parts of a run's configuration no other process can import, if any.

    This process reads the run with them from now on.
    """
    things = given(config)
    before = _of_runs.get(run.resolve(), {})
    _of_runs[run.resolve()] = things
    if not things:
        return []
    unnamed = {key: f"{key[0].removeprefix('--')} {key[1]}" for key in things}
    others = [
        unnamed[key] for key in before.keys() & things if before[key] is not things[key]
    ]
    return [
        f"Only this Python process knows {', '.join(unnamed.values())}: no program can "
        "resume or evaluate the run. Write it into a file of its own, and programs "
        "can.",
        *(f"{each} was made anew since; the run goes on with it." for each in others),
    ]


def give(things: Mapping[tuple[str, str], Any]) -> None:
    """Lets :func:`find` return what another process's :func:`given` returned."""
    _given.update(things)


def find(option: str, target: str) -> Any:
    """Imports ``module:Name``, which an option names.

    Raises:
        ConfigError: if there is no such thing.
        EnvironmentFailure: if the module raises.
    """
    if (option, target) in _given:
        return _given[option, target]
    module, _, name = target.partition(":")
    require(
        is_importable(target) or hasattr(importlib.import_module("__main__"), name),
        f"{option} {target} cannot be imported: a Python program handed it over, and "
        "only where it does so again can the run go on; write it into a file of its "
        "own, my_parts.py for instance, to name it as my_parts:Name.",
    )
    expected = "expected module:Name, the module being in the working directory or"
    require(
        all(part.isidentifier() for part in f"{module}.{name}".split(".")),
        f"{option} {target} cannot be imported; {expected} installed, and the name "
        "at its top level.",
    )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{option} {target} cannot be imported ({error}); {expected} installed."
        ) from error
    except (Exception, SystemExit) as error:
        from jax_es.envs.faults import failure  # late: it loads Gymnasium

        raise failure(f"{option} {target}", "when it was imported", error) from error
    return found
