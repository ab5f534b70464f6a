"""Which preset a task of one's own is trained with: chosen from its spaces."""

import contextlib
from dataclasses import replace

import gymnasium

from jax_es.checks import ConfigError
from jax_es.config import EnvConfig
from jax_es.presets import PRESETS, preset
from jax_es.rollout.devices import use_cores
from jax_es.train_config import FLATTEN, JAX_PACKAGES, POLICY_KINDS, TrainConfig
from jax_es.training.build import make_env, takes_images, with_game
from jax_es.training.single_env import make_single_env

MOST_STEPS = 1000
"""Limit on an episode, in environment steps, where the task has none."""

LEAST_PIXELS = 10, 20
"""Height and width from which a frame is read as a grid and as an image; smaller ones
are read as vectors."""


def preset_for(
    env: EnvConfig | str,
    policy: str | None = None,
    strategy: str | None = None,
    fine_tune: bool = False,
) -> TrainConfig:
    """Returns settings for any environment, chosen from its spaces.

    Example:
        >>> preset_for("CartPole-v1").policy.hidden_sizes
        (16, 16)

    Args:
        env: the environment, or its id.
        policy: as of :func:`jax_es.preset`.
        strategy: as of :func:`jax_es.preset`.
        fine_tune: as of :func:`jax_es.preset`.

    Raises:
        ConfigError: there is no such environment, or its spaces are of no kind that
            policies know.
    """
    name, task = own_task(EnvConfig(env) if isinstance(env, str) else env, policy)
    return replace(preset(name, policy, strategy, fine_tune), env=task)


def own_task(env: EnvConfig, policy: str | None = None) -> tuple[str, EnvConfig]:
    """Returns the name of the preset for an environment, and how it is trained.

    One in JAX may be a preset's own. Of others, what the policy cannot read as it is,
    is flattened, and an episode without a limit gets one of :data:`MOST_STEPS`.
    """
    for name, tuned in PRESETS.items():
        if tuned.env == env and env.id.partition(":")[0] in JAX_PACKAGES:
            return name, env
    config = with_game(TrainConfig(env=env))
    space, actions, has_limit = _seen(config.env)
    env = config.env
    if not has_limit:
        env = replace(env, max_episode_steps=MOST_STEPS)
    shape = space.shape if isinstance(space, gymnasium.spaces.Box) else None
    grid, image = LEAST_PIXELS
    side = sorted(shape)[1] if shape is not None and len(shape) == 3 else 0
    if side >= image:
        return "own-image", env
    kind = POLICY_KINDS.get(policy or "mlp")  # None of a network of the user's own
    is_read = side >= grid and (kind is None or takes_images(kind))
    if not is_read and (shape is None or len(shape) != 1):
        env = replace(env, wrappers=(*env.wrappers, FLATTEN))
    if side >= grid:
        return "own-grid", env
    is_real = isinstance(actions, gymnasium.spaces.Box)
    return ("own-vector" if is_real else "own-discrete"), env


def _seen(env: EnvConfig) -> tuple[gymnasium.Space, gymnasium.Space, bool]:
    """Returns an environment's spaces, and whether its episodes have a limit."""
    use_cores()  # an environment in JAX starts it, which fixes the devices
    try:
        with contextlib.closing(make_env(env, num_envs=1, num_threads=1)) as ready:
            return ready.single_observation_space, ready.single_action_space, True
    except ConfigError as error:
        try:
            one = make_single_env(env)
        except Exception:
            raise error from None  # which says what is missing
    with contextlib.closing(one):
        limit = env.max_episode_steps or (one.spec and one.spec.max_episode_steps)
        return one.observation_space, one.action_space, limit is not None
