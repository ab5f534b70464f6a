"""Tiny runs, random ones, and results: what only reads runs needs no training."""

from dataclasses import replace

import gymnasium
import jax
import numpy as np

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.models import MLPConfig
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.observation_statistics import initial_statistics
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.training.build import TrainConfig, make_policy
from jax_es.training.trained_mean import spaces

TINY = TrainConfig(
    env=EnvConfig("InvertedPendulum-v5", max_episode_steps=5),
    policy=MLPConfig(hidden_sizes=(2,)),
    es=ESConfig(num_pairs=2),
    rollout=RolloutConfig(num_slots=1, num_devices=1, num_threads=1),
    evaluation=EvaluationConfig(num_episodes=1),
    num_generations=1,
)
"""What trains in a second; ``trials/inputs.py`` has the same on a command line."""

SHORT = replace(
    TINY,
    env=EnvConfig("HalfCheetah-v5", 8),
    es=ESConfig(num_pairs=2, sigma=0.1, learning_rate=0.5),
    evaluation=EvaluationConfig(num_episodes=2),
)
"""Whose episodes differ; short, since physics amplifies rounding: ×1000 in 15 steps."""


def save_run(path, config, steps=(1,), **record):
    """Makes a run with checkpoints of ``steps``, the last of which is the best."""
    run = RunDirectory(path)
    run.create(config, "test", **record)
    observation_space, action_space = spaces(config)
    policy = make_policy(config.policy, observation_space, action_space)
    rng = np.random.default_rng(config.seed)
    for step in steps:
        mean = policy.init(jax.random.key(step))
        mean = jax.tree.map(lambda w: w + 0.3 * rng.normal(size=w.shape), mean)
        mean = jax.tree.map(lambda w: w.astype(np.float32), mean)
        state = {"es": {"mean": mean, "generation": np.int32(step)}}
        if config.rollout.observation_statistics:
            centre = rng.normal(size=observation_space.shape)
            squares = 100.0 * (1.0 + centre**2)
            sums = {"count": np.float64(100.0), "sum": 100.0 * centre}
            state["observation_statistics"] = {**sums, "sum_of_squares": squares}
        Checkpoints(run.checkpoints).save(step, state)
    Checkpoints(run.checkpoints).save_best(steps[-1], state)
    return path


def play(policy, seed, env=None):
    """One episode of a loaded policy in a plain Gymnasium loop: return and length."""
    if env is None:
        limit = SHORT.env.max_episode_steps
        env = gymnasium.make(policy.env_id, max_episode_steps=limit)
    observation, _ = env.reset(seed=int(seed))
    policy.reset()
    total, length, reward, done = 0.0, 0, 0.0, False
    while not done:
        action = policy(observation, reward)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, length = total + float(reward), length + 1
        done = terminated or truncated
    env.close()
    return total, length


def results_of(returns):
    """Episodes of 1, 2, 3 … steps with the given returns."""
    returns = np.array(returns, float)
    return EpisodeResults(
        returns=returns,
        lengths=np.arange(1, 1 + len(returns)),
        failed=np.zeros(len(returns), bool),
        healthy_rewards=np.zeros(len(returns)),
        descriptors=np.zeros((1, 0)),
        observations=initial_statistics(1),
        env_steps=0,
        computed_steps=0,
        seconds={},
    )
