"""Gymnasium's MuJoCo tasks: observations, rewards, endings and first states.

A task reads the arrays of a batch of simulations, one row per environment, and knows
nothing of stepping. Every formula, its constants and the order of its operations are
those of ``gymnasium/envs/mujoco/*.py`` (1.4), so that results are equal to the bit;
where only rounding can differ, the method says so.

``N`` is the number of environments.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import mujoco
import numpy as np

from jax_es.envs.mujoco_task import Bind, MujocoTask, finite
from jax_es.envs.mujoco_walkers import (
    Ant,
    HalfCheetah,
    Hopper,
    HumanoidStandup,
    HumanoidV4,
    HumanoidV5,
    Swimmer,
    Walker2d,
)


class InvertedPendulum(MujocoTask):
    """InvertedPendulum-v5, 4 observations."""

    model_file = "inverted_pendulum.xml"
    num_substeps = 2
    healthy_reward = 1.0
    reset_noise = 0.01

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns positions and velocities."""
        return self.qpos, self.qvel

    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns 1 while up."""
        return np.asarray(self.survival(unhealthy))

    def unhealthy(self) -> np.ndarray:
        """Unless the state is finite and |angle| <= 0.2."""
        return ~(finite(self.qpos, self.qvel) & (np.abs(self.qpos[:, 1]) <= 0.2))


class InvertedDoublePendulum(MujocoTask):
    """InvertedDoublePendulum-v5, 9 observations."""

    model_file = "inverted_double_pendulum.xml"
    num_substeps = 5
    healthy_reward = 10.0
    reset_noise = 0.1
    normal_velocity_noise = True

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the other fields that this task reads."""
        super().__init__(model, bind)
        self._tip = bind("site_xpos")[:, 0]
        self._constraint_force = bind("qfrc_constraint")[:, :1]

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns x, sines and cosines, clipped velocities and constraint force."""
        return (
            self.qpos[:, :1],
            np.sin(self.qpos[:, 1:]),
            np.cos(self.qpos[:, 1:]),
            np.clip(self.qvel, -10, 10),
            np.clip(self._constraint_force, -10, 10),
        )

    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns survival less penalties on distance and velocity.

        Gymnasium squares scalars, with C's ``pow``; an array's square may differ in
        the last bit.
        """
        distance_penalty, velocity_penalty = self._penalties()
        return self.survival(unhealthy) - distance_penalty - velocity_penalty

    def _penalties(self) -> tuple[np.ndarray, np.ndarray]:
        x, y = self._tip[:, 0], self._tip[:, 2]
        v1, v2 = self.qvel[:, 1], self.qvel[:, 2]
        return 0.01 * x**2 + (y - 2) ** 2, 1e-3 * v1**2 + 5e-3 * v2**2

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the reward's parts."""
        distance_penalty, velocity_penalty = self._penalties()
        return {
            **super().info(actions, unhealthy),
            "distance_penalty": -distance_penalty,
            "velocity_penalty": -velocity_penalty,
        }

    def unhealthy(self) -> np.ndarray:
        """When the tip is at most 1 high."""
        return self._tip[:, 2] <= 1


class Reacher(MujocoTask):
    """Reacher-v5, 10 observations: two joints reach for a goal on the plane."""

    model_file = "reacher.xml"
    num_substeps = 2
    max_episode_steps = 50

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the other fields that this task reads."""
        super().__init__(model, bind)
        positions = bind("xpos")
        self._fingertip = positions[:, model.body("fingertip").id]
        self._target = positions[:, model.body("target").id]

    def initial_state(
        self, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draws the arm's position, a goal on a disc, and the arm's velocity."""
        qpos = generator.uniform(-0.1, 0.1, len(self.initial_qpos)) + self.initial_qpos
        goal = generator.uniform(-0.2, 0.2, 2)
        while np.linalg.norm(goal) >= 0.2:
            goal = generator.uniform(-0.2, 0.2, 2)
        qpos[-2:] = goal
        qvel = generator.uniform(-0.005, 0.005, self.qvel.shape[1])
        qvel[-2:] = 0
        return qpos, qvel

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns the angles' cosines and sines, the goal, velocities, the way left."""
        angles = self.qpos[:, :2]
        return (
            np.cos(angles),
            np.sin(angles),
            self.qpos[:, 2:],
            self.qvel[:, :2],
            (self._fingertip - self._target)[:, :2],
        )

    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns minus the distance to the goal and minus the squared action."""
        parts = self.info(actions, unhealthy)
        return parts["reward_dist"] + parts["reward_ctrl"]

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the reward's parts."""
        return {
            "reward_dist": -_distance(self._fingertip, self._target),
            "reward_ctrl": -np.square(actions).sum(axis=1),
        }


class Pusher(MujocoTask):
    """Pusher-v5, 23 observations: an arm pushes a cylinder to a goal."""

    model_file = "pusher_v5.xml"
    num_substeps = 5
    max_episode_steps = 100

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the other fields that this task reads."""
        super().__init__(model, bind)
        positions = bind("xpos")
        self._arm = positions[:, model.body("tips_arm").id]
        self._object = positions[:, model.body("object").id]
        self._goal = positions[:, model.body("goal").id]

    def initial_state(
        self, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draws the cylinder's position, not too close to the goal, and velocities."""
        cylinder = self._draw_cylinder(generator)
        while np.linalg.norm(cylinder) <= 0.17:
            cylinder = self._draw_cylinder(generator)
        qpos = self.initial_qpos.copy()
        qpos[-4:-2] = cylinder
        qpos[-2:] = 0
        qvel = generator.uniform(-0.005, 0.005, self.qvel.shape[1])
        qvel[-4:] = 0
        return qpos, qvel

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns the arm's joints and velocities, and three positions."""
        return (
            self.qpos[:, :7],
            self.qvel[:, :7],
            self._arm,
            self._object,
            self._goal,
        )

    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns minus the object's distances to goal and arm, less control."""
        parts = self.info(actions, unhealthy)
        return parts["reward_dist"] + parts["reward_ctrl"] + parts["reward_near"]

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the reward's parts."""
        return {
            "reward_dist": -_distance(self._object, self._goal),
            "reward_ctrl": -np.square(actions).sum(axis=1) * 0.1,
            "reward_near": -_distance(self._object, self._arm) * 0.5,
        }

    def _draw_cylinder(self, generator: np.random.Generator) -> np.ndarray:
        return np.array([generator.uniform(-0.3, 0), generator.uniform(-0.2, 0.2)])


TASKS: dict[str, type[MujocoTask]] = {
    "Ant-v5": Ant,
    "HalfCheetah-v5": HalfCheetah,
    "Hopper-v5": Hopper,
    "Humanoid-v4": HumanoidV4,
    "Humanoid-v5": HumanoidV5,
    "HumanoidStandup-v5": HumanoidStandup,
    "InvertedDoublePendulum-v5": InvertedDoublePendulum,
    "InvertedPendulum-v5": InvertedPendulum,
    "Pusher-v5": Pusher,
    "Reacher-v5": Reacher,
    "Swimmer-v5": Swimmer,
    "Walker2d-v5": Walker2d,
}
"""The tasks by Gymnasium's id."""


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns ``[N]`` Euclidean distances of points ``[N, 3]``.

    A row's dot product, as ``np.linalg.norm`` of one vector computes it: its norm over
    an axis rounds differently.
    """
    way = a - b
    return np.sqrt(np.vecdot(way, way))
