"""Training by a strategy: how a run begins, and its generations as a session's steps.

``generation.py`` is what a generation does; ``session.py`` records and saves it.
"""

import contextlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from jax_es.checks import is_own
from jax_es.cli.progress import Progress
from jax_es.rollout.evaluator import never
from jax_es.runs.changes import check_method, check_resumable
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import OPENAI_ES
from jax_es.runs.metrics import read_metrics
from jax_es.runs.records import evaluation_record
from jax_es.runs.tracking import Callback
from jax_es.training.generation import (
    Judged,
    TrainState,
    initial_state,
    judge,
    mean_tasks,
    place,
    run_generation,
    template_state,
    view,
)
from jax_es.training.objective import asked, record_fields
from jax_es.training.parts import Parts
from jax_es.training.phases import enter_phase, follow, of_phase
from jax_es.training.result import TrainingResult
from jax_es.training.session import Elapsed, OnStep, Step, run_session, take_up
from jax_es.training.trained_mean import TrainedMean
from jax_es.training.warm_start import find_source, first_state, provenance


def begin(
    parts: Parts,
    run: RunDirectory,
    resume: bool,
    preset: str,
    source: TrainedMean | None = None,
) -> TrainState:
    """Creates the run, or checks and takes up the one that is there.

    Call it, and train, inside ``run.lock()``.

    Args:
        parts: from :func:`build`; their configuration is the run's.
        run: the run's folder.
        resume: continue the run that is there.
        preset: recorded as where a new run's configuration comes from.
        source: of a new run, from :func:`find_source`.

    Raises:
        ValueError: (its subclasses for configurations, checkpoints and metrics) if
            the run cannot be created or continued; it is then as it was before.
    """
    config, checkpoints = parts.config, Checkpoints(run.checkpoints)
    if not resume:
        run.create(config, preset, **({} if source is None else provenance(source)))
        return _first_state(parts, checkpoints, source)
    check_method(run, OPENAI_ES)
    check_resumable(run, config)
    if checkpoints.steps():
        template = template_state(parts)
        if config.phases:
            stored = checkpoints.restore("last").state
            template = enter_phase(config, template, int(stored["phase"]["index"]))
        restored = checkpoints.restore("last", template)
        state = place(parts, restored.state)
    else:
        source = None if config.init is None else find_source(config.init, parts)
        state = _first_state(parts, checkpoints, source)
    take_up(run, config, int(state.es.generation), state)
    return state


def _first_state(
    parts: Parts, checkpoints: Checkpoints, source: TrainedMean | None
) -> TrainState:
    """Returns the state before the first generation.

    One that begins with another run's θ is saved: that run may be gone on a resume.
    """
    state = initial_state(parts) if source is None else first_state(parts, source)
    if parts.config.phases:
        state = place(parts, enter_phase(parts.config, state, 0))
    if source is not None:
        checkpoints.save(0, state)
    return state


class PolicyTraining:
    """Training by a strategy: a :class:`~jax_es.training.session.Training`.

    Args:
        parts: from :func:`build`; a phase of its own builds others.
        state: from :func:`begin`.
        check_stop: called now and then during an update.

    Attributes:
        config: of the run.
        state: after the last generation.
        judged: what the last evaluation said, after :meth:`finish`.
    """

    judged: Judged

    def __init__(
        self,
        parts: Parts,
        state: TrainState,
        check_stop: Callable[[], None] = never,
    ) -> None:
        self.config, self.state = parts.config, state
        self._parts, self._check_stop = parts, check_stop
        self._built = contextlib.ExitStack()  # of phases; the caller closes its own
        self.close = self._built.close

    @property
    def generation(self) -> int:
        """Generations done."""
        return int(self.state.es.generation)

    def limits_reached(self) -> list[str]:
        """Says what ends the run, if anything does."""
        state, count = self.state, len(self.config.phases)
        if state.phase and state.phase.index >= count:
            return [f"the end of phase {count}"]
        return self.config.limits_reached(
            self.generation, state.total_env_steps, state.best_evaluation_return
        )

    def _of_phase(self) -> Parts:
        """Returns the parts of the present phase; all of a run without phases."""
        if self.config.phases:
            present = self._parts, self.config, self.state
            self._parts = of_phase(*present, self._built, self._check_stop)
        return self._parts

    def advance(self, on_step: OnStep, elapsed: Elapsed) -> Step:
        """Evaluates θ and its population, and updates θ."""
        parts = self._of_phase()
        generation = run_generation(parts, self.state, on_step, elapsed)
        self.state, says = generation.state, []
        if self.config.phases:
            self.state, says = follow(self.config, parts, generation)
        record, best = generation.record, generation.best
        if record.num_nonfinite or record.evaluation_num_nonfinite:
            says.append(
                f"generation {record.generation + 1}: {record.num_nonfinite} returns "
                f"of the population ({record.num_failed} failed simulations) and "
                f"{record.evaluation_num_nonfinite} of the evaluation were NaN or "
                "infinite; they rank worst."
            )
        found = generation.fitness
        if parts.own_objective is not None and not np.isfinite(found).all():
            says.append(
                f"generation {record.generation + 1}: {np.sum(~np.isfinite(found))} of "
                f"{len(found)} fitnesses by {parts.config.es.objective} were NaN or "
                "infinite; they rank worst."
            )
        before = None if best is None else (int(best.es.generation), best)
        return Step(record, self.state, before, says)

    def finish(self, on_step: OnStep, elapsed: Elapsed) -> Step:
        """Evaluates the last update's θ, on the next generation's episodes."""
        parts, state = self._of_phase(), self.state
        config, tasks = parts.config, mean_tasks(parts, state)
        population = parts.strategy.ask(state.es)
        result = parts.rollout.evaluate(population, tasks, view(config, state), on_step)
        judged = self.judged = judge(parts, state, tasks, result)
        asks = asked(config.es, state.commands, self.generation)
        phase = 0
        if state.phase:
            phase = min(state.phase.index + 1, len(self.config.phases))
        record = evaluation_record(
            self.generation,
            state.total_env_steps + result.env_steps,
            result.returns,
            result.lengths,
            judged.state.best_evaluation_return,
            elapsed(),
            env_steps=result.env_steps,
            phase=phase,
            evaluation_fitness=judged.fitness,
            **record_fields(asks, judged.state.commands, judged.error),
        )
        best = judged.state._replace(critic=())
        best = (self.generation, best) if judged.is_best else None
        return Step(record, state, best)


def run_training(
    training: PolicyTraining,
    run: RunDirectory,
    progress: Progress,
    check_stop: Callable[[], None] = never,
    callbacks: Sequence[Callback] = (),
) -> TrainingResult:
    """Trains to the end of the run, as :func:`~jax_es.training.session.run_session`."""
    every = training.config.checkpoint_every
    records = run_session(training, run, progress, every, check_stop, callbacks)
    judged, begun = training.judged, read_metrics(run.path)[0]
    values = (
        begun.evaluation_return_mean,
        judged.score,
        judged.state.best_evaluation_return,
    )
    is_fitness = is_own(training.config.es.objective)
    if is_fitness:
        values = begun.evaluation_fitness, judged.fitness, judged.state.best_fitness
    first, final, best = values
    return TrainingResult(
        run.path,
        training.state,
        records,
        first_evaluation=math.nan if begun.generation else first,
        final_evaluation=final,
        best_evaluation=best,
        evaluated="fitness" if is_fitness else "return",
    )
