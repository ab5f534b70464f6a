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
import itertools
import json
import math
import os
import time
import warnings
from pathlib import Path

from jax_es.checks import ConfigError, require
from jax_es.runs.files import check_regular, whole_file
from jax_es.runs.records import FIELDS, OWN, GenerationRecord, nulled, written
from jax_es.runs.tracking import TensorBoard

METRICS_FILE = "metrics.jsonl"

_NO_RECORD = (ValueError, TypeError, OverflowError, AttributeError, RecursionError)
"""What reading a line raises that is not a record."""


class MetricsWriter(contextlib.AbstractContextManager["MetricsWriter"]):
    """Appends a run's records to ``metrics.jsonl`` and to TensorBoard.

    Args:
        run_directory: ``runs/<name>``; created if missing.
        resume_after_generation: the last generation that the restored checkpoint
            contains, -1 for none. Records of later generations and a half-written last
            line are removed. A warning says which records are missing.

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
        kept = _keep_finished(self._path, resume_after_generation)
        self._is_begun = bool(kept)
        before = kept[-1].seconds_elapsed if kept else 0.0
        self._started = time.perf_counter() - before
        # NaN stays NaN: a version that did not count them began the run.
        worked = kept[-1].cpu_seconds if kept else 0.0
        self._cpu_started = time.process_time() - worked
        self._tensorboard = TensorBoard(directory, resume_after_generation + 1)

    def write(self, record: GenerationRecord) -> GenerationRecord:
        """Appends one record; it is on the disk when this returns.

        Returns what was written: the record with the CPU seconds so far, unless it had
        them.
        """
        if math.isnan(record.cpu_seconds):
            worked = time.process_time() - self._cpu_started
            record = dataclasses.replace(record, cpu_seconds=worked)
        values = nulled(record.numbers())
        line = json.dumps(values, allow_nan=False).encode() + b"\n"
        # Opened each time: a run whose folder was moved shall not go on elsewhere.
        with self._path.open("ab") as file:
            if self._is_begun and not file.tell():
                warnings.warn(
                    f"{self._path} was deleted while the run went on; it holds records "
                    f"from generation {record.generation} on.",
                    stacklevel=2,
                )
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._is_begun = True
        self._tensorboard.on_generation(record)
        return record

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

    For a data frame: ``pandas.DataFrame(r.numbers() for r in read_metrics(run))``.

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


def check_own_records(
    run_directory: str | os.PathLike[str], last: int, **state: float
) -> None:
    """Raises ``ConfigError`` if the records of a run to resume are another run's.

    Args:
        run_directory: ``runs/<name>``.
        last: the last generation that the restored checkpoint contains.
        **state: what the checkpoint says of fields of that generation's record.
    """
    of_last = (r for r in records_so_far(run_directory) if r.generation == last)
    for record, (name, saved) in itertools.product(of_last, state.items()):
        recorded = getattr(record, name)
        # What is not finite is not in the file, nor what an older version did not know.
        require(
            math.isclose(recorded, saved, rel_tol=1e-6)
            or not math.isfinite(recorded)
            or not math.isfinite(saved),
            f"{Path(run_directory, METRICS_FILE)} is another run's: its generation "
            f"{last} has {name} {recorded}, the checkpoint {saved}; restore the file "
            "from a copy, or delete it to go on without the records so far.",
        )


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
    """Reads a record; null is NaN, and what is not there was not measured."""
    try:
        values = json.loads(line)
        # Versions up to 0.2 wrote names without groups.
        known = {
            field.name: values.get(written(field.name), values.get(field.name))
            for field in FIELDS
        }
        own = {
            name.removeprefix(OWN): math.nan if value is None else value
            for name, value in values.items()
            if name.startswith(OWN)
        }
        known = {name: value for name, value in known.items() if value is not None}
        return GenerationRecord(**known, strategy=own)
    except _NO_RECORD as error:
        raise ConfigError(
            f"line {number} of {path} is not a record ({error}): restore the file"
            " from a backup"
        ) from error


def _keep_finished(path: Path, last: int) -> list[GenerationRecord]:
    """Keeps a record of each generation up to ``last``, byte for byte; returns them.

    Training does not depend on the file: what it lacks is said, and no reason to stop.
    The file is replaced in one step: a kill leaves the old or the new one.
    """
    records = records_so_far(path.parent)
    numbered = list(zip(_lines(path), records, strict=True)) if records else []
    numbered = [pair for pair in numbered if 0 <= pair[1].generation <= last]
    found = {record.generation: (line, record) for line, record in numbered}
    kept = [found[generation] for generation in sorted(found)]
    flaws = []
    if lacking := last + 1 - len(found):
        first = next(each for each in itertools.count() if each not in found)
        flaws.append(f"lacks {lacking} of {last + 1} records, the first {first}")
    if kept != numbered:
        flaws.append("held records twice or in another order, and was put in order")
    if flaws:
        warnings.warn(
            f"{path} {' and '.join(flaws)} (generations count from 0). The run goes "
            "on to the same numbers; curves show what is there.",
            stacklevel=3,
        )
    with whole_file(path) as draft, draft.open("wb") as file:
        file.writelines(line + b"\n" for line, _ in kept)
        file.flush()
        os.fsync(file.fileno())
    return [record for _, record in kept]
