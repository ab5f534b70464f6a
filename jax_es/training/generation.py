"""One generation: evaluate θ and its population, update θ.

Everything that a generation depends on is in :class:`TrainState`, and the same state
leads to the same next one, so a run that is cut off anywhere can repeat a generation.
"""

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_es.config import ESConfig
from jax_es.es.strategy import Behaviour
from jax_es.rollout.evaluator import EpisodeResults, RolloutProgress
from jax_es.rollout.observation_statistics import (
    ObservationStatistics,
    View,
    initial_statistics,
    merge,
    view_of,
)
from jax_es.rollout.random_play import reference_batch
from jax_es.rollout.tasks import Tasks
from jax_es.rollout.variations import varied
from jax_es.runs.records import GenerationRecord, return_statistics
from jax_es.train_config import TrainConfig
from jax_es.training.build import draw_weights, make_env
from jax_es.training.episodes import (
    evaluation_tasks,
    population_tasks,
    rollout_fields,
)
from jax_es.training.objective import (
    asked,
    command_errors,
    fitness,
    initial_commands,
    make_objective,
    next_commands,
    per_member,
    record_fields,
    score,
)
from jax_es.training.parts import Parts, reference_shape
from jax_es.types import PyTree, needs_reference


class TrainState(NamedTuple):
    """Everything that the next generation depends on; what a checkpoint holds."""

    es: PyTree
    """The strategy's own :class:`~jax_es.es.strategy.StrategyState`."""
    observation_statistics: ObservationStatistics
    """Sums over the observations seen so far."""
    step_cap: int
    """Environment steps after which the next generation cuts an episode."""
    total_env_steps: int
    """Environment steps taken so far, evaluation included."""
    best_evaluation_return: float
    """The highest mean evaluation return so far."""
    reference: PyTree = ()
    """``[R, …]``, the reference batch of a policy that needs one; ``()`` for others. It
    never changes."""
    num_pairs: PyTree = ()
    """Antithetic pairs of the next generation, where they follow the length of
    episodes; ``()`` where they are the configuration's."""
    commands: PyTree = ()
    """:class:`~jax_es.training.objective.CommandState` where episodes are asked for a
    return, else ``()``."""
    phase: PyTree = ()
    """:class:`~jax_es.training.phases.PhaseState` where the configuration has phases,
    else ``()``."""
    best_fitness: PyTree = ()
    """The highest mean fitness of θ's evaluations so far, where the objective is of the
    user's own, else ``()``."""
    critic: PyTree = ()
    """:class:`~jax_es.es.critic.CriticState` of a strategy that a critic guides, with
    its replay buffer, else ``()``; the checkpoint ``best`` has none."""


def initial_state(
    parts: Parts, mean: PyTree = None, reference: PyTree = None
) -> TrainState:
    """Returns the state before the first generation; the seed decides it.

    Args:
        parts: from :func:`~jax_es.training.parts.build`.
        mean: θ to begin with; drawn by the policy if not given.
        reference: the reference batch of a policy that needs one, ``()`` for others;
            gathered by random play if not given.
    """
    init_key, noise_key = _keys(parts)
    if mean is None:
        mean = draw_weights(parts.policy, init_key)
    if reference is None:
        reference = _reference(parts)
    es = parts.config.es
    observation_size = math.prod(parts.env.single_observation_space.shape)
    state = TrainState(
        es=parts.strategy.init(noise_key, mean),
        observation_statistics=initial_statistics(observation_size),
        step_cap=longest_episode(parts),
        total_env_steps=0,
        best_evaluation_return=-math.inf,
        reference=reference,
        num_pairs=() if es.interactions_per_generation is None else es.num_pairs,
        commands=initial_commands(es),
        best_fitness=() if parts.own_objective is None else -math.inf,
        critic=() if parts.guidance is None else parts.guidance.initial(),
    )
    return place(parts, state)


def restarted(parts: Parts, state: TrainState) -> TrainState:
    """Returns the state with another random θ, which seed and generation decide.

    What was observed, the counts and the best evaluation stay.
    """
    finished = state.es.generation
    init_key, noise_key = (
        jax.random.fold_in(key, int(finished)) for key in _keys(parts)
    )
    mean = draw_weights(parts.policy, init_key)
    return state._replace(
        es=parts.strategy.init(noise_key, mean)._replace(generation=finished),
        step_cap=longest_episode(parts),
        num_pairs=parts.config.es.num_pairs if state.num_pairs else (),
    )


def _keys(parts: Parts) -> jax.Array:
    """Returns the keys of the first θ and of the noise."""
    # The implementation is pinned: another one would change every number of a run.
    key = jax.random.key(parts.config.seed, impl="threefry2x32")
    return jax.random.split(key)


