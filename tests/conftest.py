"""What must hold before JAX starts: four devices, and one stream of random numbers."""

import atexit
import gc
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

# Tests compile alike programs again and again, in several processes; unless the caller
# has a cache, they share one. JAX reads these when it is imported.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    CACHE = tempfile.mkdtemp(prefix="jax-es-tests-")
    atexit.register(shutil.rmtree, CACHE, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = CACHE
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Most of a test's time goes into compiling what then runs for a moment: a third of it
# is left if XLA does not optimise and takes its plain kernels. Claims about numbers
# compare two paths under one compiler, or hold within rounding.
# JAX 0.11 ends at the second flag, which its XLA has no more.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0"
    + " --xla_cpu_use_fusion_emitters=false" * version("jax").startswith("0.10."),
)

import jax
import pytest

# The goldens and the device tests mean the CPU, also on a machine with an
# accelerator; JAX_PLATFORMS=cuda,cpu runs the suite there.
if "JAX_PLATFORMS" not in os.environ:
    jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_default_prng_impl", "threefry2x32")
jax.config.update("jax_threefry_partitionable", True)

# Tracing makes millions of objects, few of them in cycles. Python's usual search for
# cycles took 4 to 13 % of two files' time.
gc.set_threshold(100_000, 50, 50)

NOTEBOOKS = "tests/test_notebooks.py"
LONG = (NOTEBOOKS, "tests/trials/")


def pytest_collection_modifyitems(items):
    """What takes longest comes first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file has one worker, except the notebooks: they take longest and share none."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            alone = nodeid.startswith(NOTEBOOKS)
            return nodeid if alone else super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """A process has room for 65,530 memory maps; a compiled program takes about ten."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        gc.collect()
        jax.clear_caches()


@pytest.fixture(scope="session")
def stay_as_configured():
    """The process's JAX stays as the tests configure it."""
    jax.devices()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jax_es.rollout.devices.use_compilation_cache", lambda: None)
        patch.delenv("MINARI_DATASETS_PATH", raising=False)
        yield


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
