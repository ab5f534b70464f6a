"""What proposes the policies that an archive is filled with.

``ask`` returns the members to evaluate. ``tell`` is told θ as its own evaluation showed
it and the members without their weights, and returns what the archive is offered of
them. Both emitters draw from (seed, generation) alone, and know the archive only by its
elites, so that a resumed run proposes what an uninterrupted one would.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jax_es.es.novelty import novelty
from jax_es.es.population import AntitheticPopulation, MaterializedPopulation
from jax_es.es.strategy import Strategy
from jax_es.illumination.archive import Elites
from jax_es.illumination.settings import ArchiveConfig
from jax_es.rollout.streams import stream
from jax_es.runs.state_arrays import like_template
from jax_es.types import PyTree

MOST_NOVEL, BEST = 5, 2
"""Elites among which es draws the one to explore from, and to exploit (ME-ES)."""

NEIGHBOURS = 10
"""Of a descriptor, whose mean distance is its novelty."""


class Candidates(NamedTuple):
    """Policies that may become elites."""

    weights: np.ndarray
    """``[P, W]``."""
    fitness: np.ndarray
    """``[P]``."""
    descriptors: np.ndarray
    """``[P, B]``."""


class Weights:
    """Policies as vectors ``[W]``, and back.

    Args:
        init: the policy's, which draws a network's initial weights from a key.

    Attributes:
        size: W.
        tree: ``[W]`` → a policy's parameters; ``trees`` of many ``[P, W]``.
    """

    def __init__(self, init: Callable[[jax.Array], PyTree]) -> None:
        first = jax.jit(init)(jax.random.key(0, impl="threefry2x32"))
        vector, self.tree = ravel_pytree(first)
        self.size = int(vector.size)
        self.trees = jax.jit(jax.vmap(self.tree))
        self._draw = jax.jit(jax.vmap(lambda key: ravel_pytree(init(key))[0]))

    def vector(self, tree: PyTree) -> np.ndarray:
        """Returns a policy's parameters as ``[W]``."""
        return np.asarray(ravel_pytree(tree)[0])

    def draw(self, seed: int, generation: int, count: int) -> np.ndarray:
        """Draws networks' initial weights, ``[count, W]``."""
        key = jax.random.key(seed, impl="threefry2x32")
        keys = jax.random.split(jax.random.fold_in(key, generation), count)
        return np.asarray(self._draw(keys))


class IsoLine:
    """x = xᵢ + σ_iso ε + σ_line (xⱼ − xᵢ) z of random elites i and j.

    ε ~ N(0, I) and z ~ N(0, 1) (Vassiliades & Mouret 2018, arXiv 1804.03906). The first
    generations are networks' initial weights with noise.
    """

    def __init__(self, config: ArchiveConfig, weights: Weights, seed: int) -> None:
        self._config, self._weights, self._seed = config, weights, seed
        self._proposed = np.zeros((0, weights.size), np.float32)

    def ask(self, generation: int, elites: Elites) -> MaterializedPopulation:
        """Returns the members to evaluate; their mean is the best elite."""
        config = self._config
        if generation < config.initial_batches or not len(elites):
            proposed = self.initial(generation)
        else:
            rng = stream(self._seed, "variation operators", generation)
            sigmas = config.sigma_iso, config.sigma_line
            proposed = iso_line(rng, elites.weights, config.batch_size, *sigmas)
        self._proposed = proposed
        best = elites.weights[elites.fitness.argmax()] if len(elites) else proposed[0]
        return MaterializedPopulation(
            self._weights.tree(jnp.asarray(best)), self._weights.trees(proposed)
        )

    def initial(self, generation: int) -> np.ndarray:
        """Draws a batch of networks' initial weights with noise, ``[P, W]``."""
        config, seed = self._config, self._seed
        drawn = self._weights.draw(seed, generation, config.batch_size)
        rng = stream(seed, "variation operators", generation)
        noise = rng.standard_normal(drawn.shape, np.float32)
        return drawn + np.float32(config.initial_sigma) * noise

    def tell(
        self, generation: int, mean: Candidates, members: Candidates
    ) -> Candidates:
        """Offers all members."""
        return members._replace(weights=self._proposed)

    def state(self) -> PyTree:
        """Returns what the next generation needs besides the archive: nothing."""
        return {}

    def restore(self, state: PyTree) -> None:
        """Takes nothing up."""


