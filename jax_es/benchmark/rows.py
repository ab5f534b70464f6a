"""What the benchmark measures: its rows, and the networks that they are about."""

import dataclasses
import difflib
import fnmatch
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from jax_es.checks import ConfigError, Count, Positive, Range, check_fields
from jax_es.presets import preset
from jax_es.train_config import TrainConfig

NETWORKS = {
    "humanoid-mlp": {},
    "humanoid-mlp-fast": {},
    "humanoid-mlp+linear": {"hidden_sizes": ()},
    "humanoid-dt": {},
    "humanoid-dt+cache": {"attention": "cache"},
    "humanoid-dt-fast": {},
    "hero-dt": {},
    "hero-dt-fast": {},
    "atari-cnn": {},
}
"""Networks, each a preset's, and what is changed about its policy."""

GAMES = "hero-dt", "hero-dt-fast", "atari-cnn"
"""Networks that play Hero."""

LINEAR = "humanoid-mlp+linear"

HUMANOIDS = tuple(name for name in NETWORKS if name not in GAMES)

MEAN_LENGTHS = {f"length-{length}": length for length in (25, 100, 300, 1000)}
"""Conditions under which episodes last so many steps on average, as in a run whose
bodies learn to stay up."""

UPDATE_PAIRS = {
    "humanoid-mlp": 2048,
    "humanoid-dt": 256,
    "humanoid-dt+cache": 256,
    "hero-dt": 64,
    "hero-dt-fast": 2048,
    "atari-cnn": 2048,
}
"""Pairs of an update where 20,000 would take more than some seconds."""

GENERATION_STEPS = 150_000
"""Environment steps of a generation of a mean length, about."""


class Learning(NamedTuple):
    """A generation of a preset, late enough for its policy to have left its start."""

    preset: str
    policy: str
    mean_length: int
    """Of its episodes, in environment steps; 1000 is all of them."""
    changes: Mapping[str, Any] = MappingProxyType({})
    """What is changed about the preset, as :meth:`TrainConfig.replace` takes it."""
    strategy: str = "openai-es"
    """As ``--strategy`` has it."""


LEARNING = {  # docs/results/index.md says the command of the last
    "half-cheetah-linear": Learning("half-cheetah", "linear", 1000),
    "half-cheetah-dt": Learning("half-cheetah", "decision-transformer", 1000),
    "half-cheetah-cem-rl": Learning("half-cheetah", "mlp", 1000, strategy="cem-rl"),
    "swimmer-linear": Learning("swimmer", "linear", 1000),
    "hopper-linear": Learning("hopper", "linear", 50),
    "walker2d-linear": Learning("walker2d", "linear", 300),
    "humanoid-linear": Learning("humanoid", "linear", 50),
    "humanoid-dt": Learning("humanoid", "decision-transformer", 35),
    "ant-dt": Learning("ant", "decision-transformer", 1000),
    "humanoid-paper-dt": Learning(
        "humanoid",
        "decision-transformer",
        65,
        {
            "policy.context_length": 20,
            "policy.width": 128,
            "policy.num_layers": 3,
            "es.perturbation": "low-rank",
            "es.rank": 1,
            "es.sigma": 0.02,
        },
    ),
}
"""What the rows ``learning`` are about: late generations on cheap physics."""


class InJax(NamedTuple):
    """A preset on an environment in JAX."""

    preset: str
    policy: str
    changes: Mapping[str, Any]
    """What is changed about the preset, as :meth:`TrainConfig.replace` takes it."""


_CARTPOLE = {
    "env.id": "gymnax:CartPole-v1",
    "rollout.num_slots": 256,
    "policy.sample_actions": False,
}
_ANT = {
    "env.id": "brax:ant",
    "env.kwargs.backend": "spring",
    "rollout.num_slots": 64,
    "rollout.num_substeps": None,
    "rollout.integrator": None,
}
_BREAKOUT = {"env.id": "gymnax:Breakout-MinAtar", "rollout.num_slots": 256}

IN_JAX = {
    "cartpole-linear": InJax("own-discrete", "linear", _CARTPOLE),
    "cartpole-mlp": InJax(
        "own-discrete",
        "mlp",
        {
            **_CARTPOLE,
            "policy.hidden_sizes": (64, 64),
            "es.perturbation": "full",
        },
    ),
    "breakout-cnn": InJax("own-grid", "cnn", _BREAKOUT),
    "breakout-mlp": InJax("own-grid", "mlp", _BREAKOUT),
    "ant-linear": InJax("ant", "linear", _ANT),
    "ant-dt": InJax("ant", "decision-transformer", _ANT),
}
"""What the rows ``jax`` are about; they need the extra jax-envs."""

