"""Policy × environment × keys → episode returns, by continuous batching.

Episodes last from a few to a thousand steps, so a batch that waits for its longest
member mostly waits. Here S *slots* each hold one environment, one member's weights
and one policy carry. A queue holds the tasks (member, sign, environment seed); a slot
whose episode ends takes the next task at once: weights regenerated from the member's
key, environment reset with the task's own seed. When the queue is dry, the live slots
are packed into narrower programs.

The slots form one group, or several, each with a vector environment of its own. While
the devices compute one group's actions, the CPU steps another's environments: with an
accelerator neither waits for the other. Groups take turns in a fixed order.

A task's result depends on the task alone, not on its slot, its neighbours or the
order of tasks. (The only admissible difference is rounding: a wider program may add
in another order.) The same tasks on the same machine are always scheduled alike.

The loop runs on the host and steps the environments; ``slots.py`` has the programs
that the devices run.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_es.config import require
from jax_es.es.noise import Noise
from jax_es.es.openai_es import Population
from jax_es.rollout.devices import Devices
from jax_es.rollout.observation_statistics import (
    STD_FLOOR,
    ObservationStatistics,
    initial_statistics,
    mean_and_std,
    observe,
    scaled,
)
from jax_es.rollout.slots import Refill, Shared, SlotPrograms, Slots
from jax_es.rollout.tasks import IDLE, TaskQueue, Tasks
from jax_es.types import Policy, PyTree, VectorEnv

HEALTHY_REWARD = "reward_survive"
"""Gymnasium's name, in ``info``, of the reward that a step pays for staying healthy."""


class RolloutResult(NamedTuple):
    """What :meth:`Rollout.run` returns.

    Attributes:
        returns: ``[E]`` float64 undiscounted episode returns; NaN where the
            simulation failed or paid NaN.
        lengths: ``[E]`` int32, environment steps.
        failed: ``[E]`` bool, whether the simulator gave up on the episode.
        healthy_rewards: ``[E]`` float64, the part of each return that was paid for
            staying healthy; 0 where the environment does not report it.
        observations: sums over the observed episodes of this call alone.
        env_steps: environment steps taken.
        computed_steps: policy steps computed, idle slots included.
        seconds: wall-clock by ``"policy"``, ``"environment"`` and ``"noise"``; with
            several groups, waiting for noise counts as policy.
    """

    returns: np.ndarray
    lengths: np.ndarray
    failed: np.ndarray
    healthy_rewards: np.ndarray
    observations: ObservationStatistics
    env_steps: int
    computed_steps: int
    seconds: dict[str, float]

    @property
    def slot_utilization(self) -> float:
        """Live slot-steps / computed slot-steps."""
        return self.env_steps / max(self.computed_steps, 1)


class RolloutProgress(NamedTuple):
    """How far a run has come, for ``on_step``; counted from the run's start.

    Attributes:
        num_done: finished tasks.
        num_tasks: all tasks.
        env_steps: environment steps taken.
        computed_steps: policy steps computed, idle slots included.
        seconds: wall-clock by activity, as in :class:`RolloutResult`.
    """

    num_done: int
    num_tasks: int
    env_steps: int
    computed_steps: int
    seconds: dict[str, float]


