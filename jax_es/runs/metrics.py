"""One record per generation: what a run did, on disk for people and for plots.

``metrics.jsonl`` in the run's folder is the authority, one JSON object a line, written
whole and synced to the disk; ``tensorboard/`` mirrors it if tensorboardX is installed.
JSON knows no NaN and no infinity: both are written as ``null`` and read back as NaN.

Order matters for an exact resume: write a generation's record *before* its checkpoint.
A run killed between the two then repeats that generation, and the record of its first
attempt is removed on resume.
"""

import dataclasses
import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jax_es.runs.files import open_to_append
from jax_es.runs.outputs import whole_file

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_FOLDER = "tensorboard"


class MetricsError(ValueError):
    """Records that are missing or cannot be read; says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationRecord:
    """What happened in one generation.

    A finished run of OpenAI-ES has one record more than generations: the closing
    evaluation of its last θ. It has no population (``num_episodes`` is 0), and a resume
    to more generations replaces it.

    Returns are undiscounted reward sums of an episode in the environment's unit;
    lengths and steps are environment steps; times are wall-clock seconds. What was not
    measured is NaN.

    Attributes:
        generation: index of the generation, from 0.
        env_steps: steps of this generation, evaluation included.
        total_env_steps: steps since the run began.
        num_episodes: episodes of the population in this generation.
        return_mean: mean return of the population, over the finite returns, as are the
            next five.
        return_std: standard deviation of the population's returns.
        return_min: lowest return of the population.
        return_max: highest return of the population.
        return_p2_5: 2.5th percentile of the population's returns.
        return_p97_5: 97.5th percentile of the population's returns.
        fitness_mean: mean fitness of the members, over the finite ones; the mean
            return, unless the healthy reward counts otherwise.
        num_nonfinite: episodes of the population whose return was NaN or infinite.
        num_failed: episodes of the population that the simulator reported as failed.
        episode_length_mean: mean length of the population's episodes.
        episode_length_max: length of the population's longest episode.
        step_cap: length at which this generation's episodes were cut.
        evaluation_return_mean: mean return of the mean policy θ.
        evaluation_return_std: standard deviation over the evaluation's episodes.
        evaluation_return_min: lowest return among the evaluation's episodes.
        evaluation_return_max: highest return among the evaluation's episodes.
        evaluation_num_nonfinite: evaluation episodes whose return was NaN or infinite;
            the four fields above are over the others.
        evaluation_length_mean: mean length of the evaluation's episodes.
        best_evaluation_return: highest ``evaluation_return_mean`` so far, among
            evaluations all of whose returns were finite.
        gradient_norm: Euclidean norm of the estimated gradient.
        update_norm: Euclidean norm of the change of θ, weight decay included.
        mean_norm: Euclidean norm of θ after the update.
        slot_utilization: live slot-steps per computed slot-step, from 0 to 1.
        seconds_policy: time in the policy network.
        seconds_environment: time in the simulator.
        seconds_noise: time in drawing perturbations.
        seconds_update: time in estimating the gradient and updating θ.
        seconds_other: the rest of the generation.
        seconds_total: the whole generation.
        env_steps_per_second: ``env_steps / seconds_total``.
        seconds_elapsed: since the run began, time before a resume included.
    """

    generation: int
    env_steps: int
    total_env_steps: int
    num_episodes: int
    return_mean: float
    return_std: float
    return_min: float
    return_max: float
    return_p2_5: float
    return_p97_5: float
    fitness_mean: float = math.nan
    num_nonfinite: int
    num_failed: int
    episode_length_mean: float
    episode_length_max: int
    step_cap: int
    evaluation_return_mean: float
    evaluation_return_std: float
    evaluation_return_min: float
    evaluation_return_max: float
    evaluation_num_nonfinite: int = 0
    evaluation_length_mean: float
    best_evaluation_return: float
    gradient_norm: float
    update_norm: float
    mean_norm: float
    slot_utilization: float
    seconds_policy: float
    seconds_environment: float
    seconds_noise: float
    seconds_update: float
    seconds_other: float
    seconds_total: float
    env_steps_per_second: float
    seconds_elapsed: float

    def __post_init__(self) -> None:
        """Turns NumPy and JAX scalars into plain Python numbers."""
        for field in dataclasses.fields(self):
            convert = int if field.type is int else float
            object.__setattr__(self, field.name, convert(getattr(self, field.name)))


def evaluation_record(
    generation: int,
    total_env_steps: int,
    returns: ArrayLike,
    lengths: ArrayLike,
    best: float,
    seconds_elapsed: float,
    env_steps: int = 0,
) -> GenerationRecord:
    """Returns the record of an evaluation without a population.

    Args:
        generation: index of the evaluation, from 0.
        total_env_steps: training steps since the run began, 0 for a run without any.
        returns: ``[E]``, of the evaluation's episodes.
        lengths: ``[E]``, theirs.
        best: highest mean evaluation return so far.
        seconds_elapsed: since the run began.
        env_steps: those of ``total_env_steps`` that the evaluation took.
    """
    evaluated = return_statistics(returns)
    unmeasured: dict[str, Any] = {
        field.name: 0 if field.type is int else math.nan
        for field in dataclasses.fields(GenerationRecord)
    }
    measured = {
        "generation": generation,
        "env_steps": env_steps,
        "total_env_steps": total_env_steps,
        "evaluation_return_mean": evaluated.mean,
        "evaluation_return_std": evaluated.std,
        "evaluation_return_min": evaluated.min,
        "evaluation_return_max": evaluated.max,
        "evaluation_num_nonfinite": evaluated.num_nonfinite,
        "evaluation_length_mean": float(np.mean(np.asarray(lengths))),
        "best_evaluation_return": best,
        "seconds_elapsed": seconds_elapsed,
    }
    return GenerationRecord(**(unmeasured | measured))


WALL_CLOCK_FIELDS = (
    "seconds_policy",
    "seconds_environment",
    "seconds_noise",
    "seconds_update",
    "seconds_other",
    "seconds_total",
    "env_steps_per_second",
    "seconds_elapsed",
)
"""The fields in which a repeated or resumed run may differ from the first."""

TENSORBOARD_GROUPS = {
    "population": (
        "return_mean",
        "return_std",
        "return_min",
        "return_max",
        "return_p2_5",
        "return_p97_5",
        "fitness_mean",
        "num_nonfinite",
        "num_failed",
        "num_episodes",
        "episode_length_mean",
        "episode_length_max",
        "step_cap",
    ),
    "evaluation": (
        "evaluation_return_mean",
        "evaluation_return_std",
        "evaluation_return_min",
        "evaluation_return_max",
        "evaluation_num_nonfinite",
        "evaluation_length_mean",
        "best_evaluation_return",
    ),
    "update": ("gradient_norm", "update_norm", "mean_norm"),
    "time": (
        "env_steps",
        "total_env_steps",
        "slot_utilization",
        *WALL_CLOCK_FIELDS,
    ),
}
"""Where each field but ``generation`` is found in TensorBoard: ``group/field``."""


class ReturnStatistics(NamedTuple):
    """Statistics of a set of returns.

    All but the count are over the finite returns, and NaN if there is none.

    Attributes:
        mean: their mean.
        std: their standard deviation (of the set, not of an estimate).
        min: the lowest.
        max: the highest.
        p2_5: 2.5th percentile, linearly interpolated.
        p97_5: 97.5th percentile.
        num_nonfinite: how many returns were NaN or infinite.
    """

    mean: float
    std: float
    min: float
    max: float
    p2_5: float
    p97_5: float
    num_nonfinite: int


def return_statistics(returns: ArrayLike) -> ReturnStatistics:
    """Summarises returns of any shape, leaving out those that are not finite.

    Example:
        >>> return_statistics([1.0, 3.0, float("nan")])[:4]
        (2.0, 1.0, 1.0, 3.0)
    """
    values = np.asarray(returns, np.float64).ravel()
    finite = values[np.isfinite(values)]
    num_nonfinite = values.size - finite.size
    # A NaN stands in for an empty set: every statistic of it is NaN, without warnings.
    finite = finite if finite.size else np.array([np.nan])
    return ReturnStatistics(
        mean=float(finite.mean()),
        std=float(finite.std()),
        min=float(finite.min()),
        max=float(finite.max()),
        p2_5=float(np.percentile(finite, 2.5)),
        p97_5=float(np.percentile(finite, 97.5)),
        num_nonfinite=num_nonfinite,
    )


class MetricsWriter:
    """Appends a run's records to ``metrics.jsonl`` and to TensorBoard.

    Example::

        with MetricsWriter(run_directory) as writer:
            writer.write(record)
    """

    def __init__(
        self,
        run_directory: str | os.PathLike[str],
        resume_after_generation: int | None = None,
    ) -> None:
        """Opens the files of a new run, or of one that continues.

        Args:
            run_directory: ``runs/<name>``; created if missing.
            resume_after_generation: None for a new run. For a resumed one the last
                generation that the restored checkpoint contains, -1 for none: records
                of later generations and a half-written last line are removed.

        Raises:
            ValueError: a new run where records exist, or records that are not ours.
        """
        directory = Path(run_directory)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / METRICS_FILE
        if resume_after_generation is not None:
            _drop_later_records(path, resume_after_generation)
        elif path.exists() and path.stat().st_size:
            raise MetricsError(
                f"{path} has records of another run: choose another run directory or"
                " resume that run"
            )
        self._path, self._file = path, open_to_append(path)
        self._tensorboard = _open_tensorboard(
            directory / TENSORBOARD_FOLDER, resume_after_generation
        )

    def write(self, record: GenerationRecord) -> None:
        """Appends one record; it is on the disk when this returns."""
        self.check_place()
        self._file.write(_to_line(record))
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._tensorboard is not None:
            self._tensorboard.write(record)

    def check_place(self) -> None:
        """Raises ``MetricsError`` if the file is no longer in its place."""
        try:
            here = self._path.stat()
        except OSError:
            here = None
        if here is None or not os.path.samestat(here, os.fstat(self._file.fileno())):
            raise MetricsError(
                f"{self._path} was moved, replaced or deleted while the run went on, "
                "and nothing is written any more; put its folder back, then continue "
                "with --resume."
            )

    def close(self) -> None:
        """Closes the files; closing twice does no harm."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
            self._tensorboard = None

    def __enter__(self) -> "MetricsWriter":
        """Returns the writer itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes the files."""
        self.close()


