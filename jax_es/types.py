"""Contracts between the rooms of this library, and the letters its docs use.

Shape letters, the same in every docstring: ``N`` antithetic pairs, ``P = 2N``
members, ``E`` episodes (tasks), ``T`` steps, ``K`` context length, ``S`` slots,
``D`` devices, ``O`` and ``A`` sizes of an observation and of an action.

``models``, ``envs`` and ``jax_es`` meet here, by structure: a class in ``models``
or ``envs`` fulfils one of these protocols without importing it.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import jax
import numpy as np

PyTree: TypeAlias = Any
"""A nest of arrays that ``jax.tree`` understands."""

Variables: TypeAlias = Mapping[str, PyTree]
"""Flax collections by name: always ``"params"``; a noise family may add others."""


@runtime_checkable
class Policy(Protocol):
    """One member acting in one environment, step by step.

    Every policy is recurrent by contract. A feed-forward network has an empty carry,
    a Decision Transformer carries its context. Nothing here is batched: callers
    ``jax.vmap`` over members and environments.
    """

    def init(self, key: jax.Array) -> PyTree:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        ...

    def initial_carry(self) -> PyTree:
        """Returns the carry before the first step of an episode."""
        ...

    def apply(
        self,
        variables: Variables,
        carry: PyTree,
        observation: jax.Array,
        reward: jax.Array,
        first: jax.Array,
        key: jax.Array,
    ) -> tuple[PyTree, jax.Array]:
        """Chooses the action of one step.

        Args:
            variables: Flax collections, ``{"params": θ}`` for the mean policy.
            carry: what the previous step returned. Where ``first`` is true its
                contents are ignored, whatever they are.
            observation: ``[O]``, already normalised.
            reward: ``[]`` float32, received for the previous action (ignored where
                ``first``), in the environment's own unit.
            first: ``[]`` bool, whether this is an episode's first step.
            key: this step's randomness; deterministic policies ignore it.

        Returns:
            The next carry, and the action in the environment's own unit: ``[A]``
            float32 for a ``Box``, ``[]`` int32 for a ``Discrete`` space.
        """
        ...


@runtime_checkable
class ReferencePolicy(Policy, Protocol):
    """A policy that must see a reference batch before a member can act.

    What :meth:`prepare` returns joins the member's variables for all its episodes.
    """

    @property
    def reference_size(self) -> int:
        """Observations in the reference batch (R); 0 if none is needed after all."""
        ...

    def prepare(self, variables: Variables, reference: jax.Array) -> Variables:
        """Returns further collections for one member.

        Args:
            variables: as in :meth:`Policy.apply`, without those collections.
            reference: ``[R, …]``, observations normalised as those of
                :meth:`Policy.apply`.
        """
        ...


def needs_reference(policy: Policy) -> TypeGuard[ReferencePolicy]:
    """Returns whether a policy's members must see a reference batch."""
    return isinstance(policy, ReferencePolicy) and policy.reference_size > 0


@runtime_checkable
class ClonablePolicy(Policy, Protocol):
    """A policy that can learn by gradients to act as in recorded episodes."""

    @property
    def window_length(self) -> int:
        """Successive steps of an episode that it learns from at once (T)."""
        ...

    def imitation_loss(
        self,
        variables: Variables,
        returns_to_go: jax.Array,
        observations: jax.Array,
        actions: jax.Array,
        timesteps: jax.Array,
        dropout: float = 0.0,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Says how far its actions are from the recorded ones, step by step.

        A step's loss depends on that step and earlier ones only, except for the last
        timestep: some networks tell it to the whole window.

        Args:
            variables: as in :meth:`Policy.apply`.
            returns_to_go: ``[T]``, undiscounted sums of the rewards to come, in the
                environment's own unit.
            observations: ``[T, …]``, already normalised.
            actions: ``[T, A]`` or ``[T]``, recorded, in the environment's own unit.
            timesteps: ``[T]`` int32, indices in the episode.
            dropout: share to drop at random in training; networks that know no dropout
                ignore it.
            key: consumed by dropout; without it nothing is dropped.

        Returns:
            ``[T]`` losses, differentiable in ``variables``.
        """
        ...


class VectorEnv(Protocol):
    """``gymnasium.vector.VectorEnv`` with autoreset disabled, plus :meth:`halt`.

    ``num_envs``, ``single_observation_space``, ``single_action_space`` and
    ``action_space`` mean what they mean in Gymnasium. An ended environment stands
    still until its next reset: :meth:`step` ignores its action, repeats its last
    observation and pays 0.

    One that describes what episodes did has ``descriptor_size`` (B) and a method
    ``descriptors() → [num_envs, B]``, read as episodes end. One that pays for staying
    healthy has a true ``pays_healthy_reward``, and says how much in
    ``info["reward_survive"]``, ``[num_envs]``. One whose variations have names has
    ``variations``, name → the number that changes nothing, and
    ``named_variations(values, count) → [count, V]``, rows of ``"variation"`` from name
    → a number or ``[count]`` numbers, and raises ``ValueError`` for what it lacks.
    """

    num_envs: int
    single_observation_space: Any
    single_action_space: Any
    action_space: Any

    @property
    def max_episode_steps(self) -> int:
        """The environment's own limit on an episode, in environment steps."""
        ...

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts episodes.

        Args:
            seed: an ``[num_envs]`` integer array, a list or one integer (environment
                ``i`` then gets ``seed + i``). Entries outside the mask are ignored.
            options: ``{"reset_mask": mask}``, ``[num_envs]`` bool, says which
                environments to reset; all without it. ``"variation"``,
                ``[num_envs, V]``, says how each differs from its ordinary self, for
                environments that can.

        Returns:
            Observations ``[num_envs, O]`` of all environments (those outside the mask
            unchanged), and an info dictionary.
        """
        ...

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Applies one action to every environment that has not ended.

        Returns:
            Observations ``[num_envs, O]``, rewards ``[num_envs]`` float64,
            ``terminated`` and ``truncated`` ``[num_envs]`` bool, info. An episode
            whose simulation failed ends (``terminated``) with reward NaN. The arrays
            may be reused by the next call: copy what must last.
        """
        ...

    def halt(self, mask: np.ndarray) -> None:
        """Ends episodes from outside: those environments wait for their next reset."""
        ...

    def close(self) -> None:
        """Releases threads, processes and windows."""
        ...
