"""Any registered environment, through Gymnasium's own vectorisation.

Gymnasium has no way to leave one ended environment alone while stepping the others:
its autoreset modes restart it, and ``DISABLED`` forbids the step. So each environment
gets a wrapper that is told with its action whether it is to act, and that reports the
end of its episode beside Gymnasium's flags, not in them. An ended environment is then
never touched, and a live one's trajectory cannot depend on it.
"""

import dataclasses
import functools
import multiprocessing
import signal
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker

from jax_es.envs.base import EpisodeVectorEnv, positive_int
from jax_es.envs.faults import CheckedEnv, EnvironmentFailure, being_made

Wrappers = Sequence[Callable[[gymnasium.Env], gymnasium.Wrapper]]

_FASTER = {
    "gymnasium.envs.box2d.bipedal_walker:BipedalWalker": (
        "jax_es.envs.bipedal_walker:FastBipedalWalker"
    )
}


class GymnasiumVectorEnv(EpisodeVectorEnv):
    """``num_envs`` copies of a registered environment.

    One that has ``variations``, name → the number that changes nothing, is varied by
    these names: its ``reset`` finds a row of such numbers, in that order, in
    ``options["variation"]``. One whose ``pays_healthy_reward`` is True reports what it
    pays for staying healthy as ``info["reward_survive"]``.

    Args:
        env_id: a registered id, or ``"module:id"`` to import ``module`` first.
        num_envs: how many environments.
        vectorization_mode: ``"sync"`` steps one after the other in this process;
            ``"async"`` gives each environment its own process, worth it when a step
            takes longer than its messages between processes (0.3 ms on a core).
        num_threads: with ``"async"``, how many processes may step at the same time;
            ``"sync"`` has one.
        max_episode_steps: the limit on an episode; by default the registered one.
        wrappers: functions applied to each environment, first to last.
        descriptor: indices of the numbers in an episode's last observation that
            describe it.
        **env_options: arguments of the environment itself.

    Raises:
        ValueError: the environment has no limit on an episode and none is given, its
            observations are no array and cannot be flattened into one, its actions are
            of another space than ``Box``, ``Discrete``, ``MultiDiscrete`` or
            ``MultiBinary``, or the mode is unknown.
        EnvironmentFailure: here and in every method, if an environment raises, or
            returns what its spaces do not allow (:mod:`jax_es.envs.faults`).
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        vectorization_mode: Literal["sync", "async"] = "sync",
        num_threads: int | None = None,
        max_episode_steps: int | None = None,
        wrappers: Wrappers = (),
        descriptor: Sequence[int] = (),
        **env_options: Any,
    ) -> None:
        """Builds the environments."""
        if max_episode_steps is not None:
            env_options["max_episode_steps"] = positive_int(
                "max_episode_steps", max_episode_steps
            )
        vector_options = _vector_options(vectorization_mode, num_threads)
        num_envs = positive_int("num_envs", num_envs)
        with being_made(env_id, env_options):
            # Always sync or async: a custom vector environment (CartPole has one) may
            # ignore the reset mask.
            self._vector_env: Any = gymnasium.make_vec(
                _faster(env_id),
                num_envs,
                vectorization_mode=vectorization_mode,
                vector_kwargs=vector_options,
                wrappers=(*wrappers, functools.partial(_single, env_id=env_id)),
                **env_options,
            )
        try:
            spaces = _checked_spaces(env_id, self._vector_env)
            limit = max_episode_steps or self._vector_env.spec.max_episode_steps
            if limit is None:
                raise ValueError(
                    f"max_episode_steps: {env_id} has no limit on an episode, which "
                    "may then never end: choose one, such as max_episode_steps 1000"
                )
        except ValueError:
            self._vector_env.close()
            raise
        super().__init__(num_envs, *spaces, limit, descriptor)
        self.spec = self._vector_env.spec
        self.native_observation_space: gymnasium.Space = self._own(
            "native_observation_space"
        )
        self.pays_healthy_reward: bool = self._own("pays_healthy_reward")
        self.variations: Mapping[str, float] = self._own("variations")
        if self.variations:
            self.named_variations = functools.partial(named_rows, self.variations)
        self._all_observed = False
        self._is_varied = False

    def _own(self, name: str) -> Any:
        """Returns what the first environment says of itself."""
        return self._vector_env.get_attr(name)[0]

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments and their processes."""
        self._vector_env.close()

    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        if not mask.any():
            return {}
        all_seeds: list[int | None] = [None] * self.num_envs
        for i, seed in zip(np.flatnonzero(mask), seeds, strict=True):
            all_seeds[i] = seed
        # Gymnasium stacks the observations of all environments, so that each must
        # have been reset once; those outside the first mask still wait for theirs.
        chosen = mask if self._all_observed else np.ones(self.num_envs, bool)
        variation = options.pop("variation", None)
        if variation is not None or self._is_varied:
            # Each environment is to read its own row, and none after that.
            rows = [
                variation[i] if variation is not None and mask[i] else None
                for i in range(self.num_envs)
            ]
            self._vector_env.set_attr("variation", rows)
            self._is_varied = variation is not None
        observations, info = self._vector_env.reset(
            seed=all_seeds, options={**options, "reset_mask": chosen}
        )
        _raise_failure(info)
        np.copyto(self._observations, observations)
        self._all_observed = True
        return info

    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations, rewards, _, _, info = self._vector_env.step(
            (actions, live.astype(np.int64))
        )
        _raise_failure(info)
        np.copyto(self._observations, observations)
        terminated, truncated = (
            self._pop_flags(info, name) for name in (_TERMINATED, _TRUNCATED)
        )
        return rewards, terminated, truncated, info

    def _pop_flags(self, info: dict[str, Any], name: str) -> np.ndarray:
        """Takes a flag of :class:`_StandStill` out of the info dictionary."""
        info.pop(f"_{name}", None)
        return info.pop(name, np.zeros(self.num_envs, bool))


