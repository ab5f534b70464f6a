"""Which modules a run may bring along: none, unless the user says so.

The environment ``module:id`` is made by importing ``module``, and so is the policy
``module:Name``; a module may run any code. Named on this command line, or in a
configuration that a Python program passes, it is the user's own word. Read from a run's
folder it is not, whether to evaluate the run, to begin with it or to resume it, and
wherever it was made: a folder cannot prove that. Arguments of an environment count,
too: some are imported by it.
"""

import importlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jax_es.checks import ConfigError, require
from jax_es.runs.directory import RunDirectory, seed_runs
from jax_es.train_config import TrainConfig, imported

_named: set[str] = set()
"""What the user named or trusted in this process, as ``module:Name``."""


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


def find(option: str, target: str) -> Any:
    """Imports ``module:Name``, which an option names.

    Raises:
        ConfigError: if there is no such thing.
        EnvironmentFailure: if the module raises.
    """
    module, _, name = target.partition(":")
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
        from envs.faults import failure  # late: it loads Gymnasium

        raise failure(f"{option} {target}", "when it was imported", error) from error
    return found
