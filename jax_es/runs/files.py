"""Files in a folder that someone else may have made.

A link there, in place of a file of ours, is never written through: what it points to is
not ours to change. ``outputs.py`` replaces files, and with them links.
"""

import fcntl
import io
import json
import os
from pathlib import Path
from typing import IO, Any

from jax_es.config import ConfigError

LOCK_FILE = ".lock"


def open_lock(folder: Path) -> IO[bytes]:
    """Makes a folder and locks it.

    Returns:
        What holds the lock until it is closed or the process ends.

    Raises:
        BlockingIOError: if another process holds the lock.
        OSError: if nothing can be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = open_to_append(folder / LOCK_FILE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def open_to_append(file: Path) -> IO[bytes]:
    """Opens a file, which need not exist, unless it is a link.

    Raises:
        OSError: if it is a link, or cannot be opened.
    """

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)

    try:
        return io.BufferedWriter(io.FileIO(str(file), "ab", opener=opener))
    except OSError as error:
        kind = "link" if file.is_symlink() else "folder" if file.is_dir() else None
        if kind is None:
            raise
        raise OSError(error.errno, f"{file.name} is a {kind}, delete it") from error


def read_json(file: Path) -> Any:
    """Reads a JSON file, in whatever way it may be damaged.

    Raises:
        ConfigError: if it cannot be read, or is not JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not readable JSON: {error}") from error
