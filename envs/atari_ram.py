"""Atari 2600 games as their 128 bytes of memory show them.

ale-py's vector environment gives no memory; so each slot steps an emulator of its own
(:mod:`envs.atari_game`). ``ALEInterface.act`` holds Python's lock (measured, ale-py
0.12.1: another thread, which wanted a turn every 2 ms, got one in a call of 0.69 s).
Threads would not help: with more than one core, processes step a share of the games
each, and write into memory that they share with this one.
"""

import itertools
import multiprocessing
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from envs.atari_env import RAM_AND_CHANGE, AtariOptions, ram_and_change, rom_name
from envs.atari_game import Game
from envs.base import EpisodeVectorEnv, positive_int, thread_count

RAM_SIZE = 128


class RamVectorEnv(EpisodeVectorEnv):
    """``num_envs`` copies of a game; observations are its memory.

    An observation is ``[128]`` uint8, or ``[256]`` float32 with ``observation
    ram-change``: the memory divided by 255, and its change since the last step. An
    episode is that of ale-py's own environment with ``obs_type="ram"`` and the same
    seed, to the bit. It ends when all lives are lost, or with
    ``terminate_on_life_loss`` after the step in which the first one is.

    Args:
        game: its name in any spelling.
        num_envs: how many environments.
        num_threads: how many processes step them; one needs none. By default the number
            of CPUs this process may use.
        descriptor: which numbers of an episode's last observation describe it.
        **options: fields of :class:`envs.atari_env.AtariOptions`.

    Raises:
        ValueError: the game is unknown, ale-py is not installed, or a number is out of
            its range.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        num_threads: int | None = None,
        descriptor: Sequence[int] = (),
        **options: Any,
    ) -> None:
        """Loads the game into every emulator (0.1 s each)."""
        rom = rom_name(game)
        self._options = chosen = AtariOptions(**{"observation": "ram", **options})
        num_envs = positive_int("num_envs", num_envs)
        num_processes = min(thread_count(num_threads), num_envs)
        self._with_change = chosen.observation == "ram-change"
        self._rng = np.random.default_rng(0)
        kept = chosen.sticky_actions, chosen.noop_max, chosen.full_action_space
        make = np.zeros if num_processes == 1 else _shared_zeros
        self._table = table = _Table(
            ram=make((num_envs, RAM_SIZE), np.uint8),
            action=make(num_envs, np.int32),
            live=make(num_envs, np.bool_),
            reward=make(num_envs, np.float64),
            over=make(num_envs, np.bool_),
            lives=make(num_envs, np.int32),
        )
        ends = np.linspace(0, num_envs, num_processes + 1).astype(int).tolist()
        self._ends = ends[1:]
        if num_processes == 1:
            self._shares: list[Any] = [_Share(table, 0, num_envs, rom, kept)]
        else:
            self._shares = [
                _RemoteShare(table, start, stop, rom, kept)
                for start, stop in itertools.pairwise(ends)
            ]
        space = RAM_AND_CHANGE
        if not self._with_change:
            space = gymnasium.spaces.Box(0, 255, (RAM_SIZE,), np.uint8)
        num_actions = 18 if chosen.full_action_space else Game(rom).num_actions
        super().__init__(
            num_envs,
            space,
            gymnasium.spaces.Discrete(num_actions),
            chosen.limit,
            descriptor,
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the processes."""
        for share in self._shares:
            share.close()

    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        if options:
            raise ValueError(
                f"options: got {sorted(options)}, expected 'reset_mask' only"
            )
        drawn = self._rng.integers(2**31, size=len(seeds)).tolist()
        seeds = [
            new if seed is None else seed
            for seed, new in zip(seeds, drawn, strict=True)
        ]
        due = dict(zip(np.flatnonzero(mask).tolist(), seeds, strict=True))
        start, busy = 0, []
        for share, stop in zip(self._shares, self._ends, strict=True):
            chosen = {slot: due[slot] for slot in range(start, stop) if slot in due}
            start = stop
            if chosen:
                share.begin(chosen)
                busy.append(share)
        for share in busy:
            share.wait()
        self._show(mask, self._table.ram)
        return {}

    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | bool, dict[str, Any]]:
        table = self._table
        before = table.ram.copy() if self._with_change else table.ram
        lives = table.lives.copy()
        np.copyto(table.action, actions, casting="unsafe")
        np.copyto(table.live, live)
        for share in self._shares:
            share.begin(None)
        for share in self._shares:
            share.wait()
        self._show(live, before)
        reward, over = table.reward.copy(), table.over.copy()
        if self._options.reward_clipping:
            reward = np.sign(reward)
        if self._options.terminate_on_life_loss:
            over |= table.lives < lives
        return reward, over, False, {"lives": table.lives.copy()}

    def _show(self, mask: np.ndarray, before: np.ndarray) -> None:
        """Writes the observations of ``mask``."""
        ram = self._table.ram[mask]
        if self._with_change:
            ram = ram_and_change(ram, before[mask])
        self._observations[mask] = ram


