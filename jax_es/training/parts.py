"""From a configuration to the running parts of a training, or of an evaluation."""

import contextlib
import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from jax_es.checks import is_own, require
from jax_es.config import ESTIMATING
from jax_es.distributed.sharded import ShardedEvaluator
from jax_es.distributed.workers import Workers
from jax_es.es.guided import guided
from jax_es.es.noise import make_noise
from jax_es.es.novelty import novelty_search
from jax_es.es.openai_es import openai_es
from jax_es.es.population import MeanPopulation, Population
from jax_es.es.strategy import FollowingFunctions, Strategy
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import Rollout
from jax_es.rollout.evaluator import NOTHING, EpisodeResults, Evaluator, Reported
from jax_es.rollout.jax_engine import CompiledEnv, JaxRollout
from jax_es.rollout.memory import ENV_BYTES, TASK_BYTES, check_memory, num_bytes
from jax_es.rollout.observation_statistics import hidden_entries
from jax_es.rollout.slots import SlotPrograms, kept_programs
from jax_es.rollout.tasks import Tasks
from jax_es.rollout.variations import RANGE_OPTION, check_begins, corners
from jax_es.rollout.weighted_sum import spread_weighted_sum
from jax_es.runs.trust import give, given, remember
from jax_es.train_config import TrainConfig, policy_kind
from jax_es.training.build import (
    is_ours,
    make_devices,
    make_env,
    make_policy,
    slot_groups,
)
from jax_es.training.custom import (
    ask_for,
    make_own_objective,
    make_own_strategy,
    tried,
)
from jax_es.training.guidance import Guidance, make_guidance
from jax_es.training.objective import Objective, reported_for
from jax_es.training.shards import block_size, on_one_core, shard_size
from jax_es.training.trained_mean import check_asked
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
    own_objective: Objective | None = None
    """The user's own; None where what counts is one of ours."""
    guidance: Guidance | None = None
    """What shows the strategy the way, if it is one that follows."""


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
    name = "num_pairs" if es.most_pairs == es.num_pairs else "max_num_pairs"
    what = f"es.{name} {es.most_pairs} with es.episodes_per_member"
    check_memory(
        {
            f"{what} {es.episodes_per_member}": TASK_BYTES * num_members,
            f"evaluation.num_episodes {num_episodes}": TASK_BYTES * num_episodes,
        }
    )
    with contextlib.ExitStack() as stack:
        own = make_own_objective(es) if is_own(es.objective) else None
        count = num_tasks or num_members + num_episodes
        reported = reported_for(es)
        parts = _build(config, count, stack, reported)
        require(
            es.healthy_reward_weight == 1
            or getattr(parts.env, "pays_healthy_reward", False),
            f"es.healthy_reward_weight must be 1, got {es.healthy_reward_weight}: "
            f"{_task(config)} does not say what it pays for staying healthy; add "
            "es.healthy_reward_weight 1.",
        )
        require(
            es.control_cost_weight == 1 or hasattr(parts.env, "report"),
            f"es.control_cost_weight must be 1, got {es.control_cost_weight}: "
            f"{_task(config)} does not say what acting costs; add "
            "es.control_cost_weight 1.",
        )
        if es.is_commanded:
            check_asked(parts.policy, config)
        evaluator = None
        require(
            workers is None or not isinstance(parts.env, CompiledEnv),
            f"--workers: {config.env.id} is written in JAX and runs on this process's "
            "devices; leave --workers out.",
        )
        if workers is not None:
            size = config.rollout.shard_size or 1
            evaluator = _sharded(config, workers, size, reported)
        strategy = make_strategy(parts, on_call, evaluator)
        if is_own(es.strategy):
            state, population = tried(es.strategy, strategy, parts.policy.init)
        else:
            state = _shape(lambda key: strategy.init(key, parts.policy.init(key)))
            population = jax.eval_shape(strategy.ask, state)
        _check_fits(parts, state, population)
        guidance = None
        if isinstance(strategy, FollowingFunctions):
            guidance = make_guidance(
                *(config, parts.policy, parts.env, strategy.options),
                has_workers=workers is not None,
                on_call=on_call,
            )
        if evaluator is not None:
            parts = dataclasses.replace(parts, rollout=evaluator, workers=workers)
        stack.pop_all()
    return Parts(**vars(parts), strategy=strategy, own_objective=own, guidance=guidance)


