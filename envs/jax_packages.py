"""Environments in JAX that packages bring: Gymnax, Brax, MuJoCo Playground.

``gymnax:ID``, ``brax:NAME`` and ``playground:NAME`` name them. A package is imported
once an environment of it is named.
"""

import contextlib
import copy
import difflib
import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jax_es.envs.jax_env import JaxEnvironment, Step


class GymnaxEnvironment:
    """An environment with Gymnax's signature: Gymnax, and packages that follow it.

    Images have their channels first here, ``[C, H, W]``.

    Args:
        env: has ``reset_env`` and ``step_env``, which do not restart by themselves.
        params: its parameters.
    """

    def __init__(self, env: Any, params: Any) -> None:
        self._env, self._params = env, params
        self.action_space = _space(env.action_space(params))
        seen = _space(env.observation_space(params))
        self._is_image = len(seen.shape or ()) == 3
        if self._is_image:
            low, high = (np.moveaxis(bound, -1, 0) for bound in (seen.low, seen.high))
            seen = gymnasium.spaces.Box(low, high, dtype=seen.dtype)
        self.observation_space = seen
        self.max_episode_steps = int(params.max_steps_in_episode)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Starts an episode."""
        with _silence():
            observation, state = self._env.reset_env(key, self._params)
        return state, self._seen(observation)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step:
        """Applies one action."""
        # Version 0.0.9 returns five values, 1.0.1 six: it tells the two ends apart.
        with _silence():
            observation, state, reward, *ends, info = self._env.step_env(
                key, state, action, self._params
            )
        terminated, truncated = (*ends, jnp.zeros((), bool))[:2]
        return state, self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: jax.Array) -> jax.Array:
        observation = observation.astype(self.observation_space.dtype)
        return jnp.moveaxis(observation, -1, 0) if self._is_image else observation


class BraxEnvironment:
    """An environment with Brax's ``State``: Brax, and MuJoCo Playground.

    Args:
        env: ``reset(key)`` and ``step(state, action)`` return a state with ``obs``,
            ``reward``, ``done`` and ``metrics``; actions lie in ±1.
        max_episode_steps: Brax leaves the limit on an episode to wrappers.
        observation: which entry of ``obs``, where it is a dictionary.
    """

    def __init__(
        self, env: Any, max_episode_steps: int, observation: str = "state"
    ) -> None:
        self._env, self._entry = env, observation
        state = jax.eval_shape(env.reset, jax.random.key(0))
        shape = self._seen(state).shape
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,))
        self.max_episode_steps = max_episode_steps
        self.render_fps = round(1 / env.dt)
        self._renderer: Any = None

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Starts an episode."""
        state = self._env.reset(key)
        return state, self._seen(state)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step:
        """Applies one action; Brax keeps its randomness in the state."""
        state = self._env.step(state, action)
        terminated, truncated = state.done.astype(bool), jnp.zeros((), bool)
        return (
            *(state, self._seen(state), state.reward),
            *(terminated, truncated, state.metrics),
        )

    def render(self, state: Any) -> np.ndarray:
        """Draws a state by MuJoCo; a camera that follows the body comes first."""
        mujoco: Any = importlib.import_module("mujoco")
        is_brax = hasattr(state, "pipeline_state")
        model = self._env.sys.mj_model if is_brax else self._env.mj_model
        if self._renderer is None:
            # Gymnasium's takes the OpenGL that there is when it begins; MuJoCo's own
            # takes what there was when the package was imported.
            module = importlib.import_module("gymnasium.envs.mujoco.mujoco_rendering")
            model, data = copy.copy(model), mujoco.MjData(model)
            # Floors have no end in the physics: in the picture it is far away, and
            # their squares stay as large.
            is_floor = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
            model.geom_size[is_floor, :2] *= 10
            materials = np.unique(model.geom_matid[is_floor])
            model.mat_texrepeat[materials[materials >= 0]] *= 10
            follows = model.cam_mode != mujoco.mjtCamLight.mjCAMLIGHT_FIXED
            camera = int(np.argmax(follows)) if follows.any() else -1
            self._renderer = module.MujocoRenderer(
                model, data, width=480, height=480, camera_id=camera
            )
        data = self._renderer.data
        if is_brax:
            data.qpos, data.qvel = state.pipeline_state.q, state.pipeline_state.qd
        else:
            data.qpos, data.qvel = state.data.qpos, state.data.qvel
            data.mocap_pos, data.mocap_quat = (
                state.data.mocap_pos,
                state.data.mocap_quat,
            )
        mujoco.mj_forward(model, data)
        return self._renderer.render("rgb_array")

    def _seen(self, state: Any) -> jax.Array:
        seen = state.obs
        return seen[self._entry] if isinstance(seen, Mapping) else seen


