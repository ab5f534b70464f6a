"""From a run on disk to a policy that acts, with no knowledge of ES."""

import contextlib
import functools
import os
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.rollout.observation_statistics import normalized
from jax_es.train_config import policy_kind
from jax_es.training.build import make_env, make_policy
from jax_es.training.single_env import is_single
from jax_es.training.trained_mean import (
    TrainedMean,
    check_asked,
    check_fits,
    load_mean,
    spaces,
)
from jax_es.types import Policy, PyTree, needs_reference


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
