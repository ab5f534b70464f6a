"""Episodes in memory, read from Minari datasets on disk.

A dataset is a folder, ``ROOT/NAME-v0/data/`` with ``metadata.json`` and an HDF5 file;
``dataset_writer.py`` makes them. Any other Minari dataset of the same environment can
be read as well. Source: https://minari.farama.org.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_es.config import ConfigError, EnvConfig, check_types, require
from jax_es.runs.files import read_json
from jax_es.train_config import TrainConfig

DATA_FOLDER = "data"
METADATA_FILE = "metadata.json"
OUR_METADATA = "jax_es"
"""Entry of the metadata that only our datasets have."""

LOCAL_ROOT = Path("datasets")
ROOT_VARIABLE = "MINARI_DATASETS_PATH"
"""Minari's own: where its ``load_dataset`` looks."""


class Episodes(NamedTuple):
    """Recorded episodes, one after the other in arrays of ``S`` steps altogether.

    Attributes:
        observations: ``[S, O]``, what was seen before each action; float32, or uint8 of
            images.
        actions: ``[S, A]`` float32 in the environment's own unit, or ``[S]`` integers.
        rewards: ``[S]`` float32, paid for each action.
        lengths: ``[E]`` int64, steps of each episode; they add up to ``S``.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    lengths: np.ndarray

    @property
    def returns(self) -> np.ndarray:
        """Returns ``[E]`` float64, the undiscounted return of each episode."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(self.rewards, starts, dtype=np.float64)


class DatasetInfo(NamedTuple):
    """What a dataset says about itself.

    Attributes:
        id: Minari's name of it.
        path: its folder.
        env_id: Gymnasium's id of the environment; None if it does not say.
        num_episodes: E.
        num_steps: S.
        algorithm: what made the policy that recorded it; None if it does not say.
        collection: how we collected it (``collecting.py``), with ``"scores"``; empty
            for a dataset of others.
    """

    id: str
    path: Path
    env_id: str | None
    num_episodes: int
    num_steps: int
    algorithm: str | None
    collection: dict[str, Any]


def read_episodes(
    dataset: str | os.PathLike[str],
    config: TrainConfig,
    root: str | os.PathLike[str] | None = None,
) -> Episodes:
    """Reads all episodes of a Minari dataset into memory.

    The observation after an episode's last step is left out: nothing was done there.

    Args:
        dataset: its id or its folder.
        config: of the run that shall learn from it.
        root: where ids are looked for, as of :func:`find_dataset`.

    Raises:
        ConfigError: if there is none, it is empty or damaged, or its environment or
            spaces are not the run's.
    """
    path = find_dataset(dataset, root)
    stored = open_dataset(path)
    _check_environment(path, stored, config.env)
    from jax_es.training.load_policy import spaces  # late: it loads JAX

    expected = spaces(config)
    _check_spaces(path, stored, expected)
    lengths = np.zeros(stored.total_episodes, np.int64)
    num_steps = int(stored.total_steps)
    require(num_steps > 0, f"dataset {path} holds no episode; collect some first.")
    try:
        observations, actions, rewards = _allocate(num_steps, expected)
    except (MemoryError, ValueError) as error:
        raise damaged(path, f"no memory for {num_steps} steps") from error
    at = 0
    try:
        for i, episode in enumerate(stored.iterate_episodes()):
            steps = len(episode.rewards)
            here = slice(at, at + steps)
            observations[here] = episode.observations[:-1]
            actions[here], rewards[here] = episode.actions, episode.rewards
            lengths[i], at = steps, at + steps
    except (OSError, KeyError, ValueError, RuntimeError, AssertionError) as error:
        raise damaged(path, error) from error
    if at != num_steps:
        raise damaged(path, f"{at} steps where metadata.json says {num_steps}")
    episodes = Episodes(observations, actions, rewards, lengths)
    for name in ("observations", "actions", "rewards"):
        part = getattr(episodes, name)
        require(
            bool(np.isfinite(part).all()),
            f"dataset {path} has {name} that are not finite; choose another.",
        )
    return episodes


