"""The device side of a rollout: slots, and the programs that act on them.

A slot holds one member's weights and one policy carry. Three programs, each written
for the slots of one device and mapped over the devices: ``refill`` writes members
into slots, ``act`` advances every slot's policy by one step, ``pack`` keeps a part of
the slots. Each exists in a few widths (slots a device), all compiled at the start.

Programs write into the buffers they are given. What they hold of a slot is therefore
flat, each array of a member or a carry as one axis: where an array has an axis of size
1 (a single attention head, factors of rank 1), XLA (as of JAX 0.10) is unsure of the
order of its axes once the device axis is added, and copies it on the way in and out.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jax_es.es.population import MEAN, Population
from jax_es.rollout.devices import Devices
from jax_es.rollout.memory import num_bytes
from jax_es.rollout.observation_statistics import normalized
from jax_es.types import Policy, PyTree, Variables, needs_reference


class Shared(NamedTuple):
    """What all slots read."""

    population: Population
    """Whose members the slots hold."""
    mean: ArrayLike
    """``[O]`` float32, subtracted from observations."""
    std: ArrayLike
    """``[O]`` float32, which then divides them."""
    clip: ArrayLike
    """``[]`` float32, bound of normalised observations."""
    reference: PyTree = ()
    """``[R, …]`` observations for a ``ReferencePolicy``; ``()`` for others."""

    def seen(self, observation: jax.Array) -> jax.Array:
        """Returns observations as policies see them."""
        return normalized(observation, self.mean, self.std, self.clip)


class Slots(NamedTuple):
    """The device side of the slots; a leading axis ``D`` outside the programs."""

    variables: Variables
    """``[S/D, n]``, each slot's own part of the policy's variables, flat."""
    seed: jax.Array
    """``[S/D]`` int32, the seed of each slot's task."""
    command: PyTree
    """``[S/D]`` float32, the return asked of each slot; ``()`` if none is asked."""
    group: PyTree
    """What the group of members shares that was drawn last (a pair's ε)."""
    group_index: jax.Array
    """``[]`` int32, which group that is; −1 before the first."""


class Refill(NamedTuple):
    """Tasks to write into slots; a leading axis ``D`` outside the programs."""

    count: np.ndarray
    """``[]`` int32, how many of the entries below hold."""
    position: np.ndarray
    """``[S/D]`` int32, the slot's position on its device."""
    member: np.ndarray
    """``[S/D]`` int32, as in :class:`Tasks`."""
    seed: np.ndarray
    """``[S/D]`` int32, as in :class:`Tasks`."""
    command: np.ndarray
    """``[S/D]`` float32, as in :class:`Tasks`; not read where none is asked."""

    @classmethod
    def empty(cls, num_devices: int, width: int) -> "Refill":
        """Returns a refill of nothing."""
        shape = num_devices, width
        return cls(
            np.zeros(num_devices, np.int32),
            *(np.zeros(shape, dtype) for dtype in ("i4", "i4", "i4", "f4")),
        )


