"""From a terrain's numbers to a child's."""

import itertools
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jax_es.checks import require

DECIMALS = 6
"""That numbers are rounded to, so that sums of steps meet the bounds."""


class Mutator:
    """Which numbers of an environment mutate, and how.

    Args:
        mutations: ``(name, step, low, high)``, as of
            :class:`~jax_es.niches.settings.PoetConfig`.
        neutral: name → the number that changes nothing, of the environment.

    Attributes:
        names: of the V numbers that a terrain is; a range is two of them.
        first: ``[V]``, the terrain of the environment as it is.

    Raises:
        ConfigError: the environment has no such number, or it is out of bounds there.

    Example:
        >>> mutator = Mutator(
        ...     [("slope", 0.1, 0.0, 1.0), ("gap", 0.4, 0.0, 8.0)],
        ...     {"slope": 0.5, "gap-low": 0.0, "gap-high": 0.0},
        ... )
        >>> mutator.names
        ('slope', 'gap-low', 'gap-high')
        >>> mutator.mutated(np.random.default_rng(0), mutator.first).tolist()
        [0.527392, 0.0, 0.8]
    """

    def __init__(
        self,
        mutations: Sequence[tuple[str, float, float, float]],
        neutral: Mapping[str, float],
    ) -> None:
        names: list[str] = []
        for name, step, low, high in mutations:
            ends = [f"{name}-low", f"{name}-high"]
            found = [name] if name in neutral else [e for e in ends if e in neutral]
            known = ", ".join(_ranges(neutral))
            require(
                found in ([name], ends),
                f"--mutate {name}: the environment's variations have no such number; "
                + (f"choose one of {known}." if known else "")
                + ("" if known else "choose an environment that has variations."),
            )
            stem = name.removesuffix("-low").removesuffix("-high")
            require(
                name in _ranges(neutral),
                f"--mutate {name}: it is an end of a range, and both ends change "
                f"together; write --mutate {stem}.",
            )
            for each in found:
                first = neutral[each]
                bounds = f"{min(low, first):g} {max(high, first):g}"
                require(
                    low <= first <= high,
                    f"--mutate {name} from {low:g} to {high:g}: {each} begins at "
                    f"{first:g}; let it go from there: --mutate {name} {step:g} "
                    f"{bounds}.",
                )
            names += found
        self.names = tuple(names)
        self.first = np.array([neutral[name] for name in names], float)
        self._mutations = tuple(mutations)

    def samples(self) -> list[np.ndarray]:
        """Returns terrains ``[V]`` that tell whether the environment can be as asked.

        Each number at its bounds, the others as they begin, and a few children.
        """
        found = []
        for name, _, *bounds in self._mutations:
            of = [name] if name in self.names else [f"{name}-low", f"{name}-high"]
            where = np.isin(self.names, of)
            found += [np.where(where, bound, self.first) for bound in bounds]
        rng = np.random.default_rng(0)
        return found + [self.mutated(rng, self.first) for _ in range(4)]

    def mutated(self, rng: np.random.Generator, terrain: np.ndarray) -> np.ndarray:
        """Returns the numbers of a child, ``[V]``, of its parent's.

        Each of :attr:`~jax_es.niches.settings.PoetConfig.mutate` changes.
        """
        values = dict(zip(self.names, terrain.tolist(), strict=True))
        for name, step, low, high in self._mutations:
            if name in values:
                moved = values[name] + rng.uniform(-step, step)
                values[name] = round(min(max(moved, low), high), DECIMALS)
                continue
            ends = f"{name}-low", f"{name}-high"
            choices = moves((values[ends[0]], values[ends[1]]), step, low, high)
            if choices:
                chosen = choices[rng.integers(len(choices))]
                values.update(zip(ends, chosen, strict=True))
        return np.array([values[name] for name in self.names])


def _ranges(names: Collection[str]) -> list[str]:
    """Returns what can mutate: X in place of X-low and X-high."""
    stems = [name.removesuffix("-low").removesuffix("-high") for name in names]
    return list(
        dict.fromkeys(
            stem if {f"{stem}-low", f"{stem}-high"} <= {*names} else name
            for name, stem in zip(names, stems, strict=True)
        )
    )


def moves(
    ends: tuple[float, float], step: float, low: float, high: float
) -> list[tuple[float, float]]:
    """Returns what a range can become.

    Each end moves by ``step``, or one of them does; the upper end stays at least two
    steps above ``low``. One that ends below that, or is not there, begins there.

    Example:
        >>> moves((0.0, 0.0), 0.4, 0.0, 8.0)
        [(0.0, 0.8)]
        >>> moves((0.0, 0.05), 0.1, 0.0, 2.0)
        [(0.0, 0.2)]
        >>> moves((0.0, 0.8), 0.4, 0.0, 8.0)
        [(0.0, 1.2), (0.4, 0.8), (0.4, 1.2)]
    """
    least = min(round(low + 2 * step, DECIMALS), high)
    if ends[1] < least:
        return [(ends[0], least)]
    found = []
    for changes in itertools.product((-step, 0.0, step), repeat=2):
        first, last = (
            round(end + change, DECIMALS)
            for end, change in zip(ends, changes, strict=True)
        )
        is_inside = low <= first <= last <= high and last >= least
        if any(changes) and is_inside:
            found.append((first, last))
    return found


def described(names: Sequence[str], terrain: np.ndarray) -> str:
    """Writes a terrain for people.

    Example:
        >>> described(["roughness", "gap-low", "gap-high"], np.array([0.5, 0.0, 0.8]))
        'roughness 0.5, gap 0 to 0.8'
    """
    values = {n: f"{v:.4g}" for n, v in zip(names, terrain.tolist(), strict=True)}
    words = []
    for name, value in values.items():
        stem = name.removesuffix("-low")
        if name == f"{stem}-low":
            words.append(f"{stem} {value} to {values[f'{stem}-high']}")
        elif f"{name.removesuffix('-high')}-low" not in values:
            words.append(f"{name} {value}")
    return ", ".join(words)
