"""Walker2d's body on ground of named numbers, an episode's variation, on threads.

The ground is a line of segments. Boxes stand for those near the walker, and are moved
along with it: each box costs the simulation time, however far away it is. Numbers are
named as those of BipedalWalker's terrain (:mod:`jax_es.envs.terrain`), but in metres.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple
from xml.etree import ElementTree

import mujoco
import numpy as np

from jax_es.envs.mujoco_task import Bind
from jax_es.envs.mujoco_walkers import Walker2d
from jax_es.envs.robot import write_model

KINDS = ("stump-height", "stair-height", "pit-gap")
SIZES = tuple(f"{kind}-{end}" for kind in KINDS for end in ("low", "high"))

BEHIND, AHEAD = 3, 3
"""Segments that have boxes, besides that below the torso: legs of a walker that has not
fallen reach 0.9 m."""
NUM_BOXES = BEHIND + 1 + AHEAD
HALF_DEPTH = 0.5
"""Of a box below its surface, metres; a pit is twice as deep."""

PAD = (-3.0, 2.0)
"""Flat ground around the start, metres along x."""
STEP = 0.4
"""Length of a segment of plain ground, metres."""
STEEPEST = 0.75
"""Slope of it."""
LENGTH = 40.0
"""Metres along x after which all is flat; 5 m/s for an episode."""
MAX_SEGMENTS = 200
GRASS = (5, 10)
"""From how many to below how many segments of plain ground are between obstacles."""

SIGHTS = np.linspace(0.0, 3.0, 10)
"""How far before the torso the ground is seen, metres."""
SEEN_DEPTH = 0.25
"""How deep a pit looks, metres: a whole metre would be ten deviations of the heights of
nearly flat ground."""
METRE = 15.0
"""What a metre is paid: 20 m are BipedalWalker's 300."""


class Ground(NamedTuple):
    """``M`` segments from left to right, metres."""

    left: np.ndarray
    """``[M + 1]``, x of each one's left end, and the right end of the last."""
    surface: np.ndarray
    """``[M, 2]``, height of its left and right end."""
    level: np.ndarray
    """``[M, 2]``, likewise, as if there were no stump and no pit."""


def ground(numbers: Mapping[str, float], generator: np.random.Generator) -> Ground:
    """Draws a ground.

    Plain ground goes up and down as in Gymnasium's BipedalWalker, ``roughness`` times
    as much; each obstacle draws its size uniformly from its kind's range, of which
    there is none if its range ends at 0.
    """
    kinds = [kind for kind in KINDS if numbers[f"{kind}-high"] > 0]
    x, y, velocity, grass = PAD[1], 0.0, 0.0, int(generator.integers(*GRASS))
    bumps = iter((generator.uniform(-1, 1, MAX_SEGMENTS) / 30).tolist())
    rows = [(PAD[0], 0.0, 0.0, 0.0, 0.0)]  # left end, surface, level
    is_after = False

    def add(length: float, above: float = 0.0, rise: float = 0.0) -> None:
        nonlocal x, y
        rows.append((x, y + above, y + rise + above, y, y + rise))
        x, y = x + length, y + rise

    while x < LENGTH and len(rows) < MAX_SEGMENTS - 6:
        velocity = 0.8 * velocity - math.copysign(0.01, y) + next(bumps)
        rise = numbers["roughness"] * velocity
        # Level beside an obstacle: the end of a tilted box would reach into a pit.
        if kinds and (grass == 1 or is_after):
            rise = 0.0
        add(STEP, rise=min(max(rise, -STEEPEST * STEP), STEEPEST * STEP))
        grass -= 1
        is_after = grass == 0
        if grass > 0 or not kinds:
            continue
        grass = int(generator.integers(*GRASS))
        kind = kinds[generator.integers(len(kinds))]
        size = generator.uniform(numbers[f"{kind}-low"], numbers[f"{kind}-high"])
        if kind == "pit-gap":
            add(max(size, 0.05), above=-2 * HALF_DEPTH)
        elif kind == "stump-height":
            add(STEP, above=size)
        else:
            up = 1.0 if generator.random() > 0.5 else -1.0
            for _ in range(int(generator.integers(3, 5))):
                y += up * size
                add(2 * STEP)
    rows.append((x, y, y, y, y))
    left, *heights = np.array(rows).T
    left = np.append(left, left[-1] + 20.0)
    return Ground(left, np.stack(heights[:2], 1), np.stack(heights[2:], 1))


