"""``models`` and ``envs``, as ``jax_es.models`` and ``jax_es.envs`` were called.

A clone has folders of these names, so Python finds them there. For one version more
they are the same modules, not copies: a class exists once. Records of runs are read
with either name.
"""

import importlib
import re
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_OURS_BEFORE = re.compile(
    r"envs(\.\w+)?:(Tetris|Point(Flat|Trap)|(Ant|Humanoid)Trap|Ant(ShortLeg|NoFoot)|"
    r"HalfCheetah(Short|No)(Back|Front)Foot|Robot)(Env|-v0)?"
)
"""Our environments by their names of before; other modules are the user's."""


def be_called(name: str) -> None:
    """Lets a package of ours go by its old name, too, and says so.

    Args:
        name: ``"models"`` or ``"envs"``, which is being imported.
    """
    warnings.warn(
        f"{name} is jax_es.{name} now; the old name works for one version more.",
        FutureWarning,
        stacklevel=3,  # who imports it
    )
    sys.meta_path.insert(0, _OldName(name))
    # The import that is under way returns what stands here at its end.
    sys.modules[name] = importlib.import_module(f"jax_es.{name}")


def of_today(value: Any) -> Any:
    """Returns what a record says of an environment, with the names of today."""
    match value:
        case str():
            return f"jax_es.{value}" if _OURS_BEFORE.fullmatch(value) else value
        case dict():
            return {name: of_today(each) for name, each in value.items()}
        case list() | tuple():
            return [of_today(each) for each in value]
    return value


class _OldName(MetaPathFinder, Loader):
    """Imports ``models.mlp`` as ``jax_es.models.mlp``."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}."

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Finds the modules of one package."""
        ours = fullname.startswith(self._prefix)
        return ModuleSpec(fullname, self) if ours else None

    def exec_module(self, module: ModuleType) -> None:
        """Puts the module of today in the place of the new, empty one."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(f"jax_es.{name}")
