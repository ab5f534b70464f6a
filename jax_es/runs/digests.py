"""Digests of what is saved: written with it, and checked by everything that reads it.

A checkpoint's step, an exported policy, a teacher's replay buffer and a dataset are
folders. Each holds ``digests.json``, the SHA-256 of its files, which is put into place
with them. A record that changes (``config.json``, ``experiment.json``, ``study.json``)
holds a digest of itself.

Both are JSON objects whose entry ``digests`` holds the digest of the rest, ``record``.
A record's ``first_step`` says besides that what lies beside it holds digests from that
step on: without them it is damaged, and not an earlier version's.
"""

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_es.checks import ConfigError, check_types
from jax_es.runs.files import read_json, read_record, whole_file

DIGESTS_FILE = "digests.json"
DIGESTS = "digests"
"""The entry of a record."""

ALWAYS = {"first_step": 0}
"""That entry where everything holds digests."""


class DamageError(ValueError):
    """Says what is not as it was saved; the caller says what remains."""


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record, as JSON has it, with a digest of itself."""
    record = json.loads(json.dumps(record))  # tuples become lists
    return {**record, DIGESTS: {**record.get(DIGESTS, {}), "record": _digest(record)}}


def check_sealed(record: dict[str, Any]) -> None:
    """Raises :class:`DamageError` if a record is not what :func:`sealed` returned.

    One without the entry, of an earlier version, passes.
    """
    entry = record.get(DIGESTS, {"record": _digest(record)})
    if not isinstance(entry, dict) or entry.get("record") != _digest(record):
        raise DamageError("its digest is not that of its content")


def _digest(record: dict[str, Any]) -> str:
    entry = record.get(DIGESTS)
    entry = {**entry, "record": None} if isinstance(entry, dict) else {"record": None}
    text = json.dumps({**record, DIGESTS: entry}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_digests(folder: Path, **content: int) -> None:
    """Writes the digests of a folder's files into it.

    Args:
        folder: a draft, which is renamed into place afterwards.
        **content: what else tells its content, as a step.
    """
    _write(folder, {"sha256": _of_files(folder), **content})


def check_digests(
    folder: Path, entry: Any, record: Path, saved_at: int = 0, **content: int
) -> None:
    """Checks the files that a folder holds digests of, or warns that it holds none.

    Args:
        folder: what is read.
        entry: the entry ``digests`` of the record; None if it has none.
        record: the record's file.
        saved_at: the step at which the folder was written, or later.
        **content: as :func:`write_digests` was given.

    Raises:
        DamageError: a file, or the digests that there must be, is missing or another.
    """
    file = folder / DIGESTS_FILE
    first = entry.get("first_step") if isinstance(entry, dict) else None
    is_due = isinstance(first, int) and saved_at >= first
    if entry is None or not (is_due or file.is_file()):
        warn_unchecked(record if entry is None else folder)
    if not file.is_file():
        if is_due:
            raise DamageError(f"{file} is missing")
        return
    try:
        written = check_types(read_json(file), sha256=dict, **{DIGESTS: dict})
        check_sealed(written)
    except (ConfigError, TypeError, DamageError) as error:
        raise DamageError(f"{file} is damaged") from error
    for name, value in content.items():
        if written.get(name) != value:
            raise DamageError(f"it holds {name} {written.get(name)}")
    for name, digest in written["sha256"].items():
        found = _of_file(folder / name)
        if found is None or found not in (digest, written.get("before", {}).get(name)):
            raise DamageError(f"{name} is {'damaged' if found else 'missing'}")


def recorded(record: Path) -> Any:
    """Returns a record's entry ``digests``; None if it has none.

    Raises:
        ConfigError: it cannot be read.
    """
    values = read_record(record) if record.is_file() else {DIGESTS: {}}
    return values.get(DIGESTS) if isinstance(values, dict) else None


def warn_unchecked(path: Path) -> None:
    """Warns, once a process and path, that something holds no digests."""
    warnings.warn(
        f"{path} holds no digests, as other programs and earlier versions write it; "
        "nothing tells whether it is damaged.",
        stacklevel=1,  # one place, so that Python says it once
    )


@contextlib.contextmanager
def replacing(folder: Path, draft: Path) -> Iterator[None]:
    """Lets files be written into a draft, and then puts them into place, with digests.

    The draft begins empty. If the block raises, nothing has happened. A kill in between
    leaves some files of before and some new ones: the digests allow both until all are
    in place.
    """
    shutil.rmtree(draft, ignore_errors=True)  # of a killed process
    try:
        draft.mkdir(parents=True)
        yield
        folder.mkdir(parents=True, exist_ok=True)
        new = _of_files(draft)
        before = {n: old for n in new if (old := _of_file(folder / n)) is not None}
        _write(folder, {"sha256": new, "before": before})
        for name in new:  # sorted
            (draft / name).replace(folder / name)
        _write(folder, {"sha256": new})
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write(folder: Path, content: dict[str, Any]) -> None:
    with whole_file(folder / DIGESTS_FILE) as draft, draft.open("w") as file:
        json.dump(sealed(content), file)
        file.flush()
        os.fsync(file.fileno())


def _of_files(folder: Path) -> dict[str, str | None]:
    """Returns the SHA-256 of each of a folder's files, by their paths in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): _of_file(path) for path in paths}
    return {n: digest for n, digest in found.items() if n != DIGESTS_FILE}


def _of_file(file: Path) -> str | None:
    """Returns a file's SHA-256; None if it is none, or cannot be read."""
    try:
        if not file.is_file():  # a pipe would never end
            return None
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return None
