"""From a run on disk to a policy that acts, with no knowledge of ES."""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.config import EnvConfig
from jax_es.rollout.observation_statistics import (
    ObservationStatistics,
    View,
    initial_statistics,
    normalized,
    view_of,
)
from jax_es.runs.checkpoint import CheckpointError
from jax_es.runs.exported import local_folder, restore
from jax_es.runs.find import find_run
from jax_es.runs.method import OPENAI_ES, Method
from jax_es.runs.state_arrays import like_template
from jax_es.runs.trust import check_imports
from jax_es.train_config import TrainConfig, differences, in_own_physics, policy_kind
from jax_es.training.build import make_env, make_policy, with_game
from jax_es.training.single_env import is_single
from jax_es.types import Policy, PyTree, needs_reference


class TrainedMean(NamedTuple):
    """The mean policy of a checkpoint, and how it sees observations."""

    config: TrainConfig
    """The run's configuration, without coarse physics."""
    mean: PyTree
    """θ, as the policy's ``"params"``; NumPy arrays."""
    statistics: ObservationStatistics | None
    """For normalising observations; None if the run used none."""
    generation: int
    """Updates that led to θ."""
    reference: PyTree = ()
    """``[R, …]``, of a policy that needs a reference batch; ``()`` for others."""
    method: Method = OPENAI_ES
    """How the run was trained."""
    path: Path = Path()
    """The run's folder, if it was read from one."""
    changed: Mapping[str, Any] = MappingProxyType({})
    """Where it acts elsewhere: what of its configuration is not the run's, by dotted
    name."""

    def state(self) -> PyTree:
        """Returns all that it acts with, laid out as in a checkpoint."""
        parts: dict[str, PyTree] = {
            "es": {"mean": self.mean, "generation": np.int32(self.generation)},
            "reference": self.reference,
        }
        if self.statistics is not None:
            parts["observation_statistics"] = self.statistics._asdict()
        return parts

    def in_environment(
        self, changed: Callable[[EnvConfig], EnvConfig]
    ) -> "TrainedMean":
        """Returns the policy, to act elsewhere; whether it can is not checked.

        What its episodes varied in training may not be there, and is left out.
        """
        env = changed(self.config.env)
        config = with_game(dataclasses.replace(self.config, env=env))
        new = {name: new for name, (_, new) in differences(self.config, config).items()}
        rollout = dataclasses.replace(config.rollout, variation_range=())
        return self._replace(
            config=dataclasses.replace(config, rollout=rollout), changed=new
        )

    def named_changes(self) -> str:
        """Returns what was changed about its environment, by dotted names."""
        return ", ".join(f"{name} {new}" for name, new in self.changed.items())

    def view(self) -> View:
        """Returns how the policy sees observations."""
        return view_of(self.config, self.statistics, self.reference)


