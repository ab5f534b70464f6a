"""What the benchmark can measure: the names of its rows, and how much work each is.

A row is called ``KIND/NETWORK[/CONDITION]``. A network is a preset, or a preset and
what it does otherwise: ``humanoid-dt+cache`` is ``humanoid-dt`` with cached attention.
"""

import dataclasses
import difflib
import fnmatch
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from jax_es.config import ConfigError
from jax_es.experiment import TrainConfig
from jax_es.presets import preset

Regime = Literal["trained", "untrained"]
REGIMES: tuple[Regime, ...] = "trained", "untrained"

Cores = Literal["all", "1-core", "1-device"]

NETWORKS = (
    "humanoid-mlp",
    "humanoid-mlp-fast",
    "humanoid-dt",
    "humanoid-dt+low-rank",
    "humanoid-dt+cache",
    "humanoid-dt-fast",
)

PAIRS_FACTORS = {"1x-pairs": 1, "4x-pairs": 4, "16x-pairs": 16}
"""Conditions under which the number of pairs grows, in :attr:`Work.pairs_unit`."""

_CONDITIONS = {
    "policy": ("",),
    "rollout": ("", "full-length"),
    "generation": ("", "untrained", "1-core", "1-device", *PAIRS_FACTORS),
    "update": ("",),
}

PHYSICS_ROWS: dict[Regime, str] = {
    "trained": "physics",
    "untrained": "physics/untrained",
}
"""The row that each regime is compared with."""

_PHYSICS = (
    *PHYSICS_ROWS.values(),
    "physics/sync-vector-env",
    "physics/async-vector-env",
)

NORMALS = "update/normals"
"""Draws as many normals as full noise needs: the yardstick for its update."""

NORMALS_NETWORK = "humanoid-dt"
"""The network whose weights :data:`NORMALS` counts."""


class Row(NamedTuple):
    """The parts of a row's name.

    Attributes:
        kind: physics, policy, rollout, generation or update.
        network: one of :data:`NETWORKS`; none for physics.
        condition: what is special about it, mostly nothing.
    """

    kind: str
    network: str
    condition: str

    @property
    def regime(self) -> Regime:
        """The regime whose physics the row is compared with."""
        trained = self.condition in ("", "full-length", "1-device")
        return "trained" if trained else "untrained"

    @property
    def cores(self) -> Cores:
        """What the row may use of the machine."""
        match self.condition:
            case "1-core" | "1-device":
                return self.condition
        return "all"


def parse(name: str) -> Row:
    """Takes a name apart."""
    kind, _, rest = name.partition("/")
    if kind == "physics":
        return Row(kind, "", rest)
    if name == NORMALS:
        return Row(kind, NORMALS_NETWORK, "")
    network, _, condition = rest.partition("/")
    return Row(kind, network, condition)


def all_rows() -> list[str]:
    """Lists every row, in the order of the table."""
    rows = list(_PHYSICS)
    for kind, conditions in _CONDITIONS.items():
        if kind == "update":
            rows.append(NORMALS)
        rows += [
            f"{kind}/{network}/{condition}".rstrip("/")
            for network in NETWORKS
            for condition in conditions
        ]
    return rows


def default_rows() -> list[str]:
    """Lists the rows of the default form, about five minutes."""
    return [name for name in all_rows() if name == NORMALS or _is_default(parse(name))]


def _is_default(row: Row) -> bool:
    match row:
        case Row("physics" | "policy"):
            return True
        case Row("rollout" | "generation", network, "" | "untrained"):
            return network != "humanoid-dt+low-rank"
        case Row("update", network):  # attention does not matter to it
            return network not in ("humanoid-dt+low-rank", "humanoid-dt+cache")
        case Row("generation", network, "1-device"):
            return network == "humanoid-dt"
        case Row("generation", network, "1-core"):
            return network == "humanoid-mlp-fast"
    return row.network == "humanoid-dt-fast"


def choose(patterns: Iterable[str]) -> list[str]:
    """Returns the rows that names or globs (``policy/*``) stand for, in order.

    Raises:
        ConfigError: for a pattern that no row matches; it lists the closest names.
    """
    rows, chosen = all_rows(), set()
    for pattern in patterns:
        matching = fnmatch.filter(rows, pattern)
        if not matching:
            close = difflib.get_close_matches(pattern, rows, n=3, cutoff=0.0)
            raise ConfigError(
                f"--only: no row is called {pattern!r}; the closest are "
                f"{', '.join(close)} (--list shows all)."
            )
        chosen.update(matching)
    return [name for name in rows if name in chosen]