def _faster(env_id: str) -> str | EnvSpec:
    """Returns what has the same numbers in less time, if we have it."""
    spec = gymnasium.registry.get(env_id)
    ours = _FASTER.get(str(spec.entry_point)) if spec else None
    return env_id if ours is None else dataclasses.replace(spec, entry_point=ours)


def named_rows(
    neutral: Mapping[str, float], values: Mapping[str, Any], count: int
) -> np.ndarray:
    """Returns variations ``[count, V]`` by their names.

    Args:
        neutral: name → the number that changes nothing; V of them, in the order of a
            row.
        values: name → a number or ``[count]`` numbers; absent ones are neutral.
        count: of episodes.

    Raises:
        ValueError: there is no such name.

    Example:
        >>> named_rows({"slope": 0.0, "wind": 1.0}, {"wind": [2.0, 3.0]}, 2).tolist()
        [[0.0, 2.0], [0.0, 3.0]]
    """
    for name in values:
        if name not in neutral:
            raise ValueError(f"{name}: expected one of {', '.join(neutral)}")
    columns = [np.broadcast_to(values.get(n, v), count) for n, v in neutral.items()]
    return np.stack(columns, axis=1) * 1.0


def flattened(env: gymnasium.Env) -> gymnasium.Env:
    """Returns an environment that observes an array, if Gymnasium can make one.

    Observations of a ``Dict``, ``Tuple``, ``Discrete``, ``MultiDiscrete`` or
    ``MultiBinary`` are flattened by ``gymnasium.spaces.utils.flatten``: parts one after
    the other in the order of the space (of a dictionary that the space was built from,
    by their names), a ``Box`` row by row, a ``Discrete`` as one number for each of its
    values, 1 for the one that it has. A ``Box`` stays as it is.
    """
    space = env.observation_space
    if isinstance(space, gymnasium.spaces.Box):
        return env
    try:
        flat = gymnasium.spaces.flatten_space(space)
    except NotImplementedError:  # a space of the environment's own
        return env
    is_array = isinstance(flat, gymnasium.spaces.Box)
    return gymnasium.wrappers.FlattenObservation(env) if is_array else env


def _single(env: gymnasium.Env, env_id: str) -> "_StandStill":
    """Wraps one environment."""
    return _StandStill(flattened(env), env_id, env.observation_space)


_TERMINATED = "stand_still/terminated"
_TRUNCATED = "stand_still/truncated"
_FAILURE = "stand_still/failure"


