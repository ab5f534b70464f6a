"""Datasets as others make them; a cache of compiled programs."""

import warnings

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache


@pytest.fixture(scope="session")
def record():
    """A function that plays in an environment with Minari's own collector."""
    minari = pytest.importorskip("minari")

    def play(dataset_id, env, policy, num_episodes):
        """Returns the dataset, and each (observation, action, reward)."""
        seen = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it wants authors and the like
            collector = minari.DataCollector(env)
            for seed in range(num_episodes):
                observation, _ = collector.reset(seed=seed)
                ended = False
                while not ended:
                    action = policy(observation)
                    following, reward, terminated, truncated, _ = collector.step(action)
                    seen.append((observation, action, reward))
                    observation, ended = following, terminated or truncated
            dataset = collector.create_dataset(dataset_id, algorithm_name="x")
            collector._tmp_dir.cleanup()  # close() would remove it behind its back
            env.close()
        return dataset, seen

    return play


@pytest.fixture(scope="module", autouse=True)
def compilation_cache(tmp_path_factory):
    """Programs are compiled once: many runs here are of the same few kinds."""
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = {name: jax.config.values[name] for name in names}
    folder = str(tmp_path_factory.mktemp("cache"))
    for name, value in zip(names, (folder, 0.0), strict=True):
        jax.config.update(name, value)
    reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()
