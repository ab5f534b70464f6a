"""BipedalWalker on a terrain of named numbers, an episode's variation.

Where all is at its default, terrain, observations and rewards are those of Gymnasium's
BipedalWalker-v3; at :data:`HARDCORE` they are BipedalWalkerHardcore-v3's, to the bit.
In between lie the terrains of POET (Wang et al. 2019, arXiv 1901.01753, with sizes that
are drawn uniformly from ranges) and of those who compare with it.
"""

import itertools
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.envs.box2d.bipedal_walker import (
    SCALE,
    TERRAIN_GRASS,
    TERRAIN_HEIGHT,
    TERRAIN_LENGTH,
    TERRAIN_STARTPAD,
    TERRAIN_STEP,
)
from gymnasium.utils import EzPickle

from jax_es.envs.bipedal_walker import FastBipedalWalker

DEFAULT = {
    "roughness": 1.0,
    "pit-gap-low": 0.0,
    "pit-gap-high": 0.0,
    "stump-height-low": 0.0,
    "stump-height-high": 0.0,
    "stair-height-low": 0.0,
    "stair-height-high": 0.0,
    "whole-sizes": 0.0,
}
"""Name → its value in BipedalWalker-v3. Roughness is a factor on how much the ground
goes up and down. Each obstacle draws its size from its kind's range, in steps of the
terrain (0.47 m): the width of a pit, the height of a stump, that of one of the 3 or 4
steps of stairs. There is no obstacle of a kind whose range ends at 0. With whole sizes
1, only whole numbers are drawn."""

HARDCORE = {
    "roughness": 1.0,
    "pit-gap-low": 2.0,
    "pit-gap-high": 3.0,
    "stump-height-low": 1.0,
    "stump-height-high": 2.0,
    "stair-height-low": 1.0,
    "stair-height-high": 1.0,
    "whole-sizes": 1.0,
}
"""Name → its value in BipedalWalkerHardcore-v3."""

KINDS = ("stump-height", "stair-height", "pit-gap")
"""Of obstacles, in Gymnasium's order."""

PIT_DEPTH = 4 * TERRAIN_STEP
LOWEST_STUMP = 0.02
"""Height in steps of the terrain, 9 mm: lower ones are no obstacle, and Box2D takes a
polygon whose corners are within 2.5 mm for one without an area, and ends."""
STAIR_WIDTH = 4
"""Steps of the terrain in a step of stairs."""

HeightAt = Callable[[int], float]
"""The ground's height at so many steps of the terrain before an obstacle's end."""


