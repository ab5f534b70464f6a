"""Policy × environment × keys → episode returns, by continuous batching.

Episodes last from a few to a thousand steps, so a batch that waits for its longest
member mostly waits. Here S *slots* each hold one environment, one member's weights
and one policy carry. A queue holds the tasks (member, sign, environment seed); a slot
whose episode ends takes the next task at once: weights regenerated from the member's
key, environment reset with the task's own seed. When the queue is dry, the live slots
are packed into narrower programs.

A task's result depends on the task alone, not on its slot, its neighbours or the
order of tasks. (The only admissible difference is rounding: a wider program may add
in another order.) The same tasks on the same machine are always scheduled alike.

The loop runs on the host; the devices see three programs: ``refill`` writes members
into slots, ``act`` advances every slot's policy by one step, ``pack`` narrows.
"""

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.config import require
from jax_es.devices import Devices
from jax_es.noise import Noise, member_key
from jax_es.normalization import (
    ObservationStatistics,
    initial_statistics,
    mean_and_std,
    observe,
)
from jax_es.openai_es import Population
from jax_es.types import Policy, PyTree, Variables, VectorEnv

IDLE = -1
"""The task index of a slot without a task, and the pair of tasks without one."""


class Tasks(NamedTuple):
    """Episodes to run; every field is ``[E]``.

    Attributes:
        pair: int32 antithetic pair, or :data:`IDLE` where ``sign`` is 0.
        sign: float32 +1 and −1 for θ+σε and θ−σε, 0 for the mean θ itself.
        seed: int32, seeds the environment and the policy's own randomness.
        max_steps: int32, the episode is cut after this many environment steps.
        observed: bool, whether its observations enter the statistics.
    """

    pair: np.ndarray
    sign: np.ndarray
    seed: np.ndarray
    max_steps: np.ndarray
    observed: np.ndarray


class RolloutResult(NamedTuple):
    """What :meth:`Rollout.run` returns.

    Attributes:
        returns: ``[E]`` float64 undiscounted episode returns; NaN where the
            simulation failed or paid NaN.
        lengths: ``[E]`` int32, environment steps.
        failed: ``[E]`` bool, whether the simulator gave up on the episode.
        observations: sums over the observed episodes of this call alone.
        env_steps: environment steps taken.
        computed_steps: policy steps computed, idle slots included.
        seconds: wall-clock by ``"policy"``, ``"environment"`` and ``"noise"``.
    """

    returns: np.ndarray
    lengths: np.ndarray
    failed: np.ndarray
    observations: ObservationStatistics
    env_steps: int
    computed_steps: int
    seconds: dict[str, float]

    @property
    def slot_utilization(self) -> float:
        """Live slot-steps / computed slot-steps."""
        return self.env_steps / max(self.computed_steps, 1)


class Slots(NamedTuple):
    """The device side of the slots; a leading axis ``D`` outside the programs.

    Attributes:
        variables: ``[S/D, …]``, each slot's own part of the policy's variables.
        seed: ``[S/D]`` int32, the seed of each slot's task.
        epsilon: the ε drawn last, so that a pair draws it once for both signs.
        pair: ``[]`` int32, whose ε that is; :data:`IDLE` before the first.
    """

    variables: Variables
    seed: jax.Array
    epsilon: PyTree
    pair: jax.Array


class Refill(NamedTuple):
    """Tasks to write into one device's slots; ``count`` of ``[S/D]`` entries hold.

    Attributes:
        count: ``[]`` int32.
        position: ``[S/D]`` int32, the slot's position on its device.
        pair: ``[S/D]`` int32, as in :class:`Tasks`.
        sign: ``[S/D]`` float32, as in :class:`Tasks`.
        seed: ``[S/D]`` int32, as in :class:`Tasks`.
    """

    count: np.ndarray
    position: np.ndarray
    pair: np.ndarray
    sign: np.ndarray
    seed: np.ndarray