def load_mean(
    run: str | os.PathLike[str], checkpoint: str | int = "best", trust: bool = False
) -> TrainedMean:
    """Reads the mean policy of a run, to act in its task's own physics.

    Args:
        run: the run's folder, ``runs/<name>``, or an exported one.
        checkpoint: ``"best"`` (highest evaluation return), ``"last"`` or a number of
            finished generations.
        trust: whether the modules of its environment (``module:id``) and its policy
            may be imported.

    Raises:
        ConfigError: if the folder is no run, or names a module that is not trusted.
        CheckpointError: if the checkpoint is missing or damaged.
    """
    directory = find_run(local_folder(run))
    config, method = in_own_physics(directory.config()), directory.method()
    check_imports(config, directory.path, trust)
    restored = restore(directory, checkpoint)
    state, statistics = restored.state, None
    try:
        mean = state["es"]["mean"]
        if config.rollout.observation_statistics:
            statistics = ObservationStatistics(**state["observation_statistics"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"checkpoint {checkpoint} of {directory.path} is not a training state of "
            f"jax-es (no {error}); choose another checkpoint."
        ) from error
    reference, step = state.get("reference", ()), restored.step
    path = directory.path
    return TrainedMean(config, mean, statistics, step, reference, method, path)


class LoadedPolicy:
    """A trained policy acting on batches of observations.

    It remembers what its network remembers (a Decision Transformer its context), for
    as many environments as the observations it is given have rows.

    Example::

        policy = jax_es.load_policy("runs/quickstart")
        print(policy)  # which network, for which task, trained by what
        env = gymnasium.make(policy.env_id, **policy.env_options)
        observation, _ = env.reset(seed=0)
        policy.reset()
        reward, done = 0.0, False
        while not done:
            action = policy(observation, reward)
            observation, reward, terminated, truncated, _ = env.step(action)
            done = terminated or truncated

    Attributes:
        env_id: the environment it was trained on.
        env_options: arguments of ``gymnasium.make`` for the same task, such as
            ``max_episode_steps``; on Atari, of
            ``jax_es.envs.atari_env.make_single_atari_env``.
        generation: the updates it has had.
    """

    def __init__(
        self,
        policy: Policy,
        trained: TrainedMean,
        observation_space: gymnasium.Space,
        seed: int = 0,
    ) -> None:
        """Prepares a policy; see :func:`load_policy`."""
        observation_shape = observation_space.shape or ()
        self._is_image = observation_space.dtype == np.uint8
        self.env_id = trained.config.env.id
        self.env_options = trained.config.env.options
        self.generation = trained.generation
        self._policy = policy
        self._config = trained.config
        self._extra_return = 0.0
        self._observation_shape = observation_shape
        self._variables = {"params": jax.tree.map(jnp.asarray, trained.mean)}
        self._normalizer = trained.view().normalizer(
            observation_shape, observation_space.dtype
        )
        if needs_reference(policy):
            reference = normalized(jnp.asarray(trained.reference), *self._normalizer)
            self._variables |= policy.prepare(self._variables, reference)
        count = sum(np.size(leaf) for leaf in jax.tree.leaves(trained.mean))
        self._repr = (
            f"LoadedPolicy({policy_kind(trained.config.policy)} for {self.env_id}: "
            f"{count:,} parameters, checkpoint {self.generation} of "
            f"{trained.method.title})"
        )
        self._act = jax.jit(self._act_batch)
        # The implementation is pinned, so that sampled actions repeat.
        self._key = jax.random.key(seed, impl="threefry2x32")
        self._num_calls = 0
        self.reset()

    def __repr__(self) -> str:
        return self._repr

    def reset(self) -> None:
        """Forgets everything: the next call is the first step of new episodes."""
        self._carry: PyTree = None
        self._num_envs = 0

    def ask(self, target_return: float) -> None:
        """Asks for an episode return, in the environment's unit, from now on.

        In the middle of an episode, what remains to be returned changes by as much as
        the return that is asked for.

        Raises:
            ConfigError: (a ``ValueError``) if the policy cannot be asked, or not for
                this.
        """
        check_asked(self._policy, self._config)
        require(
            bool(np.isfinite(target_return)),
            f"target_return must be finite, got {target_return}; ask for one that was "
            "trained on.",
        )
        asked = getattr(self._config.policy, "target_return", 0.0)
        asked = self._variables.get("command", {}).get("target_return", asked)
        self._extra_return += float(target_return - asked)
        command = {"target_return": jnp.float32(target_return)}
        self._variables = {**self._variables, "command": command}

    def __call__(
        self, observation: Any, reward: Any = 0.0, first: Any = False
    ) -> np.ndarray:
        """Acts.

        Args:
            observation: ``[B, O]``, or ``[O]`` for a single environment (images:
                ``[B, C, H, W]`` or ``[C, H, W]``); as the environment gives it, not
                normalised. Of spaces that are no array (``Dict``, ``Tuple``,
                ``Discrete`` …) what a single environment gives, or rows that
                ``gymnasium.spaces.utils.flatten`` made of it.
            reward: ``[B]`` or one number, received for the previous action. Policies
                that are told a return to reach need it; others ignore it.
            first: ``[B]`` or one bool, where an episode begins. After :meth:`reset`
                this argument is ignored, and all do.

        Returns:
            Actions ``[B, A]`` (``[B]`` if ``Discrete``), without ``B`` for a single
            one.

        Raises:
            ValueError: if ``B`` changes without a :meth:`reset`, or the observation is
                not one of the environment's.
        """
        observation = self._checked(self._as_array(observation))
        is_single = observation.shape == self._observation_shape
        batch = observation[None] if is_single else observation
        if self._carry is None:
            self._num_envs, first = len(batch), True
            self._carry = jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (len(batch), *jnp.shape(leaf))),
                self._policy.initial_carry(),
            )
        if len(batch) != self._num_envs:
            raise ValueError(
                f"observation has {len(batch)} rows where earlier ones had "
                f"{self._num_envs}; call reset() before acting in other environments."
            )
        # A policy counts down from its command by rewards: to pay less adds to what
        # remains. Where an episode begins, it reads the command and no reward.
        reward = np.asarray(reward, np.float32) - np.float32(self._extra_return)
        self._extra_return = 0.0
        self._carry, action = self._act(
            self._variables,
            self._carry,
            batch,
            np.broadcast_to(reward, self._num_envs),
            np.broadcast_to(np.asarray(first, bool), self._num_envs),
            self._key,
            np.uint32(self._num_calls),
        )
        self._num_calls += 1
        action = np.asarray(action)
        return action[0] if is_single else action

    def _as_array(self, observation: Any) -> np.ndarray:
        """Flattens what an environment gives whose observations are no array."""
        shape = self._observation_shape
        is_structured = isinstance(observation, Mapping | tuple)
        if not is_structured and np.shape(observation)[-len(shape) :] == shape:
            return np.asarray(observation)
        space = self._native_space
        if isinstance(space, gymnasium.spaces.Box):
            batch = np.asarray(observation)
            ends = batch.ndim - len(space.shape)
            if space.shape == shape or batch.shape[ends:] != space.shape or ends > 1:
                return batch
            return batch.reshape(*batch.shape[:ends], *shape)  # flattened in training
        try:
            require(is_single(space, observation), "it is a batch, or out of range")
            return np.asarray(gymnasium.spaces.flatten(space, observation))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ValueError(
                f"observation is none of {space}; pass what {self.env_id} gives, or "
                f"for B environments an array (B, *{shape}) of such, flattened."
            ) from error

    @functools.cached_property
    def _native_space(self) -> gymnasium.Space:
        """What the environment observes before it is flattened."""
        with contextlib.closing(make_env(self._config.env, 1, 1)) as env:
            native = getattr(env, "native_observation_space", None)
            return env.single_observation_space if native is None else native

    def _checked(self, observation: np.ndarray) -> np.ndarray:
        """Returns observations in the type that the network was trained on."""
        shape = self._observation_shape
        if observation.shape[-len(shape) :] != shape or observation.ndim > 1 + len(
            shape
        ):
            raise ValueError(
                f"observation has the shape {observation.shape}, expected {shape}, or "
                f"(B, *{shape}) for B environments; pass what {self.env_id} gives."
            )
        if not self._is_image:
            require(
                observation.dtype.kind in "biuf",
                f"observation is {observation.dtype}, expected real numbers; pass what "
                f"{self.env_id} gives.",
            )
            return observation.astype(np.float32)
        if observation.dtype != np.uint8:
            raise ValueError(
                f"observation is {observation.dtype}, expected uint8, the pixels as "
                f"{self.env_id} gives them; do not scale them."
            )
        return observation

    # Keys are drawn in here: one by one, JAX's calls took longer than the policy.
    def _act_batch(self, variables, carry, observations, rewards, firsts, key, call):
        # Of a single environment, as in rollouts: the first episode is the one that a
        # task of this seed has.
        key, count = jax.random.fold_in(key, call), len(observations)
        keys = key[None] if count == 1 else jax.random.split(key, count)

        def act(carry, observation, *inputs):
            seen = normalized(observation, *self._normalizer)
            return self._policy.apply(variables, carry, seen, *inputs)

        return jax.vmap(act)(carry, observations, rewards, firsts, keys)


