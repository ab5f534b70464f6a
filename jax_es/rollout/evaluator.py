"""What every evaluator is: population and tasks in, episode results out."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jax_es.checks import require
from jax_es.es.population import Population
from jax_es.es.replay import Transitions
from jax_es.rollout.observation_statistics import (
    UNCHANGED,
    ObservationStatistics,
    View,
    initial_statistics,
)
from jax_es.rollout.tasks import Tasks
from jax_es.types import VectorEnv


class Reported(NamedTuple):
    """What is kept of the numbers that environments put into ``info``, by name."""

    sums: tuple[str, ...] = ()
    """Names whose numbers are summed over an episode."""
    last: tuple[str, ...] = ()
    """Names whose last number in an episode is kept."""


NOTHING = Reported()


def never() -> None:
    """Stops nothing: what ``check_stop`` is unless a program has one."""


class EpisodeResults(NamedTuple):
    """What tasks came to; arrays are ``[E]``, in the order of the tasks."""

    returns: np.ndarray
    """float64 undiscounted episode returns; NaN where the simulation failed or paid
    NaN."""
    lengths: np.ndarray
    """int32, environment steps."""
    failed: np.ndarray
    """bool, whether the simulator gave up on the episode."""
    healthy_rewards: np.ndarray
    """float64, the part of each return that was paid for staying healthy; 0 where the
    environment does not report it."""
    descriptors: np.ndarray
    """``[E, B]`` float64, what each episode did, as the environment describes it; B is
    0 where it does not."""
    observations: ObservationStatistics
    """Sums over the observed episodes of this call alone."""
    env_steps: int
    """Environment steps taken."""
    computed_steps: int
    """Policy steps computed, idle slots included."""
    seconds: dict[str, float]
    """Wall-clock by ``"policy"``, ``"environment"`` and ``"noise"``; with several slot
    groups, waiting for noise counts as policy."""
    sums: Mapping[str, np.ndarray] = MappingProxyType({})
    """Sums over each episode of what its steps reported in ``info``, by the names that
    an objective asks for; 0 where none did."""
    last: Mapping[str, np.ndarray] = MappingProxyType({})
    """What each episode last reported, likewise; NaN where it did not."""
    commands: np.ndarray | None = None
    """The returns that episodes were asked for; None if they were not."""
    transitions: Transitions | None = None
    """The steps of the recorded episodes of this call; None if none was recorded."""

    @classmethod
    def empty(
        cls,
        num_tasks: int,
        descriptor_size: int = 0,
        observation_size: int = 0,
        reported: Reported = NOTHING,
    ) -> "EpisodeResults":
        """Returns zeros for what tasks will come to, to be filled in."""
        return cls(
            returns=np.zeros(num_tasks),
            lengths=np.zeros(num_tasks, np.int32),
            failed=np.zeros(num_tasks, bool),
            healthy_rewards=np.zeros(num_tasks),
            descriptors=np.zeros((num_tasks, descriptor_size)),
            observations=initial_statistics(observation_size),
            env_steps=0,
            computed_steps=0,
            seconds={},
            sums={name: np.zeros(num_tasks) for name in reported.sums},
            last={name: np.full(num_tasks, np.nan) for name in reported.last},
        )

    @property
    def slot_utilization(self) -> float:
        """Live slot-steps / computed slot-steps."""
        return self.env_steps / max(self.computed_steps, 1)

    def episodes(self, which: slice) -> "EpisodeResults":
        """Returns the results of some of the tasks; what is of the call stays."""
        part = {name: getattr(self, name)[which] for name in OF_EPISODES}
        reported = {
            name: {key: value[which] for key, value in getattr(self, name).items()}
            for name in ("sums", "last")
        }
        env_steps = int(part["lengths"].sum())
        return self._replace(**part, **reported, env_steps=env_steps)


OF_EPISODES = ("returns", "lengths", "failed", "healthy_rewards", "descriptors")
"""Arrays of :class:`EpisodeResults` with a row for each episode."""


class RolloutProgress(NamedTuple):
    """How far an evaluation has come, for ``on_step``; counted from its start."""

    num_done: int
    """Finished tasks."""
    num_tasks: int
    """All tasks."""
    env_steps: int
    """Environment steps taken."""
    computed_steps: int
    """Policy steps computed, idle slots included."""
    seconds: dict[str, float]
    """Wall-clock by activity, as in :class:`EpisodeResults`."""


class Evaluator(Protocol):
    """Runs the tasks of a population, wherever: here, or on other machines."""

    def evaluate(
        self,
        population: Population,
        tasks: Tasks,
        view: View = UNCHANGED,
        on_step: Callable[[RolloutProgress], None] = lambda progress: None,
    ) -> EpisodeResults:
        """Runs every task to its end.

        Args:
            population: whose members the tasks name.
            tasks: the episodes.
            view: how the policy sees observations.
            on_step: called often. What it raises ends the evaluation.
        """
        ...


class Gathered:
    """What one call of ``Rollout.evaluate`` gathers, over all groups."""

    def __init__(self, tasks: Tasks, env: VectorEnv, reported: Reported) -> None:
        num_tasks = len(tasks.member)
        size = int(np.prod(env.single_observation_space.shape))
        descriptor_size = getattr(env, "descriptor_size", 0)
        self.of_tasks = EpisodeResults.empty(num_tasks, descriptor_size, size, reported)
        # Blocks of steps, each after its tasks and timesteps; None if none is kept.
        self.steps: list[tuple] | None = None if tasks.recorded is None else []
        self._action_size = int(np.prod(env.single_action_space.shape))
        self.statistics = self.of_tasks.observations
        self.num_done = self.env_steps = self.computed_steps = 0
        self.seconds = {"policy": 0.0, "environment": 0.0, "noise": 0.0}

    def result(self) -> EpisodeResults:
        """Returns what was gathered."""
        return self.of_tasks._replace(
            observations=self.statistics,
            env_steps=self.env_steps,
            computed_steps=self.computed_steps,
            seconds=self.seconds,
            transitions=self._transitions(),
        )

    def _transitions(self) -> Transitions | None:
        """Returns the steps that were kept, whatever order they came in."""
        if self.steps is None:
            return None
        empty = Transitions.empty(0, self.statistics.sum.size, self._action_size)
        blocks = [(np.zeros(0, int), np.zeros(0, int), *empty), *self.steps]
        columns = zip(*blocks, strict=True)
        task, time_, *fields = (np.concatenate(column) for column in columns)
        order = np.lexsort((time_, task))
        return Transitions(
            *(
                field[order].astype(like.dtype, copy=False)
                for field, like in zip(fields, empty, strict=True)
            )
        )

    def progress(self) -> RolloutProgress:
        """Returns how far the call has come."""
        return RolloutProgress(
            self.num_done,
            len(self.of_tasks.returns),
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


def reported_in(
    info: dict[str, Any], name: str, live: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns who reported a number in a step, and the numbers, both ``[num_envs]``.

    Gymnasium's vector environments say in ``info["_name"]`` whose ``info`` had it.

    Raises:
        ConfigError: if it is no number.
    """
    values = np.asarray(info[name])
    require(
        values.ndim == 1 and values.dtype.kind in "biuf",
        f"the objective asks for {name}, and the environment reports "
        f"{values.dtype}{list(values.shape[1:])} under that name, no number; ask for "
        "another one.",
    )
    return live & info.get(f"_{name}", True), values
