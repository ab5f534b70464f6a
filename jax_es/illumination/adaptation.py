"""Damaged robots that try elites until one of them walks well enough.

The robots of all damages, seeds and rules are tried side by side: a round of trials is
one rollout, in which every episode has its own damage.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np

from jax_es.es.population import MaterializedPopulation
from jax_es.illumination.emitters import Weights
from jax_es.illumination.repertoire import SavedArchive
from jax_es.illumination.settings import RULES, Rule, TrialConfig
from jax_es.illumination.trials import Search
from jax_es.rollout.observation_statistics import view_of
from jax_es.rollout.streams import stream
from jax_es.rollout.tasks import Tasks
from jax_es.runs.wording import counted, markdown, significant
from jax_es.training.build import Damage
from jax_es.training.objective import fitness, make_objective, reported_for
from jax_es.training.parts import EvaluationParts, build_evaluation


class Recovery(NamedTuple):
    """How one damaged robot was tried."""

    damage: str
    rule: Rule
    seed: int
    cells: list[int]
    """Of the elites tried, in order."""
    fitness: list[float]
    """What each trial showed."""
    kept: float
    """Fitness of the elite with the best trial, in the damaged robot: the mean of other
    episodes than that trial, and than those that made its promise."""
    intact: float
    """Fitness of the best elite in an undamaged robot, the mean of an episode for each
    seed; not of those that made it the best."""
    limit: float | None
    """As ``intact``, of the elite that is best in the damaged robot: what the archive
    could give, and no search can pass. None if not every elite was tried."""


def adapt_run(
    saved: SavedArchive,
    damages: Mapping[str, Damage],
    config: TrialConfig,
    rules: Sequence[Rule] = ("ite",),
    seeds: int = 5,
    exhaustive: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Recovery]:
    """Lets damaged robots recover with an archive's elites.

    Args:
        saved: from :func:`~jax_es.illumination.repertoire.read_archive`.
        damages: the damaged robots by name (``training.build.damages``).
        config: settings of the search.
        rules: how elites are chosen.
        seeds: robots of each damage and rule; they differ in how episodes begin.
        exhaustive: also try every elite in every damaged robot.
        say: told of every round.
    """
    elites = saved.archive.elites()
    robots: list[tuple[str, Rule, int]] = [
        (name, rule, seed)
        for name in damages
        for rule in rules
        for seed in range(seeds)
    ]
    episodes: list[_Episode] = [(seed, damages[name]) for name, _, seed in robots]
    motors = next(iter(damages.values())).strength.shape
    intact = Damage(saved.config.env.id, np.ones(motors))
    with _Player(saved, max(len(robots), len(elites), seeds)) as player:
        promise = elites.fitness
        if config.reevaluations:
            promise = player.promise(config.reevaluations, intact)
        best = player.often(int(promise.argmax()), intact, seeds)
        say(
            f"undamaged, the best elite comes to fitness {significant(best)} in "
            f"{counted(seeds, 'episode')}; the archive says "
            f"{significant(elites.fitness.max())}"
        )
        limits = dict.fromkeys(damages)
        for name, damage in damages.items() if exhaustive else ():
            found = player.promise(max(config.reevaluations, 1), damage)
            limit = limits[name] = player.often(int(found.argmax()), damage, seeds)
            say(f"{name}: the best of all elites comes to {significant(limit)}")
        searches = [
            Search(saved.archive, promise, config, rule, stream(seed, "adaptation"))
            for _, rule, seed in robots
        ]
        _search(player, episodes, searches, config.trials, say)
        kept = np.array([s.tried[int(np.argmax(s.fitness))] for s in searches])
        numbers = range(1, 1 + max(config.reevaluations, 1))
        again = [player(kept, episodes, _REEVALUATION + number) for number in numbers]
    return [
        Recovery(
            *robot,
            elites.cell[search.tried].tolist(),
            search.fitness,
            value,
            best,
            limits[robot[0]],
        )
        for robot, search, value in zip(
            robots, searches, np.nanmean(again, axis=0).tolist(), strict=True
        )
    ]


def _search(
    player: "_Player",
    episodes: Sequence["_Episode"],
    searches: Sequence[Search],
    trials: int,
    say: Callable[[str], None],
) -> None:
    """Lets each robot try elites until its search is over; a round is one rollout."""
    for number in range(1, trials + 1):
        going = [i for i, search in enumerate(searches) if not search.is_over]
        if not going:
            return
        chosen = np.array([searches[i].next() for i in going])
        found = player(chosen, [episodes[i] for i in going], number)
        for i, position, value in zip(going, chosen, found, strict=True):
            searches[i].tell(int(position), float(value))
        say(f"trial {number}/{trials}: {counted(len(going), 'robot')}")


_Episode: TypeAlias = tuple[int, Damage]
"""A robot's seed, and what broke; those of one seed begin a trial alike."""


_REEVALUATION = 1_000_000
"""What stands for a trial's number where promises are made, in drawing how it begins;
kept elites are judged by the next ones."""


