"""Episodes on disk: Minari datasets, read into memory and written.

A dataset is a folder, ``ROOT/NAME-v0/data/`` with ``metadata.json`` and an HDF5 file;
ours has ``digests.json`` as well (:mod:`jax_es.runs.digests`). Any Minari dataset of
the run's environment can be read. Source: https://minari.farama.org.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_es.checks import ConfigError, optional, require
from jax_es.config import EnvConfig
from jax_es.runs.digests import DIGESTS, check_digests, replacing
from jax_es.runs.files import check_regular, open_lock, read_json
from jax_es.train_config import TrainConfig

DATA_FOLDER = "data"
METADATA_FILE = "metadata.json"
OUR_METADATA = "jax_es"
"""Entry of the metadata that only our datasets have."""

ROOT_VARIABLE = "MINARI_DATASETS_PATH"
"""Minari's own: where its ``load_dataset`` looks."""


EPISODE_BYTES = 2**16
"""What HDF5 needs for an episode at most, besides its arrays; 17 kB were measured."""


class Episodes(NamedTuple):
    """Recorded episodes, one after the other in arrays of ``S`` steps altogether."""

    observations: np.ndarray
    """``[S, O]``, what was seen before each action; float32, or uint8 of images."""
    actions: np.ndarray
    """``[S, A]`` float32 in the environment's own unit, or ``[S]`` integers."""
    rewards: np.ndarray
    """``[S]`` float32, paid for each action."""
    lengths: np.ndarray
    """``[E]`` int64, steps of each episode; they add up to ``S``."""

    @classmethod
    def zeros(
        cls, observed: Any, acted: Any, num_steps: int = 0, num_episodes: int = 0
    ) -> "Episodes":
        """Returns zeros for steps in these spaces, to be filled in."""
        seen = np.uint8 if observed.dtype == np.uint8 else np.float32
        done = np.int32 if hasattr(acted, "n") else np.float32
        return cls(
            np.zeros((num_steps, *(observed.shape or ())), seen),
            np.zeros((num_steps, *(acted.shape or ())), done),
            np.zeros(num_steps, np.float32),
            np.zeros(num_episodes, np.int64),
        )

    @property
    def returns(self) -> np.ndarray:
        """Returns ``[E]`` float64, the undiscounted return of each episode."""
        starts = np.cumsum(self.lengths) - self.lengths
        if not len(starts):
            return np.zeros(0)
        return np.add.reduceat(self.rewards, starts, dtype=np.float64)

    def chosen(self, which: np.ndarray) -> "Episodes":
        """Returns the episodes with the indices ``which [k]``, in this order."""
        ends = np.cumsum(self.lengths).tolist()
        steps = [np.arange(ends[i] - self.lengths[i], ends[i]) for i in which.tolist()]
        at = np.concatenate([np.zeros(0, int), *steps])
        return Episodes(
            self.observations[at],
            self.actions[at],
            self.rewards[at],
            self.lengths[which],
        )

    def followed_by(self, others: "Episodes") -> "Episodes":
        """Returns these episodes and then the others, in the types of these."""
        pairs = zip(self, others, strict=True)
        return Episodes(
            *(np.concatenate(pair).astype(pair[0].dtype, copy=False) for pair in pairs)
        )


def read_episodes(dataset: str | os.PathLike[str], config: TrainConfig) -> Episodes:
    """Reads all episodes of a Minari dataset into memory.

    The observation after an episode's last step is left out: nothing was done there.

    Raises:
        ConfigError: if there is none (``dataset`` is an id or a folder), it is empty or
            unreadable, or its environment or spaces are not those of ``config``.
    """
    from jax_es.training.trained_mean import spaces  # late: it loads JAX

    path = find_dataset(dataset)
    stored = open_dataset(path)
    recorded = None if stored.env_spec is None else stored.env_spec.id
    # "module:id" imports the module that registers the id.
    wanted = config.env.id.rpartition(":")[2]
    require(
        recorded in (None, wanted),
        f"dataset {path} was recorded in {recorded}, and the run's environment is "
        f"{wanted}; choose another dataset or environment.",
    )
    observed, acted = spaces(config)
    _check_space(path, "observes", stored.observation_space, observed)
    _check_space(path, "acts in", stored.action_space, acted)
    with _readable(path):
        num_steps, at = int(stored.total_steps), 0
        require(num_steps > 0, f"dataset {path} holds no episode; collect some first.")
        episodes = Episodes.zeros(observed, acted, num_steps, stored.total_episodes)
        for i, episode in enumerate(stored.iterate_episodes()):
            here = slice(at, at := at + len(episode.rewards))
            episodes.observations[here] = episode.observations[:-1]
            episodes.actions[here] = episode.actions
            episodes.rewards[here] = episode.rewards
            episodes.lengths[i] = len(episode.rewards)
        if at != num_steps:
            raise ValueError(f"total_steps is {num_steps}, and it holds {at}")
    return episodes


def find_dataset(dataset: str | os.PathLike[str]) -> Path:
    """Returns the folder of a dataset, given that or its id; an error lists them."""
    roots = dataset_roots()
    for folder in (Path(dataset), *(each / dataset for each in roots)):
        if is_dataset(folder):
            return folder
    known = [
        str(file.parents[1].relative_to(each))
        for each in roots
        for file in sorted(each.glob(f"**/{DATA_FOLDER}/{METADATA_FILE}"))
    ]
    listed = f"There are {', '.join(known)}." if known else "There is none."
    places = " or ".join(map(str, roots))
    raise ConfigError(f"{dataset} is not a dataset, nor one in {places}. {listed}")


