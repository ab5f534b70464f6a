"""Which phase a run is in, when it ends, and what goes on in the next.

θ, observation statistics, key and generations go on over a border, and so does the
optimizer, unless it is of another kind.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from jax_es.es.optimizers import change_optimizer
from jax_es.phases import in_phase, naming
from jax_es.runs.wording import significant
from jax_es.train_config import TrainConfig
from jax_es.training.generation import (
    Generation,
    TrainState,
    next_num_pairs,
    next_step_cap,
    place,
    restarted,
    score,
)
from jax_es.training.parts import Parts, build

GENERATIONS = 10
"""That the running mean of a population's returns is over: m ← m + (x − m) / 10, one
number for a checkpoint to hold. So many even out what one generation's episodes differ
by, and it lags behind a rise by no more than that."""


class PhaseState(NamedTuple):
    """What the ends of the present phase depend on."""

    index: int
    """Which phase, from 0; beyond the last one when that has ended."""
    generation: int
    """Generations that the run had finished when the phase began."""
    env_steps: int
    """Environment steps that it had taken by then."""
    mean: float
    """Running mean of the population's mean return in this phase; NaN at its start."""
    best: float
    """What it has to surpass by the gain; NaN at the start."""
    best_generation: int
    """Generations that the run had finished when it last did."""


def enter_phase(config: TrainConfig, state: TrainState, index: int) -> TrainState:
    """Returns the state with which a phase begins.

    Args:
        config: the run's, which has phases.
        state: at the end of the phase before, or the run's initial one.
        index: the phase, from 0.
    """
    es, finished = state.es, int(state.es.generation)
    before, now = in_phase(config, index - 1 if index else 0), in_phase(config, index)
    if config.es.strategy == "openai-es":  # others' optimizers cannot change
        optimizer_state = change_optimizer(now.es, es.optimizer_state, es.mean)
        es = es._replace(optimizer_state=optimizer_state)
    is_alike = before.rollout.physics == now.rollout.physics
    if not is_alike or before.evaluation != now.evaluation:
        # Returns in other physics cannot be compared; and of many evaluations the best
        # is luckier, the fewer the episodes of each.
        state = state._replace(best_evaluation_return=-math.inf)
        if state.best_fitness != ():
            state = state._replace(best_fitness=-math.inf)
        if state.commands:
            commands = state.commands._replace(least_error=math.nan)
            state = state._replace(commands=commands)
    adapts = now.es.interactions_per_generation is not None
    return state._replace(
        es=es,
        num_pairs=now.es.num_pairs if adapts else (),
        phase=PhaseState(
            index, finished, state.total_env_steps, math.nan, math.nan, finished
        ),
    )


def follow(
    config: TrainConfig, parts: Parts, generation: Generation
) -> tuple[TrainState, list[str]]:
    """Returns the state after a generation, and what is to be said of its phase.

    Args:
        config: of the run, which has phases.
        parts: of the phase.
        generation: the last one.
    """
    state = generation.state
    told, now = generation.population, noticed(config, generation)
    state = state._replace(phase=now)
    said = f"Phase {now.index + 1} of {len(config.phases)}"
    why = ended(config, state, score(generation.evaluation.returns))
    if why:
        state = place(parts, enter_phase(config, state, now.index + 1))
        after = in_phase(config, now.index + 1)
        next_parts = dataclasses.replace(parts, config=after)
        state = state._replace(
            step_cap=next_step_cap(next_parts, told.lengths),
            num_pairs=next_num_pairs(after.es, told.lengths),
        )
        return state, [f"{said} ended: {why}.{_next(config, state)}"]
    if is_slow(config, state):
        state = enter_phase(config, restarted(parts, state), now.index)
        steps = state.total_env_steps - now.env_steps
        mean = significant(now.mean)
        why = f"the population's running mean is {mean} after {steps:,} steps"
        return place(parts, state), [f"{said} begins again with another θ: {why}."]
    return state, []


def _next(config: TrainConfig, state: TrainState) -> str:
    """Says which phase begins, if one does."""
    begun, count = state.phase.index, len(config.phases)
    if begun == count:
        return ""
    task = config.env.id + in_phase(config, begun).rollout.named_physics()
    return f" Phase {begun + 1} of {count} begins: {task}."


def is_slow(config: TrainConfig, state: TrainState) -> bool:
    """Returns whether the present phase should begin again."""
    phase, now = config.phases[state.phase.index], state.phase
    if phase.restart_below is None or phase.restart_steps is None:
        return False
    steps = state.total_env_steps - now.env_steps
    return steps >= phase.restart_steps and now.mean < phase.restart_below


def of_phase(
    parts: Parts,
    config: TrainConfig,
    state: TrainState,
    built: contextlib.ExitStack,
    check_stop: Callable[[], None],
) -> Parts:
    """Returns the parts of the state's phase: the given ones if they are, or new ones.

    Args:
        parts: the present ones.
        config: of the run, which has phases.
        state: says which phase.
        built: closes what was built here.
        check_stop: as :func:`~jax_es.training.parts.build`'s ``on_call``.
    """
    wanted = in_phase(config, state.phase.index)
    if dataclasses.replace(parts.config, phases=()) == wanted:
        return parts
    built.close()
    parts = build(wanted, check_stop, workers=parts.workers)
    built.callback(parts.close)
    return parts


def noticed(config: TrainConfig, generation: Generation) -> PhaseState:
    """Takes the population's mean return into the running mean."""
    before: PhaseState = generation.state.phase
    found, mean, best = generation.record.return_mean, before.mean, before.best
    finished = int(generation.state.es.generation)
    if math.isnan(mean):
        mean = found
    elif not math.isnan(found):  # no return of a generation may be finite
        mean += (found - mean) / min(finished - before.generation, GENERATIONS)
    gain = config.phases[before.index].plateau_gain
    is_better = math.isnan(best) or mean > best + gain * abs(best)
    if not is_better:
        return before._replace(mean=mean)
    return before._replace(mean=mean, best=mean, best_generation=finished)


def ended(config: TrainConfig, state: TrainState, found: float) -> str:
    """Says which end of the present phase is met; ``found`` is θ's evaluation."""
    phase, now = config.phases[state.phase.index], state.phase
    steps = state.total_env_steps - now.env_steps
    generations = int(state.es.generation) - now.generation
    since = int(state.es.generation) - now.best_generation
    length, enough = phase.plateau_generations, phase.return_reached
    if phase.env_steps is not None and steps >= phase.env_steps:
        return f"its environment steps are over, {steps:,}"
    if phase.generations is not None and generations >= phase.generations:
        return f"its generations are over, {generations}"
    if enough is not None and found >= enough:
        return f"an evaluation returned {significant(found)}, at least {enough:g}"
    is_low = phase.plateau_floor is not None and now.mean < phase.plateau_floor
    if length is None or since < length or is_low:
        return ""
    return (
        f"the running mean of the population's return, {significant(now.mean)}, was "
        f"{significant(now.best)} {since} generations before"
    )


def try_phases(config: TrainConfig) -> None:
    """Builds the parts of every phase, with one slot; ``ConfigError`` names it."""
    for index in range(len(config.phases)):
        with (
            naming(index + 1),
            contextlib.closing(build(in_phase(config, index), num_tasks=1)),
        ):
            pass
