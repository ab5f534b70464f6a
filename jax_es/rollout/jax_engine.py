"""Whole generations on the devices, for environments written in JAX.

Policies and environments step together in one compiled loop. Slots are as in
``engine.py``: one whose episode ends takes the next task inside of the loop, its
member's weights are made by the population's recipe, its environment is reset with the
task's own seed. A generation needs memory for its slots, however many members it has.

The host calls the loop for a second or so at a time, so that progress is seen and a
stop signal heard. A task's result depends on the task alone, as everywhere.
"""

import time
import typing
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.es.population import Population
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import HEALTHY_REWARD
from jax_es.rollout.evaluator import (
    NOTHING,
    EpisodeResults,
    Reported,
    RolloutProgress,
)
from jax_es.rollout.jax_state import Episodes, Outcome, Queue, Run, Seen, Sum
from jax_es.rollout.observation_statistics import UNCHANGED, View, scaled
from jax_es.rollout.slots import Refill, Shared, SlotPrograms
from jax_es.rollout.tasks import IDLE, Tasks
from jax_es.types import Policy, PyTree

SECONDS_A_CALL = 1.0
"""How long the host waits for the loop, about."""

RESETS_AT_ONCE = 8
"""Environments are reset in blocks of a slots' share of this."""


@runtime_checkable
class CompiledEnv(Protocol):
    """What the loop needs of an environment: pure functions of one episode."""

    num_envs: int
    """S, the slots."""
    single_observation_space: Any
    single_action_space: Any
    descriptor: tuple[int, ...]
    """Which numbers of an episode's last observation describe it."""

    def start(self, seed: jax.Array) -> tuple[PyTree, jax.Array]:
        """Returns state and observation of an episode's begin."""
        ...

    def advance(
        self, state: PyTree, action: jax.Array, seed: jax.Array, timestep: jax.Array
    ) -> tuple[PyTree, jax.Array, jax.Array, jax.Array, jax.Array, Any]:
        """Returns state, observation, reward, terminated, truncated and info."""
        ...


