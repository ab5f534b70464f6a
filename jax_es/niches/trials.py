"""Episodes of many policies in many terrains, each call in one rollout.

All niches' members stand in one population and one list of tasks, so that no slot
waits for the last episode of one niche while others have some to run.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.es.population import JoinedPopulations, MaterializedPopulation, Population
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.observation_statistics import ObservationStatistics, view_of
from jax_es.rollout.tasks import Tasks
from jax_es.rollout.variations import check_begins, varied
from jax_es.training.episodes import evaluation_tasks, population_tasks
from jax_es.training.generation import longest_episode
from jax_es.training.objective import fitness, make_objective
from jax_es.training.parts import Parts
from jax_es.training.session import OnStep
from jax_es.types import PyTree


class Improved(NamedTuple):
    """What one generation of several searches came to."""

    states: list[PyTree]
    """After it."""
    scores: np.ndarray
    """``[M]``, the mean return of each θ before it; NaN if it was not evaluated."""
    population: EpisodeResults
    """Episodes of the members, search by search."""
    evaluation: EpisodeResults
    """Episodes of the θ, likewise."""


class Trials:
    """Evaluates policies in terrains, and counts what that costs.

    Args:
        parts: what trains.
        names: of a terrain's numbers.
        width: places for θ in a population; it is made wider, to a power of two, where
            there are more. Programs are compiled for each width.

    Attributes:
        statistics: what observations are normalised by, if they are.
        env_steps: environment steps since :meth:`begin`, and the next two likewise.
        computed_steps: policy steps, idle slots included.
        seconds: by activity.
    """

    def __init__(self, parts: Parts, names: Sequence[str], width: int) -> None:
        self._parts, self._names, self._width = parts, names, width
        self.statistics: ObservationStatistics | None = None
        self.begin()

    def check(self, terrains: Sequence[np.ndarray]) -> None:
        """Begins an episode in each of these terrains.

        Raises:
            ConfigError: the environment cannot be so.
        """
        if self._names:
            values = (
                dict(zip(self._names, terrain.tolist(), strict=True))
                for terrain in terrains
            )
            check_begins(self._parts.env, values, "--mutate")

    def begin(self, on_step: OnStep = lambda progress: None) -> None:
        """Counts from 0; ``on_step`` is called often from now on."""
        self._on_step = on_step
        self.env_steps = self.computed_steps = 0
        self.seconds: dict[str, float] = {}

    def scores(
        self,
        means: Sequence[PyTree],
        terrains: Sequence[np.ndarray],
        which: Sequence[tuple[int, int]],
        generation: int,
    ) -> np.ndarray:
        """Returns mean returns ``[n]``.

        All meet the environment's seeds of the generation's evaluation.

        Args:
            means: θ's.
            terrains: ``[V]`` each.
            which: n times number of a θ, number of a terrain.
            generation: which one.
        """
        if not which:
            return np.zeros(0)
        whose, where = np.array(which).T
        config = self._parts.config
        count, limit = config.evaluation.num_episodes, self._parts.env.max_episode_steps
        once = evaluation_tasks(config.seed, generation, count, limit)
        tasks = _joined(
            [once._replace(member=np.full(count, m, np.int32)) for m in whose]
        )
        population = MaterializedPopulation(means[0], self._stacked(means))
        numbers = np.repeat(np.stack([*terrains])[where], count, axis=0)
        result = self._run(population, tasks, numbers)
        return result.returns.reshape(-1, count).mean(axis=1)

    def improve(
        self,
        states: Sequence[Any],
        terrains: Sequence[np.ndarray],
        generation: int,
        num_evaluations: int = 0,
    ) -> Improved:
        """Runs a generation of each search in its terrain.

        Args:
            states: M of them, the strategy's.
            terrains: as many.
            generation: of POET, which decides the seeds of the episodes.
            num_evaluations: episodes of each θ itself.
        """
        parts, config = self._parts, self._parts.config
        num_pairs, limit = config.es.num_pairs, parts.env.max_episode_steps
        asked = [parts.strategy.ask(state) for state in states]
        keys = self._stacked([jax.random.key_data(each.key) for each in asked])
        population = JoinedPopulations(
            self._stacked([each.mean for each in asked]),
            jax.random.wrap_key_data(jnp.asarray(keys), impl="threefry2x32"),
            self._stacked([each.sigma for each in asked]),
            num_pairs,
            asked[0].noise,
        )
        count = num_evaluations
        evaluation = evaluation_tasks(config.seed, generation, count, limit)
        itself = np.full(count, 2 * num_pairs, np.int32)
        evaluation = evaluation._replace(member=itself)
        longest = longest_episode(parts)
        members = population_tasks(config, generation, longest, 2 * num_pairs)
        kinds = [
            [
                tasks._replace(
                    member=np.int32(population.member_of(index, 0)) + tasks.member
                )
                for index in range(len(states))
            ]
            for tasks in (evaluation, members)
        ]
        numbers = np.concatenate(
            [
                np.repeat(np.stack([*terrains]), len(tasks[0].member), axis=0)
                for tasks in kinds
            ]
        )
        result = self._run(population, _joined([*kinds[0], *kinds[1]]), numbers)
        border = count * len(states)
        evaluated = result.episodes(slice(None, border))
        told = result.episodes(slice(border, None))
        updating = time.perf_counter()
        size, objective = len(members.member), make_objective(config.es)
        after = []
        for index, state in enumerate(states):
            own = told.episodes(slice(index * size, (index + 1) * size))
            found = fitness(own, members.member, objective)
            after.append(jax.block_until_ready(parts.strategy.tell(state, found))[0])
        self._count_seconds({"update": time.perf_counter() - updating})
        scores = np.full(len(states), np.nan)
        if count:
            scores = evaluated.returns.reshape(-1, count).mean(axis=1)
        return Improved(after, scores, told, evaluated)

    def _run(
        self, population: Population, tasks: Tasks, numbers: np.ndarray
    ) -> EpisodeResults:
        parts = self._parts
        values = dict(zip(self._names, numbers.T, strict=True))
        if values:
            tasks = varied(tasks, parts.env, values, "--mutate")
        view = view_of(parts.config, self.statistics)
        result = parts.rollout.evaluate(population, tasks, view, self._on_step)
        self.env_steps += result.env_steps
        self.computed_steps += result.computed_steps
        self._count_seconds(result.seconds)
        return result

    def _count_seconds(self, seconds: Mapping[str, float]) -> None:
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def _stacked(self, trees: Sequence[PyTree]) -> PyTree:
        """Returns trees as one on the host, the places behind them filled up."""
        width = max(self._width, 1 << (len(trees) - 1).bit_length())
        filled = [*trees, *[trees[0]] * (width - len(trees))]
        return jax.tree.map(
            lambda *leaves: np.stack(leaves), *map(jax.device_get, filled)
        )


def _joined(tasks: Sequence[Tasks]) -> Tasks:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *tasks)
