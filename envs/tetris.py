"""Tetris as a choice among placements: where to drop the piece, turned how.

A step is a piece. The environment shows, of every placement that fits, what the wall
would look like, and the policy chooses one: Tetris as Bertsekas & Tsitsiklis (1996) and
Szita & Lőrincz (2006) play it, with no time to steer and no view of the next piece.

A wall is 20 rows of 10 bits, the lowest row first. Games and placements are computed
together, in NumPy.
"""

import functools
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.utils.seeding import np_random

from jax_es.envs.base import EpisodeVectorEnv

ENV_ID = "Tetris-v0"
WIDTH, HEIGHT = 10, 20
NUM_PLACEMENTS = 34
"""Most placements that a piece has."""

PIECES = {
    "I": ("####", "#/#/#/#"),
    "O": ("##/##",),
    "S": (".##/##.", "#./##/.#"),
    "Z": ("##./.##", ".#/##/#."),
    "L": ("..#/###", "#./#./##", "###/#..", "##/.#/.#"),
    "J": ("#../###", "##/#./#.", "###/..#", ".#/.#/##"),
    "T": (".#./###", "#./##/#.", "###/.#.", ".#/##/.#"),
}
"""Each piece as it is and turned; rows from the top."""

FEATURES = {"bertsekas": 2 * WIDTH + 1, "dellacherie": 6}
"""Numbers that describe a wall, by the name of the set."""

_FULL = (1 << WIDTH) - 1
_ROWS = HEIGHT + 4  # a piece that does not fit still has a place to be computed
_BUFFER = 256  # pieces drawn at once


class _Placements(NamedTuple):
    """Every placement ``a`` of every piece, padded to ``A = 34``."""

    exists: np.ndarray
    """``[7, A]`` bool."""
    rows: np.ndarray
    """``[7, A, 4]`` uint16, the piece's rows, the lowest first."""
    low: np.ndarray
    """``[7, A, 10]``, the piece's lowest cell in a column; above all where none."""
    high: np.ndarray
    """``[7, A, 10]``, the first row above it; below all where the piece is not."""


@functools.cache
def _placements() -> _Placements:
    shape = len(PIECES), NUM_PLACEMENTS
    table = _Placements(
        np.zeros(shape, bool),
        np.zeros((*shape, 4), np.uint16),
        np.full((*shape, WIDTH), _ROWS),
        np.full((*shape, WIDTH), -_ROWS),
    )
    for piece, forms in enumerate(PIECES.values()):
        lines = [form.split("/")[::-1] for form in forms]
        places = [(f, x) for f in lines for x in range(WIDTH - len(f[0]) + 1)]
        for place, (form, left) in enumerate(places):
            at = piece, place
            table.exists[at] = True
            for row, line in enumerate(form):
                for column in (left + i for i, cell in enumerate(line) if cell == "#"):
                    table.rows[*at, row] |= 1 << column
                    table.low[*at, column] = min(table.low[*at, column], row)
                    table.high[*at, column] = row + 1
    return table


