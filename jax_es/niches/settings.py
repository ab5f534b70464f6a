"""Settings of POET; imports nothing heavy."""

import dataclasses
import math
from typing import Annotated, Any, Literal, TypeAlias

import tyro

from jax_es.checks import (
    Count,
    Finite,
    NotNegative,
    Range,
    check_fields,
    from_json,
    require,
)
from jax_es.runs.method import POET, Method

Mutations: TypeAlias = Annotated[
    tuple[tuple[str, float, float, float], ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(metavar="NAME STEP LOW HIGH"),
    Range(
        "a name with three finite numbers: a step of at least 0, then the lowest and "
        "the highest value",
        lambda each: all(
            0 <= step < math.inf and -math.inf < low < high < math.inf
            for _, step, low, high in each
        ),
    ),
]


@dataclasses.dataclass(frozen=True)
class PoetConfig:
    """Paired open-ended trailblazing (POET, arXiv 1901.01753) and what mutates.

    The defaults are the published ones, whose returns are BipedalWalker's.
    """

    mutate: Mutations = ()
    """A number of the environment's variations that children change: NAME plus a
    uniform number of at most STEP either way, from LOW to HIGH. Where the environment
    has NAME-low and NAME-high, each of these ends moves by STEP, or one of them does; a
    range that is not there yet begins as LOW to LOW + 2 STEP. Once for each name; of
    several the last counts, and one with STEP 0 leaves the number alone."""
    mutate_every: NotNegative = 200
    """Generations from one time that niches have children to the next; 0 for never."""
    transfer_every: NotNegative = 25
    """Generations from one time that policies are tried in other niches to the next; 0
    for never: then a child begins with its parent's policy, else with the best of
    all."""
    reproduce_at: Finite = 200.0
    """Mean return from which on a niche may have children."""
    criterion_low: Finite = 25.0
    """Least return of a child's policy: of its parent's, and of the one that it begins
    with (minimal criterion)."""
    criterion_high: Finite = 340.0
    """Highest return, likewise: what is above is too easy."""
    solved_at: Finite = 230.0
    """Mean return of its last five evaluations from which on a niche counts as solved.
    (Wang et al. take one.)"""
    children: Count = 8
    """Children that are tried at a time, of all niches together."""
    admitted: Count = 1
    """Most of them that become niches."""
    max_niches: Count = 25
    """Niches at a time; beyond it the oldest retires."""
    novelty: Literal["terrain", "pata-ec"] = "terrain"
    """What ranks children: how far their numbers are from those of all niches so far
    (terrain), or how differently all policies so far rank in them (PATA-EC, arXiv
    2003.08536)."""
    neighbours: Count = 5
    """k: novelty is the mean distance to the k nearest."""

    def __post_init__(self) -> None:
        check_fields(self)
        last = {name: (name, step, *ends) for name, step, *ends in self.mutate}
        mutate = tuple(each for each in last.values() if each[1])
        object.__setattr__(self, "mutate", mutate)
        low, high = self.criterion_low, self.criterion_high
        require(
            low < high,
            f"criterion_low must be below criterion_high {high:g}, got {low:g}.",
        )
        require(
            self.admitted <= self.children,
            f"admitted must be at most children {self.children}, got {self.admitted}.",
        )

    def method(self) -> Method:
        """Returns these settings as a run records them."""
        settings: dict[str, Any] = dataclasses.asdict(self)
        return Method(POET, settings | {"mutate": [[*each] for each in self.mutate]})


def settings_of(method: Method) -> PoetConfig:
    """Reads what :meth:`PoetConfig.method` made.

    Raises:
        ConfigError: if another version made it.
    """
    return from_json(PoetConfig, method.settings)


_FEW: dict[str, Any] = {"mutate_every": 10, "transfer_every": 10, "max_niches": 8}
PRESET_SETTINGS = {
    "bipedal-terrain": PoetConfig(
        mutate=(
            ("roughness", 0.6, 0.0, 10.0),
            ("pit-gap", 0.4, 0.0, 8.0),
            ("stump-height", 0.2, 0.0, 5.0),
        ),
        **_FEW,
    ),
    # Metres, half of BipedalWalker's for its size: Walker2d is half as tall. With
    # steps twice as large no niche was solved in 54 generations of a trial.
    "walker2d-terrain": PoetConfig(
        mutate=(
            ("roughness", 0.3, 0.0, 5.0),
            ("pit-gap", 0.1, 0.0, 2.0),
            ("stump-height", 0.05, 0.0, 1.0),
        ),
        **_FEW,
    ),
}
"""Of the presets that are made for it: on BipedalWalker the published mutations
(uber-research/poet, ``reproduce_ops.py``), more often and in fewer niches, for a few
core-hours."""
