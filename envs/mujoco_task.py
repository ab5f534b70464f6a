"""What MuJoCo's tasks have in common: a task, one that runs, one that roams.

A task reads the arrays of a batch of simulations, one row per environment, and knows
nothing of stepping. ``N`` is the number of environments.
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


def rows(field: np.ndarray) -> np.ndarray:
    """Returns a field ``[N, ...]`` as ``[N, k]``, without copying."""
    return field.reshape(len(field), -1)


def finite(*fields: np.ndarray) -> np.ndarray:
    """Returns ``[N]``: whether every number of a row is finite."""
    return np.logical_and.reduce([np.isfinite(f).all(axis=1) for f in fields])
