"""What every evaluator is: population and tasks in, episode results out."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from jax_es.es.population import Population
from jax_es.es.replay import Transitions
from jax_es.rollout.observation_statistics import (
    UNCHANGED,
    ObservationStatistics,
    View,
    initial_statistics,
)
from jax_es.rollout.tasks import Tasks


class Reported(NamedTuple):
    """What is kept of the numbers that environments put into ``info``, by name."""

    sums: tuple[str, ...] = ()
    """Names whose numbers are summed over an episode."""
    last: tuple[str, ...] = ()
    """Names whose last number in an episode is kept."""


NOTHING = Reported()


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
