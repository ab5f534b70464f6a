"""Environments written in JAX: what they are here, and how they are stepped by hand.

An environment in JAX is written for one episode and one step, and compiles together
with policies (``jax_es/rollout/jax_engine.py``). It has

- ``reset(key) → (state, observation)``;
- ``step(state, action, key) → (state, observation, reward, terminated, truncated,
  info)``, arrays of one environment, ``info`` a dictionary of scalars;
- ``observation_space`` and ``action_space`` of Gymnasium;
- ``max_episode_steps``;
- if it can be drawn, ``render(state) → [H, W, 3]`` uint8 on the host, and perhaps
  ``render_fps``. Observations that are images need none.

``jax_packages.py`` makes those of packages, ``module:Name`` is one of the user's own.
These two are the only files of ``envs`` that may import JAX.
"""

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jax_es.envs.base import EpisodeVectorEnv

Step: TypeAlias = tuple[
    Any, jax.Array, jax.Array, jax.Array, jax.Array, Mapping[str, jax.Array]
]
"""State, observation, reward, terminated, truncated, info."""

_RESET, _STEPS = 2**31 - 1, 2**31 - 2
"""What a task's key is folded with for its environment. Policies fold in the timestep,
which never grows so large."""


@runtime_checkable
class JaxEnvironment(Protocol):
    """One environment; pure functions, which callers ``jax.vmap`` over episodes."""

    observation_space: Any
    """A ``Box``: vectors ``[O]``, or images ``[C, H, W]``."""
    action_space: Any
    """As policies act: a ``Box`` of vectors, or ``Discrete``."""
    max_episode_steps: int
    """Steps after which an episode is truncated by whoever runs it."""

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Starts an episode; ``key`` is consumed. Returns state and observation."""
        ...

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step:
        """Applies one action; ``key`` is this step's randomness."""
        ...


class FlatEnvironment:
    """Another environment, whose observations become vectors ``[O]``.

    What ``gymnasium.wrappers.FlattenObservation`` does to Gymnasium's.

    Args:
        env: has observations of any shape.
    """

    def __init__(self, env: JaxEnvironment) -> None:
        self._env, seen = env, env.observation_space
        self.native_observation_space = seen
        low, high = np.ravel(seen.low), np.ravel(seen.high)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=seen.dtype)
        self.action_space = env.action_space
        self.max_episode_steps = env.max_episode_steps

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Starts an episode."""
        state, observation = self._env.reset(key)
        return state, observation.ravel()

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step:
        """Applies one action."""
        stepped = self._env.step(state, action, key)
        return (stepped[0], stepped[1].ravel(), *stepped[2:])

    def __getattr__(self, name: str) -> Any:
        """Returns what else the environment has."""
        return getattr(self._env, name)


class JaxVectorEnv(EpisodeVectorEnv):
    """Environments in JAX as a vector environment, for whoever steps them by hand.

    Training runs :attr:`environment` inside its own program instead.

    Args:
        environment: what each of them is.
        num_envs: how many environments run side by side.
        max_episode_steps: the limit on an episode; by default the environment's own.
        descriptor: which numbers of an episode's last observation describe it.
    """

    def __init__(
        self,
        environment: JaxEnvironment,
        num_envs: int,
        max_episode_steps: int | None = None,
        descriptor: Sequence[int] = (),
    ) -> None:
        seen: Any = environment.observation_space
        limit = environment.max_episode_steps
        super().__init__(
            num_envs,
            seen,
            environment.action_space,
            limit if max_episode_steps is None else max_episode_steps,
            descriptor,
        )
        self.environment = environment
        self.native_observation_space = getattr(
            environment, "native_observation_space", None
        )
        self.descriptor = tuple(descriptor)
        self._rng = np.random.default_rng()
        self._seeds = np.zeros(num_envs, np.int32)
        self._state: Any = None
        self._start_all = jax.jit(jax.vmap(self.start))
        self._advance_all = jax.jit(jax.vmap(self.advance))

    def start(self, seed: jax.Array) -> tuple[Any, jax.Array]:
        """Starts one episode: a pure function, to be compiled with others.

        Args:
            seed: ``[]`` int32.
        """
        return self.environment.reset(_key(seed, _RESET))

    def advance(
        self, state: Any, action: jax.Array, seed: jax.Array, timestep: jax.Array
    ) -> Step:
        """Applies one action in one episode: a pure function, as :meth:`start`."""
        key = jax.random.fold_in(_key(seed, _STEPS), timestep)
        return self.environment.step(state, action, key)

    @property
    def state(self) -> Any:
        """The first environment's."""
        return jax.tree.map(lambda leaf: leaf[0], self._state)

    @property
    def pays_healthy_reward(self) -> bool:
        """Whether steps say what they pay for staying healthy."""
        return "reward_survive" in info_shapes(self.environment)

    def report(self, names: Sequence[str]) -> None:
        """Checks that steps put numbers of these names into ``info``.

        Raises:
            ValueError: one is missing.
        """
        known = info_shapes(self.environment)
        for name in names:
            if name not in known:
                raise ValueError(
                    f"the environment reports no {name!r}; it reports "
                    f"{', '.join(sorted(known)) or 'nothing'}"
                )

    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        if options:
            raise ValueError(
                f"options: got {', '.join(options)}, which environments in JAX do not "
                "know; leave it out"
            )
        drawn = self._rng.integers(2**31, size=len(seeds))
        self._seeds[mask] = [
            own if seed is None else seed
            for seed, own in zip(seeds, drawn, strict=True)
        ]
        state, observation = self._start_all(self._seeds)
        self._keep(state, observation, mask)
        return {}

    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        timesteps = self._elapsed.astype(np.int32)
        state, observation, reward, terminated, truncated, info = self._advance_all(
            self._state, actions, self._seeds, timesteps
        )
        rows = np.asarray(observation).reshape(self.num_envs, -1)
        failed = ~np.isfinite(rows).all(axis=1) | ~np.isfinite(reward)
        self._keep(state, observation, live)
        reward = np.where(failed, np.nan, reward)
        ends = np.asarray(terminated) | failed, np.asarray(truncated)
        told = {name: np.asarray(value, np.float64) for name, value in info.items()}
        return reward, *ends, {**told, "simulation_failed": failed & live}

    def _keep(self, state: Any, observation: Any, mask: np.ndarray) -> None:
        """Keeps what became of some of the environments."""

        def chosen(new: jax.Array, old: jax.Array) -> jax.Array:
            rows = mask.reshape(-1, *(1,) * (new.ndim - 1))
            return jnp.where(rows, new, old)

        before = state if self._state is None else self._state
        self._state = jax.tree.map(chosen, state, before)
        self._observations[mask] = np.asarray(observation)[mask]


