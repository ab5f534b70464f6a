"""Damaged robots that try elites until one of them walks well enough.

The robots of all damages, seeds and rules are tried side by side: a round of trials is
one rollout, in which every episode has its own damage.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.es.population import MaterializedPopulation
from jax_es.illumination.emitters import Weights
from jax_es.illumination.repertoire import SavedArchive
from jax_es.illumination.settings import Rule, TrialConfig
from jax_es.illumination.trials import Search
from jax_es.rollout.observation_statistics import view_of
from jax_es.rollout.tasks import Tasks
from jax_es.streams import stream
from jax_es.training.objective import fitness
from jax_es.training.parts import EvaluationParts, build_evaluation


class Damage(Protocol):
    """One damaged robot, as :func:`jax_es.training.build.damages` describes it."""

    @property
    def env_id(self) -> str:
        """The task of its body."""
        ...

    @property
    def strength(self) -> np.ndarray:
        """``[A]``, what is left of each motor's."""
        ...


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

    def best_after(self, trials: int) -> float:
        """Returns the best fitness of the first trials, or of all there were."""
        return max(self.fitness[:trials])


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

    Raises:
        ConfigError: for an archive without elites.
    """
    elites = saved.archive.elites()
    require(len(elites) > 0, "the archive has no elites; illuminate for longer.")
    robots: list[tuple[str, Rule, int]] = [
        (name, rule, seed)
        for name in damages
        for rule in rules
        for seed in range(seeds)
    ]
    intact = _Intact(
        saved.config.env.id, np.ones(len(next(iter(damages.values())).strength))
    )
    with _Player(saved, max(len(robots), len(elites), seeds)) as play:
        promise = play.promise(config.reevaluations, intact)
        best = play.often(int(promise.argmax()), intact, seeds)
        say(
            f"undamaged, the best elite comes to {best:.1f} in {seeds} episodes; the "
            f"archive says {elites.fitness.max():.1f}"
        )
        limits: dict[str, float | None] = dict.fromkeys(damages)
        for name, robot in damages.items() if exhaustive else ():
            found = play.promise(max(config.reevaluations, 1), robot)
            limits[name] = play.often(int(found.argmax()), robot, seeds)
            say(f"{name}: the best of all elites comes to {limits[name]:.1f}")
        searches = [
            Search(saved.archive, promise, config, rule, stream(seed, "adaptation"))
            for _, rule, seed in robots
        ]
        for number in range(1, config.trials + 1):
            open_ = [i for i, search in enumerate(searches) if not search.is_over]
            if not open_:
                break
            chosen = np.array([searches[i].next() for i in open_])
            found = play(
                chosen,
                np.array([robots[i][2] for i in open_]),
                number,
                [damages[robots[i][0]] for i in open_],
            )
            for i, position, value in zip(open_, chosen, found, strict=True):
                searches[i].tell(int(position), float(value))
            say(f"trial {number}/{config.trials}: {len(open_)} robots")
        kept = [s.tried[int(np.argmax(s.fitness))] for s in searches]
        again = [
            play(
                np.array(kept),
                np.array([seed for *_, seed in robots]),
                _REEVALUATION + number,
                [damages[name] for name, *_ in robots],
            )
            for number in range(1, 1 + max(config.reevaluations, 1))
        ]
    return [
        Recovery(
            *robot,
            elites.cell[s.tried].tolist(),
            s.fitness,
            value,
            best,
            limits[robot[0]],
        )
        for robot, s, value in zip(
            robots, searches, np.nanmean(again, axis=0).tolist(), strict=True
        )
    ]


class _Intact(NamedTuple):
    """A robot that is not damaged."""

    env_id: str
    strength: np.ndarray


_REEVALUATION = 1_000_000
"""What stands for a trial's number where promises are made, in drawing how it begins;
kept elites are judged by the next ones."""


class _Player:
    """Plays one episode for each robot.

    Args:
        saved: whose elites play.
        most: episodes at a time; more of them wait.
    """

    def __init__(self, saved: SavedArchive, most: int) -> None:
        self._saved, self._most = saved, most
        self._stack = contextlib.ExitStack()
        self._bodies: dict[str, EvaluationParts] = {}
        weights = Weights(self._body(saved.config.env.id).policy.init)
        elites = saved.archive.elites()
        members = weights.trees(jnp.asarray(elites.weights))
        first = weights.tree(jnp.asarray(elites.weights[0]))
        self._population = MaterializedPopulation(first, members)
        self._fitness = elites.fitness

    def __enter__(self) -> "_Player":
        """Returns it."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Releases the simulations."""
        self._stack.close()

    def _body(self, env_id: str) -> EvaluationParts:
        """Returns what evaluates robots of a body."""
        if env_id not in self._bodies:
            config = self._saved.config
            env = dataclasses.replace(config.env, id=env_id)
            parts = build_evaluation(dataclasses.replace(config, env=env), self._most)
            self._stack.callback(parts.close)
            self._bodies[env_id] = parts
        return self._bodies[env_id]

    def promise(self, episodes: int, robot: Damage) -> np.ndarray:
        """Returns ``[N]`` what each elite comes to in a robot.

        Args:
            episodes: of each; 0 for what the archive says.
            robot: whose.
        """
        if episodes == 0:
            return self._fitness
        count = len(self._fitness)
        elite = np.tile(np.arange(count), episodes)
        seed = np.repeat(np.arange(episodes), count)
        found = self(elite, seed, _REEVALUATION, [robot] * len(elite))
        found = found.reshape(episodes, count)
        # One that fails promises nothing.
        return np.where(np.isfinite(found).all(axis=0), found.mean(axis=0), 0.0)

    def often(self, elite: int, robot: Damage, seeds: int) -> float:
        """Returns the mean of an episode for each seed; not those of promises."""
        which = np.full(seeds, elite)
        found = self(which, np.arange(seeds), 0, [robot] * seeds)
        return float(found[np.isfinite(found)].mean())

    def __call__(
        self,
        elite: np.ndarray,
        seed: np.ndarray,
        number: int,
        robots: Sequence[Damage],
    ) -> np.ndarray:
        """Returns ``[R]`` fitness.

        Args:
            elite: ``[R]``, whose turn it is for each robot.
            seed: ``[R]``, the robots'. Those of one seed begin their episode alike.
            number: of the trial.
            robots: R of them.
        """
        # Drawn apart from those that filled the archive.
        begins = np.array(
            [stream(int(s), "adaptation", number + 1).integers(2**31) for s in seed],
            np.int32,
        )
        found, bodies = np.zeros(len(elite)), np.array([r.env_id for r in robots])
        strength = np.stack([robot.strength for robot in robots])
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
            es, one_each = parts.config.es, np.arange(len(which))
            found[which] = fitness(result, one_each, es)
        return found


