"""Gymnasium's MuJoCo tasks: observations, rewards, endings and first states.

A task reads the arrays of a batch of simulations, one row per environment, and knows
nothing of stepping. Every formula, its constants and the order of its operations are
those of ``gymnasium/envs/mujoco/*.py`` (1.4), so that results are equal to the bit;
where only rounding can differ, the method says so.

``N`` is the number of environments.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

import abc
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import gymnasium
import mujoco
import numpy as np

Bind = Callable[[str], np.ndarray]


class MujocoTask(abc.ABC):
    """One task over ``N`` simulations of one model.

    Args:
        model: the compiled model.
        bind: gives the live ``[N, ...]`` array of an ``MjData`` field.
    """

    model_file: ClassVar[str]
    """XML file: beside the file that the class is written in, or among Gymnasium's
    assets."""
    num_substeps: ClassVar[int]
    """Physics steps in one environment step."""
    max_episode_steps: ClassVar[int] = 1000
    contact_forces: ClassVar[bool] = False
    """Whether ``cfrc_ext`` is observed or paid for."""
    reset_noise: ClassVar[float]
    """Scale of the noise on the initial positions and velocities."""
    normal_velocity_noise: ClassVar[bool] = False
    """Whether the initial velocities' noise is normal instead of uniform."""
    may_go_on_unhealthy: ClassVar[bool] = False
    """Whether Gymnasium's task takes the option ``terminate_when_unhealthy``."""
    terminate_when_unhealthy: bool = True
    """Whether an unhealthy state ends the episode."""
    healthy_reward: ClassVar[float] = 0.0
    """What a healthy step is paid for nothing else."""
    is_reporting: bool = False
    """Whether somebody asks for :meth:`info`."""
    variations: ClassVar[Mapping[str, float]] = MappingProxyType({})
    """Numbers of the task's own that episodes can differ in: name → the number that
    changes nothing. A task that has some is told them by :meth:`begin`."""

    @classmethod
    def model_path(cls) -> Path:
        """Returns where the XML file is."""
        file = getattr(sys.modules[cls.__module__], "__file__", None) or "."
        own = Path(file).parent / cls.model_file
        assets = Path(str(gymnasium.__file__)).parent / "envs/mujoco/assets"
        found = assets / cls.model_file
        return found if found.exists() and not own.exists() else own.absolute()

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the state, which every task reads."""
        self.time_step = model.opt.timestep * self.num_substeps
        self.initial_qpos = model.qpos0.copy()
        self.qpos = bind("qpos")
        self.qvel = bind("qvel")
        self.ctrl = bind("ctrl")
        self.body_mass = model.body_mass
        """``[B]`` of all simulations, or ``[N, B]`` of each where masses vary."""

    def expanded(self, expand: Callable[[str], np.ndarray]) -> None:
        """Takes what differs between simulations, before the first episode.

        Called where there are :attr:`variations`.

        Args:
            expand: gives a field of the model as ``[N, …]``, writable, which each
                simulation then has for itself.
        """
        return

    def begin(
        self, index: int, numbers: Mapping[str, float], generator: np.random.Generator
    ) -> None:
        """Prepares an episode, before its first state is drawn.

        Called where there are :attr:`variations`.

        Args:
            index: of the simulation.
            numbers: the episode's, by the names of :attr:`variations`.
            generator: the episode's.

        Raises:
            ValueError: a number is out of its range.
        """
        return

    def initial_state(
        self, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draws ``qpos`` and ``qvel`` of one episode, in Gymnasium's order."""
        scale = self.reset_noise
        num_velocities = self.qvel.shape[1]
        qpos = self.initial_qpos + generator.uniform(
            -scale, scale, len(self.initial_qpos)
        )
        if self.normal_velocity_noise:
            return qpos, scale * generator.standard_normal(num_velocities)
        return qpos, generator.uniform(-scale, scale, num_velocities)

    @abc.abstractmethod
    def observation(self) -> tuple[np.ndarray, ...]:
        """Returns the observation in pieces ``[N, k]``, float64."""

    def unhealthy(self) -> np.ndarray:
        """Returns ``[N]`` bool: who has fallen or left the range in which it may act.

        All False unless overridden. Called after :meth:`observation`.
        """
        return np.zeros(len(self.qpos), bool)

    @abc.abstractmethod
    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns the ``[N]`` rewards of a step.

        Called after :meth:`observation`.

        Args:
            actions: ``[N, A]`` float32.
            unhealthy: ``[N]`` bool, what :meth:`unhealthy` returned.
        """

    def survival(self, unhealthy: np.ndarray) -> np.ndarray | float:
        """Returns ``[N]``, the part of the reward that is paid to the healthy."""
        return self.healthy_reward * ~unhealthy

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the numbers of Gymnasium's info dictionary, ``[N]`` by name.

        Called after :meth:`reward`, whose arguments these are, where
        :attr:`is_reporting`.
        """
        survival = np.broadcast_to(self.survival(unhealthy), unhealthy.shape)
        return {"reward_survive": survival} if self.healthy_reward else {}

    def remember(self) -> None:
        """Keeps what the next reward compares with; called after resets and steps."""
        return