def read_metrics(run_directory: str | os.PathLike[str]) -> list[GenerationRecord]:
    """Reads a run's records in order, also while the run is going on.

    For a data frame: ``pandas.DataFrame(map(dataclasses.asdict, read_metrics(run)))``.

    Args:
        run_directory: ``runs/<name>``.

    Returns:
        The records. A line that is still being written is left out.

    Raises:
        ValueError: there is no ``metrics.jsonl``, or a line of it is not a record.
    """
    path = Path(run_directory) / METRICS_FILE
    if not path.exists():
        raise MetricsError(f"{path} does not exist: give the directory of a run")
    return [record for record, _ in _parse(path)]


def records_so_far(run_directory: str | os.PathLike[str]) -> list[GenerationRecord]:
    """Reads the records of a run that may not have begun, as :func:`read_metrics`."""
    begun = (Path(run_directory) / METRICS_FILE).exists()
    return read_metrics(run_directory) if begun else []


def num_whole_records(run_directory: str | os.PathLike[str]) -> int:
    """Counts a run's first records, up to the first generation without one."""
    generations = [record.generation for record in records_so_far(run_directory)]
    numbered = enumerate(generations)
    return next((i for i, found in numbered if found != i), len(generations))


def check_whole(
    run_directory: str | os.PathLike[str], num_records: int, num_finished: int
) -> None:
    """Checks that a run that is resumed has all its records.

    Raises:
        MetricsError: saying which are missing.
    """
    if num_records < num_finished:
        raise MetricsError(
            f"{Path(run_directory) / METRICS_FILE} has whole records of the first "
            f"{num_records} generations alone, and {num_finished} are finished: "
            "restore it from a backup, or start a new run with another --name."
        )