class SlotPrograms:
    """The programs for one policy and a number of slots.

    Args:
        policy: written for one member and one environment.
        devices: where to compute.
        width: slots on each device when all are in use.
        observation: shape and dtype of one environment's.
    """

    def __init__(
        self,
        policy: Policy,
        devices: Devices,
        width: int,
        observation: jax.ShapeDtypeStruct,
    ) -> None:
        self._policy = policy
        self._devices = devices
        self._observation_shape = observation.shape
        # Frames stay bytes up to the devices; everything else is float32 there.
        is_image = observation.dtype == np.uint8
        self._observation_dtype = np.uint8 if is_image else np.float32
        self.widths = sorted({-(-width // by) for by in (1, 2, 4, 8)}, reverse=True)
        self._act = devices.map(
            self.act_on_device,
            in_axes=(None, 0, 0, 0, 0, 0),
            donate_argnums=(2,),
        )
        self._refill = devices.map(
            self.refill_on_device, in_axes=(None, 0, 0), donate_argnums=(1,)
        )
        self._pack = devices.map(_pack_on_device, in_axes=(0, 0, 0))
        self._empty = {
            commanded: devices.map(
                functools.partial(self.empty_on_device, width, commanded),
                in_axes=(None, 0),
            )
            for commanded in (False, True)
        }

    def slot_bytes(self, shared: PyTree) -> int:
        """Returns what a slot and its carry take; ``shared`` may be of shapes."""
        one_slot = functools.partial(self.empty_on_device, 1, False)
        return num_bytes(jax.eval_shape(one_slot, shared, jnp.zeros(())))

    def empty(self, shared: Shared, commanded: bool = False) -> tuple[Slots, PyTree]:
        """Allocates slots (full width) and their flat carries on every device.

        Args:
            shared: what all slots read.
            commanded: whether tasks say which return they ask for.
        """
        unused = self._devices.put(np.zeros(self._devices.count))
        return self._empty[commanded](shared, unused)

    def refill(self, shared: Shared, slots: Slots, refill: Refill) -> Slots:
        """Writes members into slots (full width); takes over the buffers of ``slots``.

        Args:
            shared: what all slots read.
            slots: ``[D, S/D, …]``.
            refill: ``[D, …]``, on the host.
        """
        return self._refill(shared, slots, self._devices.put(refill))

    def act(
        self,
        shared: Shared,
        slots: Slots,
        carry: PyTree,
        observation: np.ndarray,
        reward: np.ndarray,
        timestep: np.ndarray,
    ) -> tuple[PyTree, jax.Array]:
        """Advances every slot's policy by one step; takes over the carry's buffers.

        Args:
            shared: what all slots read.
            slots: ``[D, width, …]``.
            carry: ``[D, width, …]``.
            observation: ``[D, width, O]`` or ``[D, width, C, H, W]``, as the
                environment gives it.
            reward: ``[D, width]`` float32, of the previous step.
            timestep: ``[D, width]`` int32, 0 at an episode's first step.

        Returns:
            The next carry, and actions ``[D, width, …]``.
        """
        observation = observation.astype(self._observation_dtype, copy=False)
        inputs = self._devices.put((observation, reward, timestep))
        return self._act(shared, slots, carry, *inputs)

    def pack(
        self, slots: Slots, carry: PyTree, positions: np.ndarray
    ) -> tuple[Slots, PyTree]:
        """Keeps the slots at ``positions`` ``[D, width]`` only, of the next width."""
        positions = positions.astype(np.int32)
        return self._pack(slots, carry, self._devices.put(positions))

    def compile(self, shared: Shared, commanded: bool = False) -> None:
        """Compiles every program in every width, so that nothing has to later."""
        num_devices, full = self._devices.count, self.widths[0]
        slots, carry = self.empty(shared, commanded)
        slots = self.refill(shared, slots, Refill.empty(num_devices, full))
        for width in self.widths:
            lead = (num_devices, width)
            if width < full:
                slots, carry = self.pack(slots, carry, np.zeros(lead))
            carry, _ = self.act(
                shared,
                slots,
                carry,
                np.zeros((*lead, *self._observation_shape), self._observation_dtype),
                np.zeros(lead, np.float32),
                np.zeros(lead, np.int32),
            )

    def act_on_device(
        self,
        shared: Shared,
        slots: Slots,
        carry: PyTree,
        observation: jax.Array,
        reward: jax.Array,
        timestep: jax.Array,
    ) -> tuple[PyTree, jax.Array]:
        """Advances each slot's policy by one step: ``(carry, actions [S/D, …])``."""
        of_all = shared.population.shared()
        member_shapes = jax.eval_shape(self._blank_member, shared)[0]
        carry_shapes = jax.eval_shape(self._policy.initial_carry)

        def act(member, seed, command, carry, observation, reward, timestep):
            asked = (
                {}
                if isinstance(command, tuple)
                else {"command": {"target_return": command}}
            )
            carry, action = self._policy.apply(
                {**of_all, **_shaped(member, member_shapes), **asked},
                _shaped(carry, carry_shapes),
                shared.seen(observation),
                reward,
                timestep == 0,
                jax.random.fold_in(_key(seed), timestep),
            )
            return _flat(carry), action

        own = slots.variables, slots.seed, slots.command
        return jax.vmap(act)(*own, carry, observation, reward, timestep)

    def refill_on_device(self, shared: Shared, slots: Slots, refill: Refill) -> Slots:
        """Writes the members of ``refill`` into their slots, one after the other."""
        population = shared.population
        reference = self._seen_reference(shared)

        def write(i: jax.Array, slots: Slots) -> Slots:
            member, position = refill.member[i], refill.position[i]
            index = member // population.members_per_group
            # The mean needs no ε: the ε at hand is multiplied by 0.
            is_at_hand = (index == slots.group_index) | (member == MEAN)
            group = jax.lax.cond(
                is_at_hand, lambda: slots.group, lambda: population.group(index)
            )
            variables = self._variables(population, group, member, reference)
            return Slots(
                variables=jax.tree.map(
                    lambda buffer, value: buffer.at[position].set(value),
                    slots.variables,
                    _flat(variables),
                ),
                seed=slots.seed.at[position].set(refill.seed[i]),
                command=jax.tree.map(
                    lambda buffer: buffer.at[position].set(refill.command[i]),
                    slots.command,
                ),
                group=group,
                group_index=jnp.where(member == MEAN, slots.group_index, index),
            )

        # A loop of variable length: nothing recompiles, and no padding is computed.
        return jax.lax.fori_loop(0, refill.count, write, slots)

    def empty_on_device(
        self, width: int, commanded: bool, shared: Shared, _: jax.Array
    ) -> tuple[Slots, PyTree]:
        """Allocates ``width`` slots and their policy carries."""

        def repeat(leaf) -> jax.Array:
            return jnp.broadcast_to(leaf, (width, *jnp.shape(leaf)))

        variables, group = self._blank_member(shared)
        slots = Slots(
            variables=jax.tree.map(repeat, _flat(variables)),
            seed=jnp.zeros(width, jnp.int32),
            command=jnp.zeros(width) if commanded else (),
            group=group,
            group_index=jnp.int32(-1),
        )
        return slots, jax.tree.map(repeat, _flat(self._policy.initial_carry()))

    def _blank_member(self, shared: Shared) -> tuple[Variables, PyTree]:
        """Returns the mean's own variables beside a group of zeros, and that group."""
        population = shared.population
        group = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(population.group, jnp.int32(0)),
        )
        reference = self._seen_reference(shared)
        return self._variables(population, group, jnp.int32(MEAN), reference), group

    def _seen_reference(self, shared: Shared) -> PyTree:
        """Returns the reference batch as policies see it, for those that need one."""
        if needs_reference(self._policy):
            return jax.vmap(shared.seen)(shared.reference)
        return ()

    def _variables(
        self,
        population: Population,
        group: PyTree,
        member: jax.Array,
        reference: PyTree,
    ) -> Variables:
        """Returns a member's own part of the policy's variables."""
        own = population.variables(group, member)
        if needs_reference(self._policy):
            prepared = self._policy.prepare({**population.shared(), **own}, reference)
            return {**own, **prepared}
        return own


kept_programs = functools.lru_cache(maxsize=4)(SlotPrograms)
"""The :class:`SlotPrograms` of an earlier call with equal arguments, compiled already.

Not for a policy that reads more than its fields, as code of the user's may.
"""


def _flat(tree: PyTree) -> PyTree:
    """Gives every array but scalars one axis."""
    return jax.tree.map(lambda leaf: jnp.reshape(leaf, (-1,) * (leaf.ndim > 0)), tree)


def _shaped(flat: PyTree, like: PyTree) -> PyTree:
    """Gives what :func:`_flat` returned the shapes of ``like`` back."""
    return jax.tree.map(lambda leaf, shaped: leaf.reshape(shaped.shape), flat, like)


def _key(seed: jax.Array) -> jax.Array:
    """Returns a task's key; the implementation is pinned, so that runs repeat."""
    return jax.random.key(seed, impl="threefry2x32")


def _pack_on_device(
    slots: Slots, carry: PyTree, positions: jax.Array
) -> tuple[Slots, PyTree]:
    """Keeps the slots at ``positions`` only."""

    def keep(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[positions], tree)

    kept = slots._replace(
        variables=keep(slots.variables),
        seed=keep(slots.seed),
        command=keep(slots.command),
    )
    return kept, keep(carry)
