"""Novelty search: NS-ES, NSR-ES and NSRA-ES, which climb where nobody has been.

Where fitness deceives, new behaviour leads on. An episode has a descriptor, a small
vector; an archive keeps those of every θ so far, and the novelty of a point is its mean
Euclidean distance to the k nearest of them. Of M parents, each a θ with an optimizer of
its own, one generation moves one (Conti et al. 2018, arXiv 1712.06560):

1. ``ask``: OpenAI-ES's antithetic pairs around the parent whose turn it is.
2. Their episodes run, and beside them those that evaluate the parent itself.
3. ``tell``: the parent's descriptor joins the archive. Pairs weigh
   w · shape(fitness) + (1 − w) · shape(novelty), and OpenAI-ES takes its step. The next
   parent is drawn with p ∝ the novelty of what each did when it was last evaluated.

The weight w is 0 in NS-ES, ½ in NSR-ES. NSRA-ES begins at 1 and takes 0.05 away after
50 generations without a better evaluation, and gives 0.05 back for one.

The published code evaluates a parent right after its update. Here that is done when its
turn comes again: no generation needs a second rollout, and with one parent it is the
same. With more, the archive lacks what M − 1 parents have become since, at most.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jax_es.checks import Count, Share, check_fields, require
from jax_es.config import ESConfig
from jax_es.es.noise import Noise
from jax_es.es.openai_es import ESState, WeightedSum, openai_es
from jax_es.es.optimizers import make_optimizer
from jax_es.es.population import AntitheticPopulation
from jax_es.es.strategy import Behaviour, StrategyFunctions, read_options
from jax_es.types import PyTree

ADAPTIVE = "adaptive"


@dataclasses.dataclass(frozen=True)
class NoveltyOptions:
    """Hyperparameters of novelty search, each as --es.kwargs.NAME VALUE."""

    fitness_weight: float | str = 0.0
    """Share w of the fitness in the ranks, the rest being novelty's: 0 is NS-ES, 0.5
    NSR-ES, 1 OpenAI-ES, and adaptive NSRA-ES."""
    parents: Count = 5
    """θs that take turns (M), each with an optimizer of its own."""
    neighbors: Count = 10
    """Nearest of the archive (k) whose mean distance is novelty."""
    patience: Count = 50
    """Generations without a better evaluation after which an adaptive weight falls."""
    weight_step: Share = 0.05
    """How far an adaptive weight falls, or rises with a better evaluation."""
    archive_size: Count = 10_000
    """Most descriptors that are kept (C); then the oldest goes."""

    def __post_init__(self) -> None:
        check_fields(self, "es.kwargs.")
        weight = self.fitness_weight
        require(
            weight == ADAPTIVE if isinstance(weight, str) else 0 <= weight <= 1,
            f"es.kwargs.fitness_weight must be in [0, 1] or {ADAPTIVE}, got {weight!r};"
            " the default is 0.0.",
        )


def novelty_options(given: Mapping[str, Any]) -> NoveltyOptions:
    """Reads a configuration's ``es.kwargs``.

    Raises:
        ConfigError: for an unknown name, or a value that cannot be.
    """
    return read_options(NoveltyOptions, "novelty", given)


class NoveltyState(NamedTuple):
    """What the next generation needs."""

    mean: PyTree
    """θ of the parent whose turn it is."""
    optimizer_state: PyTree
    """Its optimizer's."""
    generation: jax.Array
    """``[]`` int32, generations told so far."""
    key: jax.Array
    """The run's key; never consumed, only folded into."""
    others: PyTree
    """θ and optimizer state of the other parents, with a leading axis ``M − 1``; ``()``
    if there are none."""
    descriptors: jax.Array
    """``[M, B]`` float32, what each parent did when it was last evaluated, the present
    one first; ∞ before that."""
    archive: jax.Array
    """``[C, B]`` float32; the first rows are those of all evaluated parents, in their
    order, the oldest being overwritten once it is full."""
    archived: jax.Array
    """``[]`` int32, rows ever written."""
    fitness_weight: jax.Array
    """``[]`` float32, w."""
    best: jax.Array
    """``[]`` float32, the highest evaluation so far."""
    stalled: jax.Array
    """``[]`` int32, generations since then, or since the weight last fell."""


