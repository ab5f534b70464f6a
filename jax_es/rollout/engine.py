"""Policy × environment × tasks → episode results, by continuous batching.

Episodes last from a few to a thousand steps, so a batch that waits for its longest
member mostly waits. Here S *slots* each hold one environment, one member's weights
and one policy carry. A queue holds the tasks (member, environment seed); a slot whose
episode ends takes the next task at once: the member's weights are made by the
population's recipe, the environment is reset with the task's own seed. When the queue
is dry, the live slots are packed into narrower programs.

The slots form one group, or several, each with a vector environment of its own. While
the devices compute one group's actions, the CPU steps another's environments: with an
accelerator neither waits for the other. Groups take turns in a fixed order.

A task's result depends on the task alone, not on its slot, its neighbours or the
order of tasks. (The only admissible difference is rounding: a wider program may add
in another order.) The same tasks on the same machine are always scheduled alike.

The loop runs on the host and steps the environments; ``slots.py`` has the programs
that the devices run.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jax_es.checks import require
from jax_es.es.population import Population
from jax_es.rollout.devices import Devices
from jax_es.rollout.evaluator import (
    NOTHING,
    EpisodeResults,
    Gathered,
    Reported,
    RolloutProgress,
    reported_in,
)
from jax_es.rollout.observation_statistics import (
    UNCHANGED,
    View,
    observe,
    scaled,
)
from jax_es.rollout.slots import Refill, Shared, SlotPrograms, Slots
from jax_es.rollout.tasks import IDLE, TaskQueue, Tasks
from jax_es.types import Policy, PyTree, VectorEnv

HEALTHY_REWARD = "reward_survive"
"""Gymnasium's name, in ``info``, of the reward that a step pays for staying healthy."""