def table(recoveries: Sequence[Recovery]) -> str:
    """Returns a Markdown table: a row for each damage and rule, medians over seeds.

    Shares are of the undamaged best: what the kept elite comes to in other episodes
    than its trial, and the best of all elites if every one was tried. They are left
    out where the undamaged best comes to nothing or less.
    """
    heads = ["damage", "rule", "trials", "first trial", "best trial", "kept"]
    heads += ["share of intact", "best of all elites"]
    rows = []
    for (damage, rule), robots in by_damage_and_rule(recoveries).items():
        intact, limit = robots[0].intact, robots[0].limit
        medians = [
            np.median([value(robot) for robot in robots])
            for value in (
                lambda robot: robot.fitness[0],
                lambda robot: max(robot.fitness),
                lambda robot: robot.kept,
            )
        ]
        shares = [
            "" if value is None or intact <= 0 else f"{value / intact:.0%}"
            for value in (medians[-1], limit)
        ]
        rows.append(
            [
                *(damage, rule, f"{np.median([len(r.fitness) for r in robots]):.0f}"),
                *(f"{median:.1f}" for median in medians),
                *shares,
            ]
        )
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_damage_and_rule(
    recoveries: Sequence[Recovery],
) -> Mapping[tuple[str, Rule], list[Recovery]]:
    """Sorts recoveries; those of one group are its seeds."""
    groups: dict[tuple[str, Rule], list[Recovery]] = {}
    for recovery in recoveries:
        groups.setdefault((recovery.damage, recovery.rule), []).append(recovery)
    return groups


def as_json(recoveries: Sequence[Recovery], **about: Any) -> dict[str, Any]:
    """Returns everything as JSON values."""
    return {**about, "recoveries": [recovery._asdict() for recovery in recoveries]}
