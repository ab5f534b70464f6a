"""What may change a run's numbers: all of it is recorded."""

import jax

from jax_es.runs.machine import JAX_SETTINGS, jax_settings


def test_the_settings_of_jax_are_the_usual_ones_and_all_there():
    assert jax_settings() == JAX_SETTINGS
    gone = {"jax_exec_time_optimization_effort"}  # since JAX 0.11
    assert set(JAX_SETTINGS) - set(jax.config.values) <= gone


def test_settings_are_seen_that_hold_for_a_block():
    with jax.enable_x64(True):
        assert jax_settings() == {**JAX_SETTINGS, "jax_enable_x64": True}
