"""Processes of their own, which can be killed at any operation on a file.

They are forked from one that has imported everything and started nothing, so that
imports are paid for once and XLA has no threads yet.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax_es

SERVER = """
import errno, importlib, json, os, resource, signal, sys

for name in sys.argv[1:]:
    importlib.import_module(name)

def operations(event, arguments):
    # What changes a file in the working directory; reading is no operation.
    if event == "open":
        written = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        paths = arguments[:1] if written else ()
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link"):
        paths = arguments[:1]
    else:
        return False
    here = os.getcwd() + os.sep
    return any(os.path.abspath(os.fsdecode(path)).startswith(here)
               for path in paths if isinstance(path, (str, bytes, os.PathLike)))

def disturb(job):
    count = 0
    def hook(event, arguments):
        nonlocal count
        if operations(event, arguments):
            count += 1
            if job["signal"] and count == job["at"]:
                os.kill(os.getpid(), job["signal"])
            if job["is_full"] and count >= job["at"]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    sys.addaudithook(hook)
    if job["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"],) * 2)
    return lambda: count

def child(job, output):
    os.chdir(job["folder"])
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, output + 1)
    counted = disturb(job)
    program = importlib.import_module("jax_es." + job["program"])
    code = program.main(job["arguments"])
    print("operations:", counted())
    sys.exit(code)

for line in sys.stdin:
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(json.loads(line), writes)
    print(pid, flush=True)
    os.close(writes)
    with open(reads, errors="replace") as file:
        text = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps([code, text]), flush=True)
"""


class Ended(NamedTuple):
    """What a process left.

    Attributes:
        code: its exit code; −9 if it was killed.
        lines: what it wrote, progress left out.
        operations: how many it had made on files, if it lived to say so.
    """

    code: int
    lines: list[str]
    operations: int | None

    @property
    def errors(self) -> list[str]:
        """The lines that say why it ended."""
        return [x for x in self.lines if x.startswith(("error: ", "SIG"))]


class Processes:
    """Starts programs, one after the other.

    Args:
        cache: where they keep compiled programs.
    """

    def __init__(self, cache: Path) -> None:
        programs = ("train", "collect", "pretrain", "training.loop")
        programs += ("imitation.clone_run", "imitation.demonstrations")
        modules = [f"jax_es.{name}" for name in programs]
        # tensorboardX imports torch where that is installed.
        modules += ["minari", "h5py", "mujoco", "tensorboardX"]
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SERVER, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(jax_es.__file__).parents[1]),
                "JAX_PLATFORMS": "cpu",
                "JAX_COMPILATION_CACHE_DIR": str(cache),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            },
        )

    def run(
        self,
        folder: Path,
        command: str,
        signum: int = 0,
        at: int = 0,
        is_full: bool = False,
        largest_file: int = 0,
        watch: Callable[[int], None] = lambda pid: None,
    ) -> Ended:
        """Runs ``python -m jax_es.COMMAND`` in a folder.

        Args:
            folder: the working directory.
            command: program and arguments.
            signum: a signal that it gets, or 0.
            at: at which operation on a file.
            is_full: no operation succeeds from that one on.
            largest_file: bytes that a file may have; 0 for any.
            watch: called with the process's id while it runs.
        """
        program, *arguments = command.split()
        job = {
            "folder": str(folder),
            "program": program,
            "arguments": arguments,
            "signal": signum,
            "at": at,
            "is_full": is_full,
            "largest_file": largest_file,
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        pid = int(self._server.stdout.readline())
        try:
            watch(pid)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        code, text = json.loads(self._server.stdout.readline())
        progress = ("generation", "Training", "Resuming", "epoch", "Cloning", "episode")
        lines = [x for x in text.splitlines() if not x.startswith(progress)]
        counts = [int(x.split()[1]) for x in lines if x.startswith("operations: ")]
        return Ended(code, lines, counts[0] if counts else None)

    def close(self) -> None:
        """Ends the process that the others are forked from."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()
