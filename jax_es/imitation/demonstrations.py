"""Episodes of a trained mean policy, played into a dataset.

The seeds are ``first_seed + i``; episodes are written as they end.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from minari.data_collector import EpisodeBuffer

from jax_es.checks import require
from jax_es.config import EnvConfig
from jax_es.config.task import Ranges
from jax_es.distributed.workers import Workers
from jax_es.es.population import MeanPopulation
from jax_es.imitation.datasets import OUR_METADATA, add_episodes
from jax_es.imitation.recording_env import Recorded, RecordingEnv, is_finite
from jax_es.rollout.engine import Rollout
from jax_es.rollout.streams import stream
from jax_es.rollout.tasks import Tasks, tasks_of_mean
from jax_es.rollout.variations import check_begins, corners, varied
from jax_es.training.build import make_env
from jax_es.training.parts import build_evaluation
from jax_es.training.shards import on_one_core, shard_size
from jax_es.training.trained_mean import TrainedMean, check_asked, check_fits
from jax_es.types import VectorEnv


def first_seed(seed: int) -> int:
    """Returns the seed of episode 0; those of others count up from it."""
    return int(stream(seed, "dataset episodes").integers(2**30))


class Player:
    """Plays episodes of a trained policy.

    Args:
        trained: the policy.
        num_episodes: the most that will be played.
        num_slots: episodes under way at once; the run's own number if not given.
        target_return: asked for instead of the one in the run's configuration.
        action_noise: standard deviation, in halves of the actions' range.
        noise_seed: of that noise, and of what the environments vary by.
        workers: who plays; this process if not given.
        recorded: which actions are, with noise.
        ranges: of what each episode's environment varies by, drawn uniformly.
        shown: the environment whose observations are recorded; the policy's own if not
            given.

    Attributes:
        env: one of the vector environments that are recorded.
        close: releases them.

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
        workers: Workers | None = None,
        recorded: Recorded = "executed",
        ranges: Ranges = (),
        shown: EnvConfig | None = None,
    ) -> None:
        config = trained.config
        if num_slots is not None:
            rollout = dataclasses.replace(config.rollout, num_slots=num_slots)
            config = dataclasses.replace(config, rollout=rollout)
        with trained.blaming_changes():
            parts = build_evaluation(config, num_episodes)
        self._ended: list[EpisodeBuffer] = []
        self._env, self.close = parts.env, parts.close
        check_fits(trained, parts.policy, parts.env.single_observation_space)
        if target_return is not None:
            check_asked(parts.policy, config)
        noise = action_noise, noise_seed
        others: list[VectorEnv | None] = [None] * len(parts.envs)
        if shown is not None:
            with contextlib.ExitStack() as stack:
                stack.callback(parts.close)
                threads, rollout = config.rollout.num_threads, config.rollout
                for i, each in enumerate(parts.envs):
                    others[i] = other = make_env(shown, each.num_envs, threads, rollout)
                    stack.callback(other.close)
                self.close = stack.pop_all().close
        self.env = others[0] or parts.env
        envs: Any = [
            RecordingEnv(each, *noise, self._ended.append, recorded, other)
            for each, other in zip(parts.envs, others, strict=True)
        ]
        self._rollout = Rollout(parts.policy, envs, parts.devices)
        self._population = MeanPopulation(jax.tree.map(jnp.asarray, trained.mean))
        self._view, self._target_return = trained.view(), target_return
        self._seed, self._ranges = noise_seed, ranges
        if ranges:
            check_begins(self._env, corners(ranges), "--variation-range")
        self._workers, self._shard_size = workers, shard_size(config, num_episodes)
        if workers is not None:
            one_core = trained._replace(config=on_one_core(config))
            asked = (
                target_return,
                action_noise,
                noise_seed,
                None,
                recorded,
                ranges,
                shown,
            )
            workers.use(
                functools.partial(Player, one_core, self._shard_size, None, *asked)
            )

    def _tasks(self, seeds: np.ndarray) -> Tasks:
        """Returns the episodes of these seeds; each draws by its own."""
        tasks = tasks_of_mean(seeds, self._env.max_episode_steps)
        if self._target_return is not None:
            tasks = tasks.asked_for(self._target_return)
        if not self._ranges:
            return tasks
        drawn = [self._drawn(seed) for seed in seeds]
        values = {name: [each[name] for each in drawn] for name in drawn[0]}
        return varied(tasks, self._env, values, "--variation-range")

    def _drawn(self, seed: int) -> dict[str, float]:
        """Returns what an episode's environment varies by."""
        rng = stream(self._seed, "variations", seed)
        return {name: rng.uniform(low, high) for name, low, high in self._ranges}

    def play(
        self, seeds: np.ndarray, on_step: Callable[[list[EpisodeBuffer]], None]
    ) -> None:
        """Plays the seeds' episodes; gives those that ended since to ``on_step``."""
        if self._workers is not None:
            size = self._shard_size
            jobs = [(seeds[i : i + size],) for i in range(0, len(seeds), size)]
            self._workers.run("played", None, jobs, on_step, lambda _: on_step([]))
            return

        def hand_over(_: Any = None) -> None:
            ended = self._ended.copy()
            self._ended.clear()
            if self._ranges:
                ended = [
                    dataclasses.replace(
                        each, options={"variation": self._drawn(each.seed)}
                    )
                    for each in ended
                ]
            on_step(ended)

        tasks = self._tasks(seeds)
        self._rollout.evaluate(self._population, tasks, self._view, hand_over)
        hand_over()

    def played(self, shared: None, seeds: np.ndarray) -> list[EpisodeBuffer]:
        """Returns the episodes of a worker's shard."""
        episodes: list[EpisodeBuffer] = []
        self.play(seeds, episodes.extend)
        return episodes


