"""Episodes of a trained mean policy into a dataset.

Episode i has the seed ``first_seed + i``, wherever collecting stops and goes on, and
episodes are written in this order. They are played in blocks, each of them scheduled
alike whenever it is played: how the slots are packed decides how numbers are rounded,
and physics amplifies rounding. A block of which a part is written is played anew, so
that a collection which was stopped gets the episodes that it would have got.
"""

import dataclasses
import hashlib
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.config import ConfigError, require
from jax_es.es.population import MeanPopulation
from jax_es.imitation.dataset_writer import DatasetWriter
from jax_es.imitation.datasets import OUR_METADATA, read_metadata
from jax_es.imitation.recording import Recording, RecordingEnv, check_noise
from jax_es.rollout.engine import Rollout, RolloutProgress
from jax_es.rollout.tasks import Tasks, tasks_of_mean
from jax_es.runs.machine import git_commit, versions
from jax_es.streams import stream
from jax_es.training.build import TrainConfig, env_spec, with_target_return
from jax_es.training.load_policy import TrainedMean, check_fits
from jax_es.training.parts import build_evaluation

EPISODES_PER_SLOT = 2
"""Episodes of a block for each slot; no more than these are in memory."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What decides a dataset's episodes."""

    run: str
    """Name of the run's folder."""
    checkpoint: str
    """Which of its checkpoints."""
    generation: int
    """Updates that led to θ."""
    weights: str
    """Digest of θ and of the statistics that it sees through."""
    target_return: float | None
    """Asked for instead of the one in the run's configuration."""
    action_noise: float
    """Standard deviation, in halves of the actions' range."""
    seed: int
    """From which the episodes' seeds come."""
    num_slots: int
    """Episodes under way at once."""
    num_devices: int
    """XLA devices that computed the policy."""


class Progress(NamedTuple):
    """How far a collection has come.

    Attributes:
        num_written: episodes in the dataset.
        num_episodes: how many there shall be.
        mean_return: of those in the dataset; NaN of none.
        env_steps: environment steps of this process.
        seconds: that they took.
    """

    num_written: int
    num_episodes: int
    mean_return: float
    env_steps: int
    seconds: float


def digest(trained: TrainedMean) -> str:
    """Returns a short name of θ and of how it sees."""
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves((trained.mean, trained.statistics, trained.reference)):
        hashed.update(np.ascontiguousarray(leaf).tobytes())
    return hashed.hexdigest()[:16]


def episode_tasks(recipe: Recipe, indices: np.ndarray, max_steps: int) -> Tasks:
    """Lists the episodes of these indices, never cut."""
    return tasks_of_mean(first_seed(recipe.seed) + indices, max_steps)


def first_seed(seed: int) -> int:
    """Returns the seed of episode 0; those of others count up from it."""
    return int(stream(seed, "dataset episodes").integers(2**30))