ON_ONE_CORE = "learning", "jax"
"""Kinds of rows that have one core and bring their own ratio."""

Regime: TypeAlias = Literal["trained", "untrained", "atari"]


class Row(NamedTuple):
    """A line of the table."""

    kind: str
    """What is measured: physics, policy, generation, update, learning or jax."""
    network: str = ""
    """One of :data:`NETWORKS`, :data:`LEARNING` or :data:`IN_JAX`; none for physics."""
    condition: str = ""
    """What is special about it, mostly nothing."""
    is_default: bool = True
    """Whether it is measured if nothing is said (six minutes in all)."""

    @property
    def regime(self) -> Regime:
        """Which of the simulators' speeds it is compared with, if with any."""
        if self.network in GAMES or self.condition == "atari":
            return "atari"
        bodies_fall = self.condition in ("untrained", "own-actions")
        return "untrained" if bodies_fall else "trained"

    @property
    def name(self) -> str:
        """``kind/network/condition``, as ``--only`` has it."""
        return "/".join(filter(None, self[:3]))


ROWS = [
    Row("physics"),
    Row("physics", "", "untrained"),
    Row("physics", "", "atari"),
    *(Row("policy", name) for name in NETWORKS),
    *(Row("generation", name) for name in HUMANOIDS if name != LINEAR),
    *(Row("generation", name, "untrained") for name in HUMANOIDS if name != LINEAR),
    *(Row("generation", name) for name in GAMES),
    Row("generation", "humanoid-dt-fast", "own-actions"),
    Row("generation", "humanoid-mlp-fast", "whole"),
    Row("generation", "humanoid-dt-fast", "whole", is_default=False),
    *(
        Row("generation", name, length, is_default=False)
        for name in ("humanoid-mlp-fast", LINEAR, "humanoid-dt-fast")
        for length in MEAN_LENGTHS
    ),
    *(Row("update", name) for name in HUMANOIDS if "+" not in name),
    *(Row("learning", name, is_default=False) for name in LEARNING),
    *(
        Row("jax", name, condition, is_default=False)
        for name in IN_JAX
        for condition in ("", "untrained")
    ),
    Row("jax", "cartpole-mlp", "members", is_default=False),
    Row("jax", "cartpole-mlp", "evosax", is_default=False),
]
"""Every row, in the order of the table."""


def choose(patterns: Iterable[str]) -> list[Row]:
    """Returns the rows that names or globs (``policy/*``) stand for.

    Raises:
        ConfigError: for a pattern that no row matches; it lists the closest names.
    """
    names, chosen = [row.name for row in ROWS], set()
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern)
        if not matching:
            close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
            raise ConfigError(
                f"--only: no row is called {pattern!r}; the closest are "
                f"{', '.join(close)} (--list shows all)."
            )
        chosen.update(matching)
    return [row for row in ROWS if row.name in chosen]


@dataclasses.dataclass(frozen=True)
class Work:
    """How much work the rows are."""

    full: bool = False
    """The long form: every row, whole generations of 512 pairs with all slots, updates
    of 20,000 (hours)."""
    num_slots: Annotated[int, Range("at least 4", lambda n: n >= 4)] | None = None
    """Slots of every row, instead of each network's own."""
    cores: Count | None = None
    """Cores of every row, of those that this process may use; all of them, and one for
    learning/* and jax/*, if not given."""
    num_groups: Count | None = None
    """Slot groups of every row at most, instead of what training chooses: with two,
    policies and physics overlap."""
    seconds: Positive = 1.0
    """How long to measure physics and policies, at least; slices of generations take
    four times as long."""

    def __post_init__(self) -> None:
        check_fields(self)

    def slots(self) -> dict[str, int]:
        """Returns the change of a configuration that ``num_slots`` asks for."""
        return {"rollout.num_slots": self.num_slots} if self.num_slots else {}


def config_of(network: str) -> TrainConfig:
    """Returns the configuration of one of :data:`NETWORKS`."""
    changes = {f"policy.{name}": value for name, value in NETWORKS[network].items()}
    return preset(network.partition("+")[0]).replace(changes)