def template_state(parts: Parts) -> TrainState:
    """Returns a state with the shapes of the run's, for a checkpoint to fill in."""
    shapes = reference_shape(parts)
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return initial_state(parts, reference=blank)


def _reference(parts: Parts) -> PyTree:
    """Gathers the policy's reference batch, if it needs one."""
    config, policy = parts.config, parts.policy
    if not needs_reference(policy):
        return ()
    # Environments of their own: what is gathered must not depend on the slots.
    env = make_env(config.env, 8, config.rollout.num_threads)
    with contextlib.closing(env):
        return reference_batch(env, policy.reference_size, config.seed)


def place(parts: Parts, state: TrainState) -> TrainState:
    """Puts the state where later generations have it, so that none compiles again."""
    return state._replace(es=parts.devices.share(state.es))


class Generation(NamedTuple):
    """The outcome of one generation."""

    state: TrainState
    """What the next generation starts from."""
    best: TrainState | None
    """Before the update, if its mean had the best evaluation so far."""
    record: GenerationRecord
    """What is written down of it."""
    evaluation: EpisodeResults
    """Episodes of this generation's mean, before the update."""
    population: EpisodeResults
    """Episodes of the members."""
    fitness: np.ndarray
    """``[P]``, what the update saw."""
    info: Any
    """What ``tell`` reports."""


def run_generation(
    parts: Parts,
    state: TrainState,
    on_step: Callable[[RolloutProgress], None] = lambda progress: None,
    elapsed: Callable[[], float] = time.perf_counter,
) -> Generation:
    """Evaluates θ and its population, then updates θ.

    θ's own evaluation episodes share the rollout with the population's: alone they
    would leave nearly all slots idle.

    Args:
        parts: from :func:`~jax_es.training.parts.build`.
        state: from the generation before.
        on_step: called often; what it raises ends the generation.
        elapsed: seconds since the run began.
    """
    config = parts.config
    started = time.perf_counter()
    generation = int(state.es.generation)
    population = parts.strategy.ask(state.es)
    evaluation = mean_tasks(parts, state)
    # Further pairs are drawn like the population's own.
    size = 2 * state.num_pairs if state.num_pairs else population.size
    asks = asked(config.es, state.commands, generation)
    members = population_tasks(
        config, generation, state.step_cap, size, asks, parts.env
    )
    tasks = evaluation.followed_by(members)
    if parts.guidance is not None:
        tasks = parts.guidance.recording(tasks)
    result = parts.rollout.evaluate(population, tasks, view(config, state), on_step)
    num_episodes = config.evaluation.num_episodes
    evaluated = result.episodes(slice(None, num_episodes))
    told = result.episodes(slice(num_episodes, None))
    told_errors = command_errors(members, told.returns)
    told = told._replace(commands=members.command)
    objective = parts.own_objective or make_objective(config.es, asks)
    told_fitness = fitness(told, members.member, objective)
    judged = judge(parts, state, evaluation, evaluated)
    update_started = time.perf_counter()
    seen: tuple[Any, ...] = (told_fitness,)
    if getattr(parts.strategy, "descriptor_size", 0) > 0:
        seen += (behaviour(told, members.member, evaluated, judged),)
    es_state, info = jax.block_until_ready(parts.strategy.tell(state.es, *seen))
    new_state = judged.state._replace(
        es=es_state,
        observation_statistics=merge(state.observation_statistics, result.observations),
        step_cap=next_step_cap(parts, told.lengths),
        num_pairs=next_num_pairs(config.es, told.lengths),
        total_env_steps=state.total_env_steps + result.env_steps,
        commands=next_commands(config.es, judged.state.commands, told.returns),
    )
    new_state, of_critic = guided_by(parts, new_state, result)
    finished = time.perf_counter()
    seconds = {
        **result.seconds,
        "update": finished - update_started,
        "total": finished - started,
    }
    reported = info._asdict()
    reported.pop("num_nonfinite", None)  # of members, where the record counts episodes
    own = {**reported.pop("own", {}), **of_critic}
    record = GenerationRecord(
        generation=generation,
        phase=state.phase.index + 1 if state.phase else 0,
        total_env_steps=new_state.total_env_steps,
        fitness_mean=return_statistics(told_fitness).mean,
        evaluation_fitness=judged.fitness,
        step_cap=state.step_cap,
        best_evaluation_return=new_state.best_evaluation_return,
        **record_fields(asks, judged.state.commands, judged.error, told_errors),
        **reported,
        strategy=own,
        slot_utilization=result.slot_utilization,
        seconds_elapsed=elapsed(),
        **rollout_fields(told, evaluated, seconds),
    )
    # Nobody goes on from the best state: what it would learn by is left out.
    best = judged.state._replace(critic=()) if judged.is_best else None
    return Generation(new_state, best, record, evaluated, told, told_fitness, info)


