"""Writes a Minari dataset aside, and puts it into its place when it is complete.

An HDF5 file whose writer is killed may be unreadable, so nobody ever writes into
``data/``: a draft beside it takes the episodes and then its place. A killed process
leaves the dataset as it was, and a draft that the next one deletes.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_es.config import EnvConfig
from jax_es.imitation.datasets import (
    DATA_FOLDER,
    METADATA_FILE,
    OUR_METADATA,
    damaged,
    import_minari,
    open_dataset,
)
from jax_es.imitation.recording_env import RecordedEpisode
from jax_es.training.build import env_spec

EPISODES_FILE = "main_data.hdf5"
DRAFT_FOLDER = ".draft"


class Summary(NamedTuple):
    """What a dataset's episodes were, ``[E]`` each."""

    seeds: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray


class DatasetWriter:
    """Writes the dataset in a folder: a new one, or episodes after those there.

    Args:
        path: the dataset's folder, ``ROOT/NAME-v0``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Absolute, since Minari measures the files of a relative path elsewhere.
        self._draft = path.absolute() / DRAFT_FOLDER
        self.close()

    def create(
        self, dataset_id: str, env: Any, config: EnvConfig, **metadata: str
    ) -> None:
        """Begins a new dataset of what is played in ``env``, made from ``config``."""
        minari = import_minari()
        from minari.dataset.minari_storage import MinariStorage

        (self._draft / DATA_FOLDER).mkdir(parents=True)
        spaces = env.single_observation_space, env.single_action_space
        self._storage = MinariStorage.new(
            self._draft / DATA_FOLDER, *spaces, env_spec(config)
        )
        self._storage.update_metadata(
            {"dataset_id": dataset_id, "minari_version": minari.__version__, **metadata}
        )

    def extend(self) -> None:
        """Begins with a copy of the episodes that are there.

        Raises:
            ConfigError: if they cannot be read.
        """
        open_dataset(self.path)
        (self._draft / DATA_FOLDER).mkdir(parents=True)
        for name in (EPISODES_FILE, METADATA_FILE):
            source, target = (x / DATA_FOLDER / name for x in (self.path, self._draft))
            shutil.copyfile(source, target)
        self._storage = open_dataset(self._draft).storage

    def append(self, episodes: Sequence[RecordedEpisode]) -> None:
        """Adds episodes to the draft, in their order."""
        from minari.data_collector import EpisodeBuffer

        self._storage.update_episodes(
            EpisodeBuffer(**episode._asdict(), infos={}) for episode in episodes
        )

    def summary(self) -> Summary:
        """Returns seeds, returns and lengths of the draft's episodes.

        Raises:
            ConfigError: if they cannot be read.
        """
        import h5py

        file = self._draft / DATA_FOLDER / EPISODES_FILE
        if not file.stat().st_size:  # Minari's, before the first episode
            return Summary(*(np.zeros(0, int) for _ in Summary._fields))
        try:
            with h5py.File(file) as contents:
                # Of some, metadata.json may not know.
                episodes: list[Any] = [
                    contents[f"episode_{i}"] for i in range(len(contents))
                ]
                rewards = [np.asarray(each["rewards"]) for each in episodes]
                seeds = np.array([int(each.attrs["seed"]) for each in episodes])
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise damaged(self.path, error) from error
        returns = np.array([each.sum() for each in rewards])
        return Summary(seeds, returns, np.array(list(map(len, rewards))))

    def publish(self, collection: dict[str, Any]) -> None:
        """Puts the draft into the dataset's place, with our entry of the metadata."""
        lengths = self.summary().lengths
        self._storage.update_metadata(
            {
                "total_episodes": len(lengths),
                "total_steps": int(lengths.sum()),
                OUR_METADATA: collection,
            }
        )
        (self.path / DATA_FOLDER).mkdir(exist_ok=True)
        # In this order: there are never fewer episodes than the metadata say.
        for name in (EPISODES_FILE, METADATA_FILE):
            draft = self._draft / DATA_FOLDER / name
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(self.path / DATA_FOLDER / name)
        self.close()

    def close(self) -> None:
        """Removes the draft."""
        shutil.rmtree(self._draft, ignore_errors=True)