class NoveltyInfo(NamedTuple):
    """What a human looks at after ``tell``; all ``[]``."""

    gradient_norm: jax.Array
    """‖g‖₂."""
    update_norm: jax.Array
    """‖θ' − θ‖₂ of the parent."""
    mean_norm: jax.Array
    """‖θ'‖₂."""
    num_nonfinite: jax.Array
    """int32, members whose fitness was NaN or ±∞."""
    num_nonfinite_descriptors: int
    """Descriptors that were NaN or ±∞: members' rank worst, the parent's is left out
    of the archive."""
    novelty_mean: float
    """Of the members; NaN if no descriptor is finite."""
    fitness_weight: float
    """w in this update."""


def novelty_search(
    config: ESConfig,
    descriptor_size: int,
    noise: Noise | None = None,
    weighted_sum: WeightedSum | None = None,
    draw: Callable[[jax.Array], PyTree] | None = None,
) -> StrategyFunctions:
    """Builds novelty search; its states are :class:`NoveltyState`.

    Args:
        config: the hyperparameters; its ``kwargs`` are :class:`NoveltyOptions`.
        descriptor_size: B, numbers in a descriptor.
        noise: as of :func:`~jax_es.es.openai_es.openai_es`, whose estimate this is.
        weighted_sum: as well.
        draw: ``key → θ``, where the other parents begin; with the first one's θ if not
            given.

    Raises:
        ConfigError: for a hyperparameter that it does not have, or a wrong value.
    """
    options = novelty_options(config.kwargs)
    es = openai_es(config, noise, weighted_sum)
    num_parents, capacity = options.parents, options.archive_size
    is_adaptive = options.fitness_weight == ADAPTIVE

    def init(key: jax.Array, mean: PyTree) -> NoveltyState:
        own, others = es.init(key, mean), ()
        if num_parents > 1:
            # Pairs and parents fold smaller numbers into the same key.
            keys = jax.vmap(lambda index: jax.random.fold_in(_own_key(key), index))(
                jnp.arange(num_parents - 1)
            )
            means = jax.vmap(draw or (lambda _: mean))(keys)
            others = means, jax.vmap(make_optimizer(config).init)(means)
        return NoveltyState(
            *own[:2],
            generation=own.generation,
            key=key,
            others=others,
            descriptors=jnp.full((num_parents, descriptor_size), jnp.inf),
            archive=jnp.zeros((capacity, descriptor_size)),
            archived=jnp.int32(0),
            fitness_weight=jnp.float32(
                1.0 if is_adaptive else float(options.fitness_weight)
            ),
            best=jnp.float32(-jnp.inf),
            stalled=jnp.int32(0),
        )

    def ask(state: NoveltyState) -> AntitheticPopulation:
        return es.ask(_own(state))

    def tell(
        state: NoveltyState, fitness: ArrayLike, behaviour: Behaviour
    ) -> tuple[NoveltyState, NoveltyInfo]:
        members = np.asarray(behaviour.members, np.float32)
        parent = np.asarray(behaviour.mean, np.float32)
        shapes = (np.size(fitness), descriptor_size), (descriptor_size,)
        if (members.shape, parent.shape) != shapes:
            raise ValueError(
                f"descriptors must have the shapes {shapes[0]} and {shapes[1]}, got "
                f"{members.shape} and {parent.shape}; one row per member, in ask's "
                "order, and the mean's."
            )
        archive, archived = np.array(state.archive), int(state.archived)
        is_finite = bool(np.isfinite(parent).all())
        if is_finite:
            archive[archived % capacity] = parent
            archived += 1
        known = archive[:archived]
        found = novelty(members, known, options.neighbors)
        weight, best = float(state.fitness_weight), float(state.best)
        stalled = int(state.stalled)
        if is_adaptive:
            weight, best, stalled = adapted(
                *(weight, best, stalled), behaviour.worth, options
            )
        weights = weight * es.weigh(fitness) + (1.0 - weight) * es.weigh(found)
        own, info = es.follow(_own(state), weights, fitness)
        descriptors = np.array(state.descriptors)
        descriptors[0] = parent
        key = jax.random.fold_in(state.key, state.generation)
        chosen = draw_parent(_own_key(key), descriptors, known, options.neighbors)
        descriptors[[0, chosen]] = descriptors[[chosen, 0]]
        present, others = (own.mean, own.optimizer_state), state.others
        if chosen > 0:
            present, others = _exchange(present, others, chosen - 1)
        finite = np.isfinite(found)
        new = NoveltyState(
            *present,
            generation=own.generation,
            key=state.key,
            others=others,
            descriptors=jnp.asarray(descriptors),
            archive=jnp.asarray(archive),
            archived=jnp.int32(archived),
            fitness_weight=jnp.float32(weight),
            best=jnp.float32(best),
            stalled=jnp.int32(stalled),
        )
        return new, NoveltyInfo(
            *info,
            num_nonfinite_descriptors=int((~finite).sum()) + (not is_finite),
            novelty_mean=float(found[finite].mean()) if finite.any() else np.nan,
            fitness_weight=weight,
        )

    return StrategyFunctions(init, ask, tell, descriptor_size)