def iso_line(
    rng: np.random.Generator,
    elites: np.ndarray,
    count: int,
    sigma_iso: float,
    sigma_line: float,
) -> np.ndarray:
    """Returns ``[count, W]`` float32, variations of ``elites`` ``[N, W]``."""
    first, second = elites[rng.integers(len(elites), size=(2, count))]
    noise = rng.standard_normal(first.shape, np.float32)
    along = rng.standard_normal((count, 1), np.float32)
    moved = np.float32(sigma_iso) * noise
    return first + moved + np.float32(sigma_line) * along * (second - first)


class EvolutionStrategies:
    """OpenAI-ES from one elite after another: ME-ES (Colas et al. 2020).

    In turn ``steps_per_parent`` updates towards novelty, from one of the most novel
    elites, and as many towards fitness, from one of the best. θ alone is offered to the
    archive, as its evaluation shows it; the members serve the estimate.
    """

    def __init__(
        self, config: ArchiveConfig, weights: Weights, seed: int, strategy: Strategy
    ) -> None:
        self._config, self._weights, self._seed = config, weights, seed
        self._strategy = strategy
        self._es = self._begin(0, weights.draw(seed, 0, 1)[0])
        self._seen: np.ndarray | None = None  # ``[S, B]``, of the means so far

    def ask(self, generation: int, elites: Elites) -> AntitheticPopulation:
        """Returns the members around the present θ, or around another elite."""
        if generation and generation % self._config.steps_per_parent == 0:
            rng = stream(self._seed, "variation operators", generation)
            parent = self._weights.draw(self._seed, generation, 1)[0]
            if len(elites):
                worth, count = elites.fitness, BEST
                if self._explores(generation):
                    worth, count = self._novelty(elites.descriptors), MOST_NOVEL
                chosen = np.argsort(-worth, kind="stable")[:count]
                parent = elites.weights[rng.choice(chosen)]
            self._es = self._begin(generation, parent)
        return self._strategy.ask(self._es)

    def tell(
        self, generation: int, mean: Candidates, members: Candidates
    ) -> Candidates:
        """Moves θ; offers the θ that was evaluated."""
        offered = mean._replace(weights=self._weights.vector(self._es.mean)[None])
        fitness = members.fitness
        if self._explores(generation):
            fitness = self._novelty(members.descriptors)
        self._es, _ = self._strategy.tell(self._es, fitness)
        if np.isfinite(mean.descriptors).all():
            seen = mean.descriptors[:0] if self._seen is None else self._seen
            self._seen = np.concatenate([seen, mean.descriptors])
        return offered

    def state(self) -> PyTree:
        """Returns OpenAI-ES' state, and the descriptors of all means."""
        seen = np.zeros((0, 0)) if self._seen is None else self._seen
        return {"es": self._es, "seen": seen}

    def restore(self, state: PyTree) -> None:
        """Takes these up."""
        self._es = like_template(state["es"], self._es)
        self._seen = state.get("seen")

    def _begin(self, generation: int, parent: np.ndarray) -> PyTree:
        key = jax.random.key(self._seed, impl="threefry2x32")
        key = jax.random.fold_in(key, generation)
        return self._strategy.init(key, self._weights.tree(jnp.asarray(parent)))

    def _explores(self, generation: int) -> bool:
        return generation // self._config.steps_per_parent % 2 == 0

    def _novelty(self, descriptors: np.ndarray) -> np.ndarray:
        if self._seen is None:
            return np.zeros(len(descriptors))
        return novelty(descriptors, self._seen, NEIGHBOURS)
