"""Files that a program leaves: whole, or not at all."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from jax_es.config import ConfigError


@contextlib.contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Lets a file be written aside, and renames it into place once it is finished.

    What stood there before stays until then, and for good if the block raises. A link
    is replaced, not followed. Something that is no file (``/dev/stdout``, a pipe) is
    written to as it is.

    Args:
        file: the file; its folder is created.

    Yields:
        Where to write; it has the same ending.
    """
    if file.is_relative_to("/dev") or (file.exists() and not file.is_file()):
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
    """Checks that a file can be written later; leaves no trace but its folder.

    Args:
        option: what names the file on the command line.
        file: the file; None for none.

    Raises:
        ConfigError: if it cannot.
    """
    if file is None:
        return
    try:
        if file.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        with contextlib.suppress(_Unwanted), whole_file(file) as draft:
            draft.open("a").close()
            raise _Unwanted
    except OSError as error:
        raise ConfigError(
            f"{option} {file} cannot be written ({error.strerror}); choose another "
            "file."
        ) from error


class _Unwanted(Exception):
    """The file shall not be kept."""