class Rollout:
    """The :class:`Evaluator` of this process: vector environments and one policy.

    Args:
        policy: the policy, written for one member and one environment.
        envs: a vector environment for each group of slots, all alike; together their
            ``num_envs`` are the slots S.
        devices: where policies are computed; each ``num_envs`` must be a multiple of
            their number.
        reported: what is kept of the environments' ``info``.
        make_programs: :class:`SlotPrograms`, or what returns earlier ones.
    """

    def __init__(
        self,
        policy: Policy,
        envs: Sequence[VectorEnv],
        devices: Devices,
        reported: Reported = NOTHING,
        make_programs: Callable[..., SlotPrograms] = SlotPrograms,
    ) -> None:
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
        self._reported = reported
        space = envs[0].single_observation_space
        self._observation = jax.ShapeDtypeStruct(space.shape, space.dtype)
        self._programs = make_programs(
            policy, devices, num_envs // devices.count, self._observation
        )
        self._compiled: set[object] = set()

    def slot_bytes(self, population: Population, reference: PyTree) -> int:
        """Returns what a slot takes on its device, of shapes alone.

        Args:
            population: shapes of one whose members the slots shall hold.
            reference: shape of the reference batch; ``()`` for none.
        """
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

        Tasks of members of one group should be neighbours.
        """
        normalizer = view.normalizer(self._observation.shape, self._observation.dtype)
        shared = self._devices.share(Shared(population, *normalizer, view.reference))
        commanded = tasks.command is not None
        kind = jax.tree.structure(shared), commanded
        if kind not in self._compiled:
            self._programs.compile(shared, commanded)
            self._compiled.add(kind)
        num_devices = self._devices.count
        num_lanes = num_devices * len(self._envs)
        queue = TaskQueue(tasks.member, population.members_per_group, num_lanes)
        record = Gathered(tasks, self._envs[0], self._reported)
        groups = [
            _Group(env, self._programs, shared, tasks, queue, record, lanes.tolist())
            for env, lanes in zip(
                self._envs,
                np.arange(num_lanes).reshape(-1, num_devices),
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


class _Group:
    """One group's slots in one call of :meth:`Rollout.evaluate`: what the host knows.

    Slot arrays are indexed by environment, ``[num_envs]``. ``lanes`` are the numbers by
    which the queue knows this group on each of the ``D`` devices.
    """

    def __init__(
        self,
        env: VectorEnv,
        programs: SlotPrograms,
        shared: Shared,
        tasks: Tasks,
        queue: TaskQueue,
        record: Gathered,
        lanes: list[int],
    ) -> None:
        self._env, self._programs, self._shared = env, programs, shared
        self._tasks, self._queue, self._record = tasks, queue, record
        self._lanes = lanes
        self._is_alone = queue.num_lanes == len(lanes)
        self._slots, self._carry = programs.empty(
            shared, commanded=tasks.command is not None
        )
        self._actions: jax.Array | None = None
        num_slots = env.num_envs
        # [D, width]: which environment each of the programs' slots serves.
        self._served = np.arange(num_slots).reshape(len(lanes), -1)
        self.is_live = np.zeros(num_slots, bool)
        # Of the present episodes: number, limit and whether observed, as in the tasks;
        # then what they came to so far, and what the policy reads next.
        self._task = np.full(num_slots, IDLE)
        self._limit = np.zeros(num_slots, np.int32)
        self._observed = np.zeros(num_slots, bool)
        self._recorded = np.zeros(num_slots, bool)
        self._return = np.zeros(num_slots)
        self._healthy_reward = np.zeros(num_slots)
        self._sums = {name: np.zeros(num_slots) for name in record.of_tasks.sums}
        self._last = {name: np.zeros(num_slots) for name in record.of_tasks.last}
        self._length = np.zeros(num_slots, np.int32)
        self._reward = np.zeros(num_slots, np.float32)
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
        kept = live & self._recorded
        before = self._observation[kept] if kept.any() else None  # a copy
        with self._record.timed("environment"):
            observation, reward, terminated, truncated, info = self._env.step(actions)
        self._observation = observation
        if before is not None and self._record.steps is not None:
            healthy = info.get(HEALTHY_REWARD, np.zeros(len(live)))
            after = (reward, healthy, observation, terminated)
            self._record.steps.append(
                (
                    *(self._task[kept], self._length[kept], before, actions[kept]),
                    *(np.asarray(field)[kept] for field in after),
                )
            )
        with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN
            self._return[live] += reward[live]
        if HEALTHY_REWARD in info:
            self._healthy_reward[live] += info[HEALTHY_REWARD][live]
        for name, total in self._sums.items():
            if name in info:
                at, values = reported_in(info, name, live)
                total[at] += values[at]
        for name, kept in self._last.items():
            if name in info:
                at, values = reported_in(info, name, live)
                kept[at] = values[at]
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
        with self._record.timed("policy"):
            self._carry, self._actions = self._programs.act(
                self._shared,
                self._slots,
                self._carry,
                *map(self._by_slot, (self._observation, self._reward, self._length)),
            )
        self._record.computed_steps += self._served.size

    def _by_slot(self, of_envs: np.ndarray) -> np.ndarray:
        """Gives an array ``[num_envs, …]`` the axes ``[D, width, …]`` of the slots.

        It is not copied until slots are packed: nobody writes it before the devices'
        actions have arrived.
        """
        if self._served.size == len(of_envs):
            return of_envs.reshape(*self._served.shape, *of_envs.shape[1:])
        return of_envs[self._served]

    def _take_actions(self) -> np.ndarray:
        """Waits for the actions ``[num_envs, …]``; those of idle slots mean nothing."""
        space = self._env.single_action_space
        with self._record.timed("policy"):
            computed = np.asarray(self._actions)
        shape = self._env.num_envs, *space.shape
        if self._served.size == shape[0]:
            return computed.reshape(shape).astype(space.dtype, copy=False)
        actions = np.zeros(shape, space.dtype)
        actions[self._served] = computed
        return actions

    def _finish(self, ended: np.ndarray, info: dict) -> None:
        """Records ended episodes and hands their slots the next tasks."""
        envs = np.flatnonzero(ended)
        tasks = self._task[envs]
        results = self._record.of_tasks
        results.returns[tasks] = self._return[envs]
        results.lengths[tasks] = self._length[envs]
        results.healthy_rewards[tasks] = self._healthy_reward[envs]
        for name, total in self._sums.items():
            results.sums[name][tasks] = total[envs]
        for name, kept in self._last.items():
            results.last[name][tasks] = kept[envs]
        if results.descriptors.size:
            describing: Any = self._env
            results.descriptors[tasks] = describing.descriptors()[envs]
        if "simulation_failed" in info:
            results.failed[tasks] = info["simulation_failed"][envs]
        self._record.num_done += len(envs)
        self.is_live[envs] = False
        self._task[envs] = IDLE
        self._env.halt(ended)
        self._refill(envs)
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
            refill.member[entry] = self._tasks.member[task]
            refill.seed[entry] = self._tasks.seed[task]
            if self._tasks.command is not None:
                refill.command[entry] = self._tasks.command[task]
            refill.count[device] += 1
        return self._programs.refill(self._shared, self._slots, refill)

    def _reset(self, envs: np.ndarray, tasks: np.ndarray) -> None:
        """Starts the tasks' episodes in ``envs``."""
        mask = np.zeros(self._env.num_envs, bool)
        mask[envs] = True
        seed = np.zeros(self._env.num_envs, np.int64)
        seed[envs] = self._tasks.seed[tasks]
        options: dict[str, np.ndarray] = {"reset_mask": mask}
        if (given := self._tasks.variation) is not None:
            variation = np.zeros((self._env.num_envs, given.shape[1]))
            variation[envs] = given[tasks]
            options["variation"] = variation
        self._observation, _ = self._env.reset(seed=seed, options=options)
        self._task[envs] = tasks
        self.is_live[envs] = True
        self._return[envs] = 0.0
        self._healthy_reward[envs] = 0.0
        for total in self._sums.values():
            total[envs] = 0.0
        for kept in self._last.values():
            kept[envs] = np.nan
        self._length[envs] = 0
        self._reward[envs] = 0.0
        self._limit[envs] = self._tasks.max_steps[tasks]
        self._observed[envs] = self._tasks.observed[tasks]
        if self._tasks.recorded is not None:
            self._recorded[envs] = self._tasks.recorded[tasks]

    def _narrow(self) -> None:
        """Packs the live slots into a narrower program, if the queue is dry."""
        if not self._queue.is_empty():
            return
        needed = self.is_live[self._served].sum(axis=1).max()
        # From width to width: a program for each pair of them would be compiled.
        for width in self._programs.widths:
            if self._served.shape[1] > width >= needed > 0:
                self._pack(width)

    def _pack(self, width: int) -> None:
        """Keeps ``width`` slots a device: live ones first, in order; idle ones fill."""
        live = self.is_live[self._served]
        positions = np.argsort(~live, axis=1, kind="stable")[:, :width]
        self._served = np.take_along_axis(self._served, positions, axis=1)
        with self._record.timed("policy"):
            self._slots, self._carry = self._programs.pack(
                self._slots, self._carry, positions
            )
