"""One record per generation: what a run did, on disk for people and for plots.

``metrics.jsonl`` in the run's folder is the authority, one JSON object a line, written
whole and synced to the disk; ``tensorboard/`` mirrors it.
JSON knows no NaN and no infinity: both are written as ``null`` and read back as NaN.

Order matters for an exact resume: write a generation's record *before* its checkpoint.
A run killed between the two then repeats that generation, and the record of its first
attempt is removed on resume.
"""

import contextlib
import dataclasses
import json
import os
import time
from pathlib import Path

from jax_es.checks import ConfigError
from jax_es.runs.files import check_regular, whole_file
from jax_es.runs.records import FIELDS, GenerationRecord, nulled
from jax_es.runs.tracking import TensorBoard

METRICS_FILE = "metrics.jsonl"


class MetricsWriter(contextlib.AbstractContextManager["MetricsWriter"]):
    """Appends a run's records to ``metrics.jsonl`` and to TensorBoard.

    Args:
        run_directory: ``runs/<name>``; created if missing.
        resume_after_generation: the last generation that the restored checkpoint
            contains, -1 for none. Records of later generations and a half-written last
            line are removed.

    Raises:
        ConfigError: there are records that are not ours.

    Example::

        with MetricsWriter(run_directory) as writer:
            writer.write(record)
    """

    def __init__(
        self, run_directory: str | os.PathLike[str], resume_after_generation: int = -1
    ) -> None:
        directory = Path(run_directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / METRICS_FILE
        self._path.touch()
        kept = _drop_later_records(self._path, resume_after_generation)
        before = kept[-1].seconds_elapsed if kept else 0.0
        self._started = time.perf_counter() - before
        self._tensorboard = TensorBoard(directory, resume_after_generation + 1)

    def write(self, record: GenerationRecord) -> None:
        """Appends one record; it is on the disk when this returns."""
        values = nulled(dataclasses.asdict(record))
        line = json.dumps(values, allow_nan=False).encode() + b"\n"
        # Opened each time: a run whose folder was moved shall not go on elsewhere.
        with self._path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._tensorboard.on_generation(record)

    def elapsed(self) -> float:
        """Returns the wall-clock seconds since the run began, pauses left out."""
        return time.perf_counter() - self._started

    def close(self) -> None:
        """Closes the files; closing twice does no harm."""
        self._tensorboard.close()

    def __exit__(self, *exception: object) -> None:
        """Closes the files, as :meth:`close`."""
        self.close()


def read_metrics(run_directory: str | os.PathLike[str]) -> list[GenerationRecord]:
    """Reads a run's records in order, also while the run is going on.

    For a data frame: ``pandas.DataFrame(map(dataclasses.asdict, read_metrics(run)))``.

    Args:
        run_directory: ``runs/<name>``.

    Returns:
        The records. A line that is still being written is left out.

    Raises:
        ConfigError: (a ``ValueError``) there is no ``metrics.jsonl``, or a line of it
            is not a record.
    """
    path = Path(run_directory) / METRICS_FILE
    return [_from_line(path, *numbered) for numbered in enumerate(_lines(path), 1)]


def records_so_far(run_directory: str | os.PathLike[str]) -> list[GenerationRecord]:
    """Reads the records of a run that may not have begun; see :func:`read_metrics`."""
    begun = (Path(run_directory) / METRICS_FILE).exists()
    return read_metrics(run_directory) if begun else []


def _lines(path: Path) -> list[bytes]:
    """Returns all whole lines of a file, without their ends."""
    try:
        check_regular(path)
        # What follows the last line end is being written, or a kill cut it short.
        return path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(
            f"{path} cannot be read ({why}): give the directory of a run"
        ) from error


def _from_line(path: Path, number: int, line: bytes) -> GenerationRecord:
    """Reads a record; null is NaN, and so is what an older version lacks."""
    try:
        values = json.loads(line)
        known = {field.name: values.get(field.name) for field in FIELDS}
        return GenerationRecord(**{k: v for k, v in known.items() if v is not None})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"line {number} of {path} is not a record ({error}): restore the file"
            " from a backup"
        ) from error


def _drop_later_records(path: Path, last: int) -> list[GenerationRecord]:
    """Keeps the whole lines up to generation ``last``, byte for byte; returns them.

    The file is replaced in one step: a kill leaves the old or the new one.
    """
    numbered = zip(_lines(path), read_metrics(path.parent), strict=True)
    kept = [pair for pair in numbered if pair[1].generation <= last]
    with whole_file(path) as draft, draft.open("wb") as file:
        file.writelines(line + b"\n" for line, _ in kept)
        file.flush()
        os.fsync(file.fileno())
    return [record for _, record in kept]
