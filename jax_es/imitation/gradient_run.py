"""A run that gradients trained: on disk a run like any other.

Teachers (SAC, TD3) and clones leave what OpenAI-ES leaves, with their own ``method`` in
``config.json``: evaluation records in ``metrics.jsonl`` and checkpoints from which
``load_mean`` reads θ. So every program that reads runs takes them as they are.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.es.population import MeanPopulation
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.observation_statistics import ObservationStatistics, view_of
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory, check_method
from jax_es.runs.method import Method
from jax_es.runs.metrics import MetricsWriter, records_so_far
from jax_es.runs.records import GenerationRecord, evaluation_record
from jax_es.train_config import differing
from jax_es.training.build import TrainConfig
from jax_es.training.generation import evaluation_tasks
from jax_es.training.objective import score
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


def begin(
    run: RunDirectory,
    config: TrainConfig,
    method: Method,
    resume: bool,
    preset: str,
    **data: Any,
) -> int:
    """Creates a run, or checks that it goes on as it was begun; in ``run.lock()``.

    Args:
        run: the run's folder.
        config: what it evaluates.
        method: how it is trained; a resume may change how long.
        resume: continue the run that is there.
        preset: recorded as where a new run's configuration comes from.
        **data: what it learns from.

    Returns:
        The evaluations that its last checkpoint knows of, 0 without any.

    Raises:
        ConfigError: if it cannot be created or continued.
    """
    if not resume:
        run.create(config, preset, method=method, **({"data": data} if data else {}))
        return 0
    lengths = ("steps", "epochs")
    kept = {k: v for k, v in method.settings.items() if k not in lengths}
    check_method(run, method._replace(settings=kept))
    run.check_resumable(config)
    run.require_unchanged(differing(run.record().get("data", data), data))
    checkpoints = Checkpoints(run.checkpoints)
    if not checkpoints.steps():
        return 0
    return int(checkpoints.restore("last").state["num_evaluations"])


class GradientRun:
    """What a training by gradients writes, and how it is evaluated; a context manager.

    Use it inside ``run.lock()``, after ``run.create(...)`` or, to continue,
    ``check_method``. It closes ``parts``.

    Args:
        run: the run's folder.
        parts: from :func:`build_for_evaluation`.
        statistics: through which θ sees observations, if any.
        num_evaluations: those that the restored checkpoint knows of; later records are
            dropped. 0 for a new run.

    Attributes:
        path: the run's folder.
        num_evaluations: evaluations recorded so far, before a stop included.
        best: the highest mean evaluation return so far.
        seconds: returns the wall-clock since the run began, pauses left out.

    Raises:
        MetricsError: if records of these evaluations are missing.
    """

    def __init__(
        self,
        run: RunDirectory,
        parts: EvaluationParts,
        statistics: ObservationStatistics | None = None,
        num_evaluations: int = 0,
    ) -> None:
        self.path, self.parts, self._statistics = run.path, parts, statistics
        self.num_evaluations = num_evaluations
        kept = records_so_far(run.path)[:num_evaluations]
        self.best = kept[-1].best_evaluation_return if kept else -math.inf
        self._checkpoints = Checkpoints(run.checkpoints)
        self._writer = MetricsWriter(run.path, num_evaluations - 1)
        self.seconds = self._writer.elapsed

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
        target_return: float | None = None,
        on_step: Callable[[Any], None] = lambda progress: None,
    ) -> EpisodeResults:
        """Runs ``evaluation.num_episodes`` episodes of θ; their seeds move on.

        θ is asked for ``target_return``; for the configuration's own if not given.
        """
        config = self.parts.config
        tasks = evaluation_tasks(
            config.seed,
            self.num_evaluations,
            config.evaluation.num_episodes,
            self.parts.env.max_episode_steps,
        )
        if target_return is not None:
            tasks = tasks.asked_for(target_return)
        population = MeanPopulation(jax.tree.map(jnp.asarray, mean))
        view = view_of(config, self._statistics)
        return self.parts.rollout.evaluate(population, tasks, view, on_step)

    def save(
        self,
        result: EpisodeResults,
        mean: PyTree,
        total_env_steps: int,
        step: int,
        **more: PyTree,
    ) -> GenerationRecord:
        """Records an evaluation of θ and saves it, as the best too if it is.

        Args:
            result: of the evaluation.
            mean: θ.
            total_env_steps: training's, so far.
            step: the checkpoint's number, larger than those of earlier ones.
            **more: what else a resume needs.
        """
        is_best = score(result.returns) > self.best
        if is_best:
            self.best = score(result.returns)
        record = evaluation_record(
            self.num_evaluations,
            total_env_steps,
            result.returns,
            result.lengths,
            self.best,
            self.seconds(),
        )
        self.num_evaluations += 1
        state = checkpoint_state(
            mean, self._statistics, step, self.num_evaluations, self.best
        )
        if is_best:
            self._checkpoints.save_best(step, state)
        self._writer.write(record)
        # Last: a run killed before it repeats the evaluation.
        self._checkpoints.save(step, {**state, **more})
        return record


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
