"""One environment of its own, of Gymnasium's: for learners by gradients, and for films.

Slots have vector environments (``build.py``); both are the same task.
"""

import copy
import typing
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

from jax_es import models
from jax_es.checks import ConfigError, is_own, require
from jax_es.config import EnvConfig
from jax_es.envs.atari_env import make_single_atari_env, single_atari_spec
from jax_es.envs.base import is_atari
from jax_es.envs.faults import CheckedEnv, being_made
from jax_es.envs.gymnasium_env import flattened
from jax_es.envs.history import HistoryObservation
from jax_es.rollout.jax_engine import CompiledEnv
from jax_es.rollout.observation_statistics import hidden_entries
from jax_es.runs.trust import is_importable
from jax_es.train_config import TrainConfig, policy_kind
from jax_es.training.build import make_env, make_policy, register_own, wrappers_of


def make_single_env(config: EnvConfig, render_mode: str | None = None) -> gymnasium.Env:
    """Builds one environment of Gymnasium's own that is the same task.

    Raises:
        ConfigError: if what a game needs is not installed.
        EnvironmentFailure: if it raises; later in its methods, too.
    """
    if is_atari(config.id):
        try:
            return make_single_atari_env(config.id, render_mode, **config.options)
        except ValueError as error:
            raise ConfigError(str(error)) from error
    register_own(config.id)
    with being_made(config.id, config.options):
        # An environment of the user's own need not know of rendering.
        mode = {} if render_mode is None else {"render_mode": render_mode}
        env = gymnasium.make(config.id, **mode, **config.options)
        for wrap in wrappers_of(config):
            env = wrap(env)
    return CheckedEnv(flattened(env), config.id)


def make_rendered_env(config: EnvConfig) -> gymnasium.Env:
    """Builds one environment that gives pictures: Gymnasium's own, or one in JAX.

    Raises:
        ConfigError: if it cannot be drawn.
    """
    if is_own(config.id):
        env = make_env(config, num_envs=1, num_threads=1)
        if isinstance(env, CompiledEnv):
            from jax_es.envs.jax_env import JaxEpisode  # late: it loads JAX

            try:
                return JaxEpisode(env)  # type: ignore[arg-type]
            except ValueError as error:
                raise ConfigError(
                    f"--video: {config.id} cannot be drawn: {error}."
                ) from None
        env.close()
    return make_single_env(config, "rgb_array")


def env_spec(config: EnvConfig) -> Any:
    """Returns Gymnasium's description of the task, from which ``make`` makes it.

    It names a class that was registered as it is; None if there are no such names, as
    of a notebook's class.

    Raises:
        ValueError: if what a game needs is not installed.
    """
    if is_atari(config.id):
        return single_atari_spec(config.id, **config.options)
    env = make_single_env(config)
    env.close()
    spec = copy.deepcopy(env.spec)
    made = None if spec is None else spec.entry_point
    if spec is not None and callable(made):
        target = f"{made.__module__}:{getattr(made, '__qualname__', '<partial>')}"
        if not is_importable(target):
            return None
        spec.entry_point = target
    return spec


def make_learning_env(config: TrainConfig) -> gymnasium.Env:
    """Builds one environment for a learner that knows of no carry.

    It observes float32 vectors: to a Decision Transformer, its last steps.

    Raises:
        ConfigError: if what a game needs is not installed.
    """
    env = make_single_env(config.env)
    if config.env.hide_observation:
        space = env.observation_space
        hidden = hidden_entries(config.env.hide_observation, space.shape or ())
        env = gymnasium.wrappers.TransformObservation(
            env, lambda seen: np.where(hidden, 0, seen), space
        )
    policy = config.policy
    if not isinstance(policy, models.DecisionTransformerConfig):
        require(
            getattr(policy, "target_return", None) is None,
            f"policy {policy_kind(policy)} cannot learn by gradients from rewards with "
            "policy.target_return; leave it out.",
        )
        shape = env.observation_space.shape
        return gymnasium.wrappers.TransformObservation(
            env, np.float32, gymnasium.spaces.Box(-np.inf, np.inf, shape)
        )
    return HistoryObservation(
        env,
        policy.context_length,
        policy.target_return,
        policy.reward_scale,
        policy.max_timestep,
    )


def normalizing(
    env: gymnasium.Env, gamma: float, clip: float
) -> tuple[gymnasium.Env, dict[str, RunningMeanStd]]:
    """Wraps an environment for PPO, which learns from what is normalised.

    Args:
        env: with bounded actions, which are in [-1, 1] afterwards.
        gamma: discount of a step; rewards are divided by what discounted sums vary by.
        clip: bound of normalised observations and rewards.

    Returns:
        The environment, and the running statistics of observations and rewards.
    """
    env = seen = gymnasium.wrappers.NormalizeObservation(
        gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    )
    # Its own is of the observations' type, in which far means hide small changes.
    shape = env.observation_space.shape or ()
    seen.obs_rms = RunningMeanStd(shape=shape, dtype=np.float64)

    def clipped(values: Any) -> Any:
        return np.clip(values, -clip, clip)

    env = gymnasium.wrappers.TransformObservation(env, clipped, None)
    env = paid = gymnasium.wrappers.NormalizeReward(env, gamma)
    env = gymnasium.wrappers.TransformReward(env, clipped)
    return env, {"observations": seen.obs_rms, "rewards": paid.return_rms}


def make_history_actor(config: TrainConfig, env: gymnasium.Env) -> models.HistoryActor:
    """Builds a Decision Transformer that acts in a :func:`make_learning_env`.

    Raises:
        ValueError: if the policy keeps a cache.
    """
    observed = typing.cast(HistoryObservation, env).env.observation_space
    policy = make_policy(config.policy, observed, env.action_space)
    return models.HistoryActor(typing.cast(models.DecisionTransformerPolicy, policy))


def is_single(space: gymnasium.Space, observation: Any) -> bool:
    """Whether an observation has the shape of one, not of several, wherever it is read.

    Gymnasium flattens several numbers of a choice to one vector, without a word.
    """
    match space:
        case gymnasium.spaces.Dict():
            return all(is_single(each, observation[k]) for k, each in space.items())
        case gymnasium.spaces.Tuple():
            return all(map(is_single, space, observation))
        case gymnasium.spaces.Discrete():
            index = np.asarray(observation) - space.start
            return index.ndim == 0 and bool(0 <= index < space.n)
    return space.shape is None or np.shape(observation) == space.shape