class TetrisVectorEnv(EpisodeVectorEnv):
    """``num_envs`` games side by side.

    An observation is ``34 · F`` numbers: F for each placement that fits, of the wall
    after it, full rows removed. If fewer than 34 fit, they are repeated until there are
    34, so that each of the 34 actions means a placement. The reward is the number of
    rows removed; a game ends when the next piece fits nowhere.

    - ``"bertsekas"``, F = 21: ten columns' heights, nine differences between
      neighbouring ones, the largest height, and the holes (empty cells with a full one
      above). With a bias these are the 22 of Bertsekas & Tsitsiklis.
    - ``"dellacherie"``, F = 6: height of the piece's middle above the floor, rows
      removed times the piece's cells in them, changes between full and empty along rows
      and along columns, holes, and the wells' depths 1 + 2 + … summed (Thiery &
      Scherrer 2009).

    Args:
        num_envs: how many games.
        num_threads: not used; games are stepped together.
        max_episode_steps: pieces after which a game is truncated.
        features: the set of numbers.

    Raises:
        ValueError: a number is not a positive integer, or there is no such set.
    """

    def __init__(
        self,
        num_envs: int,
        num_threads: int | None = None,
        max_episode_steps: int | None = None,
        features: str = "bertsekas",
    ) -> None:
        """Makes empty walls."""
        if features not in FEATURES:
            raise ValueError(
                f"features: got {features!r}, expected {' or '.join(FEATURES)}"
            )
        self._features = features
        size = NUM_PLACEMENTS * FEATURES[features]
        super().__init__(
            num_envs,
            gymnasium.spaces.Box(0.0, np.inf, (size,), np.float32),
            gymnasium.spaces.Discrete(NUM_PLACEMENTS),
            10_000 if max_episode_steps is None else max_episode_steps,
        )
        self.spec = gymnasium.spec(ENV_ID)
        self.walls = np.zeros((num_envs, HEIGHT), np.uint16)
        """Rows of bits, the lowest row and the leftmost column first."""
        self.pieces = np.zeros(num_envs, np.int64)
        """What is to be placed, an index of ``PIECES``."""
        self._drawn = np.zeros((num_envs, _BUFFER), np.int64)
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._chosen = np.zeros((num_envs, NUM_PLACEMENTS), np.int64)

    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        if options:
            raise ValueError(f"options: got {sorted(options)}, expected 'reset_mask'")
        games = np.flatnonzero(mask)
        for game, seed in zip(games.tolist(), seeds, strict=True):
            if seed is not None or self._generators[game] is None:
                self._generators[game], _ = np_random(seed)
        self.walls[games] = 0
        self._draw(games, np.zeros(len(games), np.int64))
        self._observe(games)
        return {}

    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, bool, dict[str, Any]]:
        games = np.flatnonzero(live)
        chosen = self._chosen[games, actions[games].astype(np.int64)]
        table = _placements()
        pieces, walls = self.pieces[games], self.walls[games]
        bottom = _landing(heights_of(walls), table.low[pieces, chosen])
        walls, lines = _dropped(walls, table.rows[pieces, chosen], bottom)
        self.walls[games] = walls[:, :HEIGHT]
        rewards, terminated = np.zeros(self.num_envs), np.zeros(self.num_envs, bool)
        rewards[games] = lines
        self._draw(games, self._elapsed[games] + 1)
        terminated[games] = ~self._observe(games)
        return rewards, terminated, False, {}

    def _draw(self, games: np.ndarray, timestep: np.ndarray) -> None:
        """Takes the next piece of each game out of those drawn ahead."""
        for game in games[timestep % _BUFFER == 0].tolist():
            generator = self._generators[game]
            assert generator is not None
            self._drawn[game] = generator.integers(len(PIECES), size=_BUFFER)
        self.pieces[games] = self._drawn[games, timestep % _BUFFER]

    def _observe(self, games: np.ndarray) -> np.ndarray:
        """Writes the observations of games ``[n]``; returns in which a piece fits.

        Letters: ``n`` games, ``A`` placements of the piece, fitting or not.
        """
        table, pieces, walls = _placements(), self.pieces[games], self.walls[games]
        heights = heights_of(walls)
        low, high = table.low[pieces], table.high[pieces]  # [n, A, 10]
        bottom = _landing(heights[:, None], low)  # [n, A]
        tops = bottom[..., None] + high
        fits = table.exists[pieces] & (tops.max(axis=-1) <= HEIGHT)
        count = fits.sum(axis=1)
        # Those that fit first, in order, and then again from the first on.
        order = np.argsort(~fits, axis=1, kind="stable")
        turn = np.arange(NUM_PLACEMENTS) % np.maximum(count, 1)[:, None]
        chosen = np.take_along_axis(order, turn, axis=1)
        self._chosen[games] = chosen
        one, place = np.nonzero(fits)
        bottom, shapes = bottom[one, place], table.rows[pieces[one], place]
        describe = _bertsekas if self._features == "bertsekas" else _dellacherie
        raised = np.maximum(heights[one], tops[one, place])
        found = describe(walls[one], shapes, bottom, raised)
        described = np.zeros((*fits.shape, found.shape[-1]), np.float32)
        described[one, place] = found
        rows = np.take_along_axis(described, chosen[..., None], axis=1)
        rows = rows.reshape(len(games), self._observations.shape[1])
        # A game that is over keeps what it showed last.
        going = count > 0
        self._observations[games[going]] = rows[going]
        return going


def heights_of(walls: np.ndarray) -> np.ndarray:
    """Returns ``[n, 10]``, the highest full cell of each column, counted from 1."""
    return np.where(_cells(walls), np.arange(1, walls.shape[1] + 1)[:, None], 0).max(1)


def _cells(walls: np.ndarray) -> np.ndarray:
    """Returns ``[n, rows, 10]`` bool, whether each cell is full."""
    return (walls[..., None] >> np.arange(WIDTH, dtype=np.uint16)) & 1 == 1


