"""Datasets as others make them."""

import warnings

import pytest


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