def dataset_roots() -> list[Path]:
    """Returns where ids are looked for; new datasets are kept in the first place."""
    if ROOT_VARIABLE in os.environ:
        return [Path(os.environ[ROOT_VARIABLE])]
    return [Path("datasets"), Path.home() / ".minari" / "datasets"]


def is_dataset(path: Path) -> bool:
    """Returns whether a folder holds a dataset."""
    return (path / DATA_FOLDER / METADATA_FILE).is_file()


def open_dataset(path: Path) -> Any:
    """Opens the dataset in a folder with Minari; imports nothing that it names.

    Checks its digests; warns if it has none.
    """
    minari = import_minari()
    folder = path / DATA_FOLDER
    metadata = read_json(folder / METADATA_FILE)
    entries = metadata if isinstance(metadata, dict) else {}
    spaces = [entries.get(name) for name in ("observation_space", "action_space")]
    # Without a space, Minari makes the environment of the metadata to find out, whose
    # entry point may be any function of any module.
    require(
        all(isinstance(space, str) for space in spaces),
        f"dataset {path} names no spaces, and the environment that it names is never "
        "made, since that may run any code; choose a dataset with both spaces.",
    )
    ours = entries.get(OUR_METADATA)
    entry = ours.get(DIGESTS) if isinstance(ours, dict) else None
    with _readable(path):
        check_regular(folder)
        check_digests(folder, entry, path)
        storage = minari.dataset.minari_storage.MinariStorage.read(folder)
        if last := storage.total_episodes:  # before what is as long as that
            next(iter(storage.get_episode_metadata([last - 1])))
        return minari.MinariDataset(storage)


def import_minari() -> Any:
    """Imports Minari, which is optional."""
    with optional("datasets need Minari, which is not installed", "pretraining"):
        import h5py  # noqa: F401
        import minari
    return minari


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Lets a dataset be written aside, and puts it into place when it is complete.

    The draft begins with what the dataset holds. If the block raises, nothing has
    happened. An HDF5 file whose writer is killed may be unreadable, so nobody writes
    into ``data/``.

    Raises:
        ConfigError: another process writes the dataset.
    """
    # Absolute, since Minari measures the files of a relative path elsewhere.
    folder = path.absolute().with_name(f".draft-{path.name}")
    draft = folder / DATA_FOLDER
    try:
        lock = open_lock(folder)
    except BlockingIOError as error:
        raise ConfigError(
            f"{path} is being written by another process; wait for it, or choose "
            "another --dataset."
        ) from error
    with lock:
        try:
            # main_data.hdf5 comes first: there are never fewer episodes than the
            # metadata say.
            with replacing(path / DATA_FOLDER, draft):
                if is_dataset(path):
                    shutil.copytree(path / DATA_FOLDER, draft, dirs_exist_ok=True)
                yield draft
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def storage_in(
    draft: Path, dataset_id: str, env: Any, config: EnvConfig, algorithm: str
) -> Any:
    """Returns Minari's storage in a draft: the one there, or a new one.

    A new one says that ``algorithm`` trained the policy, and how Gymnasium makes the
    environment of ``config``, which ``env`` has many of.
    """
    from jax_es.training.single_env import env_spec  # late: it loads JAX

    minari = import_minari()
    if (draft / METADATA_FILE).exists():
        return minari.MinariDataset(draft).storage
    storage = minari.dataset.minari_storage.MinariStorage.new(
        draft, env.single_observation_space, env.single_action_space, env_spec(config)
    )
    storage.update_metadata(
        {
            "dataset_id": dataset_id,
            "minari_version": minari.__version__,
            "algorithm_name": algorithm,
            "description": f"Episodes in {config.id}, recorded by jax-es.",
        }
    )
    return storage


def add_episodes(storage: Any, episodes: list[Any]) -> None:
    """Writes episodes into Minari's storage.

    Where the disk is full, HDF5 ends the process with a segmentation fault. So the
    file is made larger first; HDF5 cuts off what it does not use.

    Raises:
        OSError: there is no room for them.
    """
    file = storage.data_path / "main_data.hdf5"
    parts = ("observations", "actions", "rewards", "terminations", "truncations")
    needed = EPISODE_BYTES * len(episodes)
    for steps in (getattr(each, part) for each in episodes for part in parts):
        needed += 2 * len(steps) * np.asarray(steps[0]).nbytes
    with file.open("r+b") as stream:
        size = file.stat().st_size
        os.posix_fallocate(stream.fileno(), 0, size + needed)
        if size == 0:  # zeros would not be a file of HDF5's
            stream.truncate()
    storage.update_episodes(episodes)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Says in one line that Minari or HDF5 cannot read a dataset."""
    try:
        yield
    except ConfigError:
        raise
    # Minari documents no errors, and asserts.
    except Exception as error:
        why = _line(error) or type(error).__name__
        raise ConfigError(
            f"dataset {path} cannot be read ({why}); collect it again, or restore it "
            "from a copy."
        ) from error


def _check_space(path: Path, verb: str, recorded: Any, expected: Any) -> None:
    """Raises ``ConfigError`` unless a dataset has a space of the environment."""
    same = type(recorded) is type(expected) and recorded.shape == expected.shape
    same = same and (recorded.dtype == np.uint8) == (expected.dtype == np.uint8)
    # Bounds of observations change with an environment's versions; those of actions
    # are their unit.
    for name in ("n", "start", "low", "high") if verb == "acts in" else ():
        if same and hasattr(expected, name):
            same = np.allclose(getattr(recorded, name), getattr(expected, name))
    require(
        same,
        f"dataset {path} {verb} {_line(recorded)}, and the run's environment {verb} "
        f"{_line(expected)}; choose a dataset with the environment's own spaces.",
    )


def _line(thing: object) -> str:
    return " ".join(str(thing).split())
