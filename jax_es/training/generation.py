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
from jax_es.rollout.evaluator import EpisodeResults, RolloutProgress
from jax_es.rollout.observation_statistics import (
    ObservationStatistics,
    View,
    initial_statistics,
    merge,
    view_of,
)
from jax_es.rollout.random_play import reference_batch
from jax_es.rollout.tasks import Tasks, tasks_of_mean
from jax_es.runs.records import GenerationRecord, return_statistics
from jax_es.streams import Purpose, stream
from jax_es.train_config import TrainConfig
from jax_es.training.build import make_env
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
    # The implementation is pinned: another one would change every number of a run.
    init_key, noise_key = jax.random.split(
        jax.random.key(parts.config.seed, impl="threefry2x32")
    )
    if mean is None:
        mean = jax.jit(parts.policy.init)(init_key)
    if reference is None:
        reference = _reference(parts)
    es = parts.config.es
    observation_size = math.prod(parts.env.single_observation_space.shape)
    state = TrainState(
        es=parts.strategy.init(noise_key, mean),
        observation_statistics=initial_statistics(observation_size),
        step_cap=parts.env.max_episode_steps,
        total_env_steps=0,
        best_evaluation_return=-math.inf,
        reference=reference,
        num_pairs=() if es.interactions_per_generation is None else es.num_pairs,
    )
    return place(parts, state)


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
    evaluation: EpisodeResults
    """Episodes of this generation's mean, before the update."""
    population: EpisodeResults
    """Episodes of the members."""
    fitness: np.ndarray
    """``[P]``, what the update saw."""
    info: Any
    """What ``tell`` reports."""
    step_cap: int
    """The cap that the members' episodes had."""
    seconds: dict[str, float]
    """Wall-clock by ``"policy"``, ``"environment"``, ``"noise"``, ``"update"`` and
    ``"total"``."""
    slot_utilization: float
    """Live slot-steps / computed slot-steps."""
    is_best: bool
    """Whether this generation's mean had the highest evaluation so far."""


def run_generation(
    parts: Parts,
    state: TrainState,
    on_step: Callable[[RolloutProgress], None] = lambda progress: None,
) -> Generation:
    """Evaluates θ and its population, then updates θ.

    θ's own evaluation episodes share the rollout with the population's: alone they
    would leave nearly all slots idle.
    """
    config = parts.config
    started = time.perf_counter()
    generation = int(state.es.generation)
    population = parts.strategy.ask(state.es)
    evaluation = evaluation_tasks(
        config.seed,
        generation,
        config.evaluation.num_episodes,
        parts.env.max_episode_steps,
    )
    # Further pairs are drawn like the population's own.
    size = 2 * state.num_pairs if state.num_pairs else population.size
    members = population_tasks(config, generation, state.step_cap, size)
    result = parts.rollout.evaluate(
        population, evaluation.followed_by(members), view(config, state), on_step
    )
    num_episodes = config.evaluation.num_episodes
    evaluated = result.episodes(slice(None, num_episodes))
    told = result.episodes(slice(num_episodes, None))
    told_fitness = fitness(told, members.member, config.es)
    update_started = time.perf_counter()
    es_state, info = jax.block_until_ready(parts.strategy.tell(state.es, told_fitness))
    finished = time.perf_counter()
    return Generation(
        state=state._replace(
            es=es_state,
            observation_statistics=merge(
                state.observation_statistics, result.observations
            ),
            step_cap=next_step_cap(parts, told.lengths),
            num_pairs=next_num_pairs(config.es, told.lengths),
            total_env_steps=state.total_env_steps + result.env_steps,
            best_evaluation_return=max(
                state.best_evaluation_return, score(evaluated.returns)
            ),
        ),
        evaluation=evaluated,
        population=told,
        fitness=told_fitness,
        info=info,
        step_cap=state.step_cap,
        seconds={
            **result.seconds,
            "update": finished - update_started,
            "total": finished - started,
        },
        slot_utilization=result.slot_utilization,
        is_best=score(evaluated.returns) > state.best_evaluation_return,
    )


def view(config: TrainConfig, state: TrainState) -> View:
    """Returns how policies see observations."""
    return view_of(config, state.observation_statistics, state.reference)


