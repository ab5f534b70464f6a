"""From an environment's id to a vector environment."""

import contextlib
import difflib
import functools
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium

from jax_es.envs.atari_env import AtariVectorEnv
from jax_es.envs.base import EpisodeVectorEnv, is_atari
from jax_es.envs.faults import being_made
from jax_es.envs.gymnasium_env import GymnasiumVectorEnv, Wrappers
from jax_es.envs.mujoco_env import MujocoVectorEnv
from jax_es.envs.robot import own_numbers, registered_task
from jax_es.envs.tetris import ENV_ID as TETRIS
from jax_es.envs.tetris import TetrisVectorEnv


def make(
    env_id: str,
    num_envs: int,
    num_threads: int | None = None,
    wrappers: Wrappers = (),
    kwargs: dict[str, Any] | None = None,
    physics: dict[str, Any] | None = None,
    **options: Any,
) -> EpisodeVectorEnv:
    """Builds ``num_envs`` copies of an environment, on its fastest engine.

    Args:
        env_id: an id of ``MujocoVectorEnv.supported``, an Atari game's (``ALE/…``), or
            any other that Gymnasium knows, or ``"module:id"`` to import the module that
            registers it; ``"gymnax:ID"``, ``"brax:NAME"``, ``"playground:NAME"`` or
            ``"module:Name"`` for one in JAX (:mod:`jax_es.envs.jax_env`). What
            :func:`jax_es.envs.robot.register` registered has threads.
        num_envs: how many environments.
        num_threads: threads that step them, for engines that have threads; by default
            all the CPUs this process may use.
        wrappers: functions applied to each environment, the innermost first.
        kwargs: arguments of the environment itself. With wrappers, or with other of
            these than a robot's own variations, it is Gymnasium's own, whatever engine
            the id has else.
        physics: ``num_substeps`` and ``integrator`` of
            :class:`jax_es.envs.mujoco_env.MujocoVectorEnv`, and of no other engine.
        **options: further arguments of :class:`jax_es.envs.mujoco_env.MujocoVectorEnv`,
            :class:`jax_es.envs.atari_env.AtariVectorEnv` or
            :class:`jax_es.envs.gymnasium_env.GymnasiumVectorEnv`;
            ``max_episode_steps`` is common to all.

    Returns:
        A vector environment without autoreset, see
        :class:`jax_es.envs.base.EpisodeVectorEnv`.

    Raises:
        ValueError: the id is unknown, or the environment needs a package that is not
            installed; or an option has a wrong value.
        EnvironmentFailure: the environment raises while it is imported or built.

    Example:
        >>> env = make("HalfCheetah-v5", num_envs=4)
        >>> observations, info = env.reset(seed=0)
        >>> observations.shape
        (4, 17)
    """
    physics = physics or {}
    if environment := _in_jax(env_id, kwargs or {}, wrappers):
        _refuse(physics, env_id)
        return environment(num_envs, **options)
    if env_id == TETRIS and not wrappers:
        _refuse(physics, env_id)
        return TetrisVectorEnv(num_envs, num_threads, **options, **(kwargs or {}))
    if is_atari(env_id) and (wrappers or kwargs):
        raise ValueError(
            f"env_id: {env_id} takes no {'wrappers' if wrappers else 'kwargs'}, as all "
            "games; leave them out, or register an environment of your own"
        )
    is_known = env_id in gymnasium.registry or _names_module(env_id)
    registered = functools.partial(
        _make_registered, env_id, num_envs, num_threads, wrappers, kwargs or {}, physics
    )
    if is_known and (kwargs or wrappers):
        return registered(options)
    if env_id in MujocoVectorEnv.supported:
        return MujocoVectorEnv(env_id, num_envs, num_threads, **options, **physics)
    if is_atari(env_id):
        _refuse(physics, env_id)
        return AtariVectorEnv(env_id, num_envs, num_threads, **options)
    if is_known:
        return registered(options)
    raise ValueError(f"env_id: no environment {env_id!r}{_hint(env_id)}")


