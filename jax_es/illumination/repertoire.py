"""A finished archive as a collection of policies."""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np

from jax_es.checks import require
from jax_es.illumination.archive import Archive, Elites
from jax_es.illumination.emitters import Weights
from jax_es.illumination.settings import ArchiveConfig, axes_of, settings_of
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.find import find_run
from jax_es.runs.folders import program_command
from jax_es.runs.method import MAP_ELITES
from jax_es.runs.trust import check_imports
from jax_es.train_config import TrainConfig, in_own_physics
from jax_es.training.build import make_policy
from jax_es.training.load_policy import LoadedPolicy
from jax_es.training.trained_mean import TrainedMean, spaces
from jax_es.types import PyTree


class SavedArchive(NamedTuple):
    """What a run's last checkpoint says of its archive; no simulator is started."""

    config: TrainConfig
    """With the task's own physics."""
    settings: ArchiveConfig
    archive: Archive
    generation: int
    """Generations that filled it."""


def read_archive(run: str | os.PathLike[str]) -> SavedArchive:
    """Reads the archive of a run as it was last saved; imports nothing that it names.

    Raises:
        ConfigError: the folder is no run of ``illuminate``, or has no elite.
        CheckpointError: it has no checkpoint, or a damaged one.
    """
    directory = find_run(run)
    method, config = directory.method(), directory.config()
    require(
        method.name == MAP_ELITES,
        f"{directory.path} was trained by {method.title} and has no archive; make one "
        f"with {program_command('illuminate')}.",
    )
    settings = settings_of(method)
    restored = Checkpoints(directory.checkpoints).restore("last")
    state = restored.state.get("archive", {})
    require("cell" in state, f"{directory.path} has no elites; illuminate for longer.")
    axes = axes_of(settings, config.env.descriptor, len(state["low"]))
    num_weights, centroids = state["weights"].shape[1], state.get("centroids")
    archive = Archive(settings, axes, num_weights, centroids=centroids)
    archive.restore(state)
    return SavedArchive(in_own_physics(config), settings, archive, restored.step)


class Repertoire(Mapping[int, LoadedPolicy]):
    """The elites of an archive by their cells; a mapping from cell to policy.

    Example::

        repertoire = jax_es.load_archive("runs/ant-uni")
        print(repertoire)  # how many elites, for which task
        best = repertoire.cells[repertoire.fitness.argmax()]
        policy = repertoire[best]  # acts as those of jax_es.load_policy
        cell = repertoire.cell_of([[0.5, 0.5, 0.0, 0.5]])[0]

    Attributes:
        config: of the run.
        elites: the arrays behind it (:class:`~jax_es.illumination.archive.Elites`).
    """

    def __init__(self, saved: SavedArchive, seed: int = 0) -> None:
        """Prepares the policies; see :func:`load_archive`."""
        self.config, self._saved, self._seed = saved.config, saved, seed
        self.elites: Elites = saved.archive.elites()
        self._observation_space, action_space = spaces(saved.config)
        policy = saved.config.policy
        self._policy = make_policy(policy, self._observation_space, action_space)
        self._weights = Weights(self._policy.init)
        self._position = {int(c): i for i, c in enumerate(self.elites.cell)}

    @property
    def cells(self) -> np.ndarray:
        """``[N]``, the cells that have an elite, ascending."""
        return self.elites.cell

    @property
    def fitness(self) -> np.ndarray:
        """``[N]``, of the elites."""
        return self.elites.fitness

    @property
    def descriptors(self) -> np.ndarray:
        """``[N, B]``, of the elites."""
        return self.elites.descriptors

    @property
    def archive(self) -> Archive:
        """The archive itself: its axes, its coverage."""
        return self._saved.archive

    def cell_of(self, descriptors: PyTree) -> np.ndarray:
        """Returns the cells ``[P]`` in which descriptors ``[P, B]`` lie.

        Raises:
            ConfigError: they have another shape.
        """
        return self.archive.cell_of(descriptors)

    def params(self, cell: int) -> PyTree:
        """Returns an elite's ``"params"``, NumPy arrays.

        Raises:
            KeyError: the cell is empty.
        """
        vector = self.elites.weights[self._position[int(cell)]]
        return jax.tree.map(np.asarray, self._weights.tree(vector))

    def __getitem__(self, cell: int) -> LoadedPolicy:
        """Returns a cell's elite as a policy that acts."""
        trained = TrainedMean(
            self.config,
            self.params(cell),
            None,
            self._saved.generation,
            method=self._saved.settings.method(),
        )
        return LoadedPolicy(self._policy, trained, self._observation_space, self._seed)

    def __contains__(self, cell: object) -> bool:
        """Returns whether a cell has an elite."""
        return cell in self._position

    def __iter__(self) -> Iterator[int]:
        """Goes through the cells that have an elite."""
        return iter(self._position)

    def __len__(self) -> int:
        return len(self._position)

    def __repr__(self) -> str:
        return (
            f"Repertoire({len(self)} elites in {self.archive.num_cells} cells for "
            f"{self.config.env.id}, {self._weights.size:,} parameters each)"
        )


def load_archive(
    run: str | os.PathLike[str], seed: int = 0, trust: bool = False
) -> Repertoire:
    """Loads the archive that ``python -m jax_es.illuminate`` filled.

    Args:
        run: the run's folder, ``runs/<name>``.
        seed: for policies that sample their actions.
        trust: whether the modules of its environment and policy may be imported.

    Raises:
        ValueError: if the run, its environment or the checkpoint cannot be read.
    """
    directory = find_run(run)
    check_imports(directory.config(), directory.path, trust)
    return Repertoire(read_archive(directory.path), seed)
