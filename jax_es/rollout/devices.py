"""The population over the local devices: the only file that knows ``jax.pmap``.

On a CPU machine "devices" are XLA host devices, one per core: XLA runs a program of
small matrix products on one core, so two devices side by side use two.

Arrays that differ by device have a leading axis ``D`` and live one slice a device;
what all devices share (θ, statistics) is passed unmapped.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jax_es.checks import ConfigError, require
from jax_es.envs.base import available_cores
from jax_es.rollout.memory import memory_limit
from jax_es.types import PyTree


def configure_cpu_devices(num_devices: int | None = None) -> None:
    """Makes JAX show one CPU device per core. Call it before the first use of JAX.

    Args:
        num_devices: how many; :func:`available_cores` if not given. Where JAX has
            started already its devices are left as they are.
    """
    # JAX has already started: its devices are kept.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", num_devices or available_cores())


def use_cores(num_devices: int | None = None) -> None:
    """Does what :func:`configure_cpu_devices` does, unless it was called before."""
    if jax.config.values["jax_num_cpu_devices"] == -1:
        configure_cpu_devices(num_devices)


def use_compilation_cache() -> None:
    """Keeps compiled programs on disk, so that only a first start compiles them.

    They are in ``~/.cache/jax-es``, unless JAX has a cache already
    (``JAX_COMPILATION_CACHE_DIR``).
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    cache = Path.home() / ".cache" / "jax-es"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def local_devices() -> list[Any]:
    """Starts JAX, if it has not started, and returns its devices.

    Raises:
        ConfigError: it does not start, or would refuse what optax and evosax do.
    """
    config: Any = jax.config
    setting = config.jax_numpy_dtype_promotion
    promotion = getattr(setting, "value", setting)
    require(
        promotion == "standard",
        f"JAX_NUMPY_DTYPE_PROMOTION must be standard, got {promotion}: optax and "
        "evosax mix types; unset it.",
    )
    try:
        return jax.local_devices()
    except (RuntimeError, AssertionError) as error:
        platforms = config.jax_platforms
        why = str(error).partition("\n")[0] or "no such device"
        raise ConfigError(
            f"JAX does not start on JAX_PLATFORMS={platforms} ({why}); set it to cpu, "
            "or unset it."
        ) from error


class Devices:
    """The local devices that the population is spread over.

    Args:
        devices: which; all local ones by default.
    """

    def __init__(self, devices: Sequence[Any] | None = None) -> None:
        self.devices = tuple(local_devices() if devices is None else devices)
        if not self.devices:
            raise ConfigError("devices is empty; give at least one JAX device.")
        mesh = Mesh(np.array(self.devices), ("device",))
        self._mapped = NamedSharding(mesh, PartitionSpec("device"))
        self._shared = NamedSharding(mesh, PartitionSpec())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Devices) and other.devices == self.devices

    def __hash__(self) -> int:
        return hash(self.devices)

    @property
    def count(self) -> int:
        """D, the number of devices."""
        return len(self.devices)

    @property
    def platform(self) -> str:
        """What kind of devices they are, ``"cpu"`` or ``"gpu"``."""
        return self.devices[0].platform

    @property
    def memory(self) -> int:
        """Bytes that arrays on all devices may take together."""
        # A CPU device has no memory of its own, and reports none.
        stats = [device.memory_stats() or {} for device in self.devices]
        return sum(each.get("bytes_limit", 0) for each in stats) or memory_limit()

    def map(
        self,
        function: Callable[..., Any],
        in_axes: tuple[int | None, ...],
        donate_argnums: tuple[int, ...] = (),
    ) -> Callable[..., Any]:
        """Maps ``function`` over the leading device axis of its ``in_axes=0`` inputs.

        Args:
            function: of one device's slices.
            in_axes: 0 for arguments ``[D, …]``, ``None`` for shared ones.
            donate_argnums: arguments whose buffers the outputs may take over.
        """
        if self.count == 1:
            return jax.jit(
                _of_one(function, in_axes),
                donate_argnums=donate_argnums,
                out_shardings=SingleDeviceSharding(self.devices[0]),
            )
        return jax.pmap(
            function,
            in_axes=in_axes,
            devices=self.devices,
            donate_argnums=donate_argnums,
        )

    def map_together(
        self, function: Callable[..., PyTree], in_axes: tuple[int | None, ...]
    ) -> Callable[..., PyTree]:
        """Maps a function whose result is the same on all devices, and shared.

        Args:
            function: takes, before the arguments, ``total``, which sums a pytree over
                the devices; what it returns must depend on arguments ``[D, …]`` through
                such sums alone.
            in_axes: as of :meth:`map`.
        """

        def total(tree: PyTree) -> PyTree:
            return jax.lax.psum(tree, "device")

        return jax.pmap(
            lambda *args: function(total, *args),
            axis_name="device",
            in_axes=in_axes,
            out_axes=None,
            devices=self.devices,
        )

    def put(self, tree: PyTree) -> PyTree:
        """Places arrays ``[D, …]``, one slice a device."""
        for leaf in jax.tree.leaves(tree):
            # pmap would run a shorter axis on fewer devices without a word.
            if leaf.shape[:1] != (self.count,):
                raise ValueError(
                    f"an array {leaf.shape} cannot be spread over {self.count} "
                    "devices; its first axis must be the number of devices."
                )
        # A program of one device takes host arrays as they are: placing costs more.
        return tree if self.count == 1 else jax.device_put(tree, self._mapped)

    def share(self, tree: PyTree) -> PyTree:
        """Places a copy of the arrays on every device."""
        return jax.device_put(tree, self._shared)


def _of_one(
    function: Callable[..., Any], in_axes: tuple[int | None, ...]
) -> Callable[..., Any]:
    """Does what ``pmap`` over one device does, without its cost on the host."""

    def mapped(*args: PyTree) -> PyTree:
        pairs = zip(args, in_axes, strict=True)
        slices = [
            arg if axis is None else jax.tree.map(lambda leaf: leaf[0], arg)
            for arg, axis in pairs
        ]
        return jax.tree.map(lambda leaf: leaf[None], function(*slices))

    return mapped