def novelty(points: np.ndarray, archive: np.ndarray, neighbors: int) -> np.ndarray:
    """Returns ``[n]`` float32, each point's mean distance to the nearest archived ones.

    Args:
        points: ``[n, B]``; the novelty of one that is not finite is NaN.
        archive: ``[m, B]``, finite; if it is empty all novelties are 0.
        neighbors: k; all of the archive where it has fewer.

    Example:
        >>> archive = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 9.0]])
        >>> novelty(np.array([[0.0, 0.0], [0.0, np.nan]]), archive, 2).tolist()
        [2.5, nan]
    """
    from scipy.spatial import KDTree  # late: it takes long

    finite = np.isfinite(points).all(axis=1)
    found = np.where(finite, 0.0, np.nan).astype(np.float32)
    if len(archive) and finite.any():
        nearest: Any = range(1, min(neighbors, len(archive)) + 1)
        distances, _ = KDTree(archive).query(points[finite], k=nearest)
        found[finite] = distances.mean(axis=1)
    return found


def adapted(
    weight: float, best: float, stalled: int, evaluation: float, options: NoveltyOptions
) -> tuple[float, float, int]:
    """Returns NSRA-ES's weight, best evaluation and generations without a better one.

    ``stalled`` counts those since the best one, or since the weight last fell.
    """
    if evaluation > best:
        return min(1.0, weight + options.weight_step), evaluation, 0
    if stalled + 1 < options.patience:
        return weight, best, stalled + 1
    return max(0.0, weight - options.weight_step), best, 0


def draw_parent(
    key: jax.Array, descriptors: np.ndarray, archive: np.ndarray, neighbors: int
) -> int:
    """Draws a parent with p ∝ its novelty; one that was never evaluated goes first.

    Its row of ``descriptors [M, B]`` is ∞ then. One whose evaluation failed (NaN) is
    not drawn, unless no parent is new at all.
    """
    unknown = np.flatnonzero(np.isposinf(descriptors).all(axis=1))
    if len(unknown):
        return int(unknown[0])
    found = np.nan_to_num(novelty(descriptors, archive, neighbors).astype(np.float64))
    if not found.any():
        found = np.ones_like(found)
    ends = np.cumsum(found)
    # Below the last end, so that rounding cannot lead past it.
    place = float(jax.random.uniform(key)) * ends[-1]
    return int(np.searchsorted(ends, place, side="right"))


def _own(state: NoveltyState) -> ESState:
    """Returns the state of OpenAI-ES for the present parent."""
    return ESState(state.mean, state.optimizer_state, state.generation, state.key)


def _own_key(key: jax.Array) -> jax.Array:
    """Returns a key that no generation and no pair has."""
    return jax.random.fold_in(key, 2**32 - 1)


@jax.jit
def _exchange(present: PyTree, others: PyTree, index: ArrayLike) -> tuple:
    """Lets the present parent and one of the others change places."""
    return (
        jax.tree.map(lambda many: many[index], others),
        jax.tree.map(lambda one, many: many.at[index].set(one), present, others),
    )
