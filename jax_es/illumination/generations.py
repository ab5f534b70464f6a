"""How an archive grows: a generation is proposed, evaluated, and sorted in."""

import math
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.illumination.archive import Archive
from jax_es.illumination.emitters import (
    Candidates,
    EvolutionStrategies,
    IsoLine,
    Weights,
)
from jax_es.illumination.settings import ArchiveConfig, axes_of
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.observation_statistics import view_of
from jax_es.rollout.variations import varied
from jax_es.runs.records import GenerationRecord
from jax_es.training.episodes import evaluation_tasks, population_tasks, rollout_fields
from jax_es.training.method_run import MethodTraining
from jax_es.training.objective import fitness, make_objective, per_member, score
from jax_es.training.parts import EvaluationParts, Parts
from jax_es.training.session import Elapsed, OnStep, Step
from jax_es.types import PyTree


class Best(NamedTuple):
    """θ of an archive's run, which programs read as any run's."""

    mean: PyTree
    """The best elite when the last generation began."""
    generation: np.int32
    """Generations done."""


class IlluminationState(NamedTuple):
    """Everything that the next generation depends on; what a checkpoint holds."""

    es: Best
    total_env_steps: int
    """Environment steps taken so far, evaluation included."""
    best_evaluation_return: float
    """The highest mean evaluation return so far."""
    archive: PyTree = ()
    """:meth:`Archive.state`; ``()`` in the checkpoint ``best``."""
    emitter: PyTree = ()
    """The emitter's own; ``()`` in the checkpoint ``best``."""


class Illumination(MethodTraining):
    """An archive that grows by generations: a session's training.

    Args:
        parts: what evaluates; :class:`~jax_es.training.parts.Parts` for emitter es.
        settings: the archive, and what fills it.

    Attributes:
        config: of the parts.
        archive: the elites so far.
        emitter: proposes policies; another one may take its place.
        weights: policies as vectors.
        generation: generations done.
        total_env_steps: environment steps taken, evaluation included.
        best_evaluation_return: the highest mean evaluation return so far.
        mean: θ of the last generation, the best elite then.
    """

    def __init__(self, parts: EvaluationParts, settings: ArchiveConfig) -> None:
        config = self.config = parts.config
        self._parts = parts
        size = getattr(parts.env, "descriptor_size", 0)
        axes = axes_of(settings, config.env.descriptor, size)
        self.weights = Weights(parts.policy.init)
        self.archive = Archive(settings, axes, self.weights.size, config.seed)
        known = settings, self.weights, config.seed
        self.emitter: IsoLine | EvolutionStrategies = (
            EvolutionStrategies(*known, parts.strategy)
            if isinstance(parts, Parts)
            else IsoLine(*known)
        )
        self._settings = settings
        self.generation, self.total_env_steps = 0, 0
        self.best_evaluation_return = -math.inf
        self.mean = self.weights.tree(jnp.zeros(self.weights.size))

    def advance(
        self,
        on_step: OnStep = lambda progress: None,
        elapsed: Elapsed = time.perf_counter,
    ) -> Step:
        """Runs one generation.

        Args:
            on_step: called often.
            elapsed: seconds since the run began.
        """
        started, config = time.perf_counter(), self.config
        limit = self._parts.env.max_episode_steps
        population = self.emitter.ask(self.generation, self.archive.elites())
        count = config.evaluation.num_episodes
        evaluation = evaluation_tasks(config.seed, self.generation, count, limit)
        if config.rollout.variation_range:
            evaluation = varied(evaluation, self._parts.env)
        tasks = population_tasks(
            config, self.generation, limit, population.size, env=self._parts.env
        )
        result = self._parts.rollout.evaluate(
            population, evaluation.followed_by(tasks), view_of(config, None), on_step
        )
        updating = time.perf_counter()
        evaluated = result.episodes(slice(None, count))
        told = result.episodes(slice(count, None))
        offered = self.emitter.tell(
            self.generation,
            self._outcome(evaluated, np.zeros(count, np.int32)),
            self._outcome(told, tasks.member),
        )
        added = self.archive.add(*offered)
        self.generation += 1
        self.total_env_steps += result.env_steps
        value = score(evaluated.returns)
        is_best = value > self.best_evaluation_return
        self.best_evaluation_return = max(self.best_evaluation_return, value)
        self.mean = jax.device_get(population.mean)
        seconds = {
            **result.seconds,
            "update": time.perf_counter() - updating,
            "total": time.perf_counter() - started,
        }
        best = self.archive.elites().fitness.max(initial=-math.inf)
        record = GenerationRecord(
            generation=self.generation - 1,
            total_env_steps=self.total_env_steps,
            step_cap=limit,
            best_evaluation_return=self.best_evaluation_return,
            coverage=self.archive.coverage,
            qd_score=self.archive.qd_score,
            best_fitness=float(best),
            **added._asdict(),
            slot_utilization=result.slot_utilization,
            seconds_elapsed=elapsed(),
            **rollout_fields(told, evaluated, seconds),
        )
        state, says = self.state(), []
        if added.num_left_out:
            says.append(
                f"generation {self.generation}: {added.num_left_out} policies were "
                "left out: fitness or descriptor is NaN or infinite."
            )
        without_archive = state._replace(archive=(), emitter=())
        best = (self.generation, without_archive) if is_best else None
        return Step(record, state, best, says)

    def _outcome(self, results: EpisodeResults, member: np.ndarray) -> Candidates:
        """Returns fitness and descriptors by member: means over its episodes."""
        columns = [per_member(column, member) for column in results.descriptors.T]
        return Candidates(
            np.zeros((0, 0)),
            fitness(results, member, make_objective(self.config.es)),
            np.stack(columns, axis=1),
        )

    def state(self) -> IlluminationState:
        """Returns what a checkpoint holds, as it is now."""
        return IlluminationState(
            Best(self.mean, np.int32(self.generation)),
            self.total_env_steps,
            self.best_evaluation_return,
            self.archive.state(),
            self.emitter.state(),
        )

    def restore(self, state: PyTree) -> None:
        """Takes up what a checkpoint holds."""
        archive = state["archive"]
        if "centroids" in archive:  # k-means may find others on another machine
            self.archive = Archive(
                self._settings,
                self.archive.axes,
                self.weights.size,
                centroids=archive["centroids"],
            )
        self.archive.restore(archive)
        self.emitter.restore(state.get("emitter", {}))
        self.mean = state["es"]["mean"]
        self.generation = int(state["es"]["generation"])
        self.total_env_steps = int(state["total_env_steps"])
        self.best_evaluation_return = float(state["best_evaluation_return"])
