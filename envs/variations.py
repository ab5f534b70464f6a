"""Named variations of MuJoCo's tasks: another body, floor or planet, worse sensors.

A variation is named numbers, an episode's own. As rows of an array, which tasks carry
and ``reset(options={"variation": …})`` reads, it is each motor's share of its strength
and then ``REST``, and then the task's own numbers; rows of motors' shares alone are
variations, too.

Per-simulation values of ``mujoco.batch`` (``expand``, then ``set_const`` for what
follows from masses) are what the models of a batch differ in. A model for each
environment (``set_models``) would need as many copies of the model, and a thread of
Python's for each a loop of its own; this is an array for each field, exists only once
something is varied, and costs the steps nothing that we could measure. Resets take
0.1 ms more where masses vary.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco's names come from compiled modules without type stubs)

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mujoco
import numpy as np

from jax_es.envs.mujoco_task import MujocoTask

NEUTRAL = {
    "mass": 1.0,
    "friction": 1.0,
    "gravity": 1.0,
    "motors": 1.0,
    "observation-noise": 0.0,
    "delay": 0.0,
}
"""Name → the value that changes nothing. Factors on all bodies' masses and inertias, on
the geoms' sliding friction, on gravity and on each motor's strength, that is on its
action; standard deviation of normal noise on each number of an observation, in that
number's own unit; environment steps that actions come late, 0 or 1 (what lies between
is rounded), before which the motors rest."""

REST = tuple(name for name in NEUTRAL if name != "motors")
"""The numbers of a row that stand behind the motors' shares."""

_FIELDS = {
    "mass": ("body_mass", "body_inertia"),
    "friction": ("geom_friction",),
    "gravity": ("opt.gravity",),
}
"""Name → MuJoCo's fields that it is a factor on; of friction the first column."""


def rows(
    values: Mapping[str, Any],
    count: int,
    num_motors: int,
    own: Mapping[str, float] = MappingProxyType({}),
) -> np.ndarray:
    """Returns named variations as ``[count, num_motors + 5 + len(own)]``.

    Args:
        values: name → a number or ``[count]`` numbers; absent ones are neutral.
        count: of episodes.
        num_motors: of the model.
        own: names of the task's own, each with its neutral value.

    Raises:
        ValueError: there is no such name, or a value is out of its range.

    Example:
        >>> rows({"mass": 1.1}, 1, num_motors=2).tolist()
        [[1.0, 1.0, 1.1, 1.0, 1.0, 0.0, 0.0]]
    """
    neutral = {**NEUTRAL, **own}
    for name, value in values.items():
        if name not in neutral:
            raise ValueError(f"{name}: expected one of {', '.join(neutral)}")
        value = np.asarray(value, float)
        words, is_right = "at least 0 and finite", (value >= 0) & (value < np.inf)
        if name == "mass":
            words, is_right = "positive and finite", is_right & (value > 0)
        elif name == "delay":
            words, is_right = "0 or 1", is_right & (value <= 1)
        if not is_right.all():
            wrong = value[~is_right].flat[0]
            raise ValueError(f"{name} {wrong:g}: expected a number {words}")
    columns = {name: values.get(name, neutral[name]) for name in neutral}
    shares = [columns["motors"]] * num_motors
    all_columns = [*shares, *(columns[name] for name in (*REST, *own))]
    return np.stack([np.broadcast_to(c, count) for c in all_columns], axis=1) * 1.0


class Variations:
    """What the episodes of a vector environment differ in; all neutral at first.

    Args:
        model: the compiled model.
        batch: of simulations.
        task: over that batch.
        observation_size: O.

    Attributes:
        own: ``[N, V]``, numbers of the task's own.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        batch: Any,
        task: MujocoTask,
        observation_size: int,
    ) -> None:
        num_envs = len(task.qpos)
        self._model, self._batch, self._task = model, batch, task
        self.own = np.tile([*task.variations.values()], (num_envs, 1))
        # Of each name that was ever varied: arrays [N, …], and the model's own.
        self._expanded: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._strength = np.ones((num_envs, model.nu), np.float32)
        self._is_late = np.zeros(num_envs, bool)
        self._before = np.zeros((num_envs, model.nu), np.float32)
        self._noise_std = np.zeros(num_envs)
        self._noise = np.zeros((num_envs, observation_size))

    def start(self, ids: np.ndarray, variation: Any) -> None:
        """Varies the episodes that start in ``ids``; None makes them neutral.

        Args:
            ids: of environments.
            variation: ``[N, A]`` or ``[N, A + 5 + V]``, of all environments.

        Raises:
            ValueError: it has another shape.
        """
        num_envs, num_motors = self._strength.shape
        if variation is None:
            variation = np.ones((num_envs, num_motors))
        variation = np.asarray(variation, float)
        own = self._task.variations
        widths = num_motors, num_motors + len(REST) + len(own)
        if variation.shape not in [(num_envs, width) for width in widths]:
            raise ValueError(
                f"options['variation']: got shape {variation.shape}, expected "
                f"{(num_envs, num_motors)}: each motor's share of its strength, or "
                f"{(num_envs, widths[1])}: then {', '.join((*REST, *own))}"
            )
        shares, rest = np.split(variation[ids], [num_motors], axis=1)
        if not rest.size:
            rest = rows({}, len(ids), num_motors, own)[:, num_motors:]
        rest, self.own[ids] = np.split(rest, [len(REST)], axis=1)
        values = dict(zip(REST, rest.T, strict=True))
        self._strength[ids] = shares
        self._is_late[ids] = np.rint(values["delay"])
        self._before[ids] = 0.0
        self._noise_std[ids] = values["observation-noise"]
        self._noise[ids] = 0.0
        for name in _FIELDS:
            self._scale(name, ids, values[name])
        if "mass" in self._expanded:
            self._batch.set_const(ids)

    def _scale(self, name: str, ids: np.ndarray, factor: np.ndarray) -> None:
        """Writes fields of the simulations' models."""
        if name not in self._expanded:
            if (factor == 1.0).all():
                return
            fields = {field: self._batch.expand(field) for field in _FIELDS[name]}
            if name == "friction":
                fields["geom_friction"] = fields["geom_friction"][..., 0]
            # The first time, all simulations have the model's own values.
            self._expanded[name] = [(f, f[0].copy()) for f in fields.values()]
            if name == "mass":
                self._task.body_mass = fields["body_mass"]
        for field, own in self._expanded[name]:
            field[ids] = own * factor.reshape(-1, *[1] * own.ndim)

    def applied(self, actions: np.ndarray) -> np.ndarray:
        """Returns the actions ``[N, A]`` that reach the motors in this step."""
        actions = actions * self._strength
        late = np.where(self._is_late[:, None], self._before, actions)
        self._before = actions
        return late

    def seen(
        self,
        ids: np.ndarray,
        parts: tuple[np.ndarray, ...],
        generators: list[Any],
    ) -> tuple[np.ndarray, ...]:
        """Returns the observations' pieces as the sensors show them.

        Args:
            ids: of environments that have taken a step or started; others show what
                they did.
            parts: pieces ``[N, k]``.
            generators: of each environment; noise is what they draw next.
        """
        if not self._noise_std.any():
            return parts
        for i in ids[self._noise_std[ids] > 0].tolist():
            noise = generators[i].standard_normal(self._noise.shape[1])
            self._noise[i] = self._noise_std[i] * noise
        return (np.concatenate(parts, axis=1) + self._noise,)
