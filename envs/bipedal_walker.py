"""Gymnasium's BipedalWalker in less time: the numbers of a new one, to the bit.

Of a step there, Box2D takes less than half. The rest is Python: NumPy's functions on
single numbers, and objects that are made to ask what a ray or a foot has met.
"""

import math
from typing import Any

import numpy as np
from gymnasium.envs.box2d.bipedal_walker import (  # says how to install Box2D
    FPS,
    LIDAR_RANGE,
    MOTORS_TORQUE,
    SCALE,
    SPEED_HIP,
    SPEED_KNEE,
    TERRAIN_GRASS,
    TERRAIN_LENGTH,
    TERRAIN_STEP,
    VIEWPORT_H,
    VIEWPORT_W,
    BipedalWalker,
    Box2D,
)

SPEEDS = (SPEED_HIP, SPEED_KNEE) * 2
FALL = -100
"""The reward of a step that ends in a fall."""
FINISH = (TERRAIN_LENGTH - TERRAIN_GRASS) * TERRAIN_STEP
BEAMS = [
    (math.sin(1.5 * i / 10.0) * LIDAR_RANGE, math.cos(1.5 * i / 10.0) * LIDAR_RANGE)
    for i in range(10)
]
"""Where each of the lidar's ends: so far before the hull, and below it."""


class _Beam(Box2D.b2.rayCastCallback):
    """A ray, which sees the ground."""

    def __init__(self, own: set[int]) -> None:
        super().__init__()
        self._own = own

    def ReportFixture(
        self, fixture: Any, point: Any, normal: Any, fraction: float
    ) -> float:
        """Passes through the walker itself."""
        if int(fixture.this) in self._own:
            return -1
        self.fraction = fraction
        return fraction


class _Contacts(Box2D.b2.contactListener):
    """Tells the walker what touches the ground."""

    def __init__(self, walker: "FastBipedalWalker") -> None:
        super().__init__()
        self._walker = walker
        self._hull = int(walker.hull.this)
        self._feet = {int(walker.legs[i].this): walker.legs[i] for i in (1, 3)}

    def BeginContact(self, contact: Any) -> None:
        """A foot or the hull comes down."""
        for fixture in (contact.fixtureA, contact.fixtureB):
            body = int(fixture.body.this)
            if body == self._hull:
                self._walker.game_over = True
            elif body in self._feet:
                self._feet[body].ground_contact = True

    def EndContact(self, contact: Any) -> None:
        """A foot is lifted."""
        for fixture in (contact.fixtureA, contact.fixtureB):
            foot = self._feet.get(int(fixture.body.this))
            if foot is not None:
                foot.ground_contact = False


class FastBipedalWalker(BipedalWalker):
    """Gymnasium's BipedalWalker; with a picture, its own code.

    What a fall costs is also reported as ``info["reward_survive"]``: a fitness can then
    leave it out (``--es.healthy-reward-weight 0``).
    """

    pays_healthy_reward = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode in a new world, as Gymnasium's LunarLander does.

        In a world that bodies have left, others meet in another order: an episode's
        numbers would depend on what was played before (Gymnasium's issue 728), and a
        resumed run would come to others.
        """
        self.terrain, self.world = [], Box2D.b2World()
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes a step."""
        is_usual = isinstance(action, np.ndarray) and action.shape == (4,)
        is_fast = self.render_mode is None and self.hull is not None and is_usual
        stepped = self._step(action) if is_fast else super().step(action)
        if stepped[1] == FALL:
            stepped[-1]["reward_survive"] = float(FALL)
        return stepped

    def _step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes a step without a picture."""
        if self.prev_shaping is None:
            self._begin()
        costs = self._push(action)
        self.world.Step(1.0 / FPS, 6 * 30, 2 * 30)
        hull, joints, legs = self.hull, self.joints, self.legs
        position, velocity, angle = hull.position, hull.linearVelocity, hull.angle
        x, y = position.x, position.y
        cast = self.world.RayCast
        for beam, (ahead, below) in zip(self.lidar, BEAMS, strict=True):
            beam.fraction = 1.0
            cast(beam, position, (x + ahead, y - below))
        state = [
            angle,
            2.0 * hull.angularVelocity / FPS,
            0.3 * velocity.x * (VIEWPORT_W / SCALE) / FPS,
            0.3 * velocity.y * (VIEWPORT_H / SCALE) / FPS,
            joints[0].angle,
            joints[0].speed / SPEED_HIP,
            joints[1].angle + 1.0,
            joints[1].speed / SPEED_KNEE,
            1.0 if legs[1].ground_contact else 0.0,
            joints[2].angle,
            joints[2].speed / SPEED_HIP,
            joints[3].angle + 1.0,
            joints[3].speed / SPEED_KNEE,
            1.0 if legs[3].ground_contact else 0.0,
            *[beam.fraction for beam in self.lidar],
        ]
        shaping = 130 * x / SCALE - 5.0 * abs(angle)
        reward: Any = 0 if self.prev_shaping is None else shaping - self.prev_shaping
        self.prev_shaping = shaping
        for cost in costs:
            reward -= cost
        has_fallen = self.game_over or x < 0
        if has_fallen:
            reward = FALL
        is_over = has_fallen or x > FINISH
        return np.array(state, np.float32), reward, is_over, False, {}

    def _begin(self) -> None:
        """Takes the place of Gymnasium's callbacks, before an episode's first step."""
        own = {
            int(fixture.this)
            for body in (self.hull, *self.legs)
            for fixture in body.fixtures
        }
        self.lidar = [_Beam(own) for _ in BEAMS]
        # The world does not keep its listener alive.
        self.world.contactListener_bug_workaround = _Contacts(self)
        self.world.contactListener = self.world.contactListener_bug_workaround

    def _push(self, action: np.ndarray) -> list[Any]:
        """Sets the motors; returns what each costs, in the action's precision."""
        one, costs = action.dtype.type(1), []
        for joint, speed, push in zip(self.joints, SPEEDS, action, strict=True):
            strength = min(abs(push), one)
            joint.motorSpeed = math.copysign(speed, push) if push else 0.0
            joint.maxMotorTorque = float(MOTORS_TORQUE * strength)
            costs.append(0.00035 * MOTORS_TORQUE * strength)
        return costs