def guided_by(
    parts: Parts, state: TrainState, results: EpisodeResults
) -> tuple[TrainState, dict[str, float]]:
    """Lets the critic learn, if there is one, and advise the strategy.

    Args:
        parts: of the run.
        state: after the update.
        results: of the generation that led to it.

    Returns:
        The state, and numbers of the critic's by name.
    """
    if parts.guidance is None:
        return state, {}
    strategy: Any = parts.strategy
    finished, seen = int(state.es.generation), view(parts.config, state)
    learned = parts.guidance.learn(
        *(state.critic, results, strategy.judged(state.es), seen, finished)
    )
    advice = parts.devices.share(learned.advice)
    es = jax.block_until_ready(strategy.guide(state.es, advice))
    numbers = {"critic_loss": learned.loss, "critic_value": learned.value}
    return state._replace(es=es, critic=learned.state), numbers


def view(config: TrainConfig, state: TrainState) -> View:
    """Returns how policies see observations."""
    return view_of(config, state.observation_statistics, state.reference)


def mean_tasks(parts: Parts, state: TrainState) -> Tasks:
    """Lists the evaluation episodes of a state's mean, with commands if it has some.

    None is varied.
    """
    config, generation = parts.config, int(state.es.generation)
    count, limit = config.evaluation.num_episodes, parts.env.max_episode_steps
    tasks = evaluation_tasks(config.seed, generation, count, limit)
    if config.rollout.variation_range:
        tasks = varied(tasks, parts.env)
    asks = asked(config.es, state.commands, generation)
    if asks is None:
        return tasks
    # Evenly spaced, the ends included.
    return tasks._replace(command=asks.on_range(np.linspace(0, 1, count)))


class Judged(NamedTuple):
    """What an evaluation of a state's mean says of it."""

    state: TrainState
    """The state, which now knows of the evaluation."""
    score: float
    """The mean return; −∞ if one is not finite."""
    is_best: bool
    """Whether no mean was better so far: by the score, by the error where returns are
    asked for, or by an objective of the user's own."""
    error: float
    """Of commanded returns; NaN without."""
    fitness: float = math.nan
    """The mean fitness by an objective of the user's own; −∞ if one is not finite."""


def judge(
    parts: Parts, state: TrainState, tasks: Tasks, episodes: EpisodeResults
) -> Judged:
    """Compares a state's mean with the best so far, by what its tasks came to.

    An objective of the user's own decides which is the best: a policy of the highest
    return need not be what it asks for.
    """
    returns = episodes.returns
    found, before = score(returns), state.best_evaluation_return
    judged = state._replace(best_evaluation_return=max(before, found))
    if parts.own_objective is not None:
        worth = score(np.asarray(parts.own_objective(episodes)))
        is_best = worth > state.best_fitness
        judged = judged._replace(best_fitness=max(state.best_fitness, worth))
        return Judged(judged, found, is_best, math.nan, worth)
    asks = asked(parts.config.es, state.commands, int(state.es.generation))
    errors = command_errors(tasks, returns)
    if asks is None or errors is None:
        return Judged(judged, found, found > before, math.nan)
    error, least = asks.error(errors), state.commands.least_error
    is_best = math.isnan(least) or error < least
    commands = state.commands._replace(least_error=error if is_best else least)
    return Judged(judged._replace(commands=commands), found, is_best, error)


def behaviour(
    results: EpisodeResults,
    member: np.ndarray,
    evaluation: EpisodeResults,
    judged: Judged,
) -> Behaviour:
    """Returns what members and θ did, each as the mean over its episodes."""
    columns = [per_member(column, member) for column in results.descriptors.T]
    members = np.stack(columns, axis=1)
    mean = evaluation.descriptors.mean(axis=0)
    worth = judged.score if math.isnan(judged.error) else -judged.error
    worth = worth if math.isnan(judged.fitness) else judged.fitness
    return Behaviour(members, mean, worth)


def next_num_pairs(config: ESConfig, lengths: np.ndarray) -> PyTree:
    """Returns how many pairs the next generation has, or ``()`` if always as many.

    The number is known before the generation begins, hence independent of its noise:
    the estimate stays unbiased, no slot waits for the decision, and nothing depends on
    scheduling.
    """
    if config.interactions_per_generation is None:
        return ()
    return config.pairs_after(float(np.mean(lengths)))


def longest_episode(parts: Parts) -> int:
    """Returns how many steps an episode of the population may have at most."""
    limit = parts.env.max_episode_steps
    return min(limit, parts.config.rollout.step_cap or limit)


def next_step_cap(parts: Parts, lengths: np.ndarray) -> int:
    """Returns the cap for the next generation: 2 × this one's mean length."""
    factor = parts.config.rollout.step_cap_factor
    limit = longest_episode(parts)
    if factor is None:
        return limit
    return min(limit, math.ceil(factor * float(np.mean(lengths))))