def _in_jax(
    env_id: str, kwargs: dict[str, Any], wrappers: Wrappers
) -> Callable[..., EpisodeVectorEnv] | None:
    """Returns what makes a vector environment in JAX, if the id names one."""
    if not _names_module(env_id):
        return None
    from jax_es.envs import jax_env, jax_packages  # late: they load JAX

    module, _, name = env_id.partition(":")
    environment: Any = None
    if module in jax_packages.PACKAGES:
        environment = jax_packages.make_jax(env_id, kwargs)
    else:
        with being_made(env_id, kwargs), contextlib.suppress(ImportError):
            environment = getattr(importlib.import_module(module), name, None)
            if isinstance(environment, type) and hasattr(environment, "step"):
                environment = environment(**kwargs)
    if not isinstance(environment, jax_env.JaxEnvironment):
        return None
    if module not in jax_packages.PACKAGES:
        jax_env.check(environment, env_id)
    if set(wrappers) == {gymnasium.wrappers.FlattenObservation}:
        environment = jax_env.FlatEnvironment(environment)
    elif wrappers:
        raise ValueError(
            f"env_id: {env_id} is written in JAX, and Gymnasium's wrappers are not, "
            "except for gymnasium.wrappers:FlattenObservation; leave the others out"
        )
    return functools.partial(jax_env.JaxVectorEnv, environment)


def _make_registered(
    env_id: str,
    num_envs: int,
    num_threads: int | None,
    wrappers: Wrappers,
    kwargs: dict[str, Any],
    physics: dict[str, Any],
    options: dict[str, Any],
) -> EpisodeVectorEnv:
    """Builds it, and says in one line what is missing if it fails."""
    module, _, _ = env_id.rpartition(":")
    try:
        if module:
            with being_made(env_id, ()):
                importlib.import_module(module)
        task = registered_task(env_id)
        numbers = own_numbers(task, kwargs) if task else {}
        if task and not wrappers and len(numbers) == len(kwargs):
            options |= {"numbers": numbers, **physics}
            return MujocoVectorEnv(env_id, num_envs, num_threads, **options)
        _refuse(physics, env_id)
        options |= {"wrappers": wrappers, **kwargs}
        return GymnasiumVectorEnv(env_id, num_envs, num_threads=num_threads, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        message = f"env_id: {env_id} needs a package that is not installed: {error}"
        if "gymnasium[box2d]" in message:
            message = f"env_id: {env_id} needs Box2D: pip install -e '.[box2d]'"
    except (ImportError, gymnasium.error.Error) as error:
        message = f"env_id: {env_id} cannot be made: {error}"
    raise ValueError(" ".join(message.split()))


def _refuse(physics: dict[str, Any], env_id: str) -> None:
    """Rejects coarse physics where no engine of MuJoCo's runs the task."""
    given = " and ".join(f"{name} {value}" for name, value in physics.items())
    if given:
        raise ValueError(
            f"{given}: no coarse physics for {env_id}, which does not run on MuJoCo's "
            "threads (no task does with wrappers, or with arguments other than a "
            "robot's variations); leave it None (--rollout.num-substeps None "
            "--rollout.integrator None)"
        )


def _names_module(env_id: str) -> bool:
    """Returns whether it is ``module:id``; Gymnasium would import any text."""
    module, colon, name = env_id.partition(":")
    return bool(colon and name and ":" not in name) and all(
        part.isidentifier() for part in module.split(".")
    )


def _hint(env_id: str) -> str:
    """Names the closest ids, or the form of those that name a module."""
    if ":" in env_id:
        return "; expected module:id, such as my_package.envs:MyEnv-v0"
    known = {*MujocoVectorEnv.supported, *gymnasium.registry}
    close = difflib.get_close_matches(env_id, known, n=3, cutoff=0.5)
    if not close:
        return (
            "; gymnasium.pprint_registry() lists those that are known, and games of "
            "Atari go by --env.game"
        )
    return f"; did you mean {', '.join(close)}?"
