"""One generation: evaluate θ and its population, update θ.

Everything that a generation depends on is in :class:`TrainState`, and the same state
leads to the same next one, so a run that is cut off anywhere can repeat a generation.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_es.config import ConfigError, ESConfig, require
from jax_es.es.openai_es import ESInfo, ESState, OpenAIES, openai_es
from jax_es.rollout.devices import Devices, spread_weighted_sum
from jax_es.rollout.engine import Rollout, RolloutProgress, RolloutResult
from jax_es.rollout.memory import (
    ENV_BYTES,
    TASK_BYTES,
    check_memory,
    largest,
    num_bytes,
)
from jax_es.rollout.observation_statistics import (
    ObservationStatistics,
    initial_statistics,
    merge,
)
from jax_es.rollout.random_play import reference_batch
from jax_es.rollout.tasks import IDLE, Tasks
from jax_es.streams import Purpose, stream
from jax_es.training.build import (
    TrainConfig,
    make_devices,
    make_env,
    make_noise,
    make_policy,
    slot_groups,
)
from jax_es.types import Policy, PyTree, VectorEnv, needs_reference


class TrainState(NamedTuple):
    """Everything that the next generation depends on; what a checkpoint holds.

    Attributes:
        es: mean, optimizer state, generation and key.
        observation_statistics: sums over the observations seen so far.
        step_cap: environment steps after which the next generation cuts an episode.
        total_env_steps: environment steps taken so far, evaluation included.
        best_evaluation_return: the highest mean evaluation return so far.
        reference: ``[R, …]``, the reference batch of a policy that needs one; ``()``
            for others. It never changes.
        num_pairs: antithetic pairs of the next generation, where they follow the
            length of episodes; ``()`` where they are the configuration's.
    """

    es: ESState
    observation_statistics: ObservationStatistics
    step_cap: int
    total_env_steps: int
    best_evaluation_return: float
    reference: PyTree = ()
    num_pairs: PyTree = ()


class Parts(NamedTuple):
    """The running parts that a configuration describes."""

    config: TrainConfig
    devices: Devices
    envs: tuple[VectorEnv, ...]
    policy: Policy
    rollout: Rollout
    es: OpenAIES

    @property
    def env(self) -> VectorEnv:
        """One of the vector environments, which are all alike."""
        return self.envs[0]

    @property
    def num_slots(self) -> int:
        """S, over all groups."""
        return sum(env.num_envs for env in self.envs)

    def close(self) -> None:
        """Releases the environments."""
        for env in self.envs:
            env.close()


def build(
    config: TrainConfig,
    on_call: Callable[[], None] = lambda: None,
    num_tasks: int | None = None,
) -> Parts:
    """Builds the parts of a training run.

    Args:
        config: the run.
        on_call: called now and then during the update, to notice a stop signal.
        num_tasks: the most episodes of a rollout; a generation's if not given. There
            are no more slots than that.

    Raises:
        ConfigError: (a ``ValueError``) if the parts do not fit together.
    """
    devices = make_devices(config.rollout)
    if num_tasks is None:
        members = 2 * config.es.most_pairs
        num_tasks = members * config.es.episodes_per_member
        num_tasks += config.evaluation.num_episodes
    groups = slot_groups(config.rollout, num_tasks, devices)
    needs = _memory_of_episodes(config, sum(groups))
    check_memory(needs)
    threads, mode = config.rollout.num_threads, config.rollout.vectorization_mode
    envs = tuple(make_env(config.env, size, threads, mode) for size in groups)
    policy = make_policy(
        config.policy, envs[0].single_observation_space, envs[0].single_action_space
    )
    noise = make_noise(config.es)
    if config.es.healthy_reward_weight != 1:
        require(
            getattr(envs[0], "pays_healthy_reward", False),
            f"es.healthy_reward_weight must be 1, got "
            f"{config.es.healthy_reward_weight}: {config.env.id} does not say what it "
            "pays for staying healthy.",
        )
    rollout = Rollout(
        policy,
        noise,
        envs,
        devices,
        config.rollout.std_floor,
        config.rollout.observation_clip,
    )
    es = openai_es(
        config.es,
        noise,
        spread_weighted_sum(noise, devices, on_call, config.es.num_pairs),
    )
    parts = Parts(config, devices, envs, policy, rollout, es)
    try:
        _check_weights_fit(parts, needs)
    except ConfigError:
        parts.close()
        raise
    return parts


def _memory_of_episodes(config: TrainConfig, num_slots: int) -> dict[str, int]:
    """Estimates what the host needs for a generation, by argument; in bytes."""
    es, num_episodes = config.es, config.evaluation.num_episodes
    members = f"es.num_pairs {es.num_pairs}"
    if es.most_pairs > es.num_pairs:
        members = f"es.interactions_per_generation {es.interactions_per_generation}"
    if es.episodes_per_member > 1:
        members += f" with es.episodes_per_member {es.episodes_per_member}"
    return {
        members: TASK_BYTES * 2 * es.most_pairs * es.episodes_per_member,
        f"evaluation.num_episodes {num_episodes}": TASK_BYTES * num_episodes,
        f"rollout.num_slots {num_slots}": ENV_BYTES * num_slots,
    }


def _check_weights_fit(parts: Parts, needs: dict[str, int]) -> None:
    """Refuses policies, or slots of them, that do not fit beside other ``needs``.

    Raises:
        ConfigError: naming what would have to be smaller.
    """
    config, policy, devices = parts.config, parts.policy, parts.devices
    key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    state = jax.eval_shape(lambda key: parts.es.init(key, policy.init(key)), key)
    carry, reference = jax.eval_shape(policy.initial_carry), _reference_shape(parts)
    # Of the state there are two copies while it is updated, on every device.
    shared = 2 * devices.count * (num_bytes(state) + 4 * num_bytes(reference))
    sizes = {f"policy.{name}": value for name, value in vars(config.policy).items()}
    needs = needs | {largest(sizes): shared + num_bytes(carry)}
    check_memory(needs, devices.memory)
    slot = parts.rollout.slot_bytes(jax.eval_shape(parts.es.ask, state), reference)
    many = f"rollout.num_slots {parts.num_slots}, each with weights of its own,"
    check_memory(
        needs
        | {f"es.rank {config.es.rank}": slot * (config.es.perturbation == "low-rank")}
        | {many: slot * parts.num_slots},
        devices.memory,
    )


def initial_state(parts: Parts, is_template: bool = False) -> TrainState:
    """Returns the state before the first generation; the seed decides it.

    Args:
        parts: from :func:`build`.
        is_template: leave a reference batch empty, since it will be replaced.
    """
    # The implementation is pinned: another one would change every number of a run.
    init_key, noise_key = jax.random.split(
        jax.random.key(parts.config.seed, impl="threefry2x32")
    )
    state = TrainState(
        es=parts.es.init(noise_key, jax.jit(parts.policy.init)(init_key)),
        observation_statistics=initial_statistics(
            math.prod(parts.env.single_observation_space.shape)
        ),
        step_cap=parts.env.max_episode_steps,
        total_env_steps=0,
        best_evaluation_return=-math.inf,
        reference=_reference(parts, is_template),
        num_pairs=(
            ()
            if parts.config.es.interactions_per_generation is None
            else parts.config.es.num_pairs
        ),
    )
    return place(parts, state)


def _reference(parts: Parts, is_template: bool) -> PyTree:
    """Gathers the policy's reference batch, if it needs one."""
    config, policy = parts.config, parts.policy
    if not needs_reference(policy):
        return ()
    if is_template:
        shape = _reference_shape(parts)
        return np.zeros(shape.shape, shape.dtype)
    # Environments of their own: what is gathered must not depend on the slots.
    env = make_env(config.env, 8, config.rollout.num_threads)
    try:
        return reference_batch(env, policy.reference_size, config.seed)
    finally:
        env.close()


