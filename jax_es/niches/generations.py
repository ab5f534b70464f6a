"""How niches grow: a generation has children, improves all policies, and moves some.

Wang et al. 2019 (arXiv 1901.01753), algorithm 2, with the transfers and the measure of
progress of Wang et al. 2020 (arXiv 2003.08536).
"""

import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import ConfigError
from jax_es.es.novelty import novelty
from jax_es.niches.mutation import Mutator
from jax_es.niches.niche import (
    NEVER,
    Foremost,
    Niche,
    PoetState,
    annecs,
    foremost,
    stacked,
    table,
    unstacked,
)
from jax_es.niches.selection import (
    best_of,
    meets_criterion,
    pata_ec,
    retiring,
    worth_a_step,
)
from jax_es.niches.settings import PoetConfig
from jax_es.niches.trials import Improved, Trials
from jax_es.rollout.observation_statistics import (
    ObservationStatistics,
    constant_entries,
)
from jax_es.rollout.streams import stream
from jax_es.runs.records import GenerationRecord
from jax_es.training.build import draw_weights
from jax_es.training.episodes import rollout_fields
from jax_es.training.generation import longest_episode
from jax_es.training.method_run import MethodTraining
from jax_es.training.objective import score
from jax_es.training.parts import Parts
from jax_es.training.session import Elapsed, OnStep, Step
from jax_es.training.trained_mean import TrainedMean
from jax_es.types import PyTree

_OWN_KEY = 2**32 - 1
"""What keys of new niches fold first: generations and pairs fold smaller numbers."""


