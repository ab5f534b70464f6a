"""A run that gradients trained: on disk a run like any other.

Teachers (SAC, TD3) and clones leave what OpenAI-ES leaves, with their own ``method`` in
``config.json``: evaluation records in ``metrics.jsonl`` and checkpoints from which
``load_mean`` reads θ. So ``evaluate``, ``plot``, ``report``, ``load_policy``,
``collect`` and ``train --init`` take them as they are.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.es.population import MeanPopulation
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.observation_statistics import ObservationStatistics, View
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import (
    MetricsWriter,
    check_whole,
    num_whole_records,
    records_so_far,
)
from jax_es.runs.records import GenerationRecord, evaluation_record
from jax_es.training.build import TrainConfig, with_target_return
from jax_es.training.generation import evaluation_tasks, score
from jax_es.training.parts import EvaluationParts, build_evaluation
from jax_es.types import PyTree, needs_reference


def build_for_evaluation(config: TrainConfig) -> EvaluationParts:
    """Builds the parts that evaluate a configuration's mean policy.

    Raises:
        ConfigError: if they do not fit together, or the policy needs what only a
            training by OpenAI-ES gathers.
    """
    parts = build_evaluation(config, config.evaluation.num_episodes)
    require(
        not needs_reference(parts.policy),
        "policy.normalization virtual-batch is trained by OpenAI-ES only; choose "
        "--policy.normalization none.",
    )
    return parts


class GradientRun:
    """What a training by gradients writes, and how it is evaluated; a context manager.

    Use it inside ``run.lock()``, after ``run.create(...)`` with a
    :class:`~jax_es.runs.directory.Method` or, to continue, ``check_method``.

    Args:
        run: the run's folder.
        parts: from :func:`build_for_evaluation`.
        num_evaluations: those that the restored checkpoint knows of; later records are
            dropped. 0 for a new run.

    Attributes:
        num_evaluations: evaluations recorded so far, before a stop included.
        best: the highest mean evaluation return so far.

    Raises:
        MetricsError: if records of these evaluations are missing.
    """

    def __init__(
        self, run: RunDirectory, parts: EvaluationParts, num_evaluations: int = 0
    ) -> None:
        self.parts = parts
        self.num_evaluations = num_evaluations
        check_whole(run.path, num_whole_records(run.path), num_evaluations)
        kept = records_so_far(run.path)[:num_evaluations]
        self.best = kept[-1].best_evaluation_return if kept else -math.inf
        seconds_before = kept[-1].seconds_elapsed if kept else 0.0
        self._started = time.perf_counter() - seconds_before
        self._checkpoints = Checkpoints(run.checkpoints)
        self._writer = MetricsWriter(run.path, num_evaluations - 1)

    def __enter__(self) -> "GradientRun":
        """Returns the run itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes files and environments."""
        self._writer.close()
        self.parts.close()

    def evaluate(
        self,
        mean: PyTree,
        statistics: ObservationStatistics | None = None,
        target_return: float | None = None,
        on_step: Callable[[Any], None] = lambda progress: None,
    ) -> EpisodeResults:
        """Runs ``evaluation.num_episodes`` episodes of θ; their seeds move on.

        It sees through ``statistics`` and is asked for ``target_return``, if given, and
        for the configuration's own return otherwise.
        """
        config = self.parts.config
        if target_return is not None:
            mean = with_target_return(config, mean, target_return)
        tasks = evaluation_tasks(
            config.seed,
            self.num_evaluations,
            config.evaluation.num_episodes,
            self.parts.env.max_episode_steps,
        )
        population = MeanPopulation(jax.tree.map(jnp.asarray, mean))
        rollout = config.rollout
        view = View(statistics, (), rollout.std_floor, rollout.observation_clip)
        return self.parts.rollout.evaluate(population, tasks, view, on_step)

    def record(
        self,
        result: EpisodeResults,
        mean: PyTree,
        statistics: ObservationStatistics | None,
        total_env_steps: int,
        step: int,
    ) -> GenerationRecord:
        """Writes an evaluation down, and keeps θ if it is the best so far.

        ``total_env_steps`` are those of training so far; ``step`` numbers the best
        checkpoint as in :meth:`save`.
        """
        if score(result.returns) > self.best:
            self.best = score(result.returns)
            self._checkpoints.save_best(step, self._state(mean, statistics, step))
        record = evaluation_record(
            self.num_evaluations,
            total_env_steps,
            result.returns,
            result.lengths,
            self.best,
            self.seconds(),
        )
        self._writer.write(record)
        self.num_evaluations += 1
        return record

    def save(
        self,
        mean: PyTree,
        statistics: ObservationStatistics | None,
        step: int,
        **more: PyTree,
    ) -> None:
        """Saves a checkpoint, after the records that belong to it.

        ``step`` is larger than that of earlier checkpoints, and ``more`` what else a
        resume needs.
        """
        self._checkpoints.save(step, {**self._state(mean, statistics, step), **more})

    def seconds(self) -> float:
        """Returns the wall-clock since the run began, pauses left out."""
        return time.perf_counter() - self._started

    def _state(
        self, mean: PyTree, statistics: ObservationStatistics | None, step: int
    ) -> dict[str, PyTree]:
        return checkpoint_state(mean, statistics, step, self.num_evaluations, self.best)


def checkpoint_state(
    mean: PyTree,
    statistics: ObservationStatistics | None,
    step: int = 0,
    num_evaluations: int = 0,
    best: float = 0.0,
) -> dict[str, PyTree]:
    """Lays θ out as a training state of OpenAI-ES does (``checkpoint.py``)."""
    state: dict[str, PyTree] = {
        "es": {"mean": mean, "generation": np.int32(step)},
        "num_evaluations": num_evaluations,
        "best_evaluation_return": best,
    }
    if statistics is not None:
        state["observation_statistics"] = statistics._asdict()
    return state
