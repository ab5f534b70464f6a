"""Processes of their own, which can be killed at any operation on a file.

They are forked from one that has imported everything and started nothing, so that
imports are paid for once and XLA has no threads yet.
"""

import errno
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("jax_es.train", "jax_es.collect", "jax_es.pretrain", "jax_es.training.loop"),
        *("jax_es.imitation.clone_run", "jax_es.imitation.demonstrations"),
        # tensorboardX imports torch where that is installed.
        *("minari", "h5py", "mujoco", "tensorboardX"),
    ]
)

LONGEST = 300
"""Seconds after which a program is taken to hang; most end within ten."""


class Ended(NamedTuple):
    """What a process left."""

    code: int
    """Its exit code; −9 if it was killed."""
    lines: list[str]
    """What it wrote, progress left out."""
    operations: int | None
    """How many it had made on files, if it lived to say so."""

    @property
    def errors(self) -> list[str]:
        """The lines that say why it ended."""
        return [x for x in self.lines if x.startswith(("error: ", "SIG"))]


class Processes(NamedTuple):
    """Starts programs, one after the other."""

    folder: Path
    """Where they keep compiled programs, and what they write."""

    def run(
        self,
        folder: Path,
        command: str,
        signum: int = 0,
        at: int = 0,
        is_full: bool = False,
        watch: Callable[[int], None] = lambda pid: None,
    ) -> Ended:
        """Runs ``python -m jax_es.COMMAND`` in a folder.

        Args:
            folder: the working directory.
            command: program and arguments.
            signum: a signal that it gets, or 0.
            at: at which operation on a file.
            is_full: no operation succeeds from that one on.
            watch: called with the process's id while it runs.
        """
        output = self.folder / "output.txt"
        arguments = (output, self.folder, folder, command, signum, at, is_full)
        process = CONTEXT.Process(target=_child, args=arguments)
        process.start()
        try:
            watch(process.pid)
        except BaseException:
            process.kill()
            raise
        process.join(LONGEST)
        if process.exitcode is None:
            process.kill()
            process.join()
            text = output.read_text(errors="replace")
            raise TimeoutError(f"{command} ran longer than {LONGEST} s:\n{text}")
        progress = ("generation", "Training", "Resuming", "epoch", "Cloning", "episode")
        text = output.read_text(errors="replace")
        lines = [x for x in text.splitlines() if not x.startswith(progress)]
        counts = [int(x.split()[1]) for x in lines if x.startswith("operations: ")]
        return Ended(process.exitcode, lines, counts[0] if counts else None)


def _child(output, cache, folder, command, signum, at, is_full):
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    count = 0

    def hook(event, arguments):
        nonlocal count
        if _is_operation(event, arguments):
            count += 1
            if signum and count == at:
                os.kill(os.getpid(), signum)
            if is_full and count >= at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sys.addaudithook(hook)
    program, *rest = command.split()
    code = importlib.import_module(f"jax_es.{program}").main(rest)
    os.write(1, f"operations: {count}\n".encode())
    sys.exit(code)


def _is_operation(event, arguments):
    """Returns whether it changes a file in the working directory."""
    paths = ()
    if event == "open":
        written = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        paths = arguments[:1] if written else ()
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link"):
        paths = arguments[:1]
    here = os.getcwd() + os.sep
    return any(
        os.path.abspath(os.fsdecode(path)).startswith(here)
        for path in paths
        if isinstance(path, (str, bytes, os.PathLike))
    )
