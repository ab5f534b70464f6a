"""From a configuration to the running parts of a training, or of an evaluation."""

import contextlib
import dataclasses
import typing
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jax_es.checks import require
from jax_es.config import ESTIMATING
from jax_es.distributed.sharded import ShardedEvaluator, unpacked
from jax_es.distributed.workers import Workers
from jax_es.es.noise import Noise
from jax_es.es.novelty import novelty_options, novelty_search
from jax_es.es.openai_es import WeightedSum, openai_es
from jax_es.es.optimizers import make_optimizer
from jax_es.es.population import MeanPopulation, Population
from jax_es.es.strategy import Strategy
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import Rollout
from jax_es.rollout.evaluator import EpisodeResults, Evaluator
from jax_es.rollout.memory import (
    ENV_BYTES,
    TASK_BYTES,
    check_memory,
    largest,
    num_bytes,
)
from jax_es.rollout.observation_statistics import hidden_entries
from jax_es.rollout.tasks import Tasks
from jax_es.rollout.weighted_sum import spread_weighted_sum
from jax_es.train_config import TrainConfig, policy_kind
from jax_es.training.build import (
    make_devices,
    make_env,
    make_noise,
    make_policy,
    slot_groups,
)
from jax_es.training.objective import check_hears
from jax_es.training.shards import block_size, shard_size
from jax_es.types import Policy, PyTree, VectorEnv, needs_reference


@dataclasses.dataclass(frozen=True)
class EvaluationParts:
    """What evaluates the policies of a configuration."""

    config: TrainConfig
    devices: Devices
    envs: tuple[VectorEnv, ...]
    """One for each group of slots, all alike."""
    policy: Policy
    rollout: Evaluator
    workers: Workers | None = None
    """Who evaluates, if not this process."""

    @property
    def env(self) -> VectorEnv:
        """One of the vector environments."""
        return self.envs[0]

    @property
    def num_slots(self) -> int:
        """S, over all groups."""
        return sum(env.num_envs for env in self.envs)

    def close(self) -> None:
        """Releases the environments; also the rest of them if one raises."""
        with contextlib.ExitStack() as stack:
            for env in self.envs:
                stack.callback(env.close)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts(EvaluationParts):
    """What trains a configuration."""

    strategy: Strategy


def build(
    config: TrainConfig,
    on_call: Callable[[], None] = lambda: None,
    num_tasks: int | None = None,
    workers: Workers | None = None,
) -> Parts:
    """Builds the parts of a training run.

    Args:
        config: the run.
        on_call: called now and then during the update, to notice a stop signal.
        num_tasks: the most episodes of an evaluation; a generation's if not given.
            There are no more slots than that.
        workers: who evaluates and sums the noise; this process if not given.

    Raises:
        ConfigError: (a ``ValueError``) if the parts do not fit together.
    """
    if workers is not None:
        num_tasks = 1  # here, only spaces and shapes are read
    es, num_episodes = config.es, config.evaluation.num_episodes
    num_members = 2 * es.most_pairs * es.episodes_per_member
    source = (
        f"es.num_pairs {es.num_pairs}"
        if es.most_pairs == es.num_pairs
        else f"es.interactions_per_generation {es.interactions_per_generation}"
    )
    needs = {
        f"{source} with es.episodes_per_member {es.episodes_per_member}": num_members,
        f"evaluation.num_episodes {num_episodes}": num_episodes,
    }
    needs = {name: TASK_BYTES * count for name, count in needs.items()}
    with contextlib.ExitStack() as stack:
        parts = _build(config, num_tasks or num_members + num_episodes, needs, stack)
        require(
            es.healthy_reward_weight == 1
            or getattr(parts.env, "pays_healthy_reward", False),
            f"es.healthy_reward_weight must be 1, got {es.healthy_reward_weight}: "
            f"{config.env.id} does not say what it pays for staying healthy.",
        )
        check_hears(es, parts.policy, policy_kind(config.policy))
        here, evaluator = parts, None
        if workers is not None:
            parts, evaluator = _on_workers(
                parts, workers, config.rollout.shard_size or 1
            )
        strategy = make_strategy(parts, on_call, evaluator)
        state = _shape(lambda key: strategy.init(key, parts.policy.init(key)))
        _check_fits(here, state, jax.eval_shape(strategy.ask, state), workers)
        stack.pop_all()
    return Parts(**vars(parts), strategy=strategy)