def load_policy(
    run: str | os.PathLike[str],
    checkpoint: str | int = "best",
    seed: int = 0,
    trust: bool = False,
) -> LoadedPolicy:
    """Loads a run's mean policy.

    Args:
        run: the run's folder, ``runs/<name>``, one that ``jax-es export`` wrote, or
            ``hf://owner/name`` for such a one on the Hugging Face hub.
        checkpoint: ``"best"``, ``"last"`` or a number of finished generations.
        seed: for policies that sample their actions.
        trust: whether the modules that it names (``module:id`` of its environment, its
            network's) may be used; what this process named itself always may.

    Raises:
        ValueError: if the run, its environment or the checkpoint cannot be read.
    """
    return acting(load_mean(run, checkpoint, trust), seed)


def acting(trained: TrainedMean, seed: int = 0) -> LoadedPolicy:
    """Returns a policy that acts as :func:`load_policy`'s.

    Raises:
        CheckpointError: if it does not fit its environment.
    """
    observation_space, action_space = spaces(trained.config)
    policy = make_policy(trained.config.policy, observation_space, action_space)
    check_fits(trained, policy, observation_space)
    return LoadedPolicy(policy, trained, observation_space, seed)


def check_asked(policy: Policy, config: TrainConfig) -> None:
    """Raises ``ConfigError`` unless a policy can be asked for a return."""
    require(
        getattr(policy, "reads_command", False),
        f"policy {policy_kind(config.policy)} has no target return; choose a "
        "decision-transformer, or train another network with --policy.target-return.",
    )


def check_fits(
    trained: TrainedMean, policy: Policy, observation_space: gymnasium.Space
) -> None:
    """Checks that a checkpoint is of the run's own network and environment.

    Raises:
        CheckpointError: if not: it was copied from another run.
    """
    try:
        like_template(trained.mean, jax.eval_shape(policy.init, jax.random.key(0)))
    except ValueError as error:
        raise CheckpointError(
            f"the checkpoint is of another network than the run's config.json: it "
            f"{error}, or choose another checkpoint."
        ) from error
    shape = observation_space.shape or ()
    of_run = initial_statistics(math.prod(shape))
    if [*map(np.shape, trained.statistics or of_run)] != [*map(np.shape, of_run)]:
        raise CheckpointError(
            f"the observation statistics of {trained.path} are not of observations of "
            f"the shape {shape}, which {trained.config.env.id} gives; choose another "
            "checkpoint."
        )
    if needs_reference(policy):
        size = policy.reference_size
        if np.shape(trained.reference) != (size, *shape):
            raise CheckpointError(
                f"{trained.path} has no reference batch of {size} observations of the "
                f"shape {shape}, which its policy needs; choose another checkpoint."
            )


def spaces(config: TrainConfig) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Returns the observation and action space of one environment."""
    with contextlib.closing(make_env(config.env, num_envs=1, num_threads=1)) as env:
        return env.single_observation_space, env.single_action_space
