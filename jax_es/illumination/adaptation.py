"""Damaged robots that try elites until one of them walks well enough.

The robots of all damages, seeds and rules are tried side by side: a round of trials is
one rollout, in which every episode has its own damage.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.es.population import MaterializedPopulation
from jax_es.illumination.emitters import Weights
from jax_es.illumination.repertoire import SavedArchive
from jax_es.illumination.settings import Rule, TrialConfig
from jax_es.illumination.trials import Search
from jax_es.rollout.tasks import Tasks
from jax_es.streams import stream
from jax_es.training.objective import fitness
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
    intact: float
    """Fitness of the best elite in an undamaged robot, the mean of an episode for each
    seed; not of those that made it the best."""

    def best_after(self, trials: int) -> float:
        """Returns the best fitness of the first trials, or of all there were."""
        return max(self.fitness[:trials])


def adapt_run(
    saved: SavedArchive,
    damages: Mapping[str, np.ndarray],
    config: TrialConfig,
    rules: Sequence[Rule] = ("ite",),
    seeds: int = 5,
    say: Callable[[str], None] = lambda line: None,
) -> list[Recovery]:
    """Lets damaged robots recover with an archive's elites.

    Args:
        saved: from :func:`~jax_es.illumination.repertoire.read_archive`.
        damages: what each leaves of the motors' strength, ``[A]``, by its name
            (``training.build.damages``).
        config: settings of the search.
        rules: how elites are chosen.
        seeds: robots of each damage and rule; they differ in how episodes begin.
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
    parts = build_evaluation(saved.config, max(len(robots), len(elites), seeds))
    with contextlib.closing(parts):
        play = _Player(parts, saved)
        whole = np.ones(len(next(iter(damages.values()))))
        promise = play.promise(config.reevaluations, whole)
        best = np.full(seeds, promise.argmax())
        intact = np.tile(whole, (seeds, 1))
        found = play(best, np.arange(seeds), 0, intact)
        intact = float(found[np.isfinite(found)].mean())
        say(
            f"undamaged, the best elite comes to {intact:.1f} in {seeds} episodes; the "
            f"archive says {elites.fitness.max():.1f}"
        )
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
                np.stack([damages[robots[i][0]] for i in open_]),
            )
            for i, position, value in zip(open_, chosen, found, strict=True):
                searches[i].tell(int(position), float(value))
            say(f"trial {number}/{config.trials}: {len(open_)} robots")
    return [
        Recovery(*robot, elites.cell[s.tried].tolist(), s.fitness, intact)
        for robot, s in zip(robots, searches, strict=True)
    ]


_REEVALUATION = 1_000_000
"""What stands for a trial's number before there are any, in drawing how it begins."""


class _Player:
    """Plays one episode for each robot.

    Args:
        parts: what evaluates.
        saved: whose elites play.
    """

    def __init__(self, parts: EvaluationParts, saved: SavedArchive) -> None:
        weights = Weights(parts.policy.init)
        members = weights.trees(jnp.asarray(saved.archive.elites().weights))
        first = weights.tree(jnp.asarray(saved.archive.elites().weights[0]))
        self._population = MaterializedPopulation(first, members)
        self._parts, self._fitness = parts, saved.archive.elites().fitness

    def promise(self, episodes: int, strength: np.ndarray) -> np.ndarray:
        """Returns ``[N]`` what each elite comes to in an undamaged robot.

        Args:
            episodes: of each; 0 for what the archive says.
            strength: ``[A]``, undamaged.
        """
        if episodes == 0:
            return self._fitness
        count = len(self._fitness)
        elite = np.tile(np.arange(count), episodes)
        seed = np.repeat(np.arange(episodes), count)
        motors = np.tile(strength, (len(elite), 1))
        found = self(elite, seed, _REEVALUATION, motors).reshape(episodes, count)
        # One that fails promises nothing.
        return np.where(np.isfinite(found).all(axis=0), found.mean(axis=0), 0.0)

    def __call__(
        self, elite: np.ndarray, seed: np.ndarray, number: int, strength: np.ndarray
    ) -> np.ndarray:
        """Returns ``[R]`` fitness.

        Args:
            elite: ``[R]``, whose turn it is for each robot.
            seed: ``[R]``, the robots'. Those of one seed begin their episode alike.
            number: of the trial.
            strength: ``[R, A]``, the robots' motors.
        """
        # Drawn apart from those that filled the archive.
        begins = [
            stream(int(s), "adaptation", number + 1).integers(2**31) for s in seed
        ]
        tasks = Tasks(
            member=elite.astype(np.int32),
            seed=np.array(begins, np.int32),
            max_steps=np.full(len(elite), self._parts.env.max_episode_steps, np.int32),
            observed=np.zeros(len(elite), bool),
            variation=strength,
        )
        result = self._parts.rollout.evaluate(self._population, tasks)
        es = self._parts.config.es
        by_robot = np.arange(len(elite))
        return fitness(result, by_robot, es) * es.episodes_per_member


def table(recoveries: Sequence[Recovery]) -> str:
    """Returns a Markdown table: a row for each damage and rule, medians over seeds."""
    heads = ["damage", "rule", "trials", "first trial", "best", "share of intact"]
    rows = []
    for (damage, rule), robots in by_damage_and_rule(recoveries).items():
        best = np.median([max(robot.fitness) for robot in robots])
        rows.append(
            [
                *(damage, rule, f"{np.median([len(r.fitness) for r in robots]):.0f}"),
                f"{np.median([robot.fitness[0] for robot in robots]):.1f}",
                *(f"{best:.1f}", f"{best / robots[0].intact:.0%}"),
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