class Poet(MethodTraining):
    """Niches that grow by generations: a session's training.

    Args:
        parts: what trains.
        settings: what mutates, and how niches are chosen.

    Attributes:
        config: of the parts.
        settings: as given.
        mutator: knows a terrain's numbers.
        niches: all that were ever admitted, by their numbers.
        transfers: ``(generation, source, target)`` of all so far.
        generation: generations done.
        total_env_steps: environment steps taken, evaluation included.
        best_evaluation_return: the highest mean evaluation return so far.
        mean: θ of the niche that was foremost in the last generation.
    """

    def __init__(self, parts: Parts, settings: PoetConfig) -> None:
        self.config = parts.config
        self._parts, self.settings = parts, settings
        neutral = getattr(parts.env, "variations", {})
        self.mutator = Mutator(settings.mutate, neutral)
        width = settings.max_niches + settings.admitted
        self._trials = Trials(parts, self.mutator.names, width)
        # As in training by the strategy alone, which a single niche is.
        init_key, self._noise_key = jax.random.split(self._key())
        self._trials.check(self.mutator.samples())
        self._begin(draw_weights(parts.policy, init_key))
        self.transfers: list[tuple[int, int, int]] = []
        self.generation, self.total_env_steps = 0, 0
        self.best_evaluation_return = -math.inf
        self._best = (NEVER, -math.inf)

    def _begin(self, mean: PyTree) -> None:
        """Makes the first niche."""
        self.mean, self._number = mean, 0
        es = self._parts.strategy.init(self._noise_key, mean)
        self.niches = [Niche(0, NEVER, 0, self.mutator.first, es)]

    def start_from(self, source: TrainedMean) -> None:
        """Takes another run's θ and, for good, the statistics that it saw through."""
        seen = source.statistics
        if self.config.rollout.observation_statistics:
            if seen is None or not seen.count:
                raise ConfigError(
                    f"--init: θ of {source.path} saw observations as they are, and "
                    "POET keeps that; add --rollout.no-observation-statistics."
                )
            self._trials.statistics = seen
            hidden = int(constant_entries(seen).sum())
            if hidden and self.config.rollout.hide_constants:
                warnings.warn(
                    f"--init: {hidden} numbers of the observation never varied in "
                    f"{source.path}, and no policy will see them; if they tell of the "
                    "terrain, vary it there (--rollout.variation-range).",
                    stacklevel=2,
                )
        self._begin(jax.tree.map(jnp.asarray, source.mean))

    @property
    def active(self) -> list[Niche]:
        """The niches that have not retired, the oldest first."""
        return [niche for niche in self.niches if niche.is_active]

    def advance(
        self,
        on_step: OnStep = lambda progress: None,
        elapsed: Elapsed = time.perf_counter,
    ) -> Step:
        """Runs one generation.

        Args:
            on_step: called often.
            elapsed: seconds since the run began.
        """
        started, settings, number = time.perf_counter(), self.settings, self.generation
        self._trials.begin(on_step)
        count, moved = len(self.niches), len(self.transfers)
        if number and settings.mutate_every and number % settings.mutate_every == 0:
            self._reproduce()
        means = [niche.mean for niche in self.active]
        improved = self._improve()
        of = foremost(self.niches)
        place = [niche.number for niche in self.active].index(of.number)
        self.mean = jax.device_get(means[place])  # as it was evaluated
        self._number = of.number
        if settings.transfer_every and number % settings.transfer_every == 0:
            self._transfer()
        self.generation += 1
        record = self._record(improved, place, started, elapsed)
        found = (of.number, float(improved.scores[place]))
        is_best = found > self._best and math.isfinite(found[1])
        self._best = found if is_best else self._best
        state = self.state()
        without = state._replace(niches=(), transfers=())
        best = (self.generation, without) if is_best else None
        return Step(record, state, best, self._says(count, moved))

    def _improve(self) -> Improved:
        """Runs a generation of each active niche's strategy, all in one rollout."""
        active = self.active
        improved = self._trials.improve(
            [niche.es for niche in active],
            [niche.terrain for niche in active],
            self.generation,
            self.config.evaluation.num_episodes,
        )
        for niche, es, value in zip(
            active, improved.states, improved.scores.tolist(), strict=True
        ):
            self._set(niche._replace(es=es), value)
        return improved

    def _reproduce(self) -> None:
        """Has children of what is solved enough; admits the most novel of them."""
        settings, number = self.settings, self.generation
        parents = [n for n in self.active if n.scores[-1] >= settings.reproduce_at]
        if not parents or not self.mutator.names:
            return
        rng = stream(self.config.seed, "mutations", number)
        known, children = [niche.terrain for niche in self.niches], []
        for _ in range(settings.children):
            parent = parents[rng.integers(len(parents))]
            terrain = self.mutator.mutated(rng, parent.terrain)
            if not any(np.array_equal(terrain, other) for other in known):
                known.append(terrain)
                children.append(Niche(NEVER, parent.number, number, terrain, parent.es))
        children = self._meeting(children)
        terrains = [child.terrain for child in children]
        order = np.argsort(-self._novelty(terrains), kind="stable") if children else []
        admitted = 0
        for child in (children[i] for i in order):
            begun = self._begun(child)
            if begun is None:
                continue
            self.niches.append(begun)
            admitted += 1
            if admitted == settings.admitted:
                break
        numbers = [niche.number for niche in self.active]
        for old in retiring(numbers, settings.max_niches):
            self.niches[old] = self.niches[old].left(number)

    def _meeting(self, children: list[Niche]) -> list[Niche]:
        """Returns the children in which their parents' policies meet the criterion."""
        scores = self._trials.scores(
            [child.mean for child in children],
            [child.terrain for child in children],
            [(index, index) for index in range(len(children))],
            self.generation,
        )
        meet = self._meets(scores)
        pairs = zip(children, scores.tolist(), meet.tolist(), strict=True)
        return [child._replace(scores=(value,)) for child, value, ok in pairs if ok]

    def _novelty(self, terrains: list[np.ndarray]) -> np.ndarray:
        """Returns how far terrains are from those of all niches so far, ``[n]``."""
        settings, niches = self.settings, self.niches
        known = [niche.terrain for niche in niches]
        points, archive = np.stack(terrains), np.stack(known)
        if settings.novelty == "pata-ec":
            everywhere = [*terrains, *known]
            which = [(a, t) for a in range(len(niches)) for t in range(len(everywhere))]
            means = [niche.mean for niche in niches]
            found = self._trials.scores(means, everywhere, which, self.generation)
            bounds = settings.criterion_low, settings.criterion_high
            ranked = pata_ec(found.reshape(len(niches), -1), *bounds)
            points, archive = np.split(ranked, [len(terrains)])
        return novelty(points, archive, settings.neighbours)

    def _begun(self, child: Niche) -> Niche | None:
        """Returns a child with the best of all policies; None if it is not fit for it.

        A niche is novel if the best of the policies that were not tried for it does not
        change that: the criterion is met by the best of all that there ever were.
        """
        number, mean, value = len(self.niches), child.mean, child.scores[-1]
        others = [niche.mean for niche in self.niches if niche.number != child.parent]
        if self.settings.transfer_every:
            active = self.active
            means = [niche.mean for niche in active]
            means += self._proposals(
                [(niche, number, child.terrain) for niche in active]
            )
            scores = self._in_one(means, child.terrain)
            best = best_of(scores)
            mean, value = means[best], float(scores[best])
            others = [niche.mean for niche in self.niches if not niche.is_active]
        if not self._meets(np.float64(value)):
            return None
        highest = np.nanmax([value, *self._in_one(others, child.terrain)])
        es = self._parts.strategy.init(self._key(self.generation, number), mean)
        return child._replace(
            number=number, es=es, scores=(), is_novel=bool(self._meets(highest))
        )

    def _transfer(self) -> None:
        """Tries all policies in all niches, first as they are.

        One that is better than the niche's own is, and was in its last evaluations,
        takes a step there; the best of those that still are replaces it.
        """
        active = self.active
        if len(active) == 1:
            return
        every = range(len(active))
        pairs = [(s, t) for t in every for s in every]
        means = [niche.mean for niche in active]
        terrains = [niche.terrain for niche in active]
        scores = self._trials.scores(means, terrains, pairs, self.generation)
        direct = dict(zip(pairs, scores.tolist(), strict=True))
        # The last evaluation was before the niche's own θ took its last step.
        own = {
            niche.number: (*niche.scores, direct[i, i])
            for i, niche in enumerate(active)
        }
        tried = [
            (active[s], active[t])
            for s, t in pairs
            if s != t and worth_a_step(direct[s, t], own[active[t].number])
        ]
        proposals = self._proposals([(s, t.number, t.terrain) for s, t in tried])
        which = [(i, i) for i in range(len(tried))]
        where = [target.terrain for _, target in tried]
        scores = self._trials.scores(proposals, where, which, self.generation)
        for target in active:
            mine = [i for i, (_, t) in enumerate(tried) if t.number == target.number]
            if not mine:
                continue
            best = mine[best_of(scores[mine])]
            if worth_a_step(scores[best], own[target.number]):
                # A third number, or the noise would be that of a niche that is new.
                key = self._key(self.generation, target.number, target.number)
                es = self._parts.strategy.init(key, proposals[best])
                self._set(target._replace(es=es), float(scores[best]))
                source = tried[best][0].number
                self.transfers.append((self.generation, source, target.number))

    def _proposals(
        self, steps: Sequence[tuple[Niche, int, np.ndarray]]
    ) -> list[PyTree]:
        """Returns policies after a step of a new optimizer's in other terrains.

        Args:
            steps: niche whose policy steps, number of the niche in which it does, and
                that one's terrain.
        """
        if not steps:
            return []
        states = [
            self._parts.strategy.init(
                self._key(self.generation, target, source.number), source.mean
            )
            for source, target, _ in steps
        ]
        terrains = [terrain for _, _, terrain in steps]
        improved = self._trials.improve(states, terrains, self.generation)
        return [state.mean for state in improved.states]

    def _in_one(self, means: list[PyTree], terrain: np.ndarray) -> np.ndarray:
        which = [(index, 0) for index in range(len(means))]
        return self._trials.scores(means, [terrain], which, self.generation)

    def _meets(self, scores: Any) -> np.ndarray:
        bounds = self.settings.criterion_low, self.settings.criterion_high
        return meets_criterion(np.asarray(scores), *bounds)

    def _set(self, niche: Niche, value: float) -> None:
        scored = niche.scored(value, self.generation, self.settings.solved_at)
        self.niches[niche.number] = scored

    def _key(self, *numbers: int) -> jax.Array:
        """Returns a key of the run's by numbers; without any, the run's own."""
        key = jax.random.key(self.config.seed, impl="threefry2x32")
        for number in (_OWN_KEY, *numbers) if numbers else ():
            key = jax.random.fold_in(key, number)
        return key

    def _record(
        self, improved: Improved, place: int, started: float, elapsed: Elapsed
    ) -> GenerationRecord:
        trials, count = self._trials, self.config.evaluation.num_episodes
        evaluation = improved.evaluation.episodes(
            slice(place * count, (place + 1) * count)
        )
        self.total_env_steps += trials.env_steps
        self.best_evaluation_return = max(
            self.best_evaluation_return, score(evaluation.returns)
        )
        total = time.perf_counter() - started
        seconds = {**trials.seconds, "total": total}
        fields = rollout_fields(improved.population, evaluation, seconds)
        fields["env_steps"] = trials.env_steps
        fields["env_steps_per_second"] = trials.env_steps / total
        number = self.generation - 1
        return GenerationRecord(
            generation=number,
            total_env_steps=self.total_env_steps,
            step_cap=longest_episode(self._parts),
            best_evaluation_return=self.best_evaluation_return,
            num_niches=len(self.active),
            num_admitted=sum(n.created == number for n in self.niches if n.number),
            num_transfers=sum(when == number for when, _, _ in self.transfers),
            num_solved=sum(niche.solved != NEVER for niche in self.niches),
            annecs=annecs(self.niches),
            slot_utilization=trials.env_steps / max(trials.computed_steps, 1),
            seconds_elapsed=elapsed(),
            **fields,
        )

    def _says(self, count: int, moved: int) -> list[str]:
        """Says what changed, and then what all active niches are."""
        says = [
            f"generation {self.generation}: the policy of niche {source} moves to "
            f"niche {target}."
            for _, source, target in self.transfers[moved:]
        ]
        if len(self.niches) == count:
            return says
        return [*says, *table(self.active, self.mutator.names)]

    def state(self) -> PoetState:
        """Returns what a checkpoint holds, as it is now."""
        statistics = self._trials.statistics
        return PoetState(
            Foremost(
                self.mean,
                np.int32(self.generation),
                np.int32(self._number),
                self.niches[self._number].terrain,
            ),
            self.total_env_steps,
            self.best_evaluation_return,
            np.array(self._best),
            stacked(self.niches),
            np.array(self.transfers, np.int32).reshape(-1, 3),
            () if statistics is None else statistics,
        )

    def restore(self, state: PyTree) -> None:
        """Takes up what a checkpoint holds."""
        self.niches = unstacked(state["niches"], self.niches[0].es)
        moved = state.get("transfers", np.zeros((0, 3), int))
        self.transfers = [tuple(row) for row in moved.tolist()]
        if "observation_statistics" in state:
            statistics = ObservationStatistics(**state["observation_statistics"])
            self._trials.statistics = statistics
        self.mean = state["es"]["mean"]
        self.generation = int(state["es"]["generation"])
        self._number = int(state["es"].get("number", foremost(self.niches).number))
        self.total_env_steps = int(state["total_env_steps"])
        self.best_evaluation_return = float(state["best_evaluation_return"])
        self._best = (int(state["best"][0]), float(state["best"][1]))
