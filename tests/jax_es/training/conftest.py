"""What the tests of training share."""

import jax
import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory; the process's JAX stays as the tests configure it."""
    jax.devices()
    monkeypatch.setattr("jax_es.rollout.devices.use_compilation_cache", lambda: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path
