"""A run that gradients trained: on disk a run like any other.

Teachers and clones leave what OpenAI-ES leaves, with their own ``method`` in
``config.json``: evaluation records in ``metrics.jsonl`` and checkpoints from which
``load_mean`` reads θ. So every program that reads runs takes them as they are.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jax_es.checks import require
from jax_es.es.population import MeanPopulation
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.observation_statistics import ObservationStatistics, view_of
from jax_es.runs.changes import (
    check_method,
    check_resumable,
    require_unchanged,
    take_over,
)
from jax_es.runs.checkpoint import Checkpoints, Restored
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import Method
from jax_es.runs.metrics import MetricsWriter, check_own_records
from jax_es.runs.records import GenerationRecord, evaluation_record
from jax_es.train_config import differing
from jax_es.training.build import TrainConfig
from jax_es.training.episodes import evaluation_tasks
from jax_es.training.objective import score
from jax_es.training.parts import EvaluationParts, build_evaluation
from jax_es.training.trained_mean import TrainedMean
from jax_es.types import PyTree, needs_reference


def build_for_evaluation(config: TrainConfig) -> EvaluationParts:
    """Builds what evaluates θ; rejects policies that only OpenAI-ES can train."""
    parts = build_evaluation(config, config.evaluation.num_episodes)
    require(
        not needs_reference(parts.policy),
        "policy.normalization virtual-batch is trained by OpenAI-ES only; choose "
        "--policy.normalization none.",
    )
    return parts


@contextlib.contextmanager
def gradient_run(
    run: RunDirectory,
    parts: EvaluationParts,
    method: Method,
    resume: bool,
    preset: str,
    statistics: ObservationStatistics | None = None,
    **data: Any,
) -> Iterator["GradientRun"]:
    """Creates a run, or continues it as it was begun; closes it and ``parts``.

    A resume may change how long ``method`` trains. ``preset`` and ``data``, what is
    learned from, are recorded. Others cannot write into the folder meanwhile.

    Raises:
        ConfigError: if it cannot be created or continued.
    """
    with contextlib.closing(parts), run.lock():
        restored = None
        if resume:
            restored = _last_checkpoint(run, parts.config, method, data)
            take_over(run, parts.config, -1 if restored is None else restored.step)
            run.update(method=method)
        else:
            more = {"data": data} if data else {}
            run.create(parts.config, preset, method=method, **more)
        with contextlib.closing(GradientRun(run, parts, statistics, restored)) as begun:
            yield begun


def _last_checkpoint(
    run: RunDirectory, config: TrainConfig, method: Method, data: dict[str, Any]
) -> Restored | None:
    """Returns where a run goes on, if it goes on as it was begun."""
    settings = dict(method.settings)
    unit, steps = "steps", 1
    if "epochs" in settings:
        unit, steps = "epochs", settings["steps_per_epoch"]
    length = settings.pop(unit)
    check_method(run, method._replace(settings=settings))
    check_resumable(run, config)
    require_unchanged(run, differing(run.record().get("data", data), data))
    checkpoints = Checkpoints(run.checkpoints)
    if not checkpoints.steps():
        return None
    restored = checkpoints.restore("last")
    finished = restored.step // steps
    require(
        length >= finished,
        f"{unit} must be at least {finished}, the {unit} that {run.path} has finished, "
        f"got {length}.",
    )
    check_own_records(
        run.path,
        int(restored.state["num_evaluations"]) - 1,
        best_evaluation_return=float(restored.state["best_evaluation_return"]),
    )
    return restored


class GradientRun:
    """What a training by gradients writes, and how it is evaluated.

    Attributes:
        restored: the checkpoint that it goes on from; later records are dropped.
        statistics: those that θ sees observations by.
        num_evaluations: evaluations recorded so far, before a stop included.
        best: the highest mean evaluation return so far.
        seconds: returns the wall-clock since the run began, pauses left out.
    """

    def __init__(
        self,
        run: RunDirectory,
        parts: EvaluationParts,
        statistics: ObservationStatistics | None = None,
        restored: Restored | None = None,
    ) -> None:
        self.path, self.config, self.restored = run.path, parts.config, restored
        self._parts, self.statistics = parts, statistics
        self.num_evaluations, self.best = 0, -math.inf
        if restored is not None:
            self.num_evaluations = int(restored.state["num_evaluations"])
            self.best = float(restored.state["best_evaluation_return"])
        self._checkpoints = Checkpoints(run.checkpoints)
        self._writer = MetricsWriter(run.path, self.num_evaluations - 1)
        self.seconds, self.close = self._writer.elapsed, self._writer.close

    def evaluate(
        self,
        mean: PyTree,
        target_return: float | None = None,
        check_stop: Callable[[], None] = lambda: None,
    ) -> EpisodeResults:
        """Runs ``evaluation.num_episodes`` episodes of θ; their seeds move on.

        θ is asked for ``target_return``; for the configuration's own if not given.
        """
        tasks = evaluation_tasks(
            self.config.seed,
            self.num_evaluations,
            self.config.evaluation.num_episodes,
            self._parts.env.max_episode_steps,
        )
        if target_return is not None:
            tasks = tasks.asked_for(target_return)
        return self._parts.rollout.evaluate(
            MeanPopulation(jax.tree.map(jnp.asarray, mean)),
            tasks,
            view_of(self.config, self.statistics),
            lambda _: check_stop(),
        )

    def save(
        self,
        result: EpisodeResults,
        mean: PyTree,
        total_env_steps: int,
        step: int,
        **more: PyTree,
    ) -> GenerationRecord:
        """Records an evaluation of θ and saves it, as the best too if it is.

        The checkpoint gets the number ``step``, and ``more``, what else a resume needs.
        """
        is_best = score(result.returns) > self.best
        self.best = max(self.best, score(result.returns))
        record = evaluation_record(
            self.num_evaluations,
            total_env_steps,
            result.returns,
            result.lengths,
            self.best,
            self.seconds(),
        )
        self.num_evaluations += 1
        trained = TrainedMean(self.config, mean, self.statistics, step)
        state = {
            **trained.state(),
            "num_evaluations": self.num_evaluations,
            "best_evaluation_return": self.best,
        }
        if is_best:
            self._checkpoints.save_best(step, state)
        record = self._writer.write(record)
        # Last: a run killed before it repeats the evaluation.
        self._checkpoints.save(step, {**state, **more})
        return record