class Runner(MujocoTask):
    """A body paid for its forward velocity and for staying healthy, less its costs."""

    forward_weight: ClassVar[float] = 1.0
    control_weight: ClassVar[float]

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the state and makes room for the last position."""
        super().__init__(model, bind)
        self._x_before = np.zeros(len(self.qpos))

    def x_position(self) -> np.ndarray:
        """Returns ``[N]``, the coordinate whose velocity is paid."""
        return self.qpos[:, 0]

    def remember(self) -> None:
        """Keeps the position."""
        self._x_before[:] = self.x_position()

    def reward(self, actions: np.ndarray, unhealthy: np.ndarray) -> np.ndarray:
        """Returns velocity and survival less the costs of control and contact."""
        velocity = (self.x_position() - self._x_before) / self.time_step
        income = self.forward_weight * velocity + self.survival(unhealthy)
        return income - (self.control_cost(actions) + self.contact_cost())

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the reward's parts, and where the body is."""
        velocity = (self.x_position() - self._x_before) / self.time_step
        return {
            "x_position": self.qpos[:, 0].copy(),
            "x_velocity": velocity,
            "reward_forward": self.forward_weight * velocity,
            "reward_ctrl": -self.control_cost(actions),
            **super().info(actions, unhealthy),
        }

    def control_cost(self, actions: np.ndarray) -> np.ndarray:
        """Returns ``[N]`` float32: Gymnasium sums the float32 action, unclipped."""
        return self.control_weight * np.square(actions).sum(axis=1)

    def contact_cost(self) -> np.ndarray | float:
        """Returns ``[N]``, what contact forces cost."""
        return 0.0


class Roamer(Runner):
    """A runner that may leave the x axis."""

    def __init__(self, model: mujoco.MjModel, bind: Bind) -> None:
        """Binds the state and makes room for the last position."""
        super().__init__(model, bind)
        self._y_before = np.zeros(len(self.qpos))

    def y_position(self) -> np.ndarray:
        """Returns ``[N]``, the coordinate across."""
        return self.qpos[:, 1]

    def remember(self) -> None:
        """Keeps the position; y is paid for nothing, and kept for reports alone."""
        super().remember()
        if self.is_reporting:
            self._y_before[:] = self.y_position()

    def info(self, actions: np.ndarray, unhealthy: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what runners report, and where the body is across."""
        place = self.qpos[:, :2]
        return {
            **super().info(actions, unhealthy),
            "y_position": place[:, 1].copy(),
            "y_velocity": (self.y_position() - self._y_before) / self.time_step,
            "distance_from_origin": np.sqrt(np.vecdot(place, place)),
        }


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
        self._forces = _rows(bind("cfrc_ext"))
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
        return ~((z >= 0.2) & (z <= 1.0) & _finite(self.qpos, self.qvel))

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
        self._cinert = _rows(bind("cinert"))
        self._cvel = _rows(bind("cvel"))
        self._actuator_forces = bind("qfrc_actuator")
        self._forces = _rows(bind("cfrc_ext"))

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
        return ~(_finite(self.qpos, self.qvel) & (np.abs(self.qpos[:, 1]) <= 0.2))


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


def _rows(field: np.ndarray) -> np.ndarray:
    """Returns a field ``[N, ...]`` as ``[N, k]``, without copying."""
    return field.reshape(len(field), -1)


def _finite(*fields: np.ndarray) -> np.ndarray:
    """Returns ``[N]``: whether every number of a row is finite."""
    return np.logical_and.reduce([np.isfinite(f).all(axis=1) for f in fields])


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns ``[N]`` Euclidean distances of points ``[N, 3]``.

    A row's dot product, as ``np.linalg.norm`` of one vector computes it: its norm over
    an axis rounds differently.
    """
    way = a - b
    return np.sqrt(np.vecdot(way, way))