def make_strategy(
    parts: EvaluationParts,
    on_call: Callable[[], None] = lambda: None,
    evaluator: ShardedEvaluator | None = None,
) -> Strategy:
    """Builds the strategy; rejects one that cannot fit into the devices' memory.

    Args:
        parts: from :func:`build_evaluation`, or those of a training.
        on_call: called now and then during the update, to notice a stop signal.
        evaluator: which workers sum the noise; this process if not given.
    """
    es, devices = parts.config.es, parts.devices
    if es.strategy in ESTIMATING:
        noise = make_noise(es)
        weighted_sum = (
            spread_weighted_sum(noise, devices, on_call, es.num_pairs)
            if evaluator is None
            else evaluator.weighted_sum(block_size(es), on_call)
        )
        if es.strategy == "openai-es":
            return openai_es(es, noise, weighted_sum)
        return _novelty_search(parts, noise, weighted_sum)
    # Late: it loads evosax.
    from jax_es.es.strategies import memory_needs, named_strategy

    mean = _shape(parts.policy.init)
    num_weights = sum(leaf.size for leaf in jax.tree.leaves(mean))
    for what, (need, remedy) in memory_needs(es, num_weights).items():
        check_memory({what: devices.count * need}, devices.memory, remedy)
    return named_strategy(
        es, jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), mean)
    )


def _novelty_search(
    parts: EvaluationParts, noise: Noise, weighted_sum: WeightedSum
) -> Strategy:
    """Builds novelty search; its other parents are drawn, unless a run is gone on from.

    Raises:
        ConfigError: if episodes have no descriptors, or parents no room.
    """
    config, devices = parts.config, parts.devices
    size = getattr(parts.env, "descriptor_size", 0)
    given = " ".join(("env.descriptor", *config.env.descriptor))
    require(
        size > 0,
        f"es.strategy novelty compares what episodes did, and {config.env.id} has no "
        f"{given}; add --env.descriptor position for a walker, or the indices of "
        "numbers in an observation, such as --env.descriptor 0 1.",
    )
    options, weights = novelty_options(config.es.kwargs), _shape(parts.policy.init)
    optimizer = jax.eval_shape(make_optimizer(config.es).init, weights)
    parent = num_bytes((weights, optimizer))
    # Two copies while the state is updated, on every device.
    needs = {
        f"es.kwargs.{name} {count}": devices.count * 2 * count * each
        for name, count, each in (
            ("parents", options.parents, parent),
            ("archive_size", options.archive_size, 4 * size),
        )
    }
    check_memory(needs, devices.memory)
    draw = parts.policy.init if config.init is None else None
    return novelty_search(config.es, size, noise, weighted_sum, draw)


def build_evaluation(
    config: TrainConfig,
    num_tasks: int,
    population_of: Callable[[PyTree], Population] = MeanPopulation,
    workers: Workers | None = None,
) -> EvaluationParts:
    """Builds what evaluates a configuration's mean policy; no strategy, no optimizer.

    Args:
        config: of the run.
        num_tasks: the most episodes of an evaluation; there are no more slots.
        population_of: what will be evaluated, as a function of θ, to tell its size.
        workers: who evaluates; this process if not given.

    Raises:
        ConfigError: (a ``ValueError``) if the parts do not fit together.
    """
    with contextlib.ExitStack() as stack:
        parts = _build(config, num_tasks, {}, stack)
        mean = _shape(parts.policy.init)
        _check_fits(parts, mean, jax.eval_shape(population_of, mean))
        if workers is not None:
            size = shard_size(config, num_tasks)
            parts, _ = _on_workers(parts, workers, size)
        stack.pop_all()
    return parts


def _build(
    config: TrainConfig,
    num_tasks: int,
    needs: dict[str, int],
    stack: contextlib.ExitStack,
) -> EvaluationParts:
    """Builds environments, which ``stack`` closes, and the rollout."""
    devices = make_devices(config.rollout)
    groups = slot_groups(config.rollout, num_tasks, devices)
    slots = {f"rollout.num_slots {sum(groups)}": ENV_BYTES * sum(groups)}
    check_memory(needs | slots)
    threads, mode = config.rollout.num_threads, config.rollout.vectorization_mode
    envs = tuple(
        stack.enter_context(
            contextlib.closing(make_env(config.env, size, threads, mode))
        )
        for size in groups
    )
    observation_space = envs[0].single_observation_space
    hidden_entries(config.env.hide_observation, observation_space.shape)  # checks them
    policy = make_policy(config.policy, observation_space, envs[0].single_action_space)
    rollout = Rollout(policy, envs, devices)
    return EvaluationParts(config, devices, envs, policy, rollout)