def collect(
    player: Player,
    storage: Any,
    seeds: np.ndarray,
    collection: dict[str, Any],
    check_stop: Callable[[], None] = lambda: None,
    on_tenth: Callable[[list[float]], None] = lambda returns: None,
) -> dict[str, Any]:
    """Plays the episodes that a dataset lacks into it; leaves failed ones out.

    Args:
        player: of the episodes.
        storage: Minari's, from ``storage_in``.
        seeds: of the episodes that there shall be, failed ones included.
        collection: our entry of the metadata; ``"scores"`` and ``"failed_seeds"`` are
            added to what is returned.
        check_stop: called once a step; it may raise, to stop.
        on_tenth: called with the returns so far after each tenth of the episodes.

    Raises:
        ConfigError: if there is no episode that could be written.
    """
    there, missing = range(storage.total_episodes), seeds
    returns: list[float] = []
    lengths: list[int] = []
    failed: list[int | None] = []
    if there:  # a file without any cannot be opened
        known = storage.get_episode_metadata(there)
        missing = np.setdiff1d(seeds, [episode["seed"] for episode in known])
        rewards = list(storage.apply(lambda episode: episode["rewards"]))
        returns, lengths = list(map(sum, rewards)), list(map(len, rewards))

    def write(ended: list[EpisodeBuffer]) -> None:
        check_stop()
        good = list(filter(is_finite, ended))
        failed.extend(each.seed for each in ended if not is_finite(each))
        if good:
            add_episodes(storage, good)
            tenth = len(returns) * 10 // len(seeds)
            returns.extend(sum(each.rewards) for each in good)
            lengths.extend(map(len, good))
            if len(returns) * 10 // len(seeds) > tenth:
                on_tenth(returns)

    if len(missing):
        player.play(missing, write)
    require(
        len(returns) > 0,
        f"all {len(seeds)} episodes have numbers that are not finite; choose another "
        "--checkpoint or run.",
    )
    scores = {"returns": _score(returns), "lengths": _score(lengths)}
    collection = {**collection, "scores": scores, "failed_seeds": failed}
    storage.update_metadata({OUR_METADATA: collection})
    return collection


def _score(values: Any) -> dict[str, float]:
    parts = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
    return {name: float(part(values)) for name, part in parts.items()}