class TerrainWalker(FastBipedalWalker):
    """Gymnasium's BipedalWalker; ``reset`` takes the option ``"variation"``, ``[8]``.

    A row has the numbers in the order of :data:`DEFAULT`.

    Args:
        render_mode: as Gymnasium's.
        hardcore: whether episodes without a variation are :data:`HARDCORE`'s.
        **terrain: other numbers of theirs, as ``pit_gap_high=2.0``.

    Attributes:
        variations: name → the number in episodes without a variation.

    Raises:
        ValueError: here and in ``reset``, if a number is out of its range.
    """

    def __init__(
        self,
        render_mode: str | None = None,
        hardcore: bool = False,
        **terrain: float,
    ) -> None:
        """Builds the walker."""
        super().__init__(render_mode, hardcore)
        EzPickle.__init__(self, render_mode, hardcore, **terrain)
        named = {name.replace("_", "-"): value for name, value in terrain.items()}
        for name in terrain:
            if name.replace("_", "-") not in DEFAULT:
                raise TypeError(f"got an unexpected keyword argument '{name}'")
        self.variations = {**(HARDCORE if hardcore else DEFAULT), **named}
        check(self.variations)
        self._terrain = self.variations

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        self._terrain, row = self.variations, (options or {}).get("variation")
        if row is not None:
            if np.shape(row) != (len(DEFAULT),):
                raise ValueError(
                    f"options['variation']: got shape {np.shape(row)}, expected "
                    f"{(len(DEFAULT),)}: {', '.join(DEFAULT)}"
                )
            self._terrain = dict(zip(DEFAULT, np.asarray(row).tolist(), strict=True))
            check(self._terrain)
        return super().reset(seed=seed, options=options)

    def _generate_terrain(self, hardcore: bool) -> None:
        """Draws the ground as Gymnasium does, with the same numbers in the same order.

        Grass and obstacles take turns; ``counter`` is how many steps of the terrain the
        present one goes on.
        """
        kinds = [kind for kind in KINDS if self._terrain[f"{kind}-high"] > 0]
        build = {
            "pit-gap": self._pit,
            "stump-height": self._stump,
            "stair-height": self._stairs,
        }
        y, velocity, counter = TERRAIN_HEIGHT, 0.0, TERRAIN_STARTPAD
        kind, begins = "", False  # grass
        obstacle: HeightAt | None = None
        self.terrain, self.terrain_x, self.terrain_y = [], [], []
        for i in range(TERRAIN_LENGTH):
            x = i * TERRAIN_STEP
            self.terrain_x.append(x)
            if begins:
                obstacle = None
                if kind:
                    counter, obstacle = build[kind](x, y)
            elif obstacle is not None:
                y = obstacle(counter)
            else:
                velocity = 0.8 * velocity + 0.01 * np.sign(TERRAIN_HEIGHT - y)
                if i > TERRAIN_STARTPAD:
                    velocity += self.np_random.uniform(-1, 1) / SCALE
                y += self._terrain["roughness"] * velocity
            begins = False
            self.terrain_y.append(y)
            counter -= 1
            if counter == 0:
                counter = int(
                    self.np_random.integers(TERRAIN_GRASS // 2, TERRAIN_GRASS)
                )
                drawn = ""
                if kinds and not kind:
                    drawn = kinds[self.np_random.integers(len(kinds))]
                kind, begins = drawn, True
        self._build_ground()

    def _size(self, kind: str) -> float:
        """Draws an obstacle's size."""
        low, high = self._terrain[f"{kind}-low"], self._terrain[f"{kind}-high"]
        if self._terrain["whole-sizes"]:
            return int(self.np_random.integers(int(low), int(high) + 1))
        return self.np_random.uniform(low, high)

    def _pit(self, x: float, y: float) -> tuple[int, HeightAt]:
        """Builds a pit between two pillars; returns its length and its ground."""
        width = 1 + self._size("pit-gap")  # from pillar to pillar
        for shift in (0.0, TERRAIN_STEP * width):
            right = x + TERRAIN_STEP + shift
            self._add_block(x + shift, right, y, y - PIT_DEPTH)
        length = math.ceil(width)

        def height_at(counter: int) -> float:
            if counter == 1:  # where the ground comes up again
                self.terrain_x[-1] -= (length - width) * TERRAIN_STEP
            return y - PIT_DEPTH if counter > 1 else y

        return length + 2, height_at

    def _stump(self, x: float, y: float) -> tuple[int, HeightAt]:
        """Builds a stump, as wide as high within 1 to 2 steps."""
        height = self._size("stump-height")
        width = min(max(math.ceil(height), 1), 2)
        right, top = x + width * TERRAIN_STEP, y + height * TERRAIN_STEP
        if height >= LOWEST_STUMP:
            self._add_block(x, right, y, top)
        return width, lambda counter: y

    def _stairs(self, x: float, y: float) -> tuple[int, HeightAt]:
        """Builds stairs, up or down."""
        direction = +1 if self.np_random.random() > 0.5 else -1
        num_steps = int(self.np_random.integers(3, 5))
        height = self._size("stair-height")
        rise = direction * height
        for s in range(num_steps):
            self._add_block(
                x + (s * STAIR_WIDTH) * TERRAIN_STEP,
                x + ((1 + s) * STAIR_WIDTH) * TERRAIN_STEP,
                y + (s * rise) * TERRAIN_STEP,
                y + (-max(height, 1) + s * rise) * TERRAIN_STEP,
            )
        length = num_steps * STAIR_WIDTH

        def height_at(counter: int) -> float:
            done = (length - counter - direction) / STAIR_WIDTH
            return y + (done * rise) * TERRAIN_STEP

        return length, height_at

    def _add_block(self, left: float, right: float, one: float, other: float) -> None:
        """Adds a rectangle between two heights, in metres."""
        self.fd_polygon.shape.vertices = [
            (left, one),
            (right, one),
            (right, other),
            (left, other),
        ]
        block = self.world.CreateStaticBody(fixtures=self.fd_polygon)
        block.color1, block.color2 = (255, 255, 255), (153, 153, 153)
        self.terrain.append(block)

    def _build_ground(self) -> None:
        """Turns the ground's points into edges, and into what a picture shows."""
        points = list(zip(self.terrain_x, self.terrain_y, strict=True))
        self.terrain_poly = []
        for i, (left, right) in enumerate(itertools.pairwise(points)):
            self.fd_edge.shape.vertices = [left, right]
            edge = self.world.CreateStaticBody(fixtures=self.fd_edge)
            edge.color1 = edge.color2 = (76, 255 if i % 2 == 0 else 204, 76)
            self.terrain.append(edge)
            below = [left, right, (right[0], 0), (left[0], 0)]
            self.terrain_poly.append((below, (102, 153, 76)))
        self.terrain.reverse()


def check(terrain: Mapping[str, float]) -> None:
    """Checks the numbers of a terrain.

    Raises:
        ValueError: one is out of its range.
    """
    for name, value in terrain.items():
        is_number = isinstance(value, numbers.Real)
        if not (is_number and 0 <= value < math.inf):
            shown = f"{value:g}" if is_number else value
            raise ValueError(f"{name} {shown}: expected a number at least 0")
    is_whole = terrain["whole-sizes"]
    if is_whole not in (0, 1):
        raise ValueError(f"whole-sizes {is_whole:g}: expected 0 or 1")
    for kind in KINDS:
        low, high = terrain[f"{kind}-low"], terrain[f"{kind}-high"]
        words = f"at most {kind}-high {high:g}" if low > high else ""
        if is_whole and (low % 1 or high % 1):
            words = f"whole numbers to {high:g}, with whole-sizes 1"
        if words:
            raise ValueError(f"{kind}-low {low:g}: expected {words}")