class Rollout:
    """Runs tasks on vector environments with one policy.

    Args:
        policy: the policy, written for one member and one environment.
        noise: the noise family of the population.
        envs: a vector environment for each group of slots, all alike; together their
            ``num_envs`` are the slots S.
        devices: where policies are computed; each ``num_envs`` must be a multiple of
            their number.
        std_floor: lower bound of the observations' standard deviation, in their unit.
        observation_clip: bound of normalised observations; none if not given.
    """

    def __init__(
        self,
        policy: Policy,
        noise: Noise,
        envs: Sequence[VectorEnv],
        devices: Devices,
        std_floor: float = STD_FLOOR,
        observation_clip: float | None = None,
    ) -> None:
        self._std_floor = std_floor
        self._clip = np.float32(
            np.inf if observation_clip is None else observation_clip
        )
        num_envs = envs[0].num_envs
        require(
            all(env.num_envs == num_envs for env in envs),
            f"envs must be alike, got {[env.num_envs for env in envs]} environments.",
        )
        require(
            num_envs % devices.count == 0,
            f"rollout.num_slots must be a multiple of the {devices.count} devices in "
            f"each group, got {num_envs}.",
        )
        self._envs = list(envs)
        self._devices = devices
        self._programs = SlotPrograms(
            policy,
            noise,
            devices,
            num_envs // devices.count,
            self._observation(),
        )
        self._is_compiled = False

    def slot_bytes(self, population: PyTree, reference: PyTree) -> int:
        """Returns what a slot takes on its device, of shapes alone.

        Args:
            population: shapes of one whose members the slots shall hold.
            reference: shape of the reference batch; ``()`` for none.
        """
        shape = self._observation().shape
        bare: Any = jax.ShapeDtypeStruct(shape, np.float32)
        return self._programs.slot_bytes(Shared(population, bare, bare, reference))

    def run(
        self,
        population: Population,
        tasks: Tasks,
        statistics: ObservationStatistics | None = None,
        reference: PyTree = (),
        on_step: Callable[[RolloutProgress], None] = lambda progress: None,
    ) -> RolloutResult:
        """Runs every task to its end.

        Args:
            population: whose members the tasks name.
            tasks: the episodes. The tasks of a pair should follow each other.
            statistics: how the policy sees observations; as they are if not given.
            reference: ``[R, …]``, of a ``ReferencePolicy``; none for others.
            on_step: called once a step. What it raises ends the run.
        """
        shared = self._share(population, statistics, reference)
        if not self._is_compiled:
            self._programs.compile(shared)
            self._is_compiled = True
        num_devices = self._devices.count
        queue = TaskQueue(tasks.pair, num_devices * len(self._envs))
        record = _Record(tasks, self._envs[0].single_observation_space.shape)
        groups = [
            _Group(env, self._programs, shared, tasks, queue, record, lanes.tolist())
            for env, lanes in zip(
                self._envs,
                np.arange(num_devices * len(self._envs)).reshape(-1, num_devices),
                strict=True,
            )
        ]
        # One slot a device, group by group, so that few tasks still use all of both.
        for position in range(self._programs.widths[0]):
            for group in groups:
                group.deal(position)
        for group in groups:
            group.begin()
        while any(group.is_live.any() for group in groups):
            for group in groups:
                group.step()
            on_step(record.progress())
        return record.result()

    def _observation(self) -> jax.ShapeDtypeStruct:
        """Returns shape and dtype of one environment's observation."""
        space = self._envs[0].single_observation_space
        return jax.ShapeDtypeStruct(space.shape, space.dtype)

    def _share(
        self,
        population: Population,
        statistics: ObservationStatistics | None,
        reference: PyTree,
    ) -> Shared:
        """Places what all slots read on every device."""
        shape = self._envs[0].single_observation_space.shape
        if statistics is None:
            mean, std = np.zeros(shape, np.float32), np.ones(shape, np.float32)
        else:
            mean, std = (
                part.reshape(shape)
                for part in mean_and_std(
                    statistics, self._std_floor, self._observation().dtype
                )
            )
        return self._devices.share(Shared(population, mean, std, reference, self._clip))


class _Record:
    """What one call of :meth:`Rollout.run` gathers, over all groups."""

    def __init__(self, tasks: Tasks, observation_shape: tuple[int, ...]) -> None:
        num_tasks = len(tasks.pair)
        self.num_done = 0
        self.env_steps = 0
        self.returns = np.zeros(num_tasks)
        self.lengths = np.zeros(num_tasks, np.int32)
        self.failed = np.zeros(num_tasks, bool)
        self.healthy_rewards = np.zeros(num_tasks)
        self.statistics = initial_statistics(int(np.prod(observation_shape)))
        self.computed_steps = 0
        self.seconds = {"policy": 0.0, "environment": 0.0, "noise": 0.0}

    def result(self) -> RolloutResult:
        """Returns what was gathered."""
        return RolloutResult(
            self.returns,
            self.lengths,
            self.failed,
            self.healthy_rewards,
            self.statistics,
            self.env_steps,
            self.computed_steps,
            self.seconds,
        )

    def progress(self) -> RolloutProgress:
        """Returns how far the call has come."""
        return RolloutProgress(
            self.num_done,
            len(self.returns),
            self.env_steps,
            self.computed_steps,
            dict(self.seconds),
        )

    @contextlib.contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        """Counts the time of a block as the activity's."""
        started = time.perf_counter()
        try:
            with jax.profiler.TraceAnnotation(activity):  # named in profiles
                yield
        finally:
            self.seconds[activity] += time.perf_counter() - started


