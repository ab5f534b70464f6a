"""Episodes of a trained mean policy, played into a dataset.

The seeds are ``first_seed + i``. What a dataset lacks is played in blocks, each written
in the order of its seeds. A collection that is stopped keeps what has ended, and one
that is continued appends what is missing.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.es.population import MeanPopulation
from jax_es.imitation.dataset_writer import DatasetWriter, Summary
from jax_es.imitation.recording_env import RecordedEpisode, RecordingEnv
from jax_es.rollout.devices import compilation_clock
from jax_es.rollout.engine import Rollout
from jax_es.rollout.tasks import tasks_of_mean
from jax_es.streams import stream
from jax_es.training.build import with_target_return
from jax_es.training.load_policy import TrainedMean, check_fits
from jax_es.training.parts import build_evaluation

EPISODES_PER_SLOT = 2
"""Episodes of a block for each slot; no more than these are in memory."""


def digest(trained: TrainedMean) -> str:
    """Returns a short name of θ and of how it sees."""
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves((trained.mean, trained.statistics, trained.reference)):
        hashed.update(np.ascontiguousarray(leaf).tobytes())
    return hashed.hexdigest()[:16]


def first_seed(seed: int) -> int:
    """Returns the seed of episode 0; those of others count up from it."""
    return int(stream(seed, "dataset episodes").integers(2**30))


class Player:
    """Plays episodes of a trained policy; built before there is a dataset.

    Args:
        trained: the policy.
        num_episodes: the most that will be played at once.
        num_slots: episodes under way at once; the run's own number if not given.
        target_return: asked for instead of the one in the run's configuration.
        action_noise: standard deviation, in halves of the actions' range.
        noise_seed: with an episode's own seed, of its noise.

    Attributes:
        env: one of the vector environments.
        num_slots: S.
        ended: the episodes of the last :meth:`play` that have ended.

    Raises:
        ConfigError: if the parts do not fit together, or the policy or the environment
            does not have what is asked for.
    """

    def __init__(
        self,
        trained: TrainedMean,
        num_episodes: int,
        num_slots: int | None = None,
        target_return: float | None = None,
        action_noise: float = 0.0,
        noise_seed: int = 0,
    ) -> None:
        config, mean = trained.config, trained.mean
        if target_return is not None:
            try:
                mean = with_target_return(config, mean, target_return)
            except ConfigError as error:
                raise ConfigError(f"--target-return: {error}") from error
        if num_slots is not None:
            rollout = dataclasses.replace(config.rollout, num_slots=num_slots)
            config = dataclasses.replace(config, rollout=rollout)
        parts = build_evaluation(config, num_episodes)
        self.ended: list[RecordedEpisode] = []
        self.env, self.num_slots, self.close = parts.env, parts.num_slots, parts.close
        try:
            check_fits(trained, parts.policy)
            envs = [
                RecordingEnv(env, action_noise, noise_seed, self.ended.append)
                for env in parts.envs
            ]
            self._rollout = Rollout(parts.policy, envs, parts.devices)
        except BaseException:
            self.close()
            raise
        self._population = MeanPopulation(jax.tree.map(jnp.asarray, mean))
        self._view = trained.view()

    def play(self, seeds: np.ndarray, on_step: Callable[[], None]) -> None:
        """Plays the episodes of these seeds, never cut, into ``ended``."""
        self.ended.clear()
        tasks = tasks_of_mean(seeds, self.env.max_episode_steps)
        self._rollout.evaluate(self._population, tasks, self._view, lambda _: on_step())


def collect(
    player: Player,
    writer: DatasetWriter,
    seeds: np.ndarray,
    collection: dict[str, Any],
    on_step: Callable[[], None] = lambda: None,
    on_block: Callable[[Summary, float], None] = lambda summary, speed: None,
) -> dict[str, Any]:
    """Plays the episodes that a dataset lacks, and puts the dataset into its place.

    Args:
        player: of the episodes.
        writer: of the dataset, created or to be extended.
        seeds: of the episodes that there shall be, failed ones included.
        collection: our entry of the metadata, without scores.
        on_step: called once a step. What it raises ends the collection; the episodes
            that have ended are in the dataset then.
        on_block: called after each block with what is written and with the environment
            steps per second.

    Returns:
        Our entry of the metadata, with ``"scores"`` and ``"failed_seeds"``.

    Raises:
        ConfigError: if there is no episode that could be written.
    """
    failed: list[int] = []
    clock, num_steps = compilation_clock(), 0
    started = clock()
    missing = np.setdiff1d(seeds, writer.summary().seeds)
    block = EPISODES_PER_SLOT * player.num_slots

    def write() -> None:
        nonlocal num_steps
        ended = sorted(player.ended, key=lambda episode: episode.seed)
        failed.extend(episode.seed for episode in ended if not episode.is_finite)
        writer.append([episode for episode in ended if episode.is_finite])
        num_steps += sum(len(episode.rewards) for episode in ended)
        on_block(writer.summary(), num_steps / max(clock() - started, 1e-9))

    try:
        for at in range(0, len(missing), block):
            try:
                player.play(missing[at : at + block], on_step)
            finally:
                write()
    finally:
        returns, lengths = writer.summary()[1:]
        scores = {"returns": _score(returns), "lengths": _score(lengths)}
        collection = {**collection, "scores": scores, "failed_seeds": failed}
        if len(returns):
            writer.publish(collection)
    require(
        len(returns) > 0,
        f"all {len(seeds)} episodes have numbers that are not finite; choose another "
        "--checkpoint or run.",
    )
    return collection


def _score(values: np.ndarray) -> dict[str, float]:
    parts = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
    return {name: float(part(values)) for name, part in parts.items() if len(values)}
