"""What Ray keeps beside the program: files and processes, for one user alone."""

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jax_es.runs.files import open_lock

TEMPORARY = Path("/tmp")
"""Where Ray's folders are. A socket's name has at most 107 characters, so the path must
be short."""

_PREFIX, _RAYS = "jax-es-ray-", "r"


@contextlib.contextmanager
def private_folder() -> Iterator[str]:
    """Makes a folder for Ray, which is removed with the block.

    Others can write into Ray's own folder, so it lies in one that they cannot enter.
    Folders of programs that were killed are removed first.
    """
    for folder in TEMPORARY.glob(f"{_PREFIX}*/{_RAYS}"):
        with contextlib.suppress(OSError):  # its program lives, or it is another user's
            if folder.parent.lstat().st_uid == os.getuid():
                with open_lock(folder.parent):
                    shutil.rmtree(folder.parent)
    with (
        tempfile.TemporaryDirectory(
            prefix=_PREFIX, dir=TEMPORARY, ignore_cleanup_errors=True
        ) as folder,
        open_lock(Path(folder)),
    ):
        # Ray makes it: a folder without it has no lock yet, and is left alone above.
        yield os.path.join(folder, _RAYS)


def make_token() -> None:
    """Makes the token by which processes of a session know each other.

    Ray makes one too, which every user of the machine may read.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "token").lower()
    if mode != "token" or {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & {*os.environ}:
        return
    file = Path.home() / ".ray" / "auth_token"
    file.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w") as opened:
            opened.write(secrets.token_hex(32))
    file.chmod(0o600)  # of one that Ray made


def end_agents_with_us() -> "subprocess.Popen[bytes]":
    """Starts what ends Ray's agents once this process has ended, however it does.

    Ray's other processes end with it; its agents notice after a minute.

    Returns:
        What waits; it ends by itself, and when its input is closed.
    """
    import psutil  # Ray brings it

    agents: list[str] = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            if re.fullmatch(r"ray::\w+Agent", " ".join(child.cmdline()).strip()):
                agents.append(str(child.pid))
    return subprocess.Popen(
        ["sh", "-c", 'read nothing; kill -9 "$@"', "sh", *agents],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process alone
    )
