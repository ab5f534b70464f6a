"""A small world whose slopes evolve, and settings for it."""

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.models import LinearConfig
from jax_es.niches.settings import PoetConfig
from jax_es.train_config import TrainConfig

SLOPES = """
import gymnasium
import numpy as np


class Slope(gymnasium.Env):
    \"\"\"Push as hard as the slope asks; the return is at most 100.\"\"\"

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    variations = {"slope": 0.0}
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        (self.slope,) = (options or {}).get("variation", [0.0])
        self.steps = 0
        return self.observed(), {}

    def step(self, action):
        self.steps += 1
        reward = 25 - 100 * float(abs(action[0] - self.slope))
        return self.observed(), reward, self.steps == 4, False, {}

    def render(self):
        return np.full((64, 64, 3), 250 * self.slope, np.uint8)

    def observed(self):
        return np.array([1, self.np_random.uniform(-1, 1)], np.float32)
"""
"""A world of the user's own, whose slopes evolve."""

CONFIG = TrainConfig(
    env=EnvConfig("slopes:Slope", max_episode_steps=4),
    policy=LinearConfig(),
    es=ESConfig(
        num_pairs=3, sigma=0.1, optimizer="adam", learning_rate=0.1, weight_decay=0.0
    ),
    rollout=RolloutConfig(
        num_slots=8, num_devices=1, observation_statistics=False, step_cap_factor=None
    ),
    evaluation=EvaluationConfig(num_episodes=2),
    num_generations=3,
)
SETTINGS = PoetConfig(
    mutate=(("slope", 0.2, 0.0, 1.0),),
    mutate_every=1,
    transfer_every=1,
    reproduce_at=40.0,
    criterion_low=20.0,
    criterion_high=90.0,
    solved_at=70.0,
    max_niches=2,
)
