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
from jax_es.presets import preset
from jax_es.train_config import TrainConfig

Regime = Literal["trained", "untrained", "atari"]
REGIMES: tuple[Regime, ...] = "trained", "untrained", "atari"

Setting = Literal["usual", "few-slots", "1-core", "1-device"]
"""What a process may use: the machine and the network's own slots, or less."""

ATARI_NETWORKS = "hero-dt", "hero-dt-fast", "atari-cnn"
"""Networks that play Hero."""

NETWORKS = (
    "humanoid-mlp",
    "humanoid-mlp-fast",
    "humanoid-mlp+linear",
    "humanoid-dt",
    "humanoid-dt+low-rank",
    "humanoid-dt+cache",
    "humanoid-dt-fast",
    *ATARI_NETWORKS,
)

PAIRS_FACTORS = {"1x-pairs": 1, "4x-pairs": 4, "16x-pairs": 16}
"""Conditions under which the number of pairs grows, in :attr:`Work.pairs_unit`."""

GENERATION_STEPS = 150_000
"""Environment steps of a whole generation under :data:`MEAN_LENGTHS`, about."""

MEAN_LENGTHS = {f"length-{length}": length for length in (25, 100, 300, 1000)}
"""Conditions under which episodes last so many steps on average, and there are as many
pairs as make :data:`GENERATION_STEPS`: a run while its bodies learn to stay up."""

_CONDITIONS = {
    "policy": ("",),
    "rollout": ("", "untrained", "whole", "full-length"),
    "generation": (
        "",
        "untrained",
        "own-actions",
        "whole",
        "1-core",
        "1-device",
        *PAIRS_FACTORS,
        *MEAN_LENGTHS,
    ),
    "update": ("",),
}

PHYSICS_ROWS: dict[Regime, str] = {
    "trained": "physics",
    "untrained": "physics/untrained",
    "atari": "physics/atari",
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
        if self.network in ATARI_NETWORKS or self.condition == "atari":
            return "atari"
        trained = self.condition in (
            *("", "whole", "full-length", "1-device"),
            *MEAN_LENGTHS,
        )
        return "trained" if trained else "untrained"

    @property
    def setting(self) -> Setting:
        """What the row may use."""
        match self.condition:
            case "1-core" | "1-device":
                return self.condition
            case "whole" | "full-length":
                return "few-slots"
        return "few-slots" if self.condition in PAIRS_FACTORS else "usual"

    @property
    def is_slice(self) -> bool:
        """Whether it measures some seconds of a generation that goes on and on."""
        is_whole = self.setting == "few-slots" or self.condition in MEAN_LENGTHS
        return not is_whole and self.kind in ("rollout", "generation")


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
            if condition == "" or network not in ATARI_NETWORKS
        ]
    return rows


def default_rows() -> list[str]:
    """Lists the rows of the default form, about six minutes."""
    return [name for name in all_rows() if name == NORMALS or _is_default(parse(name))]


def _is_default(row: Row) -> bool:
    match row:
        case Row("physics" | "policy"):
            return True
        case Row("rollout" | "generation", network, "" | "untrained"):
            return network not in ("humanoid-dt+low-rank", "humanoid-mlp+linear")
        case Row("update", network):  # attention does not matter to it
            others = "humanoid-dt+low-rank", "humanoid-dt+cache", *ATARI_NETWORKS
            return network not in (*others, "humanoid-mlp+linear")
        case Row("generation", network, "1-device"):
            return network == "humanoid-dt"
        case Row("generation", network, "own-actions"):
            return network == "humanoid-dt-fast"
        case Row(_, network, "whole" | "1-core"):
            return network == "humanoid-mlp-fast"
        case Row("generation", network, condition) if condition in MEAN_LENGTHS:
            return condition == "length-100" and network == "humanoid-dt-fast"
        case Row("generation", network, _):  # more and more pairs
            return network == "humanoid-dt-fast"
    return False


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
    """How much work a process' rows are.

    Attributes:
        num_slots: S.
        num_pairs: pairs of a whole generation.
        update_pairs: pairs of noise + update.
        seconds: how long to measure physics, and policies, at least; slices last
            :data:`SLICE_SECONDS` times as long.
        num_groups: slot groups; as many as in training if not given.
    """

    num_slots: int
    num_pairs: int
    update_pairs: int
    seconds: float
    num_groups: int | None

    @property
    def pairs_unit(self) -> int:
        """Pairs of the condition ``1x-pairs``: at least four tasks a slot."""
        return TASKS_PER_SLOT * self.num_slots // 2


TASKS_PER_SLOT = 4
"""Tasks of a whole generation: with fewer its tail, when slots run out of tasks, would
count more than it does in training."""

SLICE_SECONDS = 4
"""Length of a slice, in units of a policy's measurement."""

FEW_SLOTS_SHARE = 8
"""A whole generation is measured with this part of the slots, or it would take minutes
(the long form: with all of them)."""

# Pairs of the update where 20 000 would take more than some seconds.
_SHORT_UPDATES = {
    "humanoid-mlp": 2048,
    "humanoid-dt": 256,
    "humanoid-dt+cache": 256,
    "hero-dt": 64,
    "hero-dt-fast": 2048,
    "atari-cnn": 2048,
}
_FULL_PAIRS, _FULL_UPDATE = 512, 20_000


def work_of(
    network: str,
    setting: Setting = "usual",
    cores: int = 2,
    full: bool = False,
    num_slots: int | None = None,
    num_pairs: int | None = None,
    update_pairs: int | None = None,
    seconds: float = 1.0,
    num_groups: int | None = None,
) -> Work:
    """Returns how much work a process' rows are.

    Args:
        network: one of :data:`NETWORKS`, or none.
        setting: what the process may use.
        cores: of the machine; slots follow them as in training.
        full: the long form: whole generations of 512 pairs and with all slots, updates
            of 20 000.
        num_slots: replaces S.
        num_pairs: replaces the pairs of a whole generation.
        update_pairs: replaces the pairs of an update.
        seconds: as in :class:`Work`.
        num_groups: as in :class:`Work`.
    """
    slots = num_slots or (config_of(network).rollout.slots_on(cores) if network else 1)
    if setting == "few-slots" and not full and num_slots is None:
        slots //= FEW_SLOTS_SHARE
    if setting in ("1-core", "1-device"):  # as many on the one as on each of all
        slots = -(-slots // cores)
    pairs = TASKS_PER_SLOT * slots // 2
    if full:
        pairs = max(pairs, _FULL_PAIRS)
    updated = _FULL_UPDATE if full else _SHORT_UPDATES.get(network, _FULL_UPDATE)
    return Work(slots, num_pairs or pairs, update_pairs or updated, seconds, num_groups)


class Case(NamedTuple):
    """What one process measures.

    Attributes:
        network: one of :data:`NETWORKS`; none for physics.
        setting: what it may use.
        rows: names.
        work: how much.
    """

    network: str
    setting: Setting
    rows: tuple[str, ...]
    work: Work

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


def _linear(config: TrainConfig) -> TrainConfig:
    policy: Any = dataclasses.replace(config.policy, **{"hidden_sizes": ()})
    return dataclasses.replace(config, policy=policy)


_CHANGES: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "cache": _with_cache,
    "linear": _linear,
    "low-rank": _with_low_rank,
}
