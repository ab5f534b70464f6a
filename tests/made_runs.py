"""Runs on disk whose weights are random: what only reads runs needs no training."""

import jax
import numpy as np

from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.training.build import make_policy
from jax_es.training.load_policy import spaces


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