class _Group:
    """One group's slots in one call of :meth:`Rollout.run`: what the host knows.

    Slot arrays are indexed by environment, ``[num_envs]``; ``_served`` says which
    environments the programs currently serve. ``lanes`` are the numbers by which the
    queue knows this group on each of the ``D`` devices.
    """

    def __init__(
        self,
        env: VectorEnv,
        programs: SlotPrograms,
        shared: Shared,
        tasks: Tasks,
        queue: TaskQueue,
        record: _Record,
        lanes: list[int],
    ) -> None:
        self._env = env
        self._programs = programs
        self._shared = shared
        self._tasks = tasks
        self._queue = queue
        self._record = record
        self._lanes = lanes
        self._is_alone = queue.num_lanes == len(lanes)
        num_slots = env.num_envs
        self._slots, self._carry = programs.empty(shared, programs.widths[0])
        self._actions: jax.Array | None = None
        # Which environment each policy slot serves, [D, width].
        self._served = np.arange(num_slots).reshape(len(lanes), -1)
        self.is_live = np.zeros(num_slots, bool)
        # Ended, and waiting until resets are worth their while.
        self._vacant = np.zeros(num_slots, bool)
        self._resets_at_once = getattr(env, "resets_at_once", 1)
        self._task = np.full(num_slots, IDLE)
        self._return = np.zeros(num_slots)
        self._healthy_reward = np.zeros(num_slots)
        self._length = np.zeros(num_slots, np.int32)
        self._reward = np.zeros(num_slots, np.float32)
        self._limit = np.zeros(num_slots, np.int32)
        self._observed = np.zeros(num_slots, bool)
        self._observation = np.zeros(0)

    def deal(self, position: int) -> None:
        """Takes a first task for the slot at ``position`` of every device."""
        envs = self._served[:, position]
        self._task[envs] = self._take(envs)

    def begin(self) -> None:
        """Starts the dealt tasks, and computing their first actions."""
        self._env.halt(np.ones(self._env.num_envs, bool))
        envs = np.flatnonzero(self._task != IDLE)
        self._start(envs, self._task[envs])
        self._narrow()
        self._act()

    def step(self) -> None:
        """Steps every live environment; starts computing the next actions."""
        live = self.is_live
        if not live.any():
            return
        actions = self._take_actions()
        with self._record.timed("environment"):
            observation, reward, terminated, truncated, info = self._env.step(actions)
        self._observation = observation
        with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN
            self._return[live] += reward[live]
        if HEALTHY_REWARD in info:
            self._healthy_reward[live] += info[HEALTHY_REWARD][live]
        self._length[live] += 1
        self._record.env_steps += int(live.sum())
        self._reward[:] = reward
        ended = live & (terminated | truncated | (self._length >= self._limit))
        if ended.any():
            self._finish(ended, info)
        self._act()

    def _act(self) -> None:
        """Starts computing the actions of the slots that the programs hold."""
        if not self.is_live.any():
            return
        observed = self.is_live & self._observed
        if observed.any():
            self._record.statistics = observe(
                self._record.statistics, scaled(self._observation[observed])
            )
        served = self._served
        with self._record.timed("policy"):
            self._carry, self._actions = self._programs.act(
                self._shared,
                self._slots,
                self._carry,
                self._observation[served],
                self._reward[served],
                self._length[served],
            )
        self._record.computed_steps += served.size

    def _take_actions(self) -> np.ndarray:
        """Waits for the actions ``[num_envs, …]``; those of idle slots mean nothing."""
        space = self._env.single_action_space
        actions = np.zeros((self._env.num_envs, *space.shape), space.dtype)
        with self._record.timed("policy"):
            actions[self._served] = np.asarray(self._actions)
        return actions

    def _finish(self, ended: np.ndarray, info: dict) -> None:
        """Records ended episodes and hands their slots the next tasks."""
        envs = np.flatnonzero(ended)
        tasks = self._task[envs]
        record = self._record
        record.returns[tasks] = self._return[envs]
        record.lengths[tasks] = self._length[envs]
        record.healthy_rewards[tasks] = self._healthy_reward[envs]
        if "simulation_failed" in info:
            record.failed[tasks] = info["simulation_failed"][envs]
        record.num_done += len(envs)
        self.is_live[envs] = False
        self._task[envs] = IDLE
        self._env.halt(ended)
        self._vacant[envs] = True
        is_time = self._vacant.sum() >= self._resets_at_once
        if is_time or self._queue.is_empty() or not self.is_live.any():
            self._refill(np.flatnonzero(self._vacant))
            self._vacant[:] = False
            self._narrow()

    def _refill(self, envs: np.ndarray) -> None:
        """Starts the next tasks in ``envs``, as far as there are any."""
        tasks = self._take(envs)
        taken = tasks != IDLE
        self._start(envs[taken], tasks[taken])

    def _take(self, envs: np.ndarray) -> np.ndarray:
        """Takes a task from the queue for each of ``envs``, or :data:`IDLE`."""
        devices = envs // self._programs.widths[0]
        return np.array([self._queue.take(self._lanes[d]) for d in devices], int)

    def _start(self, envs: np.ndarray, tasks: np.ndarray) -> None:
        """Starts tasks in ``envs``: writes their members, resets environments."""
        if not len(envs):
            return
        with self._record.timed("noise"):
            # The programs are narrowed only after the last refill: until then slot
            # (device, position) serves environment device · width + position.
            devices, positions = np.divmod(envs, self._programs.widths[0])
            self._slots = self._write(devices, positions, tasks)
        # The environments start while the devices draw noise.
        with self._record.timed("environment"):
            self._reset(envs, tasks)
        if self._is_alone:
            # Nothing else is under way: waiting here tells noise from policy.
            with self._record.timed("noise"):
                jax.block_until_ready(self._slots)

    def _write(
        self, devices: np.ndarray, positions: np.ndarray, tasks: np.ndarray
    ) -> Slots:
        """Starts writing the tasks' members into their slots on the devices."""
        refill = Refill.empty(*self._served.shape)
        for device, position, task in zip(devices, positions, tasks, strict=True):
            entry = device, refill.count[device]
            refill.position[entry] = position
            refill.pair[entry] = self._tasks.pair[task]
            refill.sign[entry] = self._tasks.sign[task]
            refill.seed[entry] = self._tasks.seed[task]
            refill.count[device] += 1
        return self._programs.refill(self._shared, self._slots, refill)

    def _reset(self, envs: np.ndarray, tasks: np.ndarray) -> None:
        """Starts the tasks' episodes in ``envs``."""
        mask = np.zeros(self._env.num_envs, bool)
        mask[envs] = True
        seed = np.zeros(self._env.num_envs, np.int64)
        seed[envs] = self._tasks.seed[tasks]
        self._observation, _ = self._env.reset(seed=seed, options={"reset_mask": mask})
        self._task[envs] = tasks
        self.is_live[envs] = True
        self._return[envs] = 0.0
        self._healthy_reward[envs] = 0.0
        self._length[envs] = 0
        self._reward[envs] = 0.0
        self._limit[envs] = self._tasks.max_steps[tasks]
        self._observed[envs] = self._tasks.observed[tasks]

    def _narrow(self) -> None:
        """Packs the live slots into a narrower program, if the queue is dry."""
        if not self._queue.is_empty():
            return
        live = self.is_live[self._served]
        needed = live.sum(axis=1).max()
        width = min(w for w in self._programs.widths if w >= needed)
        if width == self._served.shape[1] or needed == 0:
            return
        # Live slots first, in order; idle ones fill up.
        positions = np.argsort(~live, axis=1, kind="stable")[:, :width]
        self._served = np.take_along_axis(self._served, positions, axis=1)
        with self._record.timed("policy"):
            self._slots, self._carry = self._programs.pack(
                self._slots, self._carry, positions
            )