class JaxEpisode(gymnasium.Env):
    """One environment in JAX with Gymnasium's methods, to be watched.

    Args:
        env: the vector environment, of one.

    Raises:
        ValueError: it cannot be drawn.
    """

    def __init__(self, env: JaxVectorEnv) -> None:
        self._env, environment = env, env.environment
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.metadata = {"render_fps": getattr(environment, "render_fps", 10)}
        seen: Any = env.native_observation_space or self.observation_space
        self._image = seen.shape if len(seen.shape) == 3 else None
        self._render = getattr(environment, "render", None)
        if self._image is None and self._render is None:
            raise ValueError(
                "it has no render(state) → [H, W, 3] uint8, and its observations are "
                "no images [C, H, W]"
            )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Starts an episode."""
        self._seen, info = self._env.reset(seed=[seed], options=options)
        return self._seen[0].copy(), info

    def step(self, action: Any) -> Any:
        """Applies one action."""
        self._seen, *outcome, _ = self._env.step(np.asarray(action)[None])
        return (self._seen[0].copy(), *(each[0] for each in outcome), {})

    def render(self) -> Any:
        """Draws the present state; of an image, a colour for each channel."""
        if self._render is not None:
            return np.asarray(self._render(self._env.state))
        grid = self._seen.reshape(self._image)
        hues = np.arange(len(grid)) / len(grid)
        colours = np.array([colorsys.hsv_to_rgb(hue, 0.7, 1.0) for hue in hues])
        brightness = np.clip(grid.max(axis=0), 0, 1)[..., None]
        frame = 255 * brightness * colours[grid.argmax(axis=0)]
        size = max(1, 320 // max(frame.shape))
        return frame.astype(np.uint8).repeat(size, axis=0).repeat(size, axis=1)


def check(environment: JaxEnvironment, name: str) -> None:
    """Rejects an environment whose methods return something else than they should.

    Raises:
        ValueError: naming the environment and what it returned.
    """

    def require(holds: bool, says: str) -> None:
        if not holds:
            raise ValueError(f"env_id: {name}: {says}")

    key, space = jax.random.key(0), environment.action_space
    started = jax.eval_shape(environment.reset, key)
    is_pair = isinstance(started, tuple) and len(started) == 2
    require(is_pair, "reset must return (state, observation)")
    action = jnp.asarray(np.zeros(space.shape or (), space.dtype))
    stepped = jax.eval_shape(environment.step, started[0], action, key)
    require(
        isinstance(stepped, tuple) and len(stepped) == 6,
        "step must return (state, observation, reward, terminated, truncated, info)",
    )
    state, _, reward, terminated, truncated, info = stepped
    shape = environment.observation_space.shape
    for method, seen in (("reset", started[1]), ("step", stepped[1])):
        require(
            getattr(seen, "shape", None) == shape,
            f"{method} must return an observation of observation_space's shape "
            f"{shape}, got {getattr(seen, 'shape', type(seen).__name__)}",
        )
    for number in (reward, terminated, truncated):
        require(
            getattr(number, "shape", None) == (),
            "step must return reward, terminated and truncated as single numbers",
        )
    require(isinstance(info, Mapping), "step must return info as a dictionary")
    before, after = (
        jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (started[0], state)
    )
    require(before == after, "step must return a state like that of reset")


def info_shapes(environment: JaxEnvironment) -> Mapping[str, Any]:
    """Returns shapes and types of what a step puts into ``info``."""

    def info(key: jax.Array) -> Mapping[str, jax.Array]:
        state, _ = environment.reset(key)
        space = environment.action_space
        action = jnp.asarray(np.zeros(space.shape or (), space.dtype))
        return environment.step(state, action, key)[-1]

    return jax.eval_shape(info, jax.random.key(0))


def _key(seed: jax.Array, purpose: int) -> jax.Array:
    """Returns a task's key for its environment; the implementation is pinned."""
    key = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(key, purpose)
