"""One robot of the user's own as Gymnasium's ``MujocoEnv``, imported when it is made.

Gymnasium's module brings its renderer along, which no training needs.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv

from jax_es.envs.robot import check, own_numbers, task_of, with_numbers


class RobotEnv(MujocoEnv):
    """One such robot as Gymnasium's own ``MujocoEnv``: its stepping, its renderer.

    Args:
        task: where the class is, ``"module:Name"``.
        render_mode: as Gymnasium's.
        terminate_when_unhealthy: whether an unhealthy state ends the episode.
        **options: further arguments of ``MujocoEnv``, such as ``camera_name``, and the
            task's own variations, such as ``pit_gap_high=1.0``.

    ``reset`` takes the option ``"variation"``, the task's own numbers in their order.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]
    }

    def __init__(
        self,
        task: str,
        render_mode: str | None = None,
        terminate_when_unhealthy: bool = True,
        **options: Any,
    ) -> None:
        """Compiles the model."""
        made = task_of(task)
        numbers = own_numbers(made, options)
        options = {name: options[name] for name in options if name not in numbers}
        made = with_numbers(made, numbers)
        path = str(made.model_path())
        super().__init__(path, made.num_substeps, None, render_mode, **options)
        # The fields as a batch of one; MjData's arrays stay where they are.
        self._task = made(self.model, lambda name: getattr(self.data, name)[None])
        self._task.terminate_when_unhealthy = terminate_when_unhealthy
        self.variations = self._numbers = dict(made.variations)
        if self.variations:
            self._task.expanded(lambda name: getattr(self.model, name)[None])
        check(task, self._task, self.model)
        fps = round(1 / self.dt)
        self.metadata = {**self.metadata, "render_fps": fps}  # pyright: ignore
        shape = self._observation().shape
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        row = (options or {}).get("variation")
        self._numbers = self.variations
        if row is not None:
            self._numbers = dict(zip(self.variations, row, strict=True))
        return super().reset(seed=seed, options=options)

    def reset_model(self) -> np.ndarray:
        """Draws a first state."""
        if self.variations:
            self._task.begin(0, self._numbers, self.np_random)
        self.set_state(*self._task.initial_state(self.np_random))
        observation = self._observation()
        self._task.remember()
        return observation

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes a step."""
        action = np.asarray(action, np.float32)
        self.do_simulation(action, self.frame_skip)
        observation = self._observation()
        unhealthy = self._task.unhealthy()
        reward = self._task.reward(action[None], unhealthy)
        self._task.remember()
        ended = self._task.terminate_when_unhealthy and bool(unhealthy[0])
        if self.render_mode == "human":
            self.render()
        return observation, float(reward[0]), ended, False, {}

    def _observation(self) -> np.ndarray:
        parts = self._task.observation()
        return np.concatenate(parts, axis=1)[0].astype(np.float32)