class Walker2dTerrain(Walker2d):
    """Walker2d's body, 27 observations, paid 15 for each metre.

    It observes what Walker2d does, its height above the ground instead of above 0, and
    the ground's heights in ten places from below the torso to 3 m before it, against
    the level below it; a pit looks 0.25 m deep. It has fallen where Walker2d has,
    heights counted likewise.
    """

    healthy_reward = 0.0
    variations: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"roughness": 0.0, **dict.fromkeys(SIZES, 0.0)}
    )

    @classmethod
    def model_path(cls) -> Path:
        """Returns where the XML file with the boxes is, for as long as we run."""
        return with_boxes(super().model_path())

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Makes room for the grounds."""
        super().__init__(model, bind)
        num_envs = len(self.qpos)
        self._left = np.full((num_envs, MAX_SEGMENTS + 1), np.inf)
        self._left[:, 0] = -np.inf
        self._heights = np.zeros((2, num_envs, MAX_SEGMENTS, 2))  # surface, level
        self._boxes = [model.geom(f"ground{i}").id for i in range(NUM_BOXES)]

    def expanded(self, expand: Callable[[str], np.ndarray]) -> None:
        """Takes the fields of the model that each simulation has for itself."""
        self._pos, self._quat = expand("geom_pos"), expand("geom_quat")
        self._size, self._reach = expand("geom_size"), expand("geom_rbound")

    def begin(
        self, index: int, numbers: Mapping[str, float], generator: np.random.Generator
    ) -> None:
        """Draws the ground of an episode, and places the boxes at its start."""
        for name in self.variations:
            if not 0 <= numbers[name] < np.inf:
                value = f"{name} {numbers[name]:g}"
                raise ValueError(f"{value}: expected a number at least 0 and finite")
        for kind in KINDS:
            low, high = numbers[f"{kind}-low"], numbers[f"{kind}-high"]
            if low > high:
                raise ValueError(
                    f"{kind}-low {low:g}: expected at most {kind}-high {high:g}"
                )
            if kind != "pit-gap" and high > 2 * HALF_DEPTH:  # one would see beneath it
                raise ValueError(
                    f"{kind}-high {high:g}: expected at most {2 * HALF_DEPTH:g}, as "
                    "thick as the ground is"
                )
        drawn = ground(numbers, generator)
        count = len(drawn.surface)
        self._left[index] = np.inf
        self._left[index, : count + 1] = drawn.left
        self._heights[0, index, :count] = drawn.surface
        self._heights[1, index, :count] = drawn.level
        self._place(np.array([index]), np.zeros(1))

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns Walker2d's numbers, and the ground before it."""
        everyone, x = np.arange(len(self.qpos)), self.qpos[:, 0]
        self._place(everyone, x)
        surface, level = self._below(x[:, None] + SIGHTS)
        self._height = self.qpos[:, 1] - level[:, 0]
        own = self._height[:, None], self.qpos[:, 2:], np.clip(self.qvel, -10, 10)
        return (*own, np.maximum(surface, level - SEEN_DEPTH) - level[:, :1])

    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns the metres gained, times 15, less the cost of control."""
        metres = self.x_position() - self._x_before
        return METRE * metres - self.control_cost(actions)

    def unhealthy(self) -> np.ndarray:
        """Unless it is 0.8 to 2 above the level and |angle| < 1."""
        z, angle = self._height, self.qpos[:, 2]
        return ~((z > 0.8) & (z < 2.0) & (np.abs(angle) < 1.0))

    def _segment(self, rows: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Returns the number of the segment at ``x``, whose axes follow the rows'."""
        left = self._left[rows].reshape(len(rows), *[1] * (x.ndim - 1), -1)
        return np.maximum((left[..., 1:-1] <= x[..., None]).sum(axis=-1), 0)

    def _below(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns surface and level at ``x``, ``[N, k]`` each."""
        rows = np.arange(len(x))[:, None]
        at = self._segment(rows[:, 0], x)
        left, right = self._left[rows, at], self._left[rows, at + 1]
        ends = self._heights[:, rows, at]
        with np.errstate(invalid="ignore"):  # a fallen simulation may have no x
            share = np.clip((x - left) / (right - left), 0.0, 1.0)
        found = ends[..., 0] + share * (ends[..., 1] - ends[..., 0])
        return found[0], found[1]

    def _place(self, rows: np.ndarray, x: np.ndarray) -> None:
        """Puts the boxes of simulations under the ground near ``x``, ``[n]``."""
        first = np.maximum(self._segment(rows, x) - BEHIND, 0)
        # A segment keeps its box for as long as it has one.
        box = np.arange(NUM_BOXES)
        at = first[:, None] + (box - first[:, None]) % NUM_BOXES
        at = np.minimum(at, MAX_SEGMENTS - 1)
        rows = rows[:, None]
        left, right = self._left[rows, at], self._left[rows, at + 1]
        is_there = np.isfinite(right)
        left, right = np.where(is_there, left, 0.0), np.where(is_there, right, 1.0)
        y = self._heights[0, rows, at]
        run, rise = right - left, y[..., 1] - y[..., 0]
        length, angle = np.hypot(run, rise), np.arctan2(rise, run)
        middle = (left + right) / 2, y.mean(axis=-1)
        pos, quat, size = self._pos, self._quat, self._size
        pos[rows, self._boxes, 0] = middle[0] + HALF_DEPTH * np.sin(angle)
        height = middle[1] - HALF_DEPTH * np.cos(angle)
        pos[rows, self._boxes, 2] = np.where(is_there, height, -40.0)
        quat[rows, self._boxes, 0] = np.cos(angle / 2)
        quat[rows, self._boxes, 2] = -np.sin(angle / 2)
        size[rows, self._boxes, 0] = length / 2
        self._reach[rows, self._boxes] = np.linalg.norm(
            size[rows, self._boxes], axis=-1
        )


@functools.cache
def with_boxes(model: Path) -> Path:
    """Writes a model without its floor, and with boxes, which are nowhere yet."""
    tree = ElementTree.parse(model).getroot()
    (floor,) = tree.iterfind(".//geom[@name='floor']")
    floor.set("pos", "0 0 -50")
    # MuJoCo looks up which geoms may touch in a tree of where they were first.
    option = ElementTree.SubElement(tree, "option")
    ElementTree.SubElement(option, "flag", midphase="disable")
    (world,) = tree.iterfind("worldbody")
    for index in range(NUM_BOXES):
        ElementTree.SubElement(
            world,
            "geom",
            name=f"ground{index}",
            type="box",
            conaffinity="1",
            # Neither as the world's, or MuJoCo takes the world's for good.
            pos="0 0 -40",
            quat="1 0 1 0",
            size=f"1 1 {HALF_DEPTH}",
            rgba=".45 .6 .45 1",
        )
    return write_model(model.name, ElementTree.tostring(tree, "unicode"))