class _StandStill(CheckedEnv):
    """Acts only when told to, and reports an episode's end in the info dictionary.

    Its action is ``(action, live)``. Gymnasium never sees the end of an episode, so
    that it neither restarts the environment nor refuses to go on. Nor does it see a
    failure, which would end its process in several tracebacks.
    """

    def __init__(
        self, env: gymnasium.Env, env_id: str, native: gymnasium.Space
    ) -> None:
        super().__init__(env, env_id)
        self.native_observation_space = native
        self.action_space = gymnasium.spaces.Tuple(
            (env.action_space, gymnasium.spaces.Discrete(2))
        )
        self.variation: Any = None
        varied, pays = (
            env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
            for name in ("variations", "pays_healthy_reward")
        )
        self.variations = dict(varied) if isinstance(varied, Mapping) else {}
        self.pays_healthy_reward = pays is True
        space = env.observation_space
        self._observation: Any = np.zeros(space.shape or (), space.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; the environment reads a variation in its options."""
        if self.variation is not None:
            options = {**(options or {}), "variation": self.variation}
        try:
            self._observation, info = super().reset(seed=seed, options=options)
        except EnvironmentFailure as error:
            info = {_FAILURE: error}
        return self._observation, info

    def step(self, action: tuple[Any, Any]) -> tuple[Any, float, bool, bool, dict]:
        """Steps the environment if ``live``, the second half of the action."""
        action, live = action
        if not live:
            return self._observation, 0.0, False, False, {}
        try:
            result = super().step(action)
        except EnvironmentFailure as error:
            return self._observation, 0.0, False, False, {_FAILURE: error}
        self._observation, reward, terminated, truncated, info = result
        if terminated or truncated:
            info = {**info, _TERMINATED: terminated, _TRUNCATED: truncated}
        return self._observation, reward, False, False, info


def _raise_failure(info: dict[str, Any]) -> None:
    """Raises the first failure that :class:`_StandStill` reported."""
    for error in info.get(_FAILURE, ()):
        if error is not None:
            raise error


def _vector_options(mode: str, num_threads: int | None) -> dict[str, Any]:
    """Returns the arguments of Gymnasium's vector environment."""
    options: dict[str, Any] = {"copy": False, "autoreset_mode": AutoresetMode.DISABLED}
    match mode:
        case "sync":
            return options
        case "async":
            # Never fork this process: JAX's threads do not survive it. A server that
            # has imported the program forks faster than each process imports it.
            methods = multiprocessing.get_all_start_methods()
            options["context"] = "forkserver" if "forkserver" in methods else "spawn"
            options["max_concurrency"] = num_threads
            options["worker"] = _work
            return options
        case _:
            raise ValueError(
                f"vectorization_mode: got {mode!r}, expected 'sync' or 'async'"
            )


def _work(*arguments: Any) -> None:
    """Does an environment's work in its own process; Ctrl-C is the program's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _async_worker(*arguments)


def _checked_spaces(
    env_id: str, vector_env: gymnasium.vector.VectorEnv
) -> tuple[gymnasium.spaces.Box, gymnasium.Space]:
    """Returns one environment's spaces, if policies can observe and act in them."""
    observation_space = vector_env.single_observation_space
    action_space: Any = vector_env.single_action_space
    action_space = action_space[0]  # the wrapper's is a pair
    if not isinstance(observation_space, gymnasium.spaces.Box):
        got = textwrap.shorten(str(observation_space), 150)
        raise ValueError(
            f"env_id: {env_id} observes {got}, which Gymnasium cannot flatten into an "
            "array: add --env.wrappers module:Name, a wrapper whose observations are "
            "numbers (minigrid.wrappers:FlatObsWrapper, for MiniGrid)"
        )
    kinds = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
    if not isinstance(action_space, tuple(getattr(gymnasium.spaces, k) for k in kinds)):
        raise ValueError(
            f"env_id: {env_id} acts in {action_space}, expected a Box, Discrete, "
            "MultiDiscrete or MultiBinary: add a wrapper that transforms actions "
            "(--env.wrappers module:Name)"
        )
    return observation_space, action_space