def _task(config: TrainConfig) -> str:
    """Names an environment, and what takes the reward's parts away from it."""
    env = config.env
    wrappers = f"env.wrappers {' '.join(env.wrappers)}" if env.wrappers else ""
    kwargs = [f"env.kwargs.{name} {value}" for name, value in env.kwargs.items()]
    return " with ".join([env.id, *filter(None, [wrappers]), *kwargs])


def make_strategy(
    parts: EvaluationParts,
    on_call: Callable[[], None] = lambda: None,
    evaluator: ShardedEvaluator | None = None,
) -> Strategy:
    """Builds the strategy.

    Args:
        parts: from :func:`build_evaluation`, or those of a training.
        on_call: as :func:`build`'s.
        evaluator: which workers sum the noise; this process if not given.
    """
    es, size = parts.config.es, getattr(parts.env, "descriptor_size", 0)
    if es.strategy not in ESTIMATING:
        shapes = _shape(parts.policy.init)
        mean = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        if is_own(es.strategy):
            return make_own_strategy(es, mean, size)
        from jax_es.es.strategies import held_strategy  # late: it loads evosax

        return held_strategy(es, mean)
    noise = make_noise(es, _shape(parts.policy.init))
    if evaluator is None:
        weighted_sum = spread_weighted_sum(noise, parts.devices, on_call, es.num_pairs)
    else:
        weighted_sum = evaluator.weighted_sum(block_size(es), on_call)
    if es.strategy == "openai-es":
        return openai_es(es, noise, weighted_sum)
    if es.strategy == "guided":
        return guided(es, noise, weighted_sum)
    env = parts.config.env
    given = " ".join(env.descriptor)
    require(
        size > 0,
        f"es.strategy novelty compares what episodes did, and {env.id} has no "
        f"{f'env.descriptor {given}'.rstrip()}; add --env.descriptor position for a "
        "walker, or the indices of numbers in an observation, such as "
        "--env.descriptor 0 1.",
    )
    # Its other parents are drawn, unless a run is gone on from.
    draw = parts.policy.init if parts.config.init is None else None
    return novelty_search(es, size, noise, weighted_sum, draw)


def build_evaluation(
    config: TrainConfig,
    num_tasks: int,
    population_of: Callable[[PyTree], Population] = MeanPopulation,
    workers: Workers | None = None,
    reported: Reported = NOTHING,
    size: int | None = None,
) -> EvaluationParts:
    """Builds what evaluates a configuration's mean policy; no strategy, no optimizer.

    Args:
        config: of the run.
        num_tasks: the most episodes of an evaluation; there are no more slots.
        population_of: what will be evaluated, as a function of θ, to tell its size.
        workers: who evaluates; this process if not given.
        reported: what is kept of the environments' ``info``.
        size: tasks of a worker's shard; as many as there are tasks for if not given.

    Raises:
        ConfigError: (a ``ValueError``) if the parts do not fit together.
    """
    with contextlib.ExitStack() as stack:
        parts = _build(config, num_tasks, stack, reported)
        mean = _shape(parts.policy.init)
        _check_fits(parts, mean, jax.eval_shape(population_of, mean))
        if workers is not None:
            size = size or shard_size(config, num_tasks)
            evaluator = _sharded(config, workers, size, reported)
            parts = dataclasses.replace(parts, rollout=evaluator, workers=workers)
        stack.pop_all()
    return parts


def _build(
    config: TrainConfig,
    num_tasks: int,
    stack: contextlib.ExitStack,
    reported: Reported = NOTHING,
) -> EvaluationParts:
    """Builds environments, which ``stack`` closes, and the rollout."""
    remember(config)
    devices = make_devices(config.rollout)
    groups = slot_groups(config.rollout, num_tasks, devices)
    check_memory({f"rollout.num_slots {sum(groups)}": ENV_BYTES * sum(groups)})
    threads = config.rollout.num_threads
    envs = tuple(
        stack.enter_context(
            contextlib.closing(make_env(config.env, size, threads, config.rollout))
        )
        for size in groups
    )
    for env in envs:
        # Others have their info at any rate.
        if (reported.sums or reported.last) and hasattr(env, "report"):
            ask_for(config.es.objective, env, reported)
    if ranges := config.rollout.variation_range:
        check_begins(envs[0], corners(ranges), RANGE_OPTION)
    observation_space = envs[0].single_observation_space
    hidden_entries(config.env.hide_observation, observation_space.shape)  # checks them
    policy = make_policy(
        config.policy,
        observation_space,
        envs[0].single_action_space,
        config.env,
    )
    weights = devices.count * num_bytes(_shape(policy.init))
    check_memory({_described(config, policy): weights}, devices.memory)
    rollout: Evaluator
    if isinstance(envs[0], CompiledEnv):
        rollout = JaxRollout(policy, envs[0], devices, reported)
    else:
        make_programs = kept_programs if is_ours(policy) else SlotPrograms
        rollout = Rollout(policy, envs, devices, reported, make_programs)
    return EvaluationParts(config, devices, envs, policy, rollout)