def dataset_info(
    dataset: str | os.PathLike[str], root: str | os.PathLike[str] | None = None
) -> DatasetInfo:
    """Reads what a dataset says about itself, without its episodes.

    Args:
        dataset: its id or its folder.
        root: where ids are looked for, as of :func:`find_dataset`.

    Raises:
        ConfigError: if there is none, or its metadata cannot be read.
    """
    path = find_dataset(dataset, root)
    metadata = read_metadata(path)
    try:
        check_types(metadata, dataset_id=str)
        spec = metadata.get("env_spec")
        return DatasetInfo(
            id=metadata["dataset_id"],
            path=path,
            env_id=None if spec is None else json.loads(spec)["id"],
            num_episodes=metadata["total_episodes"],
            num_steps=metadata["total_steps"],
            algorithm=metadata.get("algorithm_name"),
            collection=dict(metadata.get(OUR_METADATA, {})),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error


def find_dataset(
    dataset: str | os.PathLike[str], root: str | os.PathLike[str] | None = None
) -> Path:
    """Returns the folder of a dataset.

    Args:
        dataset: its id or its folder.
        root: where ids are looked for; if not given in ``MINARI_DATASETS_PATH``, and
            without that in ``datasets`` here and in Minari's own ``~/.minari``.

    Raises:
        ConfigError: if it is not there; it lists those that are.
    """
    roots = _roots(root)
    for folder in (Path(dataset), *(each / dataset for each in roots)):
        if (folder / DATA_FOLDER / METADATA_FILE).is_file():
            return folder
    known = [
        str(file.parents[1].relative_to(each))
        for each in roots
        for file in sorted(each.glob(f"**/{DATA_FOLDER}/{METADATA_FILE}"))
    ]
    listed = f"There are {', '.join(known)}." if known else "There is none."
    places = " or ".join(map(str, roots))
    raise ConfigError(f"{dataset} is not a dataset, nor one in {places}. {listed}")


def dataset_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Returns where new datasets are kept: the first place that is searched."""
    return _roots(root)[0]


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
    num_episodes = read_metadata(path)["total_episodes"]
    try:
        size = sum(f.stat().st_size for f in (path / DATA_FOLDER).rglob("*"))
        if not 0 <= num_episodes <= size:
            raise ValueError(f"{num_episodes} episodes in {size} bytes")
        return minari.MinariDataset(path / DATA_FOLDER)
    except ImportError as error:
        raise ConfigError(
            f"dataset {path} needs a package that is not installed: {_line(error)}"
        ) from error
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


def _roots(root: str | os.PathLike[str] | None) -> list[Path]:
    if root is not None:
        return [Path(root)]
    if ROOT_VARIABLE in os.environ:
        return [Path(os.environ[ROOT_VARIABLE])]
    return [LOCAL_ROOT, Path.home() / ".minari" / "datasets"]


def _check_environment(path: Path, stored: Any, env: EnvConfig) -> None:
    recorded = None if stored.env_spec is None else stored.env_spec.id
    # "module:id" imports the module that registers the id.
    wanted = env.id.rpartition(":")[2]
    require(
        recorded in (None, wanted),
        f"dataset {path} was recorded in {recorded}, and the run's environment is "
        f"{wanted}; choose another dataset or environment.",
    )


def _check_spaces(path: Path, stored: Any, expected: tuple[Any, Any]) -> None:
    """Raises ``ConfigError`` unless the dataset has the spaces of the environment."""
    recorded = stored.observation_space, stored.action_space
    verbs = "observes", "acts in"
    for verb, there, here in zip(verbs, recorded, expected, strict=True):
        require(
            _alike(there, here, with_bounds=verb == "acts in"),
            f"dataset {path} {verb} {_line(there)}, and the run's environment {verb} "
            f"{_line(here)}; choose a dataset with the environment's own spaces.",
        )


def _alike(there: Any, here: Any, with_bounds: bool) -> bool:
    """Returns whether two spaces have the same values, but for rounding.

    Bounds of observations are what an environment promises, and change with its
    versions; those of actions are their unit.
    """
    if type(there) is not type(here):
        return False
    if hasattr(here, "n"):
        return there.n == here.n and there.start == here.start
    return (
        there.shape == here.shape
        and (there.dtype == np.uint8) == (here.dtype == np.uint8)
        and (not with_bounds or _have_same_bounds(there, here))
    )


def _have_same_bounds(there: Any, here: Any) -> bool:
    return np.allclose(there.low, here.low) and np.allclose(there.high, here.high)


def _allocate(
    num_steps: int, expected: tuple[Any, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns empty observations, actions and rewards for ``num_steps``."""
    observation, action = expected
    is_image = observation.dtype == np.uint8
    is_discrete = hasattr(action, "n")
    return (
        np.zeros((num_steps, *observation.shape), np.uint8 if is_image else np.float32),
        np.zeros((num_steps, *action.shape), np.int32 if is_discrete else np.float32),
        np.zeros(num_steps, np.float32),
    )


def damaged(path: Path, error: object) -> ConfigError:
    """Says that the dataset in a folder cannot be read."""
    return ConfigError(
        f"dataset {path} cannot be read ({_line(error) or type(error).__name__}); "
        "restore it from a copy or collect it anew."
    )


def _line(thing: object) -> str:
    return " ".join(str(thing).split())
