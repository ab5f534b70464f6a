"""Gymnasium's MuJoCo environments changed by hand: what named variations must equal."""

import gymnasium
import mujoco
import numpy as np

from jax_es.envs.variations import NEUTRAL


class Varied(gymnasium.Wrapper):
    """One of Gymnasium's MuJoCo environments, changed by hand."""

    def __init__(self, env, **values):
        """Changes the model; without values nothing."""
        super().__init__(env)
        self.values = {**NEUTRAL, **values}
        model = env.unwrapped.model
        if "mass" in values:
            model.body_mass *= values["mass"]
            model.body_inertia *= values["mass"]
            mujoco.mj_setConst(model, mujoco.MjData(model))
        model.geom_friction[:, 0] *= self.values["friction"]
        model.opt.gravity *= self.values["gravity"]

    def _noisy(self, observation):
        std = self.values["observation-noise"]
        if not std:
            return observation
        noise = self.env.unwrapped.np_random.standard_normal(len(observation))
        return observation + std * noise

    def reset(self, **kwargs):
        self.before = np.zeros(self.action_space.shape, np.float32)
        observation, info = self.env.reset(**kwargs)
        return self._noisy(observation), info

    def step(self, action):
        action = action * np.float32(self.values["motors"])
        if self.values["delay"]:
            action, self.before = self.before, action
        observation, *rest = self.env.step(action)
        return self._noisy(observation), *rest