class _Player(contextlib.ExitStack):
    """Plays episodes; closing it releases the simulations.

    Args:
        saved: whose elites play.
        most: episodes at a time; more of them wait.
    """

    def __init__(self, saved: SavedArchive, most: int) -> None:
        super().__init__()
        self._saved, self._most = saved, most
        self._bodies: dict[str, EvaluationParts] = {}
        weights = Weights(self._body(saved.config.env.id).policy.init)
        vectors = jnp.asarray(saved.archive.elites().weights)
        self._population = MaterializedPopulation(
            weights.tree(vectors[0]), weights.trees(vectors)
        )

    def _body(self, env_id: str) -> EvaluationParts:
        """Returns what evaluates robots of a body."""
        if env_id not in self._bodies:
            config = self._saved.config
            env = dataclasses.replace(config.env, id=env_id)
            config = dataclasses.replace(config, env=env)
            parts = build_evaluation(
                config, self._most, reported=reported_for(config.es)
            )
            self.callback(parts.close)
            self._bodies[env_id] = parts
        return self._bodies[env_id]

    def promise(self, episodes: int, damage: Damage) -> np.ndarray:
        """Returns ``[N]``, the mean of so many episodes of each elite."""
        count = len(self._saved.archive.elites())
        elite = np.tile(np.arange(count), episodes)
        played = [(seed, damage) for seed in range(episodes) for _ in range(count)]
        found = self(elite, played, _REEVALUATION).reshape(episodes, count)
        # One that fails promises nothing.
        return np.where(np.isfinite(found).all(axis=0), found.mean(axis=0), 0.0)

    def often(self, elite: int, damage: Damage, seeds: int) -> float:
        """Returns the mean of an episode for each seed; not those of promises."""
        played = [(seed, damage) for seed in range(seeds)]
        found = self(np.full(seeds, elite), played, 0)
        return float(found[np.isfinite(found)].mean())

    def __call__(
        self, elite: np.ndarray, episodes: Sequence[_Episode], number: int
    ) -> np.ndarray:
        """Returns ``[R]`` fitness.

        Args:
            elite: ``[R]``, whose turn it is in each episode.
            episodes: R of them.
            number: of the trial.
        """
        # Drawn apart from those that filled the archive.
        begins = [
            stream(seed, "adaptation", number + 1).integers(2**31)
            for seed, _ in episodes
        ]
        begins = np.array(begins, np.int32)
        strength = np.stack([damage.strength for _, damage in episodes])
        bodies = np.array([damage.env_id for _, damage in episodes])
        found = np.zeros(len(episodes))
        for body in dict.fromkeys(bodies.tolist()):
            parts, which = self._body(body), np.flatnonzero(bodies == body)
            limit = parts.env.max_episode_steps
            tasks = Tasks(
                member=elite[which].astype(np.int32),
                seed=begins[which],
                max_steps=np.full(len(which), limit, np.int32),
                observed=np.zeros(len(which), bool),
                variation=strength[which],
            )
            view = view_of(parts.config, None)
            result = parts.rollout.evaluate(self._population, tasks, view)
            found[which] = fitness(
                result, np.arange(len(which)), make_objective(parts.config.es)
            )
        return found


def table(recoveries: Sequence[Recovery]) -> str:
    """Returns a Markdown table: a row for each damage and rule, medians over seeds.

    Shares are of the undamaged best: what the kept elite comes to in other episodes
    than its trial, and the best of all elites if every one was tried; ``none`` if that
    is below 0. They are left out where the undamaged best comes to nothing or less.
    """
    heads = ["damage", "how the next elite is chosen", "trials", "first trial"]
    heads += ["best trial", "kept", "share of intact", "best of all elites"]
    lines: list[list[str]] = []
    for (damage, rule), robots in by_damage_and_rule(recoveries).items():
        numbers = [
            (len(r.fitness), r.fitness[0], max(r.fitness), r.kept) for r in robots
        ]
        trials, *medians = np.median(numbers, axis=0)
        intact, limit = robots[0].intact, robots[0].limit
        shares = [
            "" if value is None or intact <= 0 else _share(value / intact)
            for value in (medians[-1], limit)
        ]
        cells = [f"{trials:.0f}", *map(significant, medians), *shares]
        lines.append([damage, RULES[rule], *cells])
    return markdown(heads, lines)


def _share(value: float) -> str:
    """Writes a share; a fitness below 0 is none of the undamaged one."""
    return "none" if value < 0 else f"{100 * value:.0f} %"


def by_damage_and_rule(
    recoveries: Sequence[Recovery],
) -> Mapping[tuple[str, Rule], list[Recovery]]:
    """Sorts recoveries; those of one group are its seeds."""
    groups: dict[tuple[str, Rule], list[Recovery]] = {}
    for recovery in recoveries:
        groups.setdefault((recovery.damage, recovery.rule), []).append(recovery)
    return groups
