"""Settings of archives, of what fills them, and of trials; imports nothing heavy."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from jax_es.checks import (
    Count,
    Finite,
    NotNegative,
    NotNegativeFinite,
    Positive,
    Range,
    Share,
    check_fields,
    from_json,
    require,
)
from jax_es.runs.method import MAP_ELITES, Method

POSITION_BOUNDS = (-30.0, 30.0)
"""Of a final x or y, in metres, if no other are given; QDax's."""

ABOUT_CELLS = 1024
"""Cells of an archive if none are given; no more than that, equally many an axis."""


@dataclasses.dataclass(frozen=True)
class ArchiveConfig:
    """An archive of elites (MAP-Elites, arXiv 1504.04909) and what fills it."""

    archive: Literal["grid", "cvt"] = "grid"
    """How descriptors are divided into cells: a grid, or the Voronoi cells of centroids
    that k-means spreads evenly (CVT, arXiv 1610.05729)."""
    cells: tuple[Count, ...] = ()
    """Cells along each axis of the grid, or one number for all axes; of a CVT all
    cells. Enough for about 1,000 in all if not given."""
    low: tuple[Finite, ...] = ()
    """Lower end of each axis, in the descriptor's unit, or one number for all axes; 0
    for a foot's share of time and -30 for a position (in metres) if not given. What
    lies outside counts as the nearest end."""
    high: tuple[Finite, ...] = ()
    """Upper ends, likewise; 1 and 30 if not given."""
    emitter: Literal["iso+line", "es"] = "iso+line"
    """What proposes policies. iso+line: elites that are moved at random and along the
    way to another elite (arXiv 1804.03906). es: OpenAI-ES from elites in turn, towards
    novelty and towards fitness (ME-ES, arXiv 2003.01825), with the options of es."""
    batch_size: Annotated[int, Range("at least 2", lambda n: n >= 2)] = 128
    """Policies that iso+line proposes a generation."""
    initial_batches: Count = 2
    """First generations, of policies drawn at random."""
    initial_sigma: NotNegativeFinite = 0.02
    """Standard deviation of what is added to a network's own initial weights, in those
    first generations."""
    sigma_iso: NotNegativeFinite = 0.01
    """Standard deviation of iso+line's movement at random, in the unit of weights."""
    sigma_line: NotNegativeFinite = 0.2
    """Standard deviation of iso+line's movement towards another elite, in units of the
    way there."""
    steps_per_parent: Count = 10
    """Updates of es from one elite, before it begins with another one."""
    qd_offset: Finite = 0.0
    """Fitness that counts as nothing in the QD-score, the sum of all elites' fitness:
    the lowest that there is, or elites that are worse diminish it."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            self.archive == "grid" or len(self.cells) <= 1,
            f"cells must be one number, that of all cells, with archive cvt, got "
            f"{self.cells}.",
        )

    def num_members(self, num_pairs: int) -> int:
        """Returns how many policies a generation evaluates, with so many pairs."""
        return 2 * num_pairs if self.emitter == "es" else self.batch_size

    def method(self) -> Method:
        """Returns these settings as a run records them."""
        settings: dict[str, Any] = dataclasses.asdict(self)
        lists = {k: list(v) for k, v in settings.items() if isinstance(v, tuple)}
        return Method(MAP_ELITES, settings | lists)


PRESET_SETTINGS = {
    "ant-uni": ArchiveConfig(qd_offset=-1000.0),
    # In 250 steps of 0.05 s no Ant comes as far as QDax's 30 m.
    "ant-omni": ArchiveConfig(low=(-10.0,), high=(10.0,), qd_offset=-1000.0),
    "half-cheetah-uni": ArchiveConfig(qd_offset=-500.0),
    "hopper-uni": ArchiveConfig(qd_offset=-250.0),
    "walker2d-uni": ArchiveConfig(qd_offset=-250.0),
}
"""Archives of the presets that are made for them."""


def settings_of(method: Method) -> ArchiveConfig:
    """Reads what :meth:`ArchiveConfig.method` made.

    Raises:
        ConfigError: if another version made it.
    """
    return from_json(ArchiveConfig, method.settings)


class Axes(NamedTuple):
    """What an archive's axes are."""

    names: tuple[str, ...]
    """What each number of a descriptor is."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    cells: tuple[int, ...]
    """Along each axis of a grid; of a CVT, one number."""


def axes_of(config: ArchiveConfig, descriptor: Sequence[str], size: int) -> Axes:
    """Fills in what the configuration leaves to the descriptor.

    Args:
        config: the archive's.
        descriptor: the environment's option of this name.
        size: B, how many numbers describe an episode.

    Raises:
        ConfigError: if there is no descriptor, or the settings do not fit it.
    """
    require(
        size > 0,
        "env.descriptor must say what describes an episode, got "
        f"{' '.join(descriptor) or 'nothing'}, of which the task has none; add "
        "--env.descriptor position, feet or gait for MuJoCo's walkers, or indices of "
        "an observation.",
    )
    what = descriptor[0] if descriptor else ""
    names = tuple(f"number {index}" for index in descriptor)
    known: list[tuple[float, float]] = []
    if what in ("position", "feet", "gait"):
        num_feet = size if what == "feet" else size - 2
        names = tuple(f"foot {index + 1} on the ground" for index in range(num_feet))
        known = [(0.0, 1.0)] * num_feet
        if what != "feet":
            names, known = ("x (m)", "y (m)", *names), [POSITION_BOUNDS] * 2 + known
    if not known:
        require(
            bool(config.low and config.high),
            f"low and high are needed: of env.descriptor {' '.join(descriptor)} no "
            "bounds are known; add --low and --high.",
        )
        known = [(0.0, 0.0)] * size
    low = _each("low", config.low, size) or tuple(low for low, _ in known)
    high = _each("high", config.high, size) or tuple(high for _, high in known)
    for name, a, b in zip(names, low, high, strict=True):
        require(a < b, f"low must be below high, got {a} and {b} for {name}.")
    if config.archive == "cvt":
        return Axes(names, low, high, config.cells or (ABOUT_CELLS,))
    # The epsilon is for roots that are whole numbers.
    cells = _each("cells", config.cells, size)
    return Axes(
        names, low, high, cells or (int(ABOUT_CELLS ** (1 / size) + 1e-9),) * size
    )


def _each(name: str, values: tuple, size: int) -> tuple:
    """Returns one value for each axis, or nothing if nothing is given."""
    require(
        len(values) in (0, 1, size),
        f"{name} must be one number, or one for each of the {size} numbers that "
        f"describe an episode, got {len(values)}.",
    )
    return values * size if len(values) == 1 else values


Rule = Literal["ite", "no-prior", "best-first", "random"]

RULES: dict[Rule, str] = {
    "ite": "intelligent trial and error",
    "no-prior": "Bayesian optimisation without the archive's fitness",
    "best-first": "from the archive's best downwards",
    "random": "at random",
}
"""How the next elite is chosen; all but the first are to compare with."""


@dataclasses.dataclass(frozen=True)
class TrialConfig:
    """Settings of intelligent trial and error; the defaults are the published ones."""

    kappa: NotNegativeFinite = 0.05
    """κ: how much an uncertain elite is worth a trial."""
    length_scale: Positive = 0.4
    """ρ: distance over which elites behave alike, in units of the archive's bounds."""
    noise: Positive = 0.001
    """σ²: variance of a trial's fitness, in units of the archive's best squared."""
    enough: Share = 0.9
    """α: a trial of this share of the best expected ends the search."""
    trials: Count = 20
    """Most trials."""
    reevaluations: NotNegative = 5
    """Episodes of every elite in an undamaged robot, before the trials: their mean is
    what the archive promises, where the archive's own fitness is that of the episode
    that happened to make it an elite. 0 trusts the archive."""

    def __post_init__(self) -> None:
        check_fields(self)