def _shape(init: Callable[[jax.Array], PyTree]) -> PyTree:
    """Returns the shapes of what a key leads to."""
    return jax.eval_shape(lambda: init(jax.random.key(0, impl="threefry2x32")))


def _check_fits(
    parts: EvaluationParts,
    state: PyTree,
    population: Population,
    workers: Workers | None = None,
) -> None:
    """Rejects policies, or slots of them, that do not fit into the devices' memory.

    Args:
        parts: whose policy and slots, in this process.
        state: shapes of the strategy's state.
        population: shapes of one generation's.
        workers: who evaluates; a machine with as many of them as others, and with this
            process, must hold them all.

    Raises:
        ConfigError: naming what would have to be smaller.
    """
    config, devices = parts.config, parts.devices
    carry = jax.eval_shape(parts.policy.initial_carry)
    reference = reference_shape(parts)
    # Of the state there are two copies while it is updated, on every device.
    shared = num_bytes(population) + 8 * num_bytes(reference)
    copies = devices.count * (2 * num_bytes(state) + shared)
    slots, whose, there = parts.num_slots, "", 1
    if workers is not None:
        status = workers.status()
        there = -(-status.workers // max(1, status.nodes))
        copies += (there + 2) * shared  # sent as a copy, of which Ray has another
        slots = min(config.rollout.slots_on(1), config.rollout.shard_size or 1)
        whose = f" on each of {there} workers"
    sizes = {f"policy.{name}": value for name, value in vars(config.policy).items()}
    many = f"rollout.num_slots {slots}{whose}, each with weights of its own,"
    rollout = typing.cast(Rollout, parts.rollout)
    slot_bytes = ENV_BYTES + rollout.slot_bytes(population, reference)
    needs = {
        largest(sizes): copies + num_bytes(carry),
        many: slot_bytes * slots * there,
    }
    check_memory(needs, devices.memory)


def reference_shape(parts: EvaluationParts) -> Any:
    """Returns shape and type of the reference batch, ``()`` if there is none."""
    policy, space = parts.policy, parts.env.single_observation_space
    if not needs_reference(policy):
        return ()
    shape = (policy.reference_size, *space.shape)
    return jax.ShapeDtypeStruct(shape, space.dtype)


def _on_workers(
    parts: EvaluationParts, workers: Workers, size: int
) -> tuple[EvaluationParts, ShardedEvaluator]:
    """Lets workers evaluate, in shards of a size; returns their evaluator, too."""
    recipe = EngineRecipe(parts.config, size)
    workers.use(recipe)
    evaluator = ShardedEvaluator(workers, recipe, size)
    return dataclasses.replace(parts, rollout=evaluator, workers=workers), evaluator


@dataclasses.dataclass(frozen=True)
class EngineRecipe:
    """Makes a worker's engine; what is sent to workers."""

    config: TrainConfig
    """Of the run."""
    num_tasks: int
    """Of a shard."""

    def __call__(self) -> "WorkerEngine":
        """Returns the engine."""
        return WorkerEngine(self.config, self.num_tasks)


class WorkerEngine:
    """What a worker holds: slots on one device, stepped by one thread.

    Args:
        config: the run; devices and threads are a worker's own.
        num_tasks: of a shard.

    Attributes:
        parts: what evaluates.
    """

    def __init__(self, config: TrainConfig, num_tasks: int) -> None:
        rollout = dataclasses.replace(config.rollout, num_devices=1, num_threads=1)
        config = dataclasses.replace(config, rollout=rollout)
        self.parts = build_evaluation(config, num_tasks)
        self._sum = spread_weighted_sum(
            make_noise(config.es), self.parts.devices, block=block_size(config.es)
        )
        self.close = self.parts.close

    def evaluate(self, shared: PyTree, tasks: Tasks) -> EpisodeResults:
        """Runs a shard; ``shared`` is population and view."""
        population, view = unpacked(shared)
        return self.parts.rollout.evaluate(population, tasks, view)

    def weighted_sum(self, shared: PyTree, first: int, weights: np.ndarray) -> PyTree:
        """Returns Σᵢ wᵢ εᵢ of a block that begins with pair ``first``."""
        key, mean = unpacked(shared)
        return jax.device_get(self._sum(key, weights, mean, first))