class JaxRollout:
    """The :class:`Evaluator` of environments in JAX.

    Args:
        policy: written for one member and one environment.
        env: ``num_envs`` slots over all devices.
        devices: where everything runs.
        reported: what is kept of the environments' ``info``.
    """

    def __init__(
        self,
        policy: Policy,
        env: CompiledEnv,
        devices: Devices,
        reported: Reported = NOTHING,
    ) -> None:
        require(
            env.num_envs % devices.count == 0,
            f"rollout.num_slots must be a multiple of the {devices.count} devices, got "
            f"{env.num_envs}.",
        )
        self._env, self._devices, self._reported = env, devices, reported
        self._width = env.num_envs // devices.count
        space = env.single_observation_space
        self._observation = jax.ShapeDtypeStruct(space.shape, space.dtype)
        self._programs = SlotPrograms(policy, devices, self._width, self._observation)
        _, first = jax.jit(env.start)(jnp.int32(0))
        self._origin = np.asarray(scaled(first), np.float32).reshape(-1)
        self._begin = devices.map(self._begin_on_device, in_axes=(None, 0))
        self._loop = devices.map(
            self._loop_on_device, in_axes=(None, 0, None, 0), donate_argnums=(3,)
        )

    def slot_bytes(self, population: Population, reference: PyTree) -> int:
        """Returns what a slot takes on its device; see :meth:`Rollout.slot_bytes`."""
        mean, std, clip = UNCHANGED.normalizer(self._observation.shape, np.float32)
        return self._programs.slot_bytes(Shared(population, mean, std, clip, reference))

    def evaluate(
        self,
        population: Population,
        tasks: Tasks,
        view: View = UNCHANGED,
        on_step: Callable[[RolloutProgress], None] = lambda progress: None,
    ) -> EpisodeResults:
        """Runs every task to its end; see :meth:`Evaluator.evaluate`.

        Of the seconds all are the policies': one program does everything.
        """
        require(
            tasks.variation is None,
            "environments in JAX know no variations; leave rollout.variation_range and "
            "--variation out.",
        )
        require(
            tasks.recorded is None,
            "environments in JAX keep no steps of episodes; choose a strategy that "
            "learns from none, such as --strategy openai-es.",
        )
        began, num_tasks = time.perf_counter(), len(tasks.member)
        normalizer = view.normalizer(self._observation.shape, self._observation.dtype)
        shared = self._devices.share(Shared(population, *normalizer, view.reference))
        order = spread(tasks.member, population.members_per_group, self._devices.count)
        queue = self._queue(tasks, order)
        run = self._begin(shared, queue)
        size = self._origin.size
        result = EpisodeResults.empty(
            num_tasks, len(self._env.descriptor), size, self._reported
        )
        seconds, limit = {"policy": 0.0, "environment": 0.0, "noise": 0.0}, 16
        num_done = env_steps = computed_steps = 0
        while num_done < num_tasks:
            called = time.perf_counter()
            run = self._loop(shared, queue, np.int32(limit), run)
            done, steps, iterations = jax.device_get(
                (run.done, run.env_steps, run.iterations)
            )
            if time.perf_counter() - called < SECONDS_A_CALL / 2:
                limit = min(2 * limit, 2**14)
            num_done = int(done.sum())
            env_steps += int(steps.sum())
            computed_steps += int(iterations.sum()) * self._width
            seconds = {**seconds, "policy": time.perf_counter() - began}
            on_step(
                RolloutProgress(num_done, num_tasks, env_steps, computed_steps, seconds)
            )
        outcome = jax.device_get(run.outcome)
        for device, own in enumerate(order):
            first = slice(len(own))
            result.returns[own] = outcome.returns.exact()[device, first]
            healthy_rewards = outcome.healthy_rewards.exact()
            result.healthy_rewards[own] = healthy_rewards[device, first]
            for name in ("lengths", "failed", "descriptors"):
                getattr(result, name)[own] = getattr(outcome, name)[device, first]
            for name, total in outcome.sums.items():
                result.sums[name][own] = total.exact()[device, first]
            for name, kept in outcome.last.items():
                result.last[name][own] = kept[device, first]
        result.returns[result.failed] = np.nan
        return result._replace(
            # Summed over all calls: how many there are is a matter of time.
            observations=jax.device_get(run.seen).statistics(self._origin),
            env_steps=env_steps,
            computed_steps=computed_steps,
            seconds=seconds,
        )

    def _queue(self, tasks: Tasks, order: list[np.ndarray]) -> Queue:
        """Returns the devices' tasks, a power of two each: few sizes to compile."""
        most = max(map(len, order))
        padded = 1 << (most - 1).bit_length()
        rows = np.stack([np.resize(own, padded) for own in order])
        command = tasks.command
        if command is None:
            command = np.zeros(len(tasks.member), np.float32)
        fields = (tasks.member, tasks.seed, tasks.max_steps, tasks.observed, command)
        count = np.array([len(own) for own in order], np.int32)
        queue = Queue(count, *(field[rows] for field in fields))
        return self._devices.put(queue)

    def _begin_on_device(self, shared: Shared, queue: Queue) -> Run:
        """Returns the state before the first step: no slot has a task."""
        width = self._width
        slots, carry = self._programs.empty_on_device(
            width, True, shared, jnp.zeros(())
        )
        state, observation = self._env.start(jnp.int32(0))

        def repeat(leaf: jax.Array) -> jax.Array:
            return jnp.broadcast_to(leaf, (width, *jnp.shape(leaf)))

        episodes = Episodes(
            task=jnp.full(width, IDLE, jnp.int32),
            state=jax.tree.map(repeat, state),
            observation=repeat(observation),
            reward=jnp.zeros(width),
            length=jnp.zeros(width, jnp.int32),
            returns=Sum.zeros(width),
            healthy_rewards=Sum.zeros(width),
            sums={name: Sum.zeros(width) for name in self._reported.sums},
        )
        (num_tasks,) = queue.member.shape
        outcome = Outcome(
            returns=Sum.zeros(num_tasks),
            healthy_rewards=Sum.zeros(num_tasks),
            lengths=jnp.zeros(num_tasks, jnp.int32),
            failed=jnp.zeros(num_tasks, bool),
            descriptors=jnp.zeros((num_tasks, len(self._env.descriptor))),
            sums={name: Sum.zeros(num_tasks) for name in self._reported.sums},
            last={name: jnp.zeros(num_tasks) for name in self._reported.last},
        )
        zero, size = jnp.int32(0), self._origin.size
        seen = Seen(zero, Sum.zeros(size), Sum.zeros(size))
        return Run(
            *(slots, carry, episodes, outcome, seen),
            *(zero, zero, zero, zero),
        )

    def _loop_on_device(
        self, shared: Shared, queue: Queue, limit: jax.Array, run: Run
    ) -> Run:
        """Steps all slots ``limit`` times, or until nothing is left to do."""

        def is_busy(run: Run) -> jax.Array:
            return (run.iterations < limit) & (run.done < queue.count)

        def step(run: Run) -> Run:
            return self._step(shared, queue, self._refill(shared, queue, run))

        zero = jnp.int32(0)
        run = run._replace(env_steps=zero, iterations=zero)
        return jax.lax.while_loop(is_busy, step, run)

    def _refill(self, shared: Shared, queue: Queue, run: Run) -> Run:
        """Hands the next tasks to the slots that have none, in their order."""
        width, episodes = self._width, run.episodes
        is_vacant = episodes.task == IDLE
        count = jnp.minimum(is_vacant.sum(dtype=jnp.int32), queue.count - run.taken)
        # Entry i of the vacant slots, in their order, takes the i-th next task. (On a
        # CPU this takes a twentieth of a sort's time.)
        position = jnp.flatnonzero(is_vacant, size=width).astype(jnp.int32)
        task = jnp.minimum(run.taken + jnp.arange(width), queue.member.size - 1)
        seed = queue.seed[task]
        entries: Any = position, queue.member[task], seed, queue.command[task]
        refill = Refill(typing.cast(Any, count), *entries)
        slots = self._programs.refill_on_device(shared, run.slots, refill)
        block = -(-width // RESETS_AT_ONCE)

        def reset(i: jax.Array, episodes: Episodes) -> Episodes:
            # The last block begins sooner where the width is no multiple of it; what
            # it resets twice begins alike.
            begin = jnp.minimum(i * block, width - block)
            entries = begin + jnp.arange(block)
            started = jax.vmap(self._env.start)(seed[entries])
            fresh = Episodes(
                task[entries].astype(jnp.int32),
                *started,
                *(jnp.zeros(block), jnp.zeros(block, jnp.int32)),
                *(Sum.zeros(block), Sum.zeros(block)),
                {name: Sum.zeros(block) for name in self._reported.sums},
            )
            target = jnp.where(entries < count, position[entries], width)
            return jax.tree.map(
                lambda all_, own: all_.at[target].set(own, mode="drop"), episodes, fresh
            )

        num_blocks = -(-count // block)
        episodes = jax.lax.fori_loop(0, num_blocks, reset, episodes)
        return run._replace(slots=slots, episodes=episodes, taken=run.taken + count)

    def _step(self, shared: Shared, queue: Queue, run: Run) -> Run:
        """Advances every slot's policy and environment by one step."""
        before, slots = run.episodes, run.slots
        live = before.task != IDLE
        seen = self._observe(run.seen, before, live & queue.observed[before.task])
        carry, action = self._programs.act_on_device(
            shared, slots, run.carry, before.observation, before.reward, before.length
        )
        state, observation, reward, terminated, truncated, info = jax.vmap(
            self._env.advance
        )(before.state, action, slots.seed, before.length)
        reward = reward.astype(jnp.float32)
        rows = observation.reshape(self._width, -1)
        failed = ~(jnp.isfinite(rows).all(axis=1) & jnp.isfinite(reward))
        length = before.length + 1
        limit = queue.max_steps[before.task]
        ended = live & (terminated | truncated | failed | (length >= limit))

        def told(name: str, otherwise: float = 0.0) -> jax.Array:
            number = info.get(name, jnp.full(self._width, otherwise))
            return number.astype(jnp.float32)

        after = Episodes(
            task=jnp.where(ended, IDLE, before.task),
            state=state,
            observation=observation,
            reward=reward,
            length=length,
            returns=before.returns.plus(reward),
            healthy_rewards=before.healthy_rewards.plus(told(HEALTHY_REWARD)),
            sums={name: total.plus(told(name)) for name, total in before.sums.items()},
        )
        # Beyond the end for slots whose episode goes on: what is written there is lost.
        target = jnp.where(ended, before.task, queue.member.size)
        came_to = Outcome(
            *(after.returns, after.healthy_rewards, length, failed),
            rows[:, list(self._env.descriptor)].astype(jnp.float32),
            after.sums,
            {name: told(name, jnp.nan) for name in self._reported.last},
        )
        outcome = jax.tree.map(
            lambda all_, own: all_.at[target].set(own, mode="drop"),
            run.outcome,
            came_to,
        )
        return run._replace(
            carry=carry,
            episodes=after,
            outcome=outcome,
            seen=seen,
            done=run.done + ended.sum(dtype=jnp.int32),
            env_steps=run.env_steps + live.sum(dtype=jnp.int32),
            iterations=run.iterations + 1,
        )

    def _observe(self, seen: Seen, episodes: Episodes, which: jax.Array) -> Seen:
        """Adds what some slots observe; rows that are not finite are left out."""

        def add(seen: Seen) -> Seen:
            rows = scaled(episodes.observation).reshape(self._width, -1)
            finite = which & jnp.isfinite(rows).all(axis=1)
            rows = jnp.where(finite[:, None], rows - self._origin[None], 0.0)
            return Seen(
                seen.count + finite.sum(dtype=jnp.int32),
                seen.sum.plus(rows.sum(axis=0)),
                seen.sum_of_squares.plus((rows * rows).sum(axis=0)),
            )

        return jax.lax.cond(which.any(), add, lambda seen: seen, seen)


def spread(
    member: np.ndarray, members_per_group: int, num_devices: int
) -> list[np.ndarray]:
    """Returns each device's tasks: groups of members in turn, those of one together.

    Args:
        member: ``[E]``, the tasks' members; those of a group are neighbours.
        members_per_group: as of the population.
        num_devices: D.
    """
    group = member // members_per_group
    begins = np.ones(len(member), bool)
    begins[1:] = (group[1:] != group[:-1]) | (member[1:] < 0)
    device = (np.cumsum(begins) - 1) % num_devices
    return [np.flatnonzero(device == d) for d in range(num_devices)]
