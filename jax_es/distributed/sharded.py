"""The evaluator and the weighted sum of workers: fixed shards, in a fixed order."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jax_es.distributed.workers import Workers
from jax_es.es.openai_es import WeightedSum
from jax_es.es.population import Population
from jax_es.rollout.evaluator import OF_EPISODES, EpisodeResults, RolloutProgress
from jax_es.rollout.observation_statistics import UNCHANGED, View, merge
from jax_es.rollout.tasks import Tasks
from jax_es.types import PyTree


class ShardedEvaluator:
    """The :class:`~jax_es.rollout.evaluator.Evaluator` of many processes.

    A shard is a number of successive tasks. Any worker may run it, and results are
    joined in the order of the shards: no number depends on the workers.

    Args:
        workers: who evaluates.
        recipe: makes what has ``evaluate((population, view), tasks)`` and
            ``weighted_sum((key, mean), first, weights)``.
        shard_size: tasks in a shard.
    """

    def __init__(
        self, workers: Workers, recipe: Callable[[], Any], shard_size: int
    ) -> None:
        self._workers, self._recipe, self._shard_size = workers, recipe, shard_size

    def evaluate(
        self,
        population: Population,
        tasks: Tasks,
        view: View = UNCHANGED,
        on_step: Callable[[RolloutProgress], None] = lambda progress: None,
    ) -> EpisodeResults:
        """Runs every task to its end; see :meth:`Evaluator.evaluate`.

        Raises:
            WorkersGone: if no worker is left.
        """
        began, num_tasks = time.perf_counter(), len(tasks.member)
        size = self._shard_size
        shards = [
            (jax.tree.map(lambda field, i=i: field[i : i + size], tasks),)
            for i in range(0, num_tasks, size)
        ]
        results: list[EpisodeResults] = []

        def tell(num_done: int) -> None:
            done = min(num_done * size, num_tasks)
            on_step(RolloutProgress(done, num_tasks, 0, 0, {}))

        self._workers.use(self._recipe)
        self._workers.run(
            "evaluate", jax.device_get((population, view)), shards, results.append, tell
        )
        elapsed = time.perf_counter() - began
        return _joined(results, elapsed, self._workers.status().workers)

    def weighted_sum(
        self, block: int, on_wait: Callable[[], None] = lambda: None
    ) -> WeightedSum:
        """Returns ``(generation_key, weights [N], mean) → Σᵢ wᵢ εᵢ``, by the workers.

        Each sums blocks of successive pairs; the sums, each the size of θ, are added up
        here in the order of the blocks.

        Args:
            block: pairs in a block.
            on_wait: called often, for instance to notice a stop signal.
        """

        def weighted_sum(key: jax.Array, weights: jax.Array, mean: PyTree) -> PyTree:
            all_weights = np.asarray(weights)
            starts = range(0, len(all_weights), block)
            jobs = [(start, all_weights[start : start + block]) for start in starts]
            sums: list[PyTree] = []

            def add(part: PyTree) -> None:
                sums[:] = [jax.tree.map(np.add, sums[0], part) if sums else part]

            self._workers.use(self._recipe)
            self._workers.run(
                "weighted_sum",
                jax.device_get((key, mean)),
                jobs,
                add,
                lambda _: on_wait(),
            )
            return sums[0]

        return weighted_sum


def _joined(
    results: list[EpisodeResults], elapsed: float, num_workers: int
) -> EpisodeResults:
    """Puts shards' results together, in their order.

    Seconds are a worker's mean; of the elapsed ones, as if all had always been at work.
    """
    whole: dict[str, Any] = {
        f: np.concatenate([getattr(r, f) for r in results]) for f in OF_EPISODES
    }
    for field in ("sums", "last"):
        whole[field] = {
            name: np.concatenate([getattr(r, field)[name] for r in results])
            for name in getattr(results[0], field)
        }
    work = sum(sum(result.seconds.values()) for result in results)
    share = max(num_workers, work / max(elapsed, 1e-9))
    return EpisodeResults(
        **whole,
        observations=functools.reduce(merge, [r.observations for r in results]),
        env_steps=sum(result.env_steps for result in results),
        computed_steps=sum(result.computed_steps for result in results),
        seconds={
            name: sum(result.seconds[name] for result in results) / share
            for name in results[0].seconds
        },
    )
