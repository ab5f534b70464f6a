"""Saves and restores the whole training state; a kill at any instant loses no step.

``checkpoints/last/12/state/`` is an ordinary Orbax PyTree checkpoint of step 12, and
``checkpoints/best/9/state/`` that of the best evaluation so far. A step is written
aside and renamed into place; older steps are deleted after that, and nothing that has
another name than a step. Saving a step that exists writes ``last/12.1`` and then
deletes ``last/12``.

``last/12/digests.json`` holds the SHA-256 of each of the step's files, its number, and
a digest of itself (``digests.py``); a restore checks them all. The run's
``config.json`` says from which step on they must be there: runs of earlier versions
have none, and a warning says so.

The state is any pytree of NumPy and JAX arrays, typed PRNG keys and Python numbers.
What :mod:`jax_es.train` stores, by the name that Orbax uses (``O`` numbers in an
observation):

- ``es/mean``: θ, the policy's parameters, float32, as Flax names and nests them: a
  dense layer has ``kernel`` ``[inputs, outputs]`` and ``bias`` ``[outputs]``, a
  LayerNorm ``scale`` and ``bias``, a table ``embedding``; ``models/`` says what for.
- ``es/optimizer_state``: optax's state. ``0/ema``, of optimizer momentum, is the
  running mean of the gradient estimates, shaped like θ; ``0/count`` counts its updates.
  ``3/anchor``, of ``es.weight_decay_anchor`` start, is the θ that training began with.
- ``es/generation``: ``[]`` int32, finished generations; ``es/key``: ``[2]`` uint32, the
  key data of the run's ``jax.random.key`` (threefry2x32).
- Of novelty search also ``es/others`` (θ and optimizer state of the other parents,
  ``es/mean`` being that of the one whose turn it is), ``es/archive`` ``[C, B]``, its
  first ``es/archived`` rows, and ``es/descriptors`` ``[M, B]``
  (:class:`jax_es.es.novelty.NoveltyState`).
- Of guided ES also ``es/direction`` (shaped like θ, of length 1, or 0 for none),
  ``es/share`` and ``es/correlation``, ``[]`` (:class:`jax_es.es.guided.GuidedState`);
  of CEM-RL ``es/variance`` ``[|θ|]``, ``es/climbed`` ``[P/2, …]``, of which
  ``es/num_climbed`` count, and ``es/share`` (:class:`jax_es.es.cem_rl.CEMRLState`); of
  both, but not in ``best``, ``critic``: ``weights`` and ``targets`` of its two
  networks, ``optimizer_state``, ``num_updates``, ``owed``, and ``replay``, whose
  ``steps`` have ``[C, …]`` rows, the first ``size`` of them taken, and ``position`` the
  next one (:class:`jax_es.es.critic.CriticState`).
- ``observation_statistics``: ``count`` ``[]``, ``sum`` ``[O]`` and ``sum_of_squares``
  ``[O]`` of the observations seen so far, float64. The policy sees (o − mean) / std,
  std being at least ``rollout.std_floor``, within ±``rollout.observation_clip`` if
  there is one, or o itself while the count is 0, as in runs that use no statistics;
  with ``rollout.hide_constants`` it sees 0 for what has not varied (variance at most
  1e-10 of the mean square); pixels are divided by 255 before.
- ``step_cap`` (environment steps, of the next generation's episodes),
  ``total_env_steps``, ``best_evaluation_return``: ``[]``.
- ``num_pairs``: ``[]``, of the next generation, only where pairs follow the length of
  episodes (``es.interactions_per_generation``).
- ``commands``: ``high`` and ``least_error``, ``[]``, only where episodes are asked for
  a return (``es.objective`` commanded-return): the end of the next generation's range,
  and the least error of θ so far, which decides about ``best``.
- ``phase``: ``index`` (from 0; of the phase that the next generation is in, so that a
  checkpoint at a border belongs to the next), ``generation`` and ``env_steps`` at its
  start, ``mean``, ``best`` and ``best_generation`` of the plateau, each ``[]``, only of
  runs with phases.
- ``reference``: ``[R, …]``, only of policies with virtual batch normalisation: the
  observations that it normalises activations by.

Runs trained by gradients store ``es/mean``, ``es/generation`` (their steps),
``num_evaluations``, ``best_evaluation_return`` and, if they use them,
``observation_statistics``; clones also ``optimizer_state``, optax's of AdamW.

Archives store ``es/mean``, the best elite when the last generation began, the counters
``es/generation``, ``total_env_steps`` and ``best_evaluation_return``, and, but in
``best``, ``archive``: by ascending ``cell`` ``[N]`` the elites' ``weights`` ``[N, W]``
(as ``ravel_pytree`` lays a policy's parameters out), ``fitness`` ``[N]`` and
``descriptors`` ``[N, B]``; ``low`` ``[B]``, and a CVT's ``centroids`` ``[C, B]``.
``emitter`` is what es needs besides.

Runs of POET store ``es/mean``, the foremost niche's θ, ``es/number``, that niche's, the
same counters, ``best`` (number and score of the niche whose θ the checkpoint ``best``
has) and, but in that one, ``transfers`` ``[t, 3]`` (generation, source, target) and
``niches``: of each that ever was ``number``, ``parent``, ``created``, ``solved``,
``retired`` (generations, −1 for never), ``is_novel``, ``terrain`` ``[n, V]``, and its
last scores; ``niches/es`` is the strategy's state of the active ones, ``niches/left``
the θ of the others, each with a leading axis in the order of their numbers.
``observation_statistics`` are those of the run that the first θ came from, if it saw
through some.

Leaves are stored as NumPy arrays with their exact bits (``state_arrays.py``). Bare
Orbax reads a step as nested dictionaries of them::

    import orbax.checkpoint as ocp

    state = ocp.PyTreeCheckpointer().restore("/…/runs/NAME/checkpoints/last/12/state")
    state["es"]["mean"]["head"]["kernel"]  # of a Decision Transformer
"""