def _landing(heights: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns the row ``[...]`` at which a piece comes to rest, from ``[..., 10]``."""
    return (heights - low).max(axis=-1)


def _dropped(
    walls: np.ndarray, shapes: np.ndarray, bottom: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Puts pieces ``[n, 4]`` on walls ``[n, 20]``, their lowest row at ``bottom [n]``.

    Returns walls ``[n, 24]`` without their full rows, and how many these were.
    """
    after = np.zeros((len(walls), _ROWS), np.uint16)
    after[:, :HEIGHT] = walls
    after[np.arange(len(walls))[:, None], bottom[:, None] + np.arange(4)] |= shapes
    is_full = after == _FULL
    order = np.argsort(is_full, axis=1, kind="stable")
    after = np.take_along_axis(np.where(is_full, 0, after), order, axis=1)
    return after.astype(np.uint16), is_full.sum(axis=1)


def _is_full(walls: np.ndarray, shapes: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Returns ``[m, 4]`` bool, which of its rows a piece completes where it lands."""
    sky = np.zeros((len(walls), _ROWS - HEIGHT), np.uint16)
    rows = bottom[:, None] + np.arange(4)
    beside = np.take_along_axis(np.concatenate([walls, sky], axis=1), rows, axis=1)
    return (beside | shapes) == _FULL


def _bertsekas(
    walls: np.ndarray, shapes: np.ndarray, bottom: np.ndarray, heights: np.ndarray
) -> np.ndarray:
    """Describes ``m`` placements by heights, their differences, and holes: ``[m, 21]``.

    Args:
        walls: ``[m, 20]``.
        shapes: ``[m, 4]``, the pieces' rows.
        bottom: ``[m]``, where their lowest row comes.
        heights: ``[m, 10]`` with the piece, full rows still there.
    """
    lines = _is_full(walls, shapes, bottom).sum(axis=1)
    # Removing rows may open holes: those few walls are computed again.
    removed = np.flatnonzero(lines)
    after, _ = _dropped(walls[removed], shapes[removed], bottom[removed])
    heights[removed] = heights_of(after)
    num_cells = np.bitwise_count(walls).sum(axis=1) + 4 - WIDTH * lines
    holes = heights.sum(axis=1) - num_cells
    steps = np.abs(np.diff(heights, axis=1))
    top = heights.max(axis=1)
    return np.concatenate([heights, steps, top[:, None], holes[:, None]], axis=1)


def _dellacherie(
    walls: np.ndarray, shapes: np.ndarray, bottom: np.ndarray, heights: np.ndarray
) -> np.ndarray:
    """Describes ``m`` placements by Dellacherie's six numbers ``[m, 6]``; as above."""
    del heights
    own = np.bitwise_count(shapes)
    landing = bottom + ((own > 0).sum(axis=1) - 1) / 2
    eroded = np.where(_is_full(walls, shapes, bottom), own, 0).sum(axis=1)
    after, lines = _dropped(walls, shapes, bottom)
    after = after[:, :HEIGHT]
    # Walls to the left and right are full, the floor as well, the sky is empty.
    framed = (after.astype(np.int64) << 1) | 1 | (1 << (WIDTH + 1))
    changes = (framed ^ (framed >> 1)) & (2 * _FULL + 1)
    along_rows = np.bitwise_count(changes).sum(axis=1)
    under = np.concatenate([np.full((len(after), 1), _FULL), after[:, :-1]], axis=1)
    along_columns = np.bitwise_count(under ^ after).sum(axis=1)
    along_columns += np.bitwise_count(after[:, -1])
    holes = heights_of(after).sum(axis=1) - np.bitwise_count(after).sum(axis=1)
    between = (framed << 1) & (framed >> 1) & ~framed  # empty, full on both sides
    wells, depth = np.zeros(len(after)), np.zeros((len(after), WIDTH), np.int64)
    bits = np.arange(1, WIDTH + 1)
    for row in reversed(range(HEIGHT)):
        depth = np.where((between[:, row, None] >> bits) & 1, depth + 1, 0)
        wells += depth.sum(axis=1)
    numbers = [landing, lines * eroded, along_rows, along_columns, holes, wells]
    return np.stack(numbers, axis=1)


class TetrisEnv(gymnasium.Env):
    """One game, as Gymnasium makes it; ``TetrisVectorEnv`` says what it shows.

    Args:
        render_mode: ``"ansi"`` for text, ``"rgb_array"`` for a picture.
        features: as of ``TetrisVectorEnv``.
    """

    metadata: ClassVar = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}

    def __init__(
        self, render_mode: str | None = None, features: str = "bertsekas"
    ) -> None:
        self.render_mode = render_mode
        # Gymnasium counts the pieces itself.
        self._games = TetrisVectorEnv(1, None, 2**31 - 1, features)
        self.observation_space = self._games.single_observation_space
        self.action_space = self._games.single_action_space
        self._lines = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Empties the wall."""
        self._lines = 0
        observations, info = self._games.reset(seed=seed, options=options)
        return observations[0].copy(), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Drops the piece."""
        seen, rewards, terminated, _, info = self._games.step(np.array([action]))
        self._lines += int(rewards[0])
        return seen[0].copy(), float(rewards[0]), bool(terminated[0]), False, info

    def render(self) -> Any:
        """Returns the wall and the next piece, as text or as a picture."""
        cells = _cells(self._games.walls)[0, ::-1]
        if self.render_mode == "rgb_array":
            full, empty = (70, 110, 190), (235, 235, 240)
            picture = np.where(cells[..., None], full, empty).astype(np.uint8)
            return np.kron(picture, np.ones((20, 20, 1), np.uint8))
        lines = ["".join("[]" if cell else " ." for cell in row) for row in cells]
        piece = list(PIECES)[self._games.pieces[0]]
        return "\n".join([*lines, f"next {piece}, {self._lines} rows"])


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, f"{__name__}:TetrisEnv", max_episode_steps=10_000)