def _reference_shape(parts: Parts) -> Any:
    """Returns shape and type of the reference batch, if the policy needs one."""
    policy, space = parts.policy, parts.env.single_observation_space
    if not needs_reference(policy):
        return ()
    shape = (policy.reference_size, *space.shape)
    return jax.ShapeDtypeStruct(shape, space.dtype)


def place(parts: Parts, state: TrainState) -> TrainState:
    """Puts the state where later generations have it, so that none compiles anew."""
    return state._replace(es=parts.devices.share(state.es))


class Generation(NamedTuple):
    """The outcome of one generation.

    Attributes:
        state: what the next generation starts from.
        evaluation: episodes of this generation's mean, before the update.
        population: episodes of the members.
        fitness: ``[N, 2]``, what the update saw.
        info: what ``tell`` reports.
        step_cap: the cap that the members' episodes had.
        seconds: wall-clock by ``"policy"``, ``"environment"``, ``"noise"``,
            ``"update"`` and ``"total"``.
        slot_utilization: live slot-steps / computed slot-steps.
        is_best: whether this generation's mean had the highest evaluation so far.
    """

    state: TrainState
    evaluation: RolloutResult
    population: RolloutResult
    fitness: np.ndarray
    info: ESInfo
    step_cap: int
    seconds: dict[str, float]
    slot_utilization: float
    is_best: bool


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
    population = parts.es.ask(state.es)
    evaluation = evaluation_tasks(
        config.seed,
        generation,
        config.evaluation.num_episodes,
        parts.env.max_episode_steps,
    )
    members = population_tasks(
        config, generation, state.step_cap, state.num_pairs or None
    )
    result = parts.rollout.run(
        population,
        Tasks(*(np.concatenate(f) for f in zip(evaluation, members, strict=True))),
        used_statistics(config, state),
        state.reference,
        on_step,
    )
    evaluated, told = split(result, config.evaluation.num_episodes)
    told_fitness = fitness(told, config.es)
    update_started = time.perf_counter()
    es_state, info = jax.block_until_ready(parts.es.tell(state.es, told_fitness))
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


