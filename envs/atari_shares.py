"""Who steps the games of a vector environment: this process, or several.

``ALEInterface.act`` holds Python's lock (measured, ale-py 0.12.1: another thread, which
wanted a turn every 2 ms, got one in a call of 0.69 s), so threads would not help. With
more than one core, processes step a share of the games each, and write into memory that
they share with this one.
"""

import contextlib
import itertools
import multiprocessing
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jax_es.envs.atari_game import AtariOptions, Game
from jax_es.envs.faults import EnvironmentFailure


class Table(NamedTuple):
    """A row a game, which the share that the game belongs to reads and writes."""

    observation: np.ndarray
    action: np.ndarray
    live: np.ndarray
    reward: np.ndarray
    over: np.ndarray
    lives: np.ndarray


def deal(
    num_games: int,
    num_processes: int,
    shape: tuple[int, ...],
    dtype: Any,
    rom: str,
    options: AtariOptions,
) -> tuple[Table, dict[int, Any]]:
    """Loads the games, and deals them to processes; one needs none of its own.

    Args:
        num_games: how many.
        num_processes: at most as many.
        shape: of an observation.
        dtype: of an observation.
        rom: ale-py's name of the game.
        options: of all games.

    Returns:
        The table, and the shares by the row after their last one, in order.
    """
    make = np.zeros if num_processes == 1 else _shared_zeros
    table = Table(
        observation=make((num_games, *shape), dtype),
        action=make(num_games, np.int32),
        live=make(num_games, np.bool_),
        reward=make(num_games, np.float64),
        over=make(num_games, np.bool_),
        lives=make(num_games, np.int32),
    )
    ends = np.linspace(0, num_games, num_processes + 1).astype(int).tolist()
    kind = Share if num_processes == 1 else RemoteShare
    return table, {
        stop: kind(table, start, stop, rom, options)
        for start, stop in itertools.pairwise(ends)
    }


class Share:
    """The games of the rows from ``start`` to ``stop``.

    ``begin`` says what to do: to reset the games of these rows with these seeds, or
    with None to step all live ones; ``wait`` returns when it is done: what
    was raised, or None.
    """

    def __init__(
        self, table: Table, start: int, stop: int, rom: str, options: AtariOptions
    ) -> None:
        """Loads the games (0.1 s each)."""
        self._table = table
        self._games = {row: Game(rom, options) for row in range(start, stop)}

    def begin(self, seeds: dict[int, int] | None) -> None:
        """Does the work."""
        table = self._table
        rows = [row for row in self._games if table.live[row]]
        for row in rows if seeds is None else seeds:
            game, out = self._games[row], table.observation[row]
            if seeds is None:
                table.reward[row] = game.step(int(table.action[row]), out)
            else:
                game.reset(seeds[row], out)
            table.over[row], table.lives[row] = game.is_over, game.lives

    def wait(self) -> Exception | None:
        """Returns at once; ``begin`` raises."""

    def close(self) -> None:
        """Does nothing."""


class RemoteShare:
    """A :class:`Share` in a process of its own."""

    def __init__(self, table: Table, *arguments: Any) -> None:
        """Starts the process, which loads the games."""
        methods = multiprocessing.get_all_start_methods()
        # Never fork this process: JAX's threads do not survive it.
        method: Any = "forkserver" if "forkserver" in methods else "spawn"
        context: Any = multiprocessing.get_context(method)
        self._pipe, theirs = context.Pipe()
        shared = [(_memory(array), array.shape, array.dtype.str) for array in table]
        self._process = context.Process(
            target=_serve, args=(theirs, shared, arguments), daemon=True
        )
        with _without_main():
            self._process.start()
        theirs.close()

    def begin(self, seeds: dict[int, int] | None) -> None:
        """Says what to do."""
        with contextlib.suppress(ConnectionError):  # wait says it
            self._pipe.send(seeds)

    def wait(self) -> Exception | None:
        """Waits until it is done; returns what a game raised, or that none can play."""
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(1.0)
            return EnvironmentFailure(
                "a process that steps games was ended by something else (exit code "
                f"{self._process.exitcode}; −9 is what a lack of memory looks like)"
            )

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.join()


def _serve(pipe: Any, shared: list, arguments: tuple) -> None:
    """Does a share's work until the pipe is closed; signals are the program's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    share = Share(Table(*itertools.starmap(_view, shared)), *arguments)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            seeds = pipe.recv()
            try:
                share.begin(seeds)
            except Exception as error:
                pipe.send(error)
            else:
                pipe.send(None)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hides the program: processes that start need nothing of it, and import nothing.

    A script without ``if __name__ == "__main__"`` would run in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _shared_zeros(shape: Any, dtype: Any) -> np.ndarray:
    """As ``np.zeros``, in memory that processes share."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    context: Any = multiprocessing.get_context("spawn")
    return _view(context.RawArray("B", size), shape, dtype)


def _view(memory: Any, shape: Any, dtype: Any) -> np.ndarray:
    return np.frombuffer(memory, dtype).reshape(shape)


def _memory(array: Any) -> Any:
    """Returns what :func:`_view` was given."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array
