"""Shared by the tests of ``envs``."""

import gymnasium
import pytest


@pytest.fixture
def register():
    """``gymnasium.register`` until the end of the test; returns the id."""
    registered = []

    def add(env_id, entry_point, **options):
        gymnasium.register(env_id, entry_point, **options)
        registered.append(env_id)
        return env_id

    yield add
    for env_id in registered:
        del gymnasium.registry[env_id]