class Collector:
    """Plays a recipe's episodes; built before there is a dataset.

    Args:
        trained: the policy.
        recipe: what is played.

    Raises:
        ConfigError: if the parts do not fit together, or the recipe asks for what the
            policy or the environment does not have.
    """

    def __init__(self, trained: TrainedMean, recipe: Recipe) -> None:
        self.recipe = recipe
        self._trained = trained
        self._mean = trained.mean
        if recipe.target_return is not None:
            try:
                self._mean = with_target_return(
                    trained.config, trained.mean, recipe.target_return
                )
            except ConfigError as error:
                raise ConfigError(f"--target-return: {error}") from error
        self._parts = build_evaluation(
            _for_collecting(trained.config, recipe), recipe.num_slots
        )
        check_fits(trained, self._parts.policy)
        if recipe.action_noise:
            check_noise(self._parts.env.single_action_space)

    def close(self) -> None:
        """Releases the environments."""
        self._parts.close()

    def new_dataset(
        self, writer: DatasetWriter, dataset_id: str, method: str, command: str
    ) -> None:
        """Makes the dataset, without episodes.

        Args:
            writer: of its folder.
            dataset_id: Minari's name of it.
            method: how the policy was trained.
            command: recorded.

        Raises:
            ConfigError: if it is there already, or nothing can be written.
        """
        config = self._trained.config
        env = self._parts.env
        collection = {
            "recipe": dataclasses.asdict(self.recipe),
            "command": command,
            "versions": versions(),
            "git_commit": git_commit(),
            "first_seed": first_seed(self.recipe.seed),
            **_scores([], [], []),
        }
        writer.create(
            dataset_id,
            env.single_observation_space,
            env.single_action_space,
            env_spec(config.env),
            algorithm_name=method,
            description=f"Episodes in {config.env.id}, recorded by jax-es.",
            **{OUR_METADATA: collection},
        )

    def collect(
        self,
        writer: DatasetWriter,
        num_episodes: int,
        on_step: Callable[[], None] = lambda: None,
        on_written: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        """Plays episodes until there are ``num_episodes``, and writes them.

        Args:
            writer: of the dataset, which may have episodes of the recipe.
            num_episodes: how many there shall be, failed ones included.
            on_step: called once a step. What it raises ends the collection after all
                that can be kept is written.
            on_written: called after each writing.
        """
        log = _Log(writer, num_episodes, on_written)
        if log.position >= num_episodes:
            return  # or the last block would be played for nothing
        block = EPISODES_PER_SLOT * self.recipe.num_slots
        rollout = self._rollout(log.add)

        def step(_: RolloutProgress) -> None:
            log.start_clock()
            try:
                on_step()
            except BaseException:
                log.write()
                raise
            if log.num_ready >= self.recipe.num_slots:
                log.write()  # now and then, to keep as much as possible

        population = MeanPopulation(jax.tree.map(jnp.asarray, self._mean))
        limit = self._parts.env.max_episode_steps
        for start in range(log.position // block * block, num_episodes, block):
            indices = np.arange(start, min(start + block, num_episodes))
            tasks = episode_tasks(self.recipe, indices, limit)
            rollout.evaluate(population, tasks, self._trained.view(), step)
        log.write()

    def _rollout(self, on_episode: Callable[[Recording], None]) -> Rollout:
        """Builds the engine on environments that record."""
        parts, recipe = self._parts, self.recipe
        envs = [
            RecordingEnv(env, recipe.action_noise, recipe.seed, on_episode)
            for env in parts.envs
        ]
        return Rollout(parts.policy, envs, parts.devices)


def _for_collecting(config: TrainConfig, recipe: Recipe) -> TrainConfig:
    """Returns a configuration with the recipe's slots and devices."""
    rollout = dataclasses.replace(
        config.rollout, num_slots=recipe.num_slots, num_devices=recipe.num_devices
    )
    return dataclasses.replace(config, rollout=rollout)


class _Log:
    """Puts episodes into their order and writes them, with what they tell together."""

    def __init__(
        self,
        writer: DatasetWriter,
        num_episodes: int,
        on_written: Callable[[Progress], None],
    ) -> None:
        self._writer, self._num_episodes = writer, num_episodes
        self._on_written = on_written
        self._collection = read_metadata(writer.path)[OUR_METADATA]
        self._failed: list[int] = self._collection["failed_seeds"]
        self._returns, self._lengths = (list(part) for part in writer.summaries())
        stored = read_metadata(writer.path)["total_steps"]
        total = int(sum(self._lengths))
        if stored != total:
            warnings.warn(
                f"{writer.path} said {stored} steps where its episodes have {total}; "
                "corrected.",
                stacklevel=2,
            )
            writer.append([], self._collection, total_steps=total)
        self.position = self._written = len(self._returns) + len(self._failed)
        self._waiting: dict[int, Recording] = {}
        self._ready: list[Recording] = []
        self._env_steps = 0
        self._started: float | None = None

    @property
    def num_ready(self) -> int:
        """Episodes that can be written."""
        return len(self._ready)

    def start_clock(self) -> None:
        """Counts time from the first step on, when programs are compiled."""
        if self._started is None:
            self._started = time.perf_counter()

    def add(self, episode: Recording) -> None:
        """Takes an episode that ended."""
        self._env_steps += len(episode.rewards)
        index = episode.seed - self._collection["first_seed"]
        # A block that was written in part is played from its beginning.
        if index >= self.position:
            self._waiting[index] = episode
        while self.position in self._waiting:
            episode = self._waiting.pop(self.position)
            self.position += 1
            if episode.is_finite:
                self._ready.append(episode)
            else:
                self._failed.append(episode.seed)

    def write(self) -> None:
        """Writes the episodes that are in their order."""
        if self.position == self._written:
            return
        self._returns += [float(each.rewards.sum()) for each in self._ready]
        self._lengths += [len(each.rewards) for each in self._ready]
        scores = _scores(self._returns, self._lengths, self._failed)
        self._writer.append(self._ready, {**self._collection, **scores})
        self._written, self._ready = self.position, []
        started = self._started or time.perf_counter()
        self._on_written(
            Progress(
                len(self._returns),
                self._num_episodes,
                float(np.mean(self._returns)) if self._returns else np.nan,
                self._env_steps,
                time.perf_counter() - started,
            )
        )


def _scores(
    returns: list[float], lengths: list[int], failed: list[int]
) -> dict[str, Any]:
    """Returns what the metadata say of the episodes, and the seeds left out."""
    return {
        "scores": {"returns": summary(returns), "lengths": summary(lengths)},
        "failed_seeds": failed,
    }


def summary(values: list[Any]) -> dict[str, float]:
    """Returns mean, standard deviation and range; nothing of no values."""
    if not values:
        return {}
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "min": float(np.min(values)),
        "max": float(np.max(values)),
    }


def check_same(path: Any, stored: dict[str, Any], recipe: Recipe) -> None:
    """Checks that a recipe continues a dataset.

    Raises:
        ConfigError: naming what differs.
    """
    given = dataclasses.asdict(recipe)
    changed = [
        f"{name} was {stored.get(name)!r}, now {value!r}"
        for name, value in given.items()
        if stored.get(name) != value
    ]
    require(
        not changed,
        f"--resume would change the dataset {path}: {'; '.join(changed)}. Leave these "
        "as they were, or collect another --dataset.",
    )
