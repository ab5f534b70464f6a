"""Gymnasium's MuJoCo tasks that move over the ground, and the one that stands up.

Formulas, constants and the order of operations are Gymnasium's, as in
:mod:`jax_es.envs.mujoco_tasks`.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import mujoco
import numpy as np

from jax_es.envs.mujoco_task import Bind, Roamer, Runner, finite, rows


class HalfCheetah(Runner):
    """HalfCheetah-v5, 17 observations."""

    model_file = "half_cheetah.xml"
    num_substeps = 5
    reset_noise = 0.1
    normal_velocity_noise = True
    control_weight = 0.1

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns positions but x, and velocities."""
        return self.qpos[:, 1:], self.qvel


class Swimmer(Roamer):
    """Swimmer-v5, 8 observations."""

    model_file = "swimmer.xml"
    num_substeps = 4
    reset_noise = 0.1
    control_weight = 1e-4

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns positions but x and y, and velocities."""
        return self.qpos[:, 2:], self.qvel


class Walker2d(Runner):
    """Walker2d-v5, 17 observations."""

    model_file = "walker2d_v5.xml"
    num_substeps = 4
    may_go_on_unhealthy = True
    reset_noise = 5e-3
    healthy_reward = 1.0
    control_weight = 1e-3

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns positions but x, and velocities clipped at 10."""
        return self.qpos[:, 1:], np.clip(self.qvel, -10, 10)

    def unhealthy(self) -> np.ndarray:
        """Unless 0.8 < z < 2 and |angle| < 1."""
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        return ~((z > 0.8) & (z < 2.0) & (np.abs(angle) < 1.0))

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what runners report, and how much higher it is than at first."""
        height = self.qpos[:, 1] - self.initial_qpos[1]
        return {**super().info(actions, unhealthy), "z_distance_from_origin": height}


class Hopper(Walker2d):
    """Hopper-v5, 11 observations."""

    model_file = "hopper.xml"

    def unhealthy(self) -> np.ndarray:
        """Unless z > 0.7, |angle| < 0.2 and the rest of the state is < 100."""
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        bounded = (np.abs(self.qpos[:, 2:]) < 100).all(axis=1)
        bounded &= (np.abs(self.qvel) < 100).all(axis=1)
        return ~(bounded & (z > 0.7) & (np.abs(angle) < 0.2))


class Ant(Roamer):
    """Ant-v5, 105 observations."""

    model_file = "ant.xml"
    num_substeps = 5
    contact_forces = True
    may_go_on_unhealthy = True
    reset_noise = 0.1
    normal_velocity_noise = True
    healthy_reward = 1.0
    control_weight = 0.5

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the other fields that this task reads."""
        super().__init__(model, bind)
        self._torso = bind("xpos")[:, 1]
        self._forces = rows(bind("cfrc_ext"))
        self._clipped_forces = np.zeros_like(self._forces)

    def x_position(self) -> np.ndarray:
        """Returns the torso's x, one substep behind ``qpos`` as in Gymnasium."""
        return self._torso[:, 0]

    def y_position(self) -> np.ndarray:
        """Returns the torso's y, as late."""
        return self._torso[:, 1]

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns positions but x and y, velocities, forces clipped at 1."""
        np.clip(self._forces, -1.0, 1.0, out=self._clipped_forces)
        # The first six are those on the world, always 0.
        return self.qpos[:, 2:], self.qvel, self._clipped_forces[:, 6:]

    def contact_cost(self) -> np.ndarray:
        """Returns the cost of the clipped forces, as :meth:`observation` left them."""
        return 5e-4 * np.square(self._clipped_forces).sum(axis=1)

    def unhealthy(self) -> np.ndarray:
        """Unless the state is finite and 0.2 <= z <= 1."""
        z = self.qpos[:, 2]
        return ~((z >= 0.2) & (z <= 1.0) & finite(self.qpos, self.qvel))

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what runners report, and the cost of contact."""
        found = super().info(actions, unhealthy)
        return {**found, "reward_contact": -self.contact_cost()}


