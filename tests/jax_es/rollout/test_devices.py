"""One device and many compute the same, and nothing is spread unevenly in silence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.es.noise import FullNoise
from jax_es.rollout import weighted_sum
from jax_es.rollout.devices import Devices, local_devices
from jax_es.rollout.weighted_sum import spread_weighted_sum
from tests.jax_es.es.drawn import flat

KEY = jax.random.fold_in(jax.random.key(3), 1)
MEAN = {"kernel": jnp.zeros((7, 3)), "bias": jnp.zeros(3)}
COUNTS = [1, 4]


@pytest.fixture(scope="module")
def cpus() -> list[jax.Device]:
    local = jax.local_devices(backend="cpu")
    assert len(local) == 4, "conftest.py asks for four virtual devices"
    return local


@pytest.fixture(scope="module")
def spread(cpus):
    """``spread_weighted_sum`` on 1, 2 and 4 devices."""
    return {n: spread_weighted_sum(FullNoise(), Devices(cpus[:n])) for n in COUNTS}


def weights(num_pairs: int) -> np.ndarray:
    return np.random.default_rng(num_pairs).normal(size=num_pairs).astype(np.float32)


def expected(num_pairs: int) -> np.ndarray:
    pairs = jnp.arange(num_pairs)
    return flat(FullNoise().weighted_sum(KEY, pairs, weights(num_pairs), MEAN))


@pytest.mark.compiled
@pytest.mark.parametrize("num_devices", COUNTS)
@pytest.mark.parametrize("num_pairs", [1, 13])
def test_sum_does_not_depend_on_the_devices(spread, num_devices, num_pairs):
    # 13 divides by none but one, and one pair leaves three devices with padding.
    total = spread[num_devices](KEY, weights(num_pairs), MEAN)
    np.testing.assert_allclose(flat(total), expected(num_pairs), rtol=1e-5, atol=2e-6)
    assert jax.tree.map(jnp.shape, total) == jax.tree.map(jnp.shape, MEAN)


def test_chunks_add_up(cpus, monkeypatch):
    # 29 pairs in blocks of 2 × 4: three whole calls and one with padding.
    monkeypatch.setattr(weighted_sum, "PAIRS_PER_CALL", 4)
    calls = []
    chunked = spread_weighted_sum(
        FullNoise(), Devices(cpus[:2]), lambda: calls.append(len(calls))
    )
    total = chunked(KEY, weights(29), MEAN)
    np.testing.assert_allclose(flat(total), expected(29), rtol=1e-5, atol=5e-6)
    assert calls == [0, 1, 2, 3]
    # The accumulator is given away at each addition; the second call starts anew.
    again = chunked(KEY, weights(29), MEAN)
    assert (flat(again) == flat(total)).all()

    def stop() -> None:
        raise KeyboardInterrupt

    stoppable = spread_weighted_sum(FullNoise(), Devices(cpus[:1]), stop)
    with pytest.raises(KeyboardInterrupt):
        stoppable(KEY, weights(4), MEAN)


@pytest.mark.parametrize("num_devices", COUNTS)
def test_map_gives_each_device_its_slice(cpus, num_devices):
    devices = Devices(cpus[-num_devices:])  # the last one is not JAX's default
    slices = np.arange(num_devices * 3.0, dtype=np.float32).reshape(num_devices, 3)
    scaled = devices.map(lambda x, scale: (x * scale).sum(), in_axes=(0, None))
    result = scaled(devices.put(slices), np.float32(2))
    assert result.tolist() == (2 * slices.sum(axis=1)).tolist()
    assert result.sharding.device_set == set(devices.devices)
    total = devices.map_together(lambda total, x: total({"sum": x.sum()}), (0,))
    result = total(devices.put(slices))["sum"]
    assert result.shape == ()
    assert result == slices.sum()


def test_one_device_computes_what_pmap_does_without_it(cpus):
    def layer(weights, x):
        return {"y": jnp.tanh(x @ weights), "sum": x.sum()}

    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=(5, 3)), rng.normal(size=(1, 4, 5)).astype("f4")
    mapped = jax.pmap(layer, in_axes=(None, 0), devices=cpus[:1])(weights, x)
    alone = Devices(cpus[:1]).map(layer, in_axes=(None, 0))(weights, x)
    jax.tree.map(np.testing.assert_array_equal, alone, mapped)


@pytest.mark.parametrize("length", [1, 8])
def test_put_refuses_an_axis_that_does_not_fit(cpus, length):
    # Eight slices on four devices would fit in pairs, and pmap would take three.
    with pytest.raises(ValueError, match="4 devices") as caught:
        Devices(cpus).put({"x": np.zeros((length, 2))})
    assert f"({length}, 2)" in str(caught.value)


def test_jax_that_refuses_what_our_libraries_do_is_one_line():
    with (
        jax.numpy_dtype_promotion("strict"),
        pytest.raises(ConfigError, match="JAX_NUMPY_DTYPE_PROMOTION must be standard"),
    ):
        local_devices()


@pytest.mark.parametrize("error", [RuntimeError("no such backend"), AssertionError()])
def test_jax_that_does_not_start_is_one_line(error, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr(jax, "local_devices", fail)
    with pytest.raises(ConfigError, match="JAX does not start on JAX_PLATFORMS="):
        Devices()