class Work(NamedTuple):
    """How much work a network's rows are.

    Attributes:
        num_slots: S.
        trained_pairs: pairs of a generation in the regime ``trained``.
        untrained_pairs: the same in the regime ``untrained``.
        update_pairs: pairs of noise + update.
        policy_slots: S where inference alone is measured.
    """

    num_slots: int
    trained_pairs: int
    untrained_pairs: int
    update_pairs: int
    policy_slots: int

    @property
    def pairs_unit(self) -> int:
        """Pairs of the condition ``1x-pairs``."""
        return max(2, self.untrained_pairs // 4)

    def share(self, cores: int) -> "Work":
        """Returns what is left for one core, so that each has as much as among all."""
        return self._replace(
            num_slots=-(-self.num_slots // cores),
            untrained_pairs=max(2, self.untrained_pairs // cores),
        )


TASKS_PER_SLOT = 4
"""Tasks of a generation in the regime ``trained``: with fewer its tail, when slots run
out of tasks, would count more than it does in training."""

# Slots and untrained pairs of every two cores, and pairs of the update. All rows
# together take about five minutes.
_SHORT = {
    "humanoid-mlp": (16, 256, 2048),
    "humanoid-mlp-fast": (32, 256, 20_000),
    "humanoid-dt": (6, 64, 256),
    "humanoid-dt+low-rank": (6, 64, 20_000),
    "humanoid-dt+cache": (8, 64, 256),
    "humanoid-dt-fast": (32, 256, 20_000),
}
_FULL = (128, 512, 20_000)


def work_of(
    network: str,
    cores: int = 2,
    full: bool = False,
    num_slots: int | None = None,
    num_pairs: int | None = None,
    update_pairs: int | None = None,
) -> Work:
    """Returns how much work a network's rows are.

    Args:
        network: one of :data:`NETWORKS`, or none.
        cores: of the machine; slots and pairs grow with them.
        full: the long form: the slots of training, 512 pairs, updates of 20 000.
        num_slots: replaces S, and with it the pairs of four tasks a slot.
        num_pairs: replaces the pairs of a generation.
        update_pairs: replaces the pairs of an update.
    """
    slots, pairs, updated = _FULL if full else _SHORT.get(network, _FULL)
    if not full:
        slots, pairs = (max(1, cores // 2) * number for number in (slots, pairs))
    policy_slots = num_slots or 128
    slots = num_slots or slots
    trained_pairs = 512 if full else TASKS_PER_SLOT * slots // 2
    return Work(
        slots,
        num_pairs or trained_pairs,
        num_pairs or pairs,
        update_pairs or updated,
        policy_slots,
    )


class Case(NamedTuple):
    """What one process measures.

    Attributes:
        network: one of :data:`NETWORKS`; none for physics.
        cores: what it may use of the machine.
        rows: names.
        work: how much.
        seconds: how long to measure physics, and policies, at least.
    """

    network: str
    cores: Cores
    rows: tuple[str, ...]
    work: Work
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON values."""
        return {**self._asdict(), "work": self.work._asdict()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Case":
        """Builds it from :meth:`to_json`'s values."""
        work = Work(**values["work"])
        return cls(**{**values, "rows": tuple(values["rows"]), "work": work})


def config_of(network: str) -> TrainConfig:
    """Returns the configuration of a network.

    Raises:
        ConfigError: for an unknown preset.
    """
    name, *changes = network.split("+")
    config = preset(name)
    for change in changes:
        config = _CHANGES[change](config)
    return config


def _with_cache(config: TrainConfig) -> TrainConfig:
    policy: Any = dataclasses.replace(config.policy, **{"attention": "cache"})
    return dataclasses.replace(config, policy=policy)


def _with_low_rank(config: TrainConfig) -> TrainConfig:
    es = dataclasses.replace(config.es, perturbation="low-rank")
    return dataclasses.replace(config, es=es)


_CHANGES: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "cache": _with_cache,
    "low-rank": _with_low_rank,
}