class HumanoidV4(Roamer):
    """Humanoid-v4, 376 observations; the world body's constants are among them."""

    model_file = "humanoid.xml"
    num_substeps = 5
    contact_forces = True
    may_go_on_unhealthy = True
    reset_noise = 1e-2
    forward_weight = 1.25
    healthy_reward = 5.0
    control_weight = 0.1

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the other fields that this task reads."""
        super().__init__(model, bind)
        self._bodies = bind("xipos")
        self._cinert = rows(bind("cinert"))
        self._cvel = rows(bind("cvel"))
        self._actuator_forces = bind("qfrc_actuator")
        self._forces = rows(bind("cfrc_ext"))

    def x_position(self) -> np.ndarray:
        """Returns the mass centre's x, from the last substep's kinematics."""
        return self._mass_centre(0)

    def y_position(self) -> np.ndarray:
        """Returns the mass centre's y."""
        return self._mass_centre(1)

    def _mass_centre(self, axis: int) -> np.ndarray:
        moments = np.einsum("...b,...b", self.body_mass, self._bodies[:, :, axis])
        return moments / self.body_mass.sum(axis=-1)

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what version 4 calls it, of the mass centre."""
        found = super().info(actions, unhealthy)
        place = np.stack([self.x_position(), self.y_position()], axis=1)
        return {
            "reward_linvel": found["reward_forward"],
            "reward_quadctrl": found["reward_ctrl"],
            "reward_alive": found["reward_survive"],
            "x_position": place[:, 0],
            "y_position": place[:, 1],
            "distance_from_origin": np.sqrt(np.vecdot(place, place)),
            "x_velocity": found["x_velocity"],
            "y_velocity": found["y_velocity"],
            "forward_reward": found["reward_forward"],
        }

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns positions but x and y, velocities, and what the bodies feel."""
        return (
            self.qpos[:, 2:],
            self.qvel,
            self._cinert,
            self._cvel,
            self._actuator_forces,
            self._forces,
        )

    def survival(self, unhealthy: np.ndarray) -> np.ndarray | float:
        """Returns 5 also for the step that falls, if that ends the episode."""
        if self.terminate_when_unhealthy:
            return self.healthy_reward
        return self.healthy_reward * ~unhealthy

    def control_cost(self, actions: np.ndarray) -> np.ndarray:
        """Returns ``[N]`` float64: the humanoids sum MuJoCo's copy of the action."""
        return self.control_weight * np.square(self.ctrl).sum(axis=1)

    def unhealthy(self) -> np.ndarray:
        """Unless 1 < z < 2."""
        z = self.qpos[:, 2]
        return ~((z > 1.0) & (z < 2.0))


class HumanoidV5(HumanoidV4):
    """Humanoid-v5, 348 observations."""

    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns what version 4 shows, without the parts that are constant."""
        return (
            self.qpos[:, 2:],
            self.qvel,
            self._cinert[:, 10:],
            self._cvel[:, 6:],
            self._actuator_forces[:, 6:],
            self._forces[:, 6:],
        )

    def survival(self, unhealthy: np.ndarray) -> np.ndarray:
        """Returns 5 for the healthy, whatever ends the episode."""
        return self.healthy_reward * ~unhealthy

    def contact_cost(self) -> np.ndarray:
        """Returns the cost of contact forces, at most 10."""
        return np.minimum(5e-7 * np.square(self._forces).sum(axis=1), 10.0)

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what runners report, and the cost of contact."""
        found = Roamer.info(self, actions, unhealthy)
        return {**found, "reward_contact": -self.contact_cost()}


class HumanoidStandup(HumanoidV5):
    """HumanoidStandup-v5, 348 observations: paid for the height of its torso."""

    model_file = "humanoidstandup.xml"
    may_go_on_unhealthy = False
    healthy_reward = 0.0

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds what the humanoids read, and keeps the physics' step."""
        super().__init__(model, bind)
        self._physics_step = model.opt.timestep

    def remember(self) -> None:
        """Keeps nothing: no velocity is paid."""
        return

    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns z over the physics step's length, less the costs, plus 1."""
        height = self.qpos[:, 2] / self._physics_step
        return height - self.control_cost(actions) - self.contact_cost() + 1

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the reward's parts, and where the torso is."""
        return {
            "x_position": self.qpos[:, 0].copy(),
            "y_position": self.qpos[:, 1].copy(),
            "z_distance_from_origin": self.qpos[:, 2] - self.initial_qpos[2],
            "reward_linup": self.qpos[:, 2] / self._physics_step,
            "reward_quadctrl": -self.control_cost(actions),
            "reward_impact": -self.contact_cost(),
        }

    def unhealthy(self) -> np.ndarray:
        """All False: the robot starts lying down."""
        return np.zeros(len(self.qpos), bool)
