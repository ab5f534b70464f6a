"""Files that a program writes: whole or not at all; and locks."""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from jax_es.checks import ConfigError, require

LOCK_FILE = ".lock"

MOST_RECORDS = 128
"""Records that a process keeps in memory."""


def open_lock(folder: Path) -> IO[bytes]:
    """Makes a folder and locks it, until what it returns is closed.

    Raises:
        BlockingIOError: if another process holds the lock.
        OSError: if nothing can be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_regular(folder / LOCK_FILE)
    file = (folder / LOCK_FILE).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def check_regular(path: Path) -> None:
    """Raises ``OSError`` for a pipe or the like, also in a folder: it may never end."""
    for each in (path, *path.rglob("*")):
        if each.exists() and not (each.is_file() or each.is_dir()):
            raise OSError(f"{each} is no file")


def read_json(file: Path) -> Any:
    """Reads a JSON file; raises ``ConfigError`` if it cannot be read."""
    try:
        check_regular(file)
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not readable JSON: {error}") from error


def state_of(file: Path) -> tuple[int, ...]:
    """Returns what is another once a file was changed or replaced; empty for none."""
    try:
        now = os.stat(file)
    except (OSError, ValueError):  # ValueError: an impossible name
        return ()
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


_records: dict[tuple[int, ...], Any] = {}
"""What was read, by the state of its file."""


def read_record(file: Path) -> Any:
    """Reads a JSON file as :func:`read_json`, once as long as it stays as it is.

    All callers share what it returns: none may change it.
    """
    state = state_of(file)
    if not state:
        return read_json(file)
    if state not in _records:
        if len(_records) >= MOST_RECORDS:
            _records.clear()
        _records[state] = read_json(file)
    return _records[state]


def write_record(file: Path, record: Any) -> None:
    """Writes a JSON file, whole; :func:`read_record` need not open it then."""
    text = json.dumps(record, indent=2) + "\n"
    with whole_file(file) as draft:
        draft.write_text(text)
    _records[state_of(file)] = json.loads(text)  # as it is read: tuples are lists


@contextlib.contextmanager
def writing(path: Path | str, remedy: str) -> Iterator[None]:
    """Raises ``ConfigError`` if the file system does not let ``path`` be written."""
    try:
        yield
    except OSError as error:
        why = str(error).partition("\n")[0]
        raise ConfigError(f"{path} cannot be written ({why}); {remedy}.") from error


LONGEST_PATH = 3900
"""Bytes of a folder's path; below it, files need up to 150 of the system's 4,095."""


def check_place(path: Path) -> None:
    """Raises ``ConfigError`` for a folder in which stored arrays would be lost.

    Of the path of a checkpoint, the storage library takes a backslash for a slash,
    matches ``*``, ``?`` and ``[`` with other folders' names, resolves ``..`` before
    links, and knows UTF-8 alone.
    """
    with writing(path, "choose another folder"):  # the working directory may be gone
        absolute = str(path.absolute())
        real = os.path.realpath(absolute)
        understood = os.path.realpath(os.path.normpath(absolute))
    odd = re.search(r"[\\*?\[\ud800-\udfff]", absolute)
    remedy = "Choose another folder; what lies there already can be moved."
    require(
        odd is None,
        f"{path} cannot be written: arrays cannot be stored in {absolute!r}, whose "
        f"path has {odd and odd[0]!r}. {remedy}",
    )
    require(
        understood == real,
        f"{path} cannot be written: arrays cannot be stored where '..' follows a link; "
        f"choose {real}.",
    )
    require(
        len(os.fsencode(absolute)) <= LONGEST_PATH,
        f"{absolute[:99]}… cannot be written: its path of {len(absolute):,} characters "
        f"is longer than {LONGEST_PATH:,} bytes. {remedy}",
    )


@contextlib.contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Lets a file be written aside, and renames it into place once it is finished.

    What stood there before stays until then, and for good if the block raises.
    Something that is no file (``/dev/stdout``, a pipe) is written to as it is.

    Args:
        file: the file; its folder is created.

    Yields:
        Where to write; it has the same ending.
    """
    is_device = file.is_relative_to("/dev") and not file.is_relative_to("/dev/shm")
    if is_device or (file.exists() and not file.is_file()):
        yield file
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".unfinished-{file.name}")
    draft.unlink(missing_ok=True)  # of a killed process
    try:
        yield draft
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def check_writable(option: str, file: Path | None) -> None:
    """Raises ``ConfigError`` if a file that an option names cannot be written later."""
    if file is None:
        return
    with writing(f"{option} {file}", "choose another file"):
        file.parent.mkdir(parents=True, exist_ok=True)
        is_new = not file.exists()
        file.open("a").close()
        if is_new:
            file.unlink()
