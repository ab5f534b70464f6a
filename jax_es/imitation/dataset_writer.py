"""Episodes into a Minari dataset that is whole at any instant.

An HDF5 file whose writer is killed may be unreadable. So there are two: ``data/`` is
the dataset, which nobody ever writes into, and a copy of it beside it gets the new
episodes and then takes its place by being renamed. The file that it replaced, one batch
behind, becomes the next copy. While it is collected, a dataset thus takes twice its
space, and each episode is written twice.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_es.config import ConfigError, require
from jax_es.imitation.datasets import (
    DATA_FOLDER,
    METADATA_FILE,
    OUR_METADATA,
    damaged,
    import_minari,
    open_dataset,
    read_metadata,
)
from jax_es.imitation.recording import Recording
from jax_es.runs.files import open_lock

EPISODES_FILE = "main_data.hdf5"
DRAFT_FOLDER = ".draft"


class DatasetWriter:
    """Adds episodes to the dataset in a folder; see the module.

    Args:
        path: the dataset's folder, ``ROOT/NAME-v0``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Minari measures the files of a relative path where they are not.
        here = path.absolute()
        self._live, self._draft = here / DATA_FOLDER, here / DRAFT_FOLDER
        self._began = False

    def exists(self) -> bool:
        """Returns whether there is a dataset."""
        return (self._live / METADATA_FILE).is_file()

    def check_new(self) -> None:
        """Raises ``ConfigError`` if there is a dataset already."""
        require(
            not self.exists(),
            f"{self.path} holds a dataset already; continue it with --resume or choose "
            "another --dataset.",
        )

    def create(
        self,
        dataset_id: str,
        observation_space: Any,
        action_space: Any,
        env_spec: Any,
        **metadata: Any,
    ) -> None:
        """Makes a dataset without episodes.

        Args:
            dataset_id: Minari's name of it.
            observation_space: of one environment.
            action_space: of one environment.
            env_spec: Gymnasium's, by which Minari recovers the environment.
            **metadata: further entries.

        Raises:
            ConfigError: if it is there already, or nothing can be written.
        """
        minari = import_minari()
        import h5py
        from minari.dataset.minari_storage import MinariStorage

        self.check_new()
        try:
            self._begin()
            storage = MinariStorage.new(
                self._draft, observation_space, action_space, env_spec
            )
            storage.update_metadata(
                {
                    "dataset_id": dataset_id,
                    "minari_version": minari.__version__,
                    **metadata,
                }
            )
            # Minari's is without contents before its first episode.
            h5py.File(self._draft / EPISODES_FILE, "w", track_order=True).close()
            self._draft.replace(self._live)
        except OSError as error:
            raise ConfigError(cannot_write(self.path, error)) from error

    @property
    def num_episodes(self) -> int:
        """How many episodes there are."""
        return read_metadata(self.path)["total_episodes"]

    def summaries(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the returns and the lengths of the episodes, ``[E]`` each.

        Raises:
            ConfigError: if they cannot be read.
        """
        try:
            storage = open_dataset(self.path).storage
            episodes = list(storage.get_episode_metadata(range(self.num_episodes)))
            return (
                np.array([float(each["rewards_sum"]) for each in episodes]),
                np.array([int(each["total_steps"]) for each in episodes]),
            )
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise damaged(self.path, error) from error

    def append(
        self, episodes: Sequence[Recording], collection: dict[str, Any], **metadata: Any
    ) -> None:
        """Adds episodes, all of them or, if the process dies, none.

        Args:
            episodes: in their order.
            collection: replaces our entry of the metadata.
            **metadata: replaces further entries.
        """
        minari = import_minari()
        from minari.data_collector import EpisodeBuffer
        from minari.dataset.minari_storage import MinariStorage

        self._catch_up()
        storage = MinariStorage.read(self._draft)
        first = storage.total_episodes
        if episodes:
            storage.update_episodes(
                EpisodeBuffer(**episode._asdict(), infos={}) for episode in episodes
            )
            summarize = minari.EpisodeMetadataCallback()
            storage.update_episode_metadata(
                [summarize(episode._asdict()) for episode in episodes],
                range(first, first + len(episodes)),
            )
        storage.update_metadata({OUR_METADATA: collection, **metadata})
        self._publish()

    def close(self) -> None:
        """Removes the copy."""
        shutil.rmtree(self._draft, ignore_errors=True)

    def _begin(self) -> None:
        """Starts without what a killed writer left, which may be damaged."""
        if not self._began:
            if self._draft.is_symlink():  # never write through one
                self._draft.unlink()
            shutil.rmtree(self._draft, ignore_errors=True)
            self._began = True
        self._draft.mkdir(parents=True, exist_ok=True)

    def _catch_up(self) -> None:
        """Brings the copy to where the dataset is."""
        self._begin()
        shutil.copy(self._live / METADATA_FILE, self._draft / METADATA_FILE)
        live, draft = self._live / EPISODES_FILE, self._draft / EPISODES_FILE
        if draft.is_symlink():  # as the dataset had it
            draft.unlink()
        try:
            self._copy_missing(live, draft)
        except OSError:
            # It is not there yet, or a reader still has it open, from before it was
            # replaced.
            draft.unlink(missing_ok=True)
            shutil.copy(live, draft)
            self._copy_missing(live, draft)

    def _copy_missing(self, live: Path, draft: Path) -> None:
        import h5py

        wanted = [f"episode_{i}" for i in range(self.num_episodes)]
        if not draft.exists():
            raise FileNotFoundError(draft)
        with h5py.File(draft, "a", track_order=True) as copy:
            held = set(copy)
            # Of a writer killed after it had renamed one file of two.
            for name in held - set(wanted):
                del copy[name]
            missing = [name for name in wanted if name not in held]
            if missing:
                with h5py.File(live, "r") as source:
                    for name in missing:
                        source.copy(name, copy)

    def _publish(self) -> None:
        """Lets the copy and the dataset change places."""
        for name in (EPISODES_FILE, METADATA_FILE):
            with (self._draft / name).open("rb") as file:
                os.fsync(file.fileno())
        replaced = self._draft / "replaced.hdf5"
        replaced.unlink(missing_ok=True)
        os.link(self._live / EPISODES_FILE, replaced, follow_symlinks=False)
        # In this order: there are never fewer episodes than the metadata say.
        for name in (EPISODES_FILE, METADATA_FILE):
            (self._draft / name).replace(self._live / name)
        replaced.replace(self._draft / EPISODES_FILE)


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keeps other processes from adding to the dataset in a folder. Makes the folder.

    Raises:
        ConfigError: if another process does now, or nothing can be written.
    """
    try:
        file = open_lock(path)
    except BlockingIOError as error:
        raise ConfigError(
            f"{path} is being collected by another process; wait for it, or choose "
            "another --dataset."
        ) from error
    except OSError as error:
        raise ConfigError(cannot_write(path, error)) from error
    with file:
        yield


def cannot_write(path: Path, error: OSError) -> str:
    """Says that a folder cannot be written."""
    return (
        f"{path} cannot be written ({error.strerror}); make it writable or choose "
        "another --root."
    )
