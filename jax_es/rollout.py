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

The loop runs on the host and steps the environments; ``slots.py`` has the programs
that the devices run.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from jax_es.config import require
from jax_es.devices import Devices
from jax_es.noise import Noise
from jax_es.normalization import (
    ObservationStatistics,
    initial_statistics,
    mean_and_std,
    observe,
)
from jax_es.openai_es import Population
from jax_es.slots import Refill, Shared, SlotPrograms, Slots
from jax_es.task_queue import IDLE, TaskQueue, Tasks
from jax_es.types import Policy, VectorEnv


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
        self._env = env
        self._devices = devices
        self._programs = SlotPrograms(
            policy,
            noise,
            devices,
            env.num_envs // devices.count,
            env.single_observation_space.shape,
        )
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
            tasks: the episodes. The tasks of a pair should follow each other.
            statistics: how the policy sees observations; as they are if not given.
            on_step: called once a step with the numbers of finished and of all
                tasks. What it raises ends the run.
        """
        shared = self._share(population, statistics)
        if not self._is_compiled:
            self._programs.compile(shared)
            self._is_compiled = True
        loop = _Loop(self._env, self._programs, self._devices.count, shared, tasks)
        loop.fill()
        while loop.is_live.any():
            loop.step()
            on_step(loop.num_done, len(tasks.pair))
        return loop.result()

    def _share(
        self, population: Population, statistics: ObservationStatistics | None
    ) -> Shared:
        """Places what all slots read on every device."""
        if statistics is None:
            size = self._env.single_observation_space.shape
            normalizer = np.zeros(size, np.float32), np.ones(size, np.float32)
        else:
            normalizer = mean_and_std(statistics)
        return self._devices.share((population, normalizer))


class _Loop:
    """One call of :meth:`Rollout.run`: what the host knows of each slot.

    Slot arrays are indexed by environment, ``[S]``; ``_served`` says which
    environments the programs currently serve.
    """

    def __init__(
        self,
        env: VectorEnv,
        programs: SlotPrograms,
        num_devices: int,
        shared: Shared,
        tasks: Tasks,
    ) -> None:
        self._env = env
        self._programs = programs
        self._shared = shared
        self._tasks = tasks
        num_slots = env.num_envs
        self._queue = TaskQueue(tasks.pair, num_devices)
        self._slots, self._carry = programs.empty(shared, programs.widths[0])
        # Which environment each policy slot serves, [D, width].
        self._served = np.arange(num_slots).reshape(num_devices, -1)
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
        with self._timed("environment"):
            observation, reward, terminated, truncated, info = self._env.step(
                self._actions
            )
        self._observation = observation
        live = self.is_live
        with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN
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
        served = self._served
        with self._timed("policy"):
            self._carry, actions = self._programs.act(
                self._shared,
                self._slots,
                self._carry,
                self._observation[served],
                self._reward[served],
                self._length[served],
            )
            self._actions[served] = np.asarray(actions)
        self._computed_steps += served.size

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
        with self._timed("noise"):
            # The programs are narrowed only after the last refill: until then slot
            # (device, position) serves environment device · width + position.
            devices, positions = np.divmod(envs, self._programs.widths[0])
            tasks = np.array([self._queue.take(d) for d in devices.tolist()], int)
            taken = tasks != IDLE
            envs, tasks = envs[taken], tasks[taken]
            if not len(envs):
                return envs
            slots = self._write(devices[taken], positions[taken], tasks)
        # The environments start while the devices draw noise.
        with self._timed("environment"):
            self._reset(envs, tasks)
        with self._timed("noise"):
            self._slots = jax.block_until_ready(slots)
        return envs

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
        with self._timed("policy"):
            self._slots, self._carry = self._programs.pack(
                self._slots, self._carry, positions
            )

    @contextlib.contextmanager
    def _timed(self, activity: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[activity] += time.perf_counter() - started