def _to_line(record: GenerationRecord) -> bytes:
    values = {
        name: value if math.isfinite(value) else None
        for name, value in dataclasses.asdict(record).items()
    }
    return json.dumps(values, allow_nan=False).encode() + b"\n"


def _parse(path: Path) -> list[tuple[GenerationRecord, bytes]]:
    """Returns the records of all whole lines, with the lines themselves."""
    parsed = []
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MetricsError(
            f"{path} cannot be read ({error.strerror}): restore it from a backup"
        ) from error
    # What follows the last line end is still being written, or a kill cut it short.
    *lines, _ = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            parsed.append((_from_json(json.loads(line)), line + b"\n"))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise MetricsError(
                f"line {number} of {path} is not a record ({error}): restore the file"
                " from a backup"
            ) from error
    return parsed


def _from_json(values: dict[str, Any]) -> GenerationRecord:
    """Builds a record; what an older version lacks is its default, or NaN like null."""
    known = {}
    for field in dataclasses.fields(GenerationRecord):
        value = values.get(field.name)
        if value is None and field.default is not dataclasses.MISSING:
            value = field.default
        if value is None and field.type is int:
            raise ValueError(f"no {field.name}")
        known[field.name] = math.nan if value is None else value
    return GenerationRecord(**known)


def _drop_later_records(path: Path, last: int) -> None:
    """Keeps the whole lines up to generation ``last``, byte for byte.

    The file is replaced in one step: a kill leaves the old or the new one.
    """
    if not path.exists():
        return
    kept = b"".join(line for record, line in _parse(path) if record.generation <= last)
    if kept == path.read_bytes():
        return
    with whole_file(path) as draft, draft.open("wb") as file:
        file.write(kept)
        file.flush()
        os.fsync(file.fileno())


