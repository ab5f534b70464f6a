"""The archive itself: pyribs' grid or CVT, and what goes into it.

Elites are kept in the order of their cells, so that everything that is drawn or summed
over them depends on the archive's contents alone, and not on how it came about. A
restored archive is therefore the saved one to the bit.
"""

from typing import Any, NamedTuple

import numpy as np

from jax_es.checks import optional, require
from jax_es.illumination.settings import ArchiveConfig, Axes
from jax_es.rollout.memory import check_memory

CVT_SAMPLES = 50_000
"""Points whose clusters are a CVT's cells; QDax's."""


class Elites(NamedTuple):
    """The policies of an archive, by ascending cell; ``N`` of them."""

    cell: np.ndarray
    """``[N]`` int32, the index of each one's cell."""
    weights: np.ndarray
    """``[N, W]`` float32, as ``ravel_pytree`` lays a policy's parameters out."""
    fitness: np.ndarray
    """``[N]`` float64."""
    descriptors: np.ndarray
    """``[N, B]`` float64, within the bounds."""

    def __len__(self) -> int:
        return len(self.cell)


class Added(NamedTuple):
    """What became of a batch of candidates; fields of a generation's record."""

    num_new_elites: int
    """Filled a cell that was empty."""
    num_better_elites: int
    """Took the place of a worse elite."""
    num_out_of_bounds: int
    """Had a descriptor outside of the bounds, and count as at the nearest end."""
    num_left_out: int
    """Had a descriptor or a fitness that is NaN or infinite."""


class Archive:
    """Elites: of each cell of the descriptors' space the best policy seen.

    Args:
        config: its settings.
        axes: from :func:`~jax_es.illumination.settings.axes_of`.
        num_weights: W.
        seed: of a CVT's centroids.
        centroids: ``[C, B]``, those of a CVT that there is; drawn if not given.

    Raises:
        ConfigError: pyribs is not installed, or the archive does not fit into memory.

    Example:
        >>> axes = Axes(("x", "y"), (0.0, 0.0), (1.0, 1.0), (2, 2))
        >>> archive = Archive(ArchiveConfig(), axes, num_weights=3)
        >>> weights, places = np.eye(3), [[0.1, 0.1], [0.2, 0.3], [0.9, 7.0]]
        >>> tuple(archive.add(weights, [1.0, 5.0, 2.0], places))
        (2, 0, 1, 0)
        >>> archive.elites().cell.tolist(), archive.coverage, archive.qd_score
        ([0, 3], 0.5, 7.0)
    """

    def __init__(
        self,
        config: ArchiveConfig,
        axes: Axes,
        num_weights: int,
        seed: int = 0,
        centroids: np.ndarray | None = None,
    ) -> None:
        num_cells = int(np.prod(axes.cells, dtype=float))
        # pyribs' arrays, a copy of the elites, and one that is being written.
        cells = f"cells {' '.join(map(str, axes.cells))}, each with its elite,"
        check_memory({cells: 3 * num_cells * (4 * num_weights + 100)})
        with optional("archives need pyribs", "archives"):
            from ribs import archives as ribs
        shared: dict[str, Any] = {
            "solution_dim": num_weights,
            "ranges": list(zip(axes.low, axes.high, strict=True)),
            "solution_dtype": np.float32,
            "objective_dtype": np.float64,
            "measures_dtype": np.float64,
        }
        if config.archive == "grid":
            self._store = ribs.GridArchive(dims=axes.cells, **shared)
        else:
            require(
                num_cells <= CVT_SAMPLES // 10,
                f"cells must be at most {CVT_SAMPLES // 10} with archive cvt, got "
                f"{num_cells}.",
            )
            if centroids is None:
                centroids, _ = ribs.k_means_centroids(
                    centroids=num_cells,
                    ranges=shared["ranges"],
                    samples=CVT_SAMPLES,
                    dtype=np.float64,
                    seed=seed,
                )
            self._store = ribs.CVTArchive(centroids=centroids, **shared)
        self.axes, self._offset = axes, config.qd_offset
        self._centroids = np.zeros((0, 0)) if centroids is None else centroids
        self._elites = self._read()

    def add(self, weights: Any, fitness: Any, descriptors: Any) -> Added:
        """Puts candidates where no elite is, or a worse one.

        Args:
            weights: ``[P, W]``.
            fitness: ``[P]``, larger is better.
            descriptors: ``[P, B]``.
        """
        fitness = np.asarray(fitness, np.float64)
        descriptors = np.asarray(descriptors, np.float64)
        usable = np.isfinite(fitness) & np.isfinite(descriptors).all(axis=1)
        inside = np.clip(descriptors, self.axes.low, self.axes.high)
        outside = (inside != descriptors).any(axis=1) & usable
        before = self._elites
        self._put(np.asarray(weights)[usable], fitness[usable], inside[usable])
        after = self._elites = self._read()
        # No cell is ever emptied, and both are in the order of their cells.
        common = np.isin(after.cell, before.cell)
        return Added(
            num_new_elites=int((~common).sum()),
            num_better_elites=int((after.fitness[common] > before.fitness).sum()),
            num_out_of_bounds=int(outside.sum()),
            num_left_out=int((~usable).sum()),
        )

    def elites(self) -> Elites:
        """Returns all elites."""
        return self._elites

    def cell_of(self, descriptors: Any) -> np.ndarray:
        """Returns the cells ``[P]`` of finite descriptors ``[P, B]``."""
        descriptors, names = np.asarray(descriptors, np.float64), self.axes.names
        require(
            descriptors.ndim == 2 and descriptors.shape[1] == len(names),
            f"descriptors must be [P, {len(names)}], numbers of {', '.join(names)}, "
            f"got the shape {descriptors.shape}.",
        )
        inside = np.clip(descriptors, self.axes.low, self.axes.high)
        return self._store.index_of(inside)

    @property
    def num_cells(self) -> int:
        """How many cells there are."""
        return int(self._store.cells)

    @property
    def centroids(self) -> np.ndarray:
        """``[C, B]``, the middles of a CVT's cells; empty of a grid."""
        return self._centroids

    @property
    def coverage(self) -> float:
        """Share of the cells that have an elite."""
        return len(self._elites) / self.num_cells

    @property
    def qd_score(self) -> float:
        """Sum over the elites of fitness − offset."""
        # Not pyribs' own, which is a running sum and rounds by the way it came about.
        return float(np.sum(self._elites.fitness - self._offset))

    @property
    def best(self) -> int:
        """Position of the best elite among all; the first of equal ones."""
        return int(np.argmax(self._elites.fitness))

    def state(self) -> dict[str, np.ndarray]:
        """Returns what :meth:`restore` needs, for a checkpoint."""
        low = np.asarray(self.axes.low)  # says B, which no elite may say
        return {**self._elites._asdict(), "centroids": self._centroids, "low": low}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Takes the elites of a saved archive in place of its own."""
        self._store.clear()
        if "cell" in state:
            self._put(state["weights"], state["fitness"], state["descriptors"])
        self._elites = self._read()

    def _put(self, *candidates: np.ndarray) -> None:
        # One by one: batches would first compile for ten seconds, and keep the same.
        for weights, fitness, descriptor in zip(*candidates, strict=True):
            self._store.add_single(weights, fitness, descriptor)

    def _read(self) -> Elites:
        """Returns pyribs' elites, in the order of their cells."""
        names = ("index", "solution", "objective", "measures")
        found = self._store.data(names)
        order = np.argsort(found["index"])
        return Elites(*(found[name][order] for name in names))