def gymnax(name: str, **kwargs: Any) -> JaxEnvironment:
    """Makes an environment of Gymnax; ``kwargs`` are fields of its parameters."""
    package: Any = importlib.import_module("gymnax")
    _check_known("gymnax", name, package.registered_envs)
    env, params = package.make(name)
    return GymnaxEnvironment(env, params.replace(**kwargs) if kwargs else params)


def brax(name: str, **kwargs: Any) -> JaxEnvironment:
    """Makes an environment of Brax; ``kwargs`` are its own, such as ``backend``."""
    package: Any = importlib.import_module("brax.envs")
    _check_known("brax", name, package._envs)
    return BraxEnvironment(package.get_environment(name, **kwargs), 1000)


def playground(name: str, **kwargs: Any) -> JaxEnvironment:
    """Makes an environment of MuJoCo Playground; ``kwargs`` change its configuration.

    Without a GPU physics are computed by MJX' JAX implementation.
    """
    registry: Any = importlib.import_module("mujoco_playground").registry
    _check_known("playground", name, registry.ALL_ENVS)
    config = registry.get_default_config(name)
    if "impl" in config and jax.default_backend() == "cpu":
        kwargs = {"impl": "jax", **kwargs}
    env = registry.load(name, config_overrides=kwargs)
    return BraxEnvironment(env, int(config.episode_length))


PACKAGES: dict[str, Callable[..., JaxEnvironment]] = {
    "gymnax": gymnax,
    "brax": brax,
    "playground": playground,
}
"""What stands before the colon → what makes its environments."""


def names_package(env_id: str) -> bool:
    """Returns whether an id is one of a package of environments in JAX."""
    return env_id.partition(":")[0] in PACKAGES and ":" in env_id


def make_jax(env_id: str, kwargs: Mapping[str, Any]) -> JaxEnvironment:
    """Makes an environment of a package.

    Args:
        env_id: ``package:NAME``.
        kwargs: arguments of the environment.

    Raises:
        ValueError: the package is not installed or changed its interface, it has no
            such environment, or that does not take the arguments.
    """
    package, _, name = env_id.partition(":")
    try:
        with _silence():
            return PACKAGES[package](name, **kwargs)
    except ImportError as error:
        raise ValueError(
            f"env_id: {env_id} needs a package that is not installed ({error}): pip "
            "install -e '.[jax-envs]'"
        ) from error
    except (AttributeError, TypeError, KeyError) as error:
        given = f" with {dict(kwargs)}" if kwargs else ""
        raise ValueError(
            f"env_id: {env_id}{given} cannot be made "
            f"({type(error).__name__}: {error}); leave out what it does not take, or "
            "install the package's version of the extra jax-envs"
        ) from error


def _check_known(package: str, name: str, known: Sequence[str]) -> None:
    """Rejects an environment that a package does not have."""
    if name not in known:
        close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
        these = close or sorted(known)
        raise ValueError(
            f"env_id: {package} has no environment {name!r}; did you mean "
            f"{', '.join(f'{package}:{each}' for each in these)}?"
        )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps back what a package's code warns or is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _space(space: Any) -> Any:
    """Returns a space of Gymnax's as Gymnasium's."""
    if hasattr(space, "n"):
        return gymnasium.spaces.Discrete(int(space.n))
    shape = tuple(space.shape)
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), shape)
        for bound in (space.low, space.high)
    )
    return gymnasium.spaces.Box(low, high, shape, np.float32)
