"""Gymnasium's MuJoCo tasks, many at once, on MuJoCo's own threads.

``mujoco.batch`` steps simulations on a C++ thread pool and shows every field as one
array over environments; observations, rewards and endings are then a few NumPy calls
over all environments (:mod:`jax_es.envs.mujoco_tasks`). Only live environments are
stepped. Trajectories are those of ``gymnasium.make`` with the same seeds and actions,
whatever the number of environments and threads.

Observations are float32, Gymnasium's float64 rounded once: the policies are float32,
and writing the concatenation as float32 costs no more than writing it as float64.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, get_args

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils.seeding import np_random
from mujoco.batch import Batch, SimulationError

from jax_es.envs.base import EpisodeVectorEnv, positive_int, thread_count
from jax_es.envs.coarse import Integrator, coarse
from jax_es.envs.faults import being_made, blamed
from jax_es.envs.gait import PARTS, Gait, feet_of
from jax_es.envs.mujoco_batch import ContactForceBatch
from jax_es.envs.mujoco_tasks import TASKS
from jax_es.envs.robot import check, registered_task, with_numbers
from jax_es.envs.variations import NEUTRAL, Variations, rows

# The kinds from here on: NaN, infinite or huge qpos, qvel, qacc and ctrl.
_FIRST_UNSTABLE = int(mujoco.mjtWarning.mjWARN_BADQPOS)


class MujocoVectorEnv(EpisodeVectorEnv):
    """``num_envs`` copies of one of Gymnasium's MuJoCo tasks, or of a robot of yours.

    A simulation fails when MuJoCo raises an error in it or finds NaN, infinite or huge
    numbers in its state, acceleration or controls (it then restarts the simulation, or
    drops the controls, and goes on; Gymnasium does not notice). Here its episode ends:
    ``terminated``, reward NaN, and ``info["simulation_failed"]`` is a ``[num_envs]``
    bool mask of the live environments that failed in this step. The others go on
    undisturbed.

    Building one switches MuJoCo's own log off for the process: it would print each
    such failure and append it to ``MUJOCO_LOG.TXT`` in the working directory.

    Args:
        env_id: one of ``MujocoVectorEnv.supported``, or registered by
            :func:`jax_es.envs.robot.register`.
        num_envs: how many environments.
        num_threads: threads that step them, this one included; by default the number of
            CPUs this process may use.
        max_episode_steps: the limit on an episode; by default the task's own.
        terminate_when_unhealthy: whether falling ends an episode; Gymnasium's option of
            the same name, for the tasks that have it there.
        descriptor: what describes an episode: of the walkers ``"position"``, ``"feet"``
            or both, ``"gait"`` (:class:`jax_es.envs.gait.Gait`), or of any task
            indices of numbers in its last observation.
        num_substeps: physics steps in one environment step, in coarse physics
            (:mod:`jax_es.envs.coarse`); by default the task's.
        integrator: of coarse physics; by default the task's.
        numbers: variations of the task's own in episodes without one, by their names,
            in which ``_`` may stand for ``-``.

    ``reset`` takes the option ``"variation"``, ``[num_envs, A]``: each motor's share of
    its strength in the episode, 1 where it is whole and 0 where it is broken; or what
    :meth:`named_variations` returns, ``[num_envs, A + 5]``, or more with a task's own.

    Raises:
        ValueError: the id is not supported, a number is not a positive integer, the
            task cannot go on in an unhealthy state, it has no such descriptor, or
            MuJoCo cannot load the model.
        EnvironmentFailure: here and in every method, if a robot's task raises or
            returns something invalid.
    """

    supported: ClassVar[tuple[str, ...]] = tuple(TASKS)

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        num_threads: int | None = None,
        max_episode_steps: int | None = None,
        terminate_when_unhealthy: bool = True,
        descriptor: str | Sequence[int] = (),
        num_substeps: int | None = None,
        integrator: Integrator | None = None,
        numbers: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Compiles the model and allocates the simulations."""
        task = TASKS.get(env_id) or registered_task(env_id)
        if task is None:
            raise ValueError(
                f"env_id: got {env_id!r}, expected one of {', '.join(TASKS)}, or what "
                "jax_es.envs.robot.register registered"
            )
        if numbers:
            task = with_numbers(task, numbers)
        if num_substeps is not None:
            positive_int("num_substeps", num_substeps)
        if integrator not in (None, *get_args(Integrator)):
            known = ", ".join(get_args(Integrator))
            raise ValueError(f"integrator: got {integrator!r}, expected one of {known}")
        num_envs = positive_int("num_envs", num_envs)
        self.num_threads = thread_count(num_threads)
        silence_mujoco_log()

        try:
            model = mujoco.MjModel.from_xml_path(str(task.model_path()))
        except ValueError as error:
            text = " ".join(str(error).split())
            raise ValueError(f"env_id: {env_id} has no model: {text}") from error
        if (num_substeps, integrator) != (None, None):
            task = coarse(task, model, num_substeps, integrator)
        if task.contact_forces:
            self._batch = ContactForceBatch(model, num_envs, self.num_threads)
        else:
            self._batch = Batch(model, num_envs, self.num_threads)
        self._env_id = env_id
        with being_made(env_id, ()):
            self._task = task(model, self._batch.bind)
            if self._task.variations:
                self._task.expanded(self._batch.expand)
            if env_id not in TASKS:
                check(env_id, self._task, model)
        if numbers:  # before an episode does
            with blamed(f"environment {env_id}", "when it was made", (ValueError,)):
                self._task.begin(0, self._task.variations, np.random.default_rng(0))
        self.terminate_when_unhealthy = terminate_when_unhealthy
        self._initial_state = self._batch.state[0].copy()
        self._num_unstable = self._batch.warning[:, _FIRST_UNSTABLE:, 1]
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._model = model
        self._varied: Variations | None = None  # nothing ever was
        self._gait: Gait | None = None
        if isinstance(descriptor, str):
            if descriptor not in PARTS or feet_of(task) is None:
                raise ValueError(
                    f"descriptor: got {descriptor!r}, expected indices of numbers in "
                    f"an observation of {env_id}, or for a walker {', '.join(PARTS)}"
                )
            self._gait = Gait(self._task, model, self._batch.bind, descriptor)
            descriptor = ()

        size = sum(part.shape[1] for part in self._task.observation())
        super().__init__(
            num_envs,
            gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32),
            gymnasium.spaces.Box(
                *model.actuator_ctrlrange.T.astype(np.float32), dtype=np.float32
            ),
            task.max_episode_steps if max_episode_steps is None else max_episode_steps,
            descriptor,
        )
        self.spec = gymnasium.spec(env_id.rpartition(":")[2])

    @property
    def terminate_when_unhealthy(self) -> bool:
        """Whether falling ends an episode; may be changed between two steps."""
        return self._task.terminate_when_unhealthy

    @terminate_when_unhealthy.setter
    def terminate_when_unhealthy(self, value: bool) -> None:
        if not (value or self._task.may_go_on_unhealthy):
            going_on = [name for name, t in TASKS.items() if t.may_go_on_unhealthy]
            raise ValueError(
                f"terminate_when_unhealthy: {self._env_id} has no such option; leave "
                f"it True or choose {', '.join(going_on)}"
            )
        self._task.terminate_when_unhealthy = value

    @property
    def pays_healthy_reward(self) -> bool:
        """Whether steps pay for staying healthy: ``info["reward_survive"]`` says it."""
        return self._task.healthy_reward > 0

    @property
    def descriptor_size(self) -> int:
        """B, how many numbers describe an episode."""
        return super().descriptor_size if self._gait is None else self._gait.size

    def descriptors(self) -> np.ndarray:
        """Returns ``[num_envs, B]`` float64, what each episode did so far."""
        if self._gait is None:
            return super().descriptors()
        return self._gait.descriptors()

    @property
    def variations(self) -> Mapping[str, float]:
        """Name → the value that changes nothing."""
        return {**NEUTRAL, **self._task.variations}

    def named_variations(self, values: Mapping[str, Any], count: int) -> np.ndarray:
        """Returns variations ``[count, V]`` by their names.

        Args:
            values: name of :data:`jax_es.envs.variations.NEUTRAL`, which says what they
                mean, or of the task's own → a number or ``[count]`` numbers; absent
                ones are neutral.
            count: of episodes.

        Raises:
            ValueError: there is no such name, or a value is out of its range.
        """
        return rows(values, count, self._model.nu, self._task.variations)

    def report(self, names: Sequence[str]) -> None:
        """Puts numbers of Gymnasium's info dictionary into that of each step.

        Args:
            names: of the numbers, as ``"reward_ctrl"``.

        Raises:
            ValueError: the task reports nothing of such a name.
        """
        rows = np.zeros((self.num_envs, self._model.nu), np.float32)
        with self._blamed("in info"):
            known = self._task.info(rows, np.zeros(self.num_envs, bool))
        for name in names:
            if name not in known:
                listed = ", ".join(sorted(known)) or "nothing"
                raise ValueError(
                    f"{self._env_id} reports no {name!r}; it reports {listed}"
                )
        self._task.is_reporting = True

    def close_extras(self, **kwargs: Any) -> None:
        """Releases the simulations and their threads."""
        del self._task, self._gait, self._num_unstable, self._batch, self._varied

    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        variation = options.pop("variation", None)
        if options:
            raise ValueError(
                f"options: got {sorted(options)}, expected 'reset_mask' and 'variation'"
            )
        ids = np.flatnonzero(mask).astype(np.int32)
        is_varied = variation is not None or self._task.variations
        if is_varied and self._varied is None:
            size = self._observations.shape[1]
            self._varied = Variations(self._model, self._batch, self._task, size)
        if self._varied is not None:
            self._varied.start(ids, variation)
        if self._gait is not None:
            self._gait.start(ids)
        self._batch.state[ids] = self._initial_state
        self._batch.warning[ids] = 0
        task = self._task
        with self._blamed("in reset"):
            for i, seed in zip(ids.tolist(), seeds, strict=True):
                generator = self._generators[i]
                if seed is not None or generator is None:
                    generator, _ = np_random(seed)
                    self._generators[i] = generator
                if self._varied is not None and task.variations:
                    own = self._varied.own[i].tolist()
                    own = dict(zip(task.variations, own, strict=True))
                    task.begin(i, own, generator)
                task.qpos[i], task.qvel[i] = task.initial_state(generator)
            self._batch.forward(ids)
            parts = self._seen(ids)
            task.remember()
        self._observations[ids] = np.concatenate([p[ids] for p in parts], axis=1)
        return {}

    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, bool, dict[str, Any]]:
        actions = actions.astype(np.float32, copy=False)
        if self._varied is not None:
            actions = self._varied.applied(actions)
        self._task.ctrl[:] = actions
        failed = self._simulate(live)
        if self._gait is not None:
            self._gait.observe(live)
        # Rows that stand still are computed again, to the same values.
        with self._blamed("in step"):
            np.concatenate(
                self._seen(np.flatnonzero(live)),
                axis=1,
                out=self._observations,
                casting="same_kind",
            )
            unhealthy = self._task.unhealthy()
            rewards = self._task.reward(actions, unhealthy)
            rewards = np.where(failed, np.nan, rewards)
            info: dict[str, Any] = {}
            if self._task.is_reporting:
                info = dict(self._task.info(actions, unhealthy))
            info["simulation_failed"] = failed
            if self.pays_healthy_reward:
                paid = self._task.survival(unhealthy)
                info["reward_survive"] = np.full(self.num_envs, paid)
            self._task.remember()
        terminated = failed
        if self._task.terminate_when_unhealthy:
            terminated = failed | unhealthy
        return rewards, terminated, False, info

    @contextlib.contextmanager
    def _blamed(self, when: str) -> Iterator[None]:
        """Blames the task for what it raises inside."""
        # Numbers of a fallen or failed simulation may have no finite square.
        with (
            blamed(f"environment {self._env_id}", when),
            np.errstate(invalid="ignore", over="ignore"),
        ):
            yield

    def _seen(self, ids: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the observation in pieces, after a step or a start of ``ids``."""
        parts = self._task.observation()
        if self._varied is None:
            return parts
        return self._varied.seen(ids, parts, self._generators)

    def _simulate(self, live: np.ndarray) -> np.ndarray:
        """Steps the live simulations; returns ``[num_envs]``, those that failed."""
        ids = None if live.all() else np.flatnonzero(live).astype(np.int32)
        failed = np.zeros(self.num_envs, bool)
        try:
            self._batch.step(ids, nstep=self._task.num_substeps)
        except SimulationError as error:
            failed[error.ids] = True
        # Counts start from 0 in each episode.
        return failed | (live & self._num_unstable.any(axis=1))


def silence_mujoco_log() -> None:
    """Stops MuJoCo from printing warnings and writing them to the working directory."""
    config = mujoco.MjLogConfig.get()
    config.logto_file = False
    config.logto_console = False
    config.set()