def population_tasks(
    config: TrainConfig, generation: int, step_cap: int, size: int
) -> Tasks:
    """Lists a generation's episodes: ``[P/2, episodes per member, 2]``, flattened.

    Two successive members share their environment seed (common random numbers): an
    antithetic pair where there are pairs. The last of an odd number has no partner.

    Args:
        config: of the run.
        generation: which one.
        step_cap: the limit on each episode.
        size: P, the number of members.
    """
    episodes, num_pairs = config.es.episodes_per_member, -(-size // 2)
    rng = stream(config.seed, "population tasks", generation)
    groups = num_pairs if config.es.common_seeds == "pair" else 1
    seeds = rng.integers(2**31, size=(groups, episodes, 1), dtype=np.int32)
    members = np.arange(2 * num_pairs, dtype=np.int32).reshape(num_pairs, 1, 2)
    members, seeds = np.broadcast_arrays(members, seeds)
    exist = members < size
    total = size * episodes
    observed = np.zeros(total, bool)
    if config.rollout.observation_statistics:
        count = max(1, round(config.rollout.statistics_fraction * total))
        observed[rng.choice(total, count, replace=False)] = True
    return Tasks(
        member=members[exist],
        seed=seeds[exist],
        max_steps=np.full(total, step_cap, np.int32),
        observed=observed,
    )


def evaluation_tasks(
    seed: int,
    generation: int,
    num_episodes: int,
    max_steps: int,
    purpose: Purpose = "evaluation tasks",
) -> Tasks:
    """Lists episodes of the mean policy, on seeds of their own, never cut."""
    rng = stream(seed, purpose, generation)
    seeds = rng.integers(2**31, size=num_episodes, dtype=np.int32)
    return tasks_of_mean(seeds, max_steps)


def fitness(
    results: EpisodeResults, member: np.ndarray, config: ESConfig
) -> np.ndarray:
    """Returns the members' fitness ``[P]``: the mean over each one's episodes.

    An episode's is its return, less what its healthy reward does not count.

    Args:
        results: of the population's tasks.
        member: ``[E]``, whose episode each is.
        config: how the fitness is counted.
    """
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, and ranked worst like it
        omitted = (1.0 - config.healthy_reward_weight) * results.healthy_rewards
        sums = np.bincount(member, weights=results.returns - omitted)
    return sums / config.episodes_per_member


def next_num_pairs(config: ESConfig, lengths: np.ndarray) -> PyTree:
    """Returns how many pairs the next generation has, or ``()`` if always as many.

    So many blocks of ``num_pairs`` that episodes of the present mean length make at
    least ``interactions_per_generation``. The number is known before the generation
    begins, hence independent of its noise: the estimate stays unbiased, no slot waits
    for the decision, and nothing depends on scheduling.
    """
    if config.interactions_per_generation is None:
        return ()
    block = 2 * config.num_pairs * config.episodes_per_member * float(np.mean(lengths))
    most = config.most_pairs // config.num_pairs
    blocks = min(most, math.ceil(config.interactions_per_generation / block))
    return blocks * config.num_pairs


def score(returns: np.ndarray) -> float:
    """Returns the mean return; one that is not finite is below every other."""
    finite = np.isfinite(returns).all()
    return float(np.mean(returns)) if finite else -math.inf


def next_step_cap(parts: Parts, lengths: np.ndarray) -> int:
    """Returns the cap for the next generation: 2 × this one's mean length."""
    factor = parts.config.rollout.step_cap_factor
    limit = parts.env.max_episode_steps
    if factor is None:
        return limit
    return min(limit, math.ceil(factor * float(np.mean(lengths))))


def generation_record(generation: Generation, elapsed: float) -> GenerationRecord:
    """Summarises a generation for people and plots.

    Args:
        generation: the outcome.
        elapsed: seconds since the run began.
    """
    population, evaluation = generation.population, generation.evaluation
    returns = return_statistics(population.returns)
    evaluated = return_statistics(evaluation.returns)
    env_steps = population.env_steps + evaluation.env_steps
    seconds = generation.seconds
    other = seconds["total"] - sum(v for k, v in seconds.items() if k != "total")
    return GenerationRecord(
        generation=int(generation.state.es.generation) - 1,
        env_steps=env_steps,
        total_env_steps=generation.state.total_env_steps,
        num_episodes=len(population.returns),
        return_mean=returns.mean,
        return_std=returns.std,
        return_min=returns.min,
        return_max=returns.max,
        return_p2_5=returns.p2_5,
        return_p97_5=returns.p97_5,
        fitness_mean=return_statistics(generation.fitness).mean,
        num_nonfinite=returns.num_nonfinite,
        num_failed=int(population.failed.sum()),
        episode_length_mean=float(population.lengths.mean()),
        episode_length_max=int(population.lengths.max()),
        step_cap=generation.step_cap,
        evaluation_return_mean=evaluated.mean,
        evaluation_return_std=evaluated.std,
        evaluation_return_min=evaluated.min,
        evaluation_return_max=evaluated.max,
        evaluation_num_nonfinite=evaluated.num_nonfinite,
        evaluation_length_mean=float(evaluation.lengths.mean()),
        best_evaluation_return=generation.state.best_evaluation_return,
        gradient_norm=float(getattr(generation.info, "gradient_norm", math.nan)),
        update_norm=float(generation.info.update_norm),
        mean_norm=float(generation.info.mean_norm),
        slot_utilization=generation.slot_utilization,
        seconds_policy=seconds["policy"],
        seconds_environment=seconds["environment"],
        seconds_noise=seconds["noise"],
        seconds_update=seconds["update"],
        seconds_other=other,
        seconds_total=seconds["total"],
        env_steps_per_second=env_steps / seconds["total"],
        seconds_elapsed=elapsed,
    )
