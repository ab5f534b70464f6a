"""A niche, and all of them as the arrays of a checkpoint."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.niches.mutation import described
from jax_es.niches.selection import RECENT
from jax_es.runs.state_arrays import like_template
from jax_es.runs.wording import significant
from jax_es.types import PyTree

NEVER = -1


class Niche(NamedTuple):
    """A terrain and its policy. Generations are counted from 0."""

    number: int
    """How many there were before it."""
    parent: int
    """Number of the niche that it is a child of; −1 for the first."""
    created: int
    """Generation that began with it."""
    terrain: np.ndarray
    """``[V]``, its numbers."""
    es: PyTree
    """The strategy's state; θ alone once it has retired."""
    scores: tuple[float, ...] = ()
    """Mean returns of θ in its last evaluations, at most five."""
    solved: int = NEVER
    """Generation in which it was solved first."""
    retired: int = NEVER
    """Generation before which it retired."""
    is_novel: bool = False
    """Whether the best policy of all so far met the criterion in it at first."""

    @property
    def is_active(self) -> bool:
        """Whether it has not retired."""
        return self.retired == NEVER

    @property
    def mean(self) -> PyTree:
        """θ."""
        return self.es.mean if self.is_active else self.es

    def scored(self, score: float, generation: int, solved_at: float) -> "Niche":
        """Returns the niche after an evaluation.

        One score is that of a few episodes, and a niche has hundreds: the highest says
        little. So solved means five in a row, on average.
        """
        solved, scores = self.solved, (*self.scores, score)[-RECENT:]
        is_sure = len(scores) == RECENT and np.mean(scores) >= solved_at
        if solved == NEVER and is_sure:
            solved = generation
        return self._replace(scores=scores, solved=solved)

    def left(self, generation: int) -> "Niche":
        """Returns the niche as it retires."""
        return self._replace(es=jax.device_get(self.mean), retired=generation)


class Foremost(NamedTuple):
    """θ of a run, which programs read as any run's."""

    mean: PyTree
    """Of the foremost niche when the last generation improved it."""
    generation: np.int32
    """Generations done."""
    number: np.int32
    """That niche's."""
    terrain: np.ndarray
    """``[V]``, that niche's, so that a checkpoint tells without the others."""


class PoetState(NamedTuple):
    """Everything that the next generation depends on; what a checkpoint holds."""

    es: Foremost
    total_env_steps: int
    """Environment steps taken so far, evaluation included."""
    best_evaluation_return: float
    """The highest mean evaluation return so far, whichever niche's."""
    best: np.ndarray
    """``[2]``, number of a niche and its score: of what the checkpoint ``best`` is."""
    niches: PyTree = ()
    """:func:`stacked`; ``()`` in the checkpoint ``best``."""
    transfers: PyTree = ()
    """``[t, 3]`` int32: generation, niche that a policy came from, niche that it went
    to; ``()`` in the checkpoint ``best``."""
    observation_statistics: PyTree = ()
    """Of the run that θ came from, as they were there; ``()`` if it came from none."""


def foremost(niches: Sequence[Niche]) -> Niche:
    """Returns the latest active niche that was ever solved, or the oldest active one.

    Example:
        >>> one = Niche(3, 1, 0, np.zeros(1), None)
        >>> two, three = one._replace(number=4, solved=9), one._replace(number=5)
        >>> foremost([one, two, three]).number, foremost([one, three]).number
        (4, 3)
    """
    active = [niche for niche in niches if niche.is_active]
    solved = [niche for niche in active if niche.solved != NEVER]
    return solved[-1] if solved else active[0]


def annecs(niches: Sequence[Niche]) -> int:
    """Returns the accumulated number of novel environments created and solved.

    Created by the search: the first one does not count. Neither too easy nor too hard
    for the best of all policies when it was created, and solved later (Wang et al.
    2020, arXiv 2003.08536).
    """
    return sum(n.parent >= 0 and n.is_novel and n.solved != NEVER for n in niches)


def table(niches: Sequence[Niche], names: Sequence[str]) -> list[str]:
    """Returns lines that say what evaluated niches are, the first one their heads."""
    rows = [
        f"{n.number:5}  {n.parent if n.number else '-':>6}  {n.created:5}  "
        f"{significant(n.scores[-1]):>5}  {described(names, n.terrain)}"
        + ("" if n.solved == NEVER else ", solved")
        for n in niches
    ]
    return ["niche  parent  since  score  terrain", *rows]


_COLUMNS = ("number", "parent", "created", "solved", "retired", "is_novel")


def stacked(niches: Sequence[Niche]) -> dict[str, Any]:
    """Returns all niches as arrays, in their order.

    ``es`` has the active ones', ``left`` the θ of the others, each with a leading axis;
    ``scores`` are filled up, ``num_scores`` says how far; ``terrain`` is ``[n, V]``.
    """
    scores = np.zeros((len(niches), RECENT))
    for row, niche in zip(scores, niches, strict=True):
        row[: len(niche.scores)] = niche.scores
    active = [_plain(niche.es) for niche in niches if niche.is_active]
    left = [niche.es for niche in niches if not niche.is_active]
    columns = {
        name: np.array([getattr(niche, name) for niche in niches], np.int32)
        for name in _COLUMNS
    }
    return {
        **columns,
        "terrain": np.stack([niche.terrain for niche in niches]),
        "scores": scores,
        "num_scores": np.array([len(niche.scores) for niche in niches], np.int32),
        "es": _stack(active),
        "left": _stack(left) if left else (),
    }


def unstacked(stored: dict[str, Any], template: PyTree) -> list[Niche]:
    """Returns the niches that :func:`stacked` made arrays of, as a checkpoint has them.

    Args:
        stored: nested dictionaries of arrays.
        template: a state of the strategy.
    """
    is_active = stored["retired"] == NEVER
    blank = _plain(template)
    active = _unstack(stored["es"], blank, int(is_active.sum()))
    left = _unstack(stored.get("left"), blank.mean, int((~is_active).sum()))
    niches = []
    for row, still in enumerate(is_active.tolist()):
        values = {name: int(stored[name][row]) for name in _COLUMNS}
        scores = stored["scores"][row, : stored["num_scores"][row]]
        niches.append(
            Niche(
                **{**values, "is_novel": bool(values["is_novel"])},
                # No array is there where nothing mutates.
                terrain=stored["terrain"][row] if "terrain" in stored else np.zeros(0),
                es=_keyed(next(active)) if still else next(left),
                scores=tuple(scores.tolist()),
            )
        )
    return niches


def _stack(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _unstack(stored: PyTree, template: PyTree, count: int) -> Any:
    if not count:
        return iter(())
    shaped = like_template(stored, _stack([template] * count))
    return (jax.tree.map(lambda x, i=i: x[i], shaped) for i in range(count))


def _plain(es: Any) -> Any:
    """Returns a state whose key is its data, on the host."""
    return jax.device_get(es._replace(key=jax.random.key_data(es.key)))


def _keyed(es: Any) -> Any:
    """Undoes :func:`_plain`."""
    arrays = jax.tree.map(jnp.asarray, es)
    return arrays._replace(
        key=jax.random.wrap_key_data(arrays.key, impl="threefry2x32")
    )
