"""What must hold before JAX starts: four devices, and one stream of random numbers."""

import os

import jax
import pytest

# The goldens and the device tests mean the CPU, also on a machine with an
# accelerator; JAX_PLATFORMS=cuda,cpu runs the suite there.
if "JAX_PLATFORMS" not in os.environ:
    jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_default_prng_impl", "threefry2x32")
jax.config.update("jax_threefry_partitionable", True)


@pytest.fixture
def strict_jax():
    """Refuses broadcasts between arrays of different rank.

    Around our own functions only: evosax and some of optax do not pass it.
    """
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def compilations():
    """A list that grows by one with every program that XLA compiles."""
    seen = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)