def used_statistics(
    config: TrainConfig, state: TrainState
) -> ObservationStatistics | None:
    """Returns the statistics that policies see observations through, if any."""
    return (
        state.observation_statistics if config.rollout.observation_statistics else None
    )


def population_tasks(
    config: TrainConfig, generation: int, step_cap: int, num_pairs: int | None = None
) -> Tasks:
    """Lists a generation's episodes: ``[N, episodes per member, 2]``, flattened.

    The two signs of a pair share their environment seed (common random numbers).
    """
    num_pairs = num_pairs or config.es.num_pairs
    episodes = config.es.episodes_per_member
    rng = stream(config.seed, "population tasks", generation)
    groups = num_pairs if config.es.common_seeds == "pair" else 1
    seeds = rng.integers(2**31, size=(groups, episodes), dtype=np.int32)
    seeds = np.broadcast_to(seeds, (num_pairs, episodes))
    total = 2 * num_pairs * episodes
    observed = np.zeros(total, bool)
    if config.rollout.observation_statistics:
        count = max(1, round(config.rollout.statistics_fraction * total))
        observed[rng.choice(total, count, replace=False)] = True
    return Tasks(
        pair=np.repeat(np.arange(num_pairs, dtype=np.int32), 2 * episodes),
        sign=np.tile(np.array([1, -1], np.float32), num_pairs * episodes),
        seed=np.repeat(seeds.ravel(), 2),
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
    return Tasks(
        pair=np.full(num_episodes, IDLE, np.int32),
        sign=np.zeros(num_episodes, np.float32),
        seed=rng.integers(2**31, size=num_episodes, dtype=np.int32),
        max_steps=np.full(num_episodes, max_steps, np.int32),
        observed=np.zeros(num_episodes, bool),
    )


def split(result: RolloutResult, at: int) -> tuple[RolloutResult, RolloutResult]:
    """Splits the episodes of a result in two."""

    def part(episodes: slice) -> RolloutResult:
        lengths = result.lengths[episodes]
        return result._replace(
            returns=result.returns[episodes],
            lengths=lengths,
            failed=result.failed[episodes],
            healthy_rewards=result.healthy_rewards[episodes],
            env_steps=int(lengths.sum()),
        )

    return part(slice(None, at)), part(slice(at, None))


def fitness(population: RolloutResult, config: ESConfig) -> np.ndarray:
    """Returns the members' fitness ``[N, 2]``: the mean over each one's episodes.

    An episode's is its return, less what its healthy reward does not count.
    """
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, and ranked worst like it
        omitted = (1.0 - config.healthy_reward_weight) * population.healthy_rewards
        episodes = (population.returns - omitted).reshape(
            -1, config.episodes_per_member, 2
        )
        return episodes.mean(axis=1)


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