def _shape(init: Callable[[jax.Array], PyTree]) -> PyTree:
    """Returns the shapes of what a key leads to."""
    return jax.eval_shape(lambda: init(jax.random.key(0, impl="threefry2x32")))


def _check_fits(parts: EvaluationParts, state: PyTree, population: Population) -> None:
    """Rejects what does not fit into the devices' memory, by its shapes."""
    devices, es, slots = parts.devices, parts.config.es, parts.num_slots
    carry = jax.eval_shape(parts.policy.initial_carry)
    reference = reference_shape(parts)
    # Of the state there are two copies while it is updated, on every device.
    shared = 2 * num_bytes(state) + num_bytes(population) + 8 * num_bytes(reference)
    options = [f"es.strategy {es.strategy}", f"es.num_pairs {es.num_pairs}"]
    options += [f"es.kwargs.{name} {value}" for name, value in es.kwargs.items()]
    what = f"{', '.join(options)} with {_described(parts.config, parts.policy)}"
    slot_bytes = ENV_BYTES + typing.cast(Any, parts.rollout).slot_bytes(
        population, reference
    )
    length = getattr(parts.config.policy, "context_length", None)
    remembered = "what a policy remembers"
    if length is not None:
        remembered = f"policy.context_length {length}"
    needs = {
        remembered: num_bytes(carry),
        what: devices.count * shared,
        f"rollout.num_slots {slots}, each with weights of its own,": slots * slot_bytes,
    }
    few = ", fewer es.kwargs.parents" * (es.strategy == "ga")
    remedy = f"choose a smaller policy{few}, fewer pairs or fewer slots"
    if es.strategy != "openai-es":
        remedy += ", or --strategy openai-es, which holds neither matrices nor members"
    check_memory(needs, devices.memory, remedy)


def _described(config: TrainConfig, policy: Policy) -> str:
    """Names a policy, and how large it is."""
    leaves = jax.tree.leaves(_shape(policy.init))
    count = sum(leaf.size for leaf in leaves)
    return f"policy {policy_kind(config.policy)} of {count:,} weights"


def reference_shape(parts: EvaluationParts) -> Any:
    """Returns shape and type of the reference batch, ``()`` if there is none."""
    policy, space = parts.policy, parts.env.single_observation_space
    if not needs_reference(policy):
        return ()
    shape = (policy.reference_size, *space.shape)
    return jax.ShapeDtypeStruct(shape, space.dtype)


def _sharded(
    config: TrainConfig, workers: Workers, size: int, reported: Reported = NOTHING
) -> ShardedEvaluator:
    """Returns the evaluator of workers, in shards of a size; they build their parts."""
    recipe = functools.partial(WorkerEngine, config, size, reported, given(config))
    workers.use(recipe)
    return ShardedEvaluator(workers, recipe, size)


class WorkerEngine:
    """What a worker holds: slots on one device, stepped by one thread.

    Args:
        config: the run; devices and threads are a worker's own.
        num_tasks: of a shard.
        reported: what is kept of the environments' ``info``.
        things: what a Python program handed over.

    Attributes:
        parts: what evaluates.
    """

    def __init__(
        self,
        config: TrainConfig,
        num_tasks: int,
        reported: Reported = NOTHING,
        things: Mapping[tuple[str, str], Any] = MappingProxyType({}),
    ) -> None:
        give(things)
        self.parts = build_evaluation(on_one_core(config), num_tasks, reported=reported)
        self._sum = spread_weighted_sum(
            make_noise(config.es), self.parts.devices, block=block_size(config.es)
        )
        self.close = self.parts.close

    def evaluate(self, shared: PyTree, tasks: Tasks) -> EpisodeResults:
        """Runs a shard; ``shared`` is population and view."""
        population, view = shared
        return self.parts.rollout.evaluate(population, tasks, view)

    def weighted_sum(self, shared: PyTree, first: int, weights: np.ndarray) -> PyTree:
        """Returns Σᵢ wᵢ εᵢ of a block that begins with pair ``first``."""
        key, mean = shared
        return jax.device_get(self._sum(key, weights, mean, first))