class _Table(NamedTuple):
    """A row an environment, read and written by the share that it belongs to."""

    ram: np.ndarray
    action: np.ndarray
    live: np.ndarray
    reward: np.ndarray
    over: np.ndarray
    lives: np.ndarray


class _Share:
    """The games of the rows from ``start`` to ``stop``.

    ``begin`` says what to do: to reset the games of these rows with these seeds, or
    with None to step all live ones; ``wait`` returns when it is done.
    """

    def __init__(
        self, table: _Table, start: int, stop: int, rom: str, kept: tuple
    ) -> None:
        self._table = table
        self._games = {row: Game(rom, *kept) for row in range(start, stop)}

    def begin(self, seeds: dict[int, int] | None) -> None:
        table = self._table
        if seeds is None:
            rows = [row for row in self._games if table.live[row]]
        else:
            rows = [*seeds]
        for row in rows:
            game = self._games[row]
            if seeds is None:
                table.reward[row] = game.step(int(table.action[row]))
            else:
                game.reset(seeds[row])
            game.read_ram(table.ram[row])
            table.over[row], table.lives[row] = game.is_over, game.lives

    def wait(self) -> None:
        """Returns at once."""

    def close(self) -> None:
        """Does nothing."""


class _RemoteShare:
    """A share in a process of its own."""

    def __init__(self, table: _Table, *arguments: Any) -> None:
        methods = multiprocessing.get_all_start_methods()
        # Never fork this process: JAX's threads do not survive it.
        method = "forkserver" if "forkserver" in methods else "spawn"
        context = multiprocessing.get_context(method)
        self._pipe, theirs = context.Pipe()
        shared = [(array.base.base, array.shape, array.dtype.str) for array in table]
        self._process = context.Process(
            target=_serve, args=(theirs, shared, arguments), daemon=True
        )
        self._process.start()
        theirs.close()

    def begin(self, seeds: dict[int, int] | None) -> None:
        self._pipe.send(seeds)

    def wait(self) -> None:
        try:
            self._pipe.recv()
        except EOFError:
            raise RuntimeError(
                "a process that steps games has ended; start the run again with "
                "--resume"
            ) from None

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Any, shared: list, arguments: tuple) -> None:
    """Does a share's work until the pipe is closed; Ctrl-C is the program's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    share = _Share(_Table(*(_view(*each) for each in shared)), *arguments)
    while True:
        try:
            share.begin(pipe.recv())
        except EOFError:
            return
        pipe.send(None)


def _shared_zeros(shape: Any, dtype: Any) -> np.ndarray:
    """As ``np.zeros``, in memory that processes share."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    context = multiprocessing.get_context("spawn")
    return _view(context.RawArray("B", size), shape, dtype)


def _view(memory: Any, shape: Any, dtype: Any) -> np.ndarray:
    return np.frombuffer(memory, dtype).reshape(shape)