class _TensorBoard:
    """TensorBoard events, written when told and not by a background thread.

    ``tensorboardX.SummaryWriter`` passes events through a queue and a thread, so a
    kill loses some that a resume would not write again; its parts do not.
    """

    def __init__(self, folder: Path, resume_after_generation: int | None) -> None:
        # Imported here because it is optional, and readers of metrics never need it.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        self._event_pb2: Any = event_pb2
        self._summary_pb2: Any = summary_pb2
        folder.mkdir(exist_ok=True)
        first = 0 if resume_after_generation is None else resume_after_generation + 1
        # Files are named by the second they were opened in: the suffix keeps two of
        # one second apart, and in order.
        self._writer = EventsWriter(
            str(folder / "events"), f".{first:08d}.{os.getpid()}"
        )
        if resume_after_generation is not None:
            # TensorBoard then forgets what earlier files say of this step and later.
            log = self._event_pb2.SessionLog
            self._write(step=first, session_log=log(status=log.START))

    def write(self, record: GenerationRecord) -> None:
        scalars = {
            f"{group}/{name}": getattr(record, name)
            for group, names in TENSORBOARD_GROUPS.items()
            if record.num_episodes or group != "population"
            for name in names
        }
        summary = self._summary_pb2.Summary()
        for tag, value in scalars.items():
            if math.isfinite(value):
                summary.value.add(tag=tag, simple_value=value)
        self._write(step=record.generation, summary=summary)

    def _write(self, **fields: Any) -> None:
        self._writer.write_event(self._event_pb2.Event(wall_time=time.time(), **fields))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _open_tensorboard(folder: Path, resume_after: int | None) -> _TensorBoard | None:
    """Opens TensorBoard events, or returns None if tensorboardX is not installed."""
    try:
        return _TensorBoard(folder, resume_after)
    except ImportError:
        return None
