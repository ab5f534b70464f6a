"""Episodes in memory, read from Minari datasets on disk.

A dataset is a folder, ``ROOT/NAME-v0/data/`` with ``metadata.json`` and an HDF5 file;
``dataset_writer.py`` makes them. Any other Minari dataset of the same environment can
be read as well. Source: https://minari.farama.org.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_es.checks import ConfigError, check_types, require
from jax_es.runs.files import read_json
from jax_es.train_config import TrainConfig

DATA_FOLDER = "data"
METADATA_FILE = "metadata.json"
OUR_METADATA = "jax_es"
"""Entry of the metadata that only our datasets have."""

ROOT_VARIABLE = "MINARI_DATASETS_PATH"
"""Minari's own: where its ``load_dataset`` looks."""


_UNREADABLE = (
    *(OSError, KeyError, ValueError, RuntimeError, AssertionError, MemoryError),
)
"""What h5py, Minari and NumPy raise for a damaged file."""


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

    @property
    def returns(self) -> np.ndarray:
        """Returns ``[E]`` float64, the undiscounted return of each episode."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(self.rewards, starts, dtype=np.float64)


def read_episodes(dataset: str | os.PathLike[str], config: TrainConfig) -> Episodes:
    """Reads all episodes of a Minari dataset into memory.

    The observation after an episode's last step is left out: nothing was done there.

    Args:
        dataset: its id or its folder.
        config: of the run that shall learn from it.

    Raises:
        ConfigError: if there is none, it is empty or damaged, or its environment or
            spaces are not the run's.
    """
    from jax_es.training.load_policy import spaces  # late: it loads JAX

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
    require(
        stored.total_steps > 0,
        f"dataset {path} holds no episode; collect some first.",
    )
    num_steps, at = int(stored.total_steps), 0
    seen = np.uint8 if observed.dtype == np.uint8 else np.float32
    done = np.int32 if hasattr(acted, "n") else np.float32
    try:
        episodes = Episodes(
            np.zeros((num_steps, *(observed.shape or ())), seen),
            np.zeros((num_steps, *(acted.shape or ())), done),
            np.zeros(num_steps, np.float32),
            np.zeros(stored.total_episodes, np.int64),
        )
        for i, episode in enumerate(stored.iterate_episodes()):
            here = slice(at, at := at + len(episode.rewards))
            episodes.observations[here] = episode.observations[:-1]
            episodes.actions[here] = episode.actions
            episodes.rewards[here] = episode.rewards
            episodes.lengths[i] = len(episode.rewards)
        if at != num_steps:
            raise ValueError(f"{at} steps where metadata.json says {num_steps}")
    except _UNREADABLE as error:
        raise damaged(path, error) from error
    for name in ("observations", "actions", "rewards"):
        require(
            bool(np.isfinite(getattr(episodes, name)).all()),
            f"dataset {path} has {name} that are not finite; choose another.",
        )
    return episodes


def find_dataset(dataset: str | os.PathLike[str]) -> Path:
    """Returns the folder of a dataset, given that or its id.

    Raises:
        ConfigError: if it is not there; it lists those that are.
    """
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
    """Returns where ids are looked for; new datasets are kept in the first place.

    It is ``MINARI_DATASETS_PATH``, and without that ``datasets`` here and Minari's own
    ``~/.minari``.
    """
    if ROOT_VARIABLE in os.environ:
        return [Path(os.environ[ROOT_VARIABLE])]
    return [Path("datasets"), Path.home() / ".minari" / "datasets"]


def is_dataset(path: Path) -> bool:
    """Returns whether a folder holds a dataset."""
    return (path / DATA_FOLDER / METADATA_FILE).is_file()


def read_metadata(path: Path) -> dict[str, Any]:
    """Reads the metadata of the dataset in a folder.

    Raises:
        ConfigError: if they cannot be read, or are not safe to open with Minari.
    """
    try:
        metadata = check_types(
            read_json(path / DATA_FOLDER / METADATA_FILE),
            total_episodes=int,
            total_steps=int,
        )
    except (ValueError, TypeError) as error:
        raise damaged(path, error) from error
    for name in ("observation_space", "action_space"):
        # Minari would make the environment of the metadata to find out, and its entry
        # point may be any function of any module.
        require(
            isinstance(metadata.get(name), str),
            f"dataset {path} cannot be used: its {METADATA_FILE} has no {name}, and "
            "the environment that it names is never made, since that may run any code; "
            "choose a dataset with both spaces.",
        )
    return metadata


def open_dataset(path: Path) -> Any:
    """Opens the dataset in a folder with Minari; imports nothing that it names.

    Raises:
        ConfigError: if it cannot be read.
    """
    minari = import_minari()
    read_metadata(path)
    try:
        return minari.MinariDataset(path / DATA_FOLDER)
    except Exception as error:  # Minari documents none, and spaces may be anything
        raise damaged(path, error) from error


def import_minari() -> Any:
    """Imports Minari, which is optional.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError as error:
        raise ConfigError(
            f"datasets need Minari, which is not installed ({error}); "
            "pip install -e '.[pretraining]'."
        ) from error
    return minari


def damaged(path: Path, error: object) -> ConfigError:
    """Says that the dataset in a folder cannot be read."""
    return ConfigError(
        f"dataset {path} cannot be read ({_line(error) or type(error).__name__}); "
        "restore it from a copy or collect it again."
    )


def _check_space(path: Path, verb: str, recorded: Any, expected: Any) -> None:
    """Raises ``ConfigError`` unless a dataset has a space of the environment.

    Bounds of observations are what an environment promises, and change with its
    versions; those of actions are their unit.
    """
    same = type(recorded) is type(expected)
    if same and hasattr(expected, "n"):
        same = (recorded.n, recorded.start) == (expected.n, expected.start)
    elif same:
        are_images = [space.dtype == np.uint8 for space in (recorded, expected)]
        same = recorded.shape == expected.shape and are_images[0] == are_images[1]
        if same and verb == "acts in":
            same = np.allclose(
                [recorded.low, recorded.high], [expected.low, expected.high]
            )
    require(
        same,
        f"dataset {path} {verb} {_line(recorded)}, and the run's environment {verb} "
        f"{_line(expected)}; choose a dataset with the environment's own spaces.",
    )


def _line(thing: object) -> str:
    return " ".join(str(thing).split())