class Rollout:
    """Runs tasks on one vector environment with one policy.

    Args:
        policy: the policy, written for one member and one environment.
        noise: the noise family of the population.
        env: the vector environment; its ``num_envs`` is the number of slots S.
        devices: where policies are computed; S must be a multiple of their number.
    """

    def __init__(
        self, policy: Policy, noise: Noise, env: VectorEnv, devices: Devices
    ) -> None:
        require(
            env.num_envs % devices.count == 0,
            f"rollout.num_slots must be a multiple of the {devices.count} devices, "
            f"got {env.num_envs}.",
        )
        self._noise = noise
        self._policy = policy
        self._env = env
        self._devices = devices
        self._width = env.num_envs // devices.count
        self._widths = _widths(self._width)
        self._act = devices.map(
            self._act_on_device,
            in_axes=(None, None, 0, 0, 0, 0, 0),
            donate_argnums=(3,),
        )
        self._refill = devices.map(
            self._refill_on_device, in_axes=(None, 0, 0), donate_argnums=(1,)
        )
        self._pack = devices.map(_pack_on_device, in_axes=(0, 0, 0))
        self._empty = {
            width: devices.map(
                functools.partial(self._empty_on_device, width), in_axes=(None, 0)
            )
            for width in self._widths
        }
        self._is_compiled = False

    def run(
        self,
        population: Population,
        tasks: Tasks,
        statistics: ObservationStatistics | None = None,
        on_step: Callable[[int, int], None] = lambda done, total: None,
    ) -> RolloutResult:
        """Runs every task to its end.

        Args:
            population: whose members the tasks name.
            tasks: the episodes. The two signs of a pair should follow each other.
            statistics: how the policy sees observations; as they are if not given.
            on_step: called once a step with the numbers of finished and of all
                tasks. What it raises ends the run.
        """
        shared = self._share(population, statistics)
        if not self._is_compiled:
            self._compile_all_widths(shared)
            self._is_compiled = True
        loop = _Loop(self, shared, tasks)
        loop.fill()
        while loop.is_live.any():
            loop.step()
            on_step(loop.num_done, len(tasks.pair))
        return loop.result()

    # Device programs, each written for the slots of one device.

    def _act_on_device(
        self,
        population: Population,
        normalizer: tuple[jax.Array, jax.Array],
        slots: Slots,
        carry: PyTree,
        observation: jax.Array,
        reward: jax.Array,
        timestep: jax.Array,
    ) -> tuple[PyTree, jax.Array]:
        """Advances each slot's policy by one step: ``(carry, actions [S/D, …])``."""
        shared = self._noise.shared(population.mean)
        mean, std = normalizer

        def act(member, seed, carry, observation, reward, timestep):
            return self._policy.apply(
                {**shared, **member},
                carry,
                (observation - mean) / std,
                reward,
                timestep == 0,
                jax.random.fold_in(jax.random.key(seed), timestep),
            )

        return jax.vmap(act)(
            slots.variables, slots.seed, carry, observation, reward, timestep
        )

    def _refill_on_device(
        self, population: Population, slots: Slots, refill: Refill
    ) -> Slots:
        """Writes the members of ``refill`` into their slots, one after the other."""

        def write(i: jax.Array, slots: Slots) -> Slots:
            pair, sign = refill.pair[i], refill.sign[i]
            # The mean policy (sign 0) needs no ε: whatever is at hand times 0.
            epsilon = jax.lax.cond(
                (pair == slots.pair) | (sign == 0),
                lambda: slots.epsilon,
                lambda: self._noise.sample(
                    member_key(population.key, pair), population.mean
                ),
            )
            member = self._noise.member(
                population.mean, epsilon, sign * population.sigma
            )
            position = refill.position[i]
            return Slots(
                variables=jax.tree.map(
                    lambda buffer, value: buffer.at[position].set(value),
                    slots.variables,
                    member,
                ),
                seed=slots.seed.at[position].set(refill.seed[i]),
                epsilon=epsilon,
                pair=jnp.where(sign == 0, slots.pair, pair),
            )

        # A loop of variable length: nothing recompiles, and no padding is computed.
        return jax.lax.fori_loop(0, refill.count, write, slots)

    def _empty_on_device(
        self, width: int, population: Population, _: jax.Array
    ) -> tuple[Slots, PyTree]:
        """Allocates ``width`` slots and their policy carries."""

        def repeat(leaf) -> jax.Array:
            return jnp.broadcast_to(leaf, (width, *jnp.shape(leaf)))

        epsilon = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(self._noise.sample, population.key, population.mean),
        )
        member = self._noise.member(population.mean, epsilon, population.sigma)
        slots = Slots(
            variables=jax.tree.map(repeat, member),
            seed=jnp.zeros(width, jnp.int32),
            epsilon=epsilon,
            pair=jnp.int32(IDLE),
        )
        return slots, jax.tree.map(repeat, self._policy.initial_carry())

    # Host side.

    def empty(self, population: Population, width: int) -> tuple[Slots, PyTree]:
        """Allocates ``width`` slots and their policy carries on every device."""
        return self._empty[width](
            population, self._devices.put(np.zeros(self._devices.count))
        )

    def _share(
        self, population: Population, statistics: ObservationStatistics | None
    ) -> tuple[Population, tuple[jax.Array, jax.Array]]:
        """Places what all slots read on every device."""
        if statistics is None:
            size = self._env.single_observation_space.shape
            normalizer = np.zeros(size, np.float32), np.ones(size, np.float32)
        else:
            normalizer = mean_and_std(statistics)
        # num_pairs would be one more traced argument; no program here reads it.
        return self._devices.share((population._replace(num_pairs=0), normalizer))

    def _compile_all_widths(self, shared) -> None:
        """Compiles every program now, so that no later generation has to."""
        population, normalizer = shared
        shape = self._env.single_observation_space.shape
        for width in self._widths:
            slots, carry = self.empty(population, width)
            lead = (self._devices.count, width)
            inputs = self._devices.put(
                (
                    np.zeros((*lead, *shape), np.float32),
                    np.zeros(lead, np.float32),
                    np.zeros(lead, np.int32),
                )
            )
            carry, _ = self._act(population, normalizer, slots, carry, *inputs)
            for narrower in self._widths:
                if narrower < width:
                    keep = np.zeros((self._devices.count, narrower), np.int32)
                    self._pack(slots, carry, self._devices.put(keep))