import contextlib
import logging
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orbax.checkpoint as ocp

from jax_es.runs.digests import check_digests, recorded, write_digests
from jax_es.runs.files import check_regular
from jax_es.runs.folders import CONFIG_FILE
from jax_es.runs.state_arrays import as_stored, like_template
from jax_es.types import PyTree

_STATE = "state"
_UNFINISHED = ".unfinished-"
_STEP_NAME = re.compile(r"(0|[1-9][0-9]*)(\.[1-9][0-9]*)?")


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, found or restored; says what to do."""


class Restored(NamedTuple):
    """What a restore returns: the step, and the state that was saved at it."""

    step: int
    state: PyTree


class Checkpoints:
    """The checkpoints of one run.

    Opening creates nothing, so a reader may watch a run that another process trains.
    One process at a time may save.

    Args:
        directory: usually ``runs/<name>/checkpoints``; need not exist yet.
        keep: how many of the most recent steps survive.

    Example:
        >>> import tempfile, numpy as np
        >>> checkpoints = Checkpoints(tempfile.mkdtemp())
        >>> path = checkpoints.save(3, {"mean": np.arange(2.0)})
        >>> checkpoints.restore("last")
        Restored(step=3, state={'mean': array([0., 1.])})
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3) -> None:
        self.directory = Path(directory).absolute()
        self.keep = keep

    def save(self, step: int, state: PyTree) -> Path:
        """Saves a state as the most recent one, then prunes.

        Steps beyond the ``keep`` most recent are deleted, and so are later steps than
        this one: they are what remains of a run that went back to an earlier step.

        Args:
            step: 0 or more; the number of completed generations.
            state: a container pytree of arrays, typed keys and Python numbers.

        Returns:
            The folder of the new step.

        Raises:
            CheckpointError: the state holds something that is not an array, it cannot
                be written, or the folder of the run is gone. Earlier steps are intact.
        """
        return self._save("last", step, state, self.keep)

    def save_best(self, step: int, state: PyTree) -> Path:
        """Saves a state as the best one in place of the previous, as :meth:`save`."""
        return self._save("best", step, state, 1)

    def restore(self, which: str | int = "last", template: PyTree = None) -> Restored:
        """Restores one state.

        Args:
            which: ``"last"``, ``"best"`` or a step, as a number or in digits.
            template: a pytree like the saved one, whose structure, shapes, dtypes and
                kinds of leaves (NumPy, JAX, key, number) the result gets; its values
                are not used, and arrays may be ``jax.ShapeDtypeStruct``. Without one
                the result is nested dictionaries of NumPy arrays.

        Raises:
            CheckpointError: no such step, or one that cannot be read or does not fit
                the template.
        """
        path = next(iter(self._find(which)), None)
        if path is None:
            raise CheckpointError(self._missing(which))
        step, record = _order(path)[0], self.directory.parent / CONFIG_FILE
        entry = recorded(record)
        try:
            check_regular(path)
            check_digests(path, entry, record, step, step=step)
            with _quiet(), ocp.PyTreeCheckpointer() as checkpointer:
                state = checkpointer.restore(path / _STATE)
        # Orbax documents no errors; any of them means that the step is of no use.
        except Exception as error:
            why = str(error).partition("\n")[0][:200]
            raise CheckpointError(
                f"checkpoint {path} cannot be read ({why}); delete that folder"
                f"{self._rest(path)}"
            ) from error
        try:
            state = state if template is None else like_template(state, template)
        except ValueError as error:
            raise CheckpointError(f"checkpoint {path} {error}") from error
        return Restored(step, state)

    def _rest(self, but: Path) -> str:
        """Says which checkpoints there are besides one."""
        last, best = ([p for p in self._find(s) if p != but] for s in ("last", "best"))
        names = [path.name for path in reversed(last)]
        listed = [f"last ({', '.join(names)})"] if last else []
        listed += [f"best ({best[0].name})"] if best else []
        if not listed:
            return "; no other is left, so start a new run"
        return f" to use what remains: {' and '.join(listed)}"

    def _missing(self, which: str | int) -> str:
        """Says that there is no such checkpoint, and which there are."""
        steps, best = ", ".join(map(str, self.steps())) or "none", self.best_step()
        if steps == "none" and best is None:
            return (
                f"no checkpoint in {self.directory}: check the run's name; a run has"
                " its first checkpoint after its first generation"
            )
        return (
            f"no checkpoint '{which}', which must be 'last', 'best' or a step:"
            f" {self.directory} has the steps {steps}"
            + ("" if best is None else f" and the best, {best}")
        )

    def steps(self) -> list[int]:
        """Returns the steps of the ``last`` series, oldest first."""
        return sorted({_order(path)[0] for path in self._find("last")})

    def best_step(self) -> int | None:
        """Returns the step of the best state, or None if none was saved."""
        return next((_order(path)[0] for path in self._find("best")), None)

    def _find(self, which: str | int) -> list[Path]:
        """Returns the folders of a series or a step, newest first."""
        if which not in ("last", "best"):
            paths = self._find("last") + self._find("best")
            return [path for path in paths if path.name.split(".")[0] == str(which)]
        written = (state.parent for state in self.directory.glob(f"{which}/*/{_STATE}"))
        found = [path for path in written if _STEP_NAME.fullmatch(path.name)]
        return sorted(found, key=_order, reverse=True)

    def _save(self, series: str, step: int, state: PyTree, keep: int) -> Path:
        try:
            tree = as_stored(state)
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        folder = self.directory / series
        path = folder / f"{step}"
        # Not what a failed save left: a thread of it may still be writing there.
        while path.exists() or (folder / f"{_UNFINISHED}{path.name}").exists():
            path = path.with_name(f"{step}.{_order(path)[1] + 1}")
        draft = folder / f"{_UNFINISHED}{path.name}"
        try:
            # Not its parents: a run whose folder was moved shall not go on without it.
            self.directory.mkdir(exist_ok=True)
            folder.mkdir(exist_ok=True)
            with _quiet(), ocp.PyTreeCheckpointer() as checkpointer:
                checkpointer.save(draft / _STATE, tree)
            write_digests(draft, step=step)
            draft.rename(path)
        # Orbax reports a full disk as ValueError, the file system as OSError.
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"cannot save a checkpoint in {folder}: {_reason(error)}; free space or"
                " make it writable, then resume (earlier checkpoints are intact)"
            ) from error
        older = [p for p in self._find(series) if _order(p)[0] < step]
        for other in folder.iterdir():
            # What killed processes left as well; whatever else is there is another's.
            name = other.name.removeprefix(_UNFINISHED)
            is_ours = name != other.name or _STEP_NAME.fullmatch(name)
            if is_ours and other != path and other not in older[: keep - 1]:
                shutil.rmtree(other, ignore_errors=True)
        return path


def _reason(error: Exception) -> str:
    """Returns what the operating system said, which Orbax wraps in its own words."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else str(error).partition("\n")[0]


def _order(path: Path) -> tuple[int, int]:
    """Sorts ``2`` < ``12`` < ``12.1``; a step's number comes first."""
    step, _, attempt = path.name.partition(".")
    return int(step), int(attempt or 0)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Orbax's log lines and warnings, and errors of its threads, off stderr."""
    logger, hook = logging.getLogger("absl"), sys.unraisablehook
    level = logger.level
    logger.setLevel(logging.CRITICAL)

    def drop(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = drop
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
    # Not after an error: Orbax's threads then end later, and find their loop closed.
    sys.unraisablehook = hook