def _pack_on_device(
    slots: Slots, carry: PyTree, positions: jax.Array
) -> tuple[Slots, PyTree]:
    """Keeps the slots at ``positions`` only."""
    keep = lambda leaf: leaf[positions]  # noqa: E731
    kept = slots._replace(
        variables=jax.tree.map(keep, slots.variables), seed=keep(slots.seed)
    )
    return kept, jax.tree.map(keep, carry)


def _widths(width: int) -> list[int]:
    """Returns the program widths (slots a device), from ``width`` down to an eighth."""
    return sorted({-(-width // divisor) for divisor in (1, 2, 4, 8)}, reverse=True)


class _Queue:
    """Hands out tasks in order, keeping the tasks of a pair on one device.

    A device that holds a pair's ε takes the pair's remaining tasks before it opens
    another pair, so each ε is drawn once.

    Args:
        pair: ``[E]`` the tasks' pairs.
        num_devices: D.
    """

    def __init__(self, pair: np.ndarray, num_devices: int) -> None:
        starts_group = np.ones(len(pair), bool)
        starts_group[1:] = (pair[1:] != pair[:-1]) | (pair[1:] == IDLE)
        starts = np.flatnonzero(starts_group)
        self._ends = np.append(starts[1:], len(pair)).tolist()
        self._starts = starts.tolist()
        self._next_group = 0
        self._open = [range(0)] * num_devices

    def take(self, device: int) -> int:
        """Returns the next task for ``device``, or :data:`IDLE` if there is none."""
        if not self._open[device]:
            if self._next_group == len(self._starts):
                return IDLE
            group = self._next_group
            self._open[device] = range(self._starts[group], self._ends[group])
            self._next_group += 1
        task, self._open[device] = self._open[device][0], self._open[device][1:]
        return task

    def is_empty(self) -> bool:
        """Returns whether no device will get another task."""
        return self._next_group == len(self._starts) and not any(self._open)


class _Loop:
    """One call of :meth:`Rollout.run`: the slots' state on the host."""

    def __init__(self, rollout: Rollout, shared, tasks: Tasks) -> None:
        self._r = rollout
        self._population, self._normalizer = shared
        self._tasks = tasks
        self._env = rollout._env
        self._devices = rollout._devices
        num_slots = self._env.num_envs
        self._queue = _Queue(tasks.pair, self._devices.count)
        self._slots, self._carry = rollout.empty(
            self._population, rollout._width
        )
        # Which environment each policy slot serves, [D, width].
        self._served = np.arange(num_slots).reshape(self._devices.count, -1)
        self.is_live = np.zeros(num_slots, bool)
        self._task = np.full(num_slots, IDLE)
        self._return = np.zeros(num_slots)
        self._length = np.zeros(num_slots, np.int32)
        self._reward = np.zeros(num_slots, np.float32)
        self._limit = np.zeros(num_slots, np.int32)
        self._observed = np.zeros(num_slots, bool)
        self._observation = np.zeros(0)
        action_space = self._env.single_action_space
        self._actions = np.zeros((num_slots, *action_space.shape), action_space.dtype)
        num_tasks = len(tasks.pair)
        self.num_done = 0
        self._returns = np.zeros(num_tasks)
        self._lengths = np.zeros(num_tasks, np.int32)
        self._failed = np.zeros(num_tasks, bool)
        self._statistics = initial_statistics(
            int(np.prod(self._env.single_observation_space.shape))
        )
        self._computed_steps = 0
        self._seconds = {"policy": 0.0, "environment": 0.0, "noise": 0.0}

    def fill(self) -> None:
        """Gives every slot its first task."""
        self._env.halt(np.ones(self._env.num_envs, bool))
        # Device by device in turn, so that few tasks still use all devices.
        self._refill(self._served.T.ravel())
        self._narrow()

    def step(self) -> None:
        """One policy step and one environment step of every live slot."""
        self._observe()
        self._act()
        started = time.perf_counter()
        observation, reward, terminated, truncated, info = self._env.step(self._actions)
        self._seconds["environment"] += time.perf_counter() - started
        self._observation = observation
        live = self.is_live
        self._return[live] += reward[live]
        self._length[live] += 1
        self._reward[:] = reward
        ended = live & (terminated | truncated | (self._length >= self._limit))
        if ended.any():
            self._finish(ended, info)

    def result(self) -> RolloutResult:
        """Returns what was gathered."""
        return RolloutResult(
            self._returns,
            self._lengths,
            self._failed,
            self._statistics,
            int(self._lengths.sum()),
            self._computed_steps,
            self._seconds,
        )

    def _observe(self) -> None:
        """Adds the observations that the policy is about to see to the statistics."""
        observed = self.is_live & self._observed
        if observed.any():
            self._statistics = observe(self._statistics, self._observation[observed])

    def _act(self) -> None:
        """Computes the actions of the slots that the current programs hold."""
        started = time.perf_counter()
        served = self._served
        inputs = self._devices.put(
            (
                self._observation[served].astype(np.float32, copy=False),
                self._reward[served],
                self._length[served],
            )
        )
        self._carry, actions = self._r._act(
            self._population, self._normalizer, self._slots, self._carry, *inputs
        )
        self._actions[served] = np.asarray(actions)
        self._computed_steps += served.size
        self._seconds["policy"] += time.perf_counter() - started

    def _finish(self, ended: np.ndarray, info: dict) -> None:
        """Records ended episodes and hands their slots the next tasks."""
        envs = np.flatnonzero(ended)
        tasks = self._task[envs]
        self._returns[tasks] = self._return[envs]
        self._lengths[tasks] = self._length[envs]
        if "simulation_failed" in info:
            self._failed[tasks] = info["simulation_failed"][envs]
        self.num_done += len(envs)
        self.is_live[envs] = False
        self._task[envs] = IDLE
        started_envs = self._refill(envs)
        if len(started_envs) < len(envs):
            ended[started_envs] = False
            self._env.halt(ended)
            self._narrow()

    def _refill(self, envs: np.ndarray) -> np.ndarray:
        """Starts the next tasks in ``envs``; returns the environments that got one."""
        started_at = time.perf_counter()
        device_of = np.empty(self._env.num_envs, int)
        position_of = np.empty(self._env.num_envs, int)
        device, position = np.indices(self._served.shape)
        device_of[self._served] = device
        position_of[self._served] = position
        taken = [(env, self._queue.take(device_of[env])) for env in envs.tolist()]
        taken = [(env, task) for env, task in taken if task != IDLE]
        if not taken:
            return envs[:0]
        envs, tasks = np.array(taken).T
        slots = self._write(device_of[envs], position_of[envs], tasks)
        self._seconds["noise"] += time.perf_counter() - started_at
        self._reset(envs, tasks)
        started_at = time.perf_counter()
        self._slots = jax.block_until_ready(slots)
        self._seconds["noise"] += time.perf_counter() - started_at
        return envs

    def _write(
        self, device: np.ndarray, position: np.ndarray, tasks: np.ndarray
    ) -> Slots:
        """Starts writing the tasks' members into their slots on the devices."""
        shape = self._served.shape
        count = np.zeros(shape[0], np.int32)
        refill = Refill(
            count,
            *(np.zeros(shape, dtype) for dtype in ("i4", "i4", "f4", "i4")),
        )
        for d, p, task in zip(device.tolist(), position.tolist(), tasks, strict=True):
            entry = (d, count[d])
            refill.position[entry] = p
            refill.pair[entry] = self._tasks.pair[task]
            refill.sign[entry] = self._tasks.sign[task]
            refill.seed[entry] = self._tasks.seed[task]
            count[d] += 1
        return self._r._refill(self._population, self._slots, self._devices.put(refill))

    def _reset(self, envs: np.ndarray, tasks: np.ndarray) -> None:
        """Starts the tasks' episodes in ``envs``."""
        started = time.perf_counter()
        mask = np.zeros(self._env.num_envs, bool)
        mask[envs] = True
        seed = np.zeros(self._env.num_envs, np.int64)
        seed[envs] = self._tasks.seed[tasks]
        self._observation, _ = self._env.reset(seed=seed, options={"reset_mask": mask})
        self._task[envs] = tasks
        self.is_live[envs] = True
        self._return[envs] = 0.0
        self._length[envs] = 0
        self._reward[envs] = 0.0
        self._limit[envs] = self._tasks.max_steps[tasks]
        self._observed[envs] = self._tasks.observed[tasks]
        self._seconds["environment"] += time.perf_counter() - started

    def _narrow(self) -> None:
        """Packs the live slots into a narrower program, if the queue is dry."""
        if not self._queue.is_empty():
            return
        live = self.is_live[self._served]
        needed = live.sum(axis=1).max()
        width = min(w for w in self._r._widths if w >= needed)
        if width == self._served.shape[1] or needed == 0:
            return
        started = time.perf_counter()
        # Live slots first, in order; idle ones fill up.
        positions = np.argsort(~live, axis=1, kind="stable")[:, :width]
        self._served = np.take_along_axis(self._served, positions, axis=1)
        self._slots, self._carry = self._r._pack(
            self._slots, self._carry, self._devices.put(positions.astype(np.int32))
        )
        self._seconds["policy"] += time.perf_counter() - started
