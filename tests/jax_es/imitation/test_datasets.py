"""Minari datasets in memory: those of others, and what cannot be read."""

import copy
import json
import os
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import EnvConfig
from jax_es.imitation.datasets import find_dataset, read_episodes
from jax_es.models import MLPConfig
from jax_es.training.build import TrainConfig

minari = pytest.importorskip("minari")

# Other programs' datasets hold none.
pytestmark = pytest.mark.filterwarnings("ignore:.* holds no digests")


def config(env_id="InvertedPendulum-v5"):
    return TrainConfig(env=EnvConfig(env_id), policy=MLPConfig())


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "there"))
    return tmp_path / "there"


def randomly(env):
    env.action_space.seed(0)
    return lambda observation: env.action_space.sample()


@pytest.mark.parametrize("env_id", ["InvertedPendulum-v5", "CartPole-v1"])
def test_a_dataset_of_minaris_own_collector(root, record, env_id):
    env = gymnasium.make(env_id)
    dataset, seen = record("others/random-v0", env, randomly(env), 3)
    episodes = read_episodes("others/random-v0", config(env_id))
    observations, actions, rewards = (
        np.array(part) for part in zip(*seen, strict=True)
    )
    np.testing.assert_array_equal(episodes.observations, observations.astype("f4"))
    np.testing.assert_array_equal(episodes.actions, actions)
    np.testing.assert_array_equal(episodes.rewards, rewards)
    assert episodes.lengths.tolist() == [len(each.rewards) for each in dataset]
    np.testing.assert_allclose(
        episodes.returns, [each.rewards.sum() for each in dataset], rtol=1e-6
    )
    discrete = env_id == "CartPole-v1"
    assert episodes.actions.dtype == (np.int32 if discrete else np.float32)
    assert episodes.observations.dtype == episodes.rewards.dtype == np.float32


def test_images_stay_bytes(root):
    env_id = "ALE/Pong-v5"
    pytest.importorskip("ale_py")
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    frames = np.random.default_rng(0).integers(256, size=(4, 4, 84, 84), dtype=np.uint8)
    create("images-v0", space, gymnasium.spaces.Discrete(6), frames, np.arange(3))
    episodes = read_episodes("images-v0", config(env_id))
    assert episodes.observations.dtype == np.uint8
    np.testing.assert_array_equal(episodes.observations, frames[:-1])
    assert episodes.actions.tolist() == [0, 1, 2]


def create(dataset_id, observation_space, action_space, observations, actions):
    """Creates a dataset of one episode that names no environment."""
    length = len(actions)
    episode = minari.data_collector.EpisodeBuffer(
        observations=observations,
        actions=actions,
        rewards=np.ones(length),
        terminations=np.arange(length) == length - 1,
        truncations=np.zeros(length, bool),
        infos={},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            dataset_id,
            [episode],
            observation_space=observation_space,
            action_space=action_space,
        )


def refused(dataset, config):
    with pytest.raises(ConfigError) as caught:
        read_episodes(dataset, config)
    text = str(caught.value)
    assert "\n" not in text
    return text


def box(*shape, bound=3.0, dtype=np.float32):
    return gymnasium.spaces.Box(-bound, bound, shape, dtype)


def test_a_dataset_without_an_environment_is_known_by_its_spaces(root):
    create("a-v0", box(4, bound=np.inf), box(1), np.ones((4, 4)), np.ones((3, 1)))
    assert read_episodes("a-v0", config()).lengths.tolist() == [3]
    create("b-v0", box(5, bound=np.inf), box(1), np.ones((4, 5)), np.ones((3, 1)))
    text = refused("b-v0", config())
    assert "observes Box(-inf, inf, (5,)" in text
    assert "observes Box(-inf, inf, (4,)" in text
    create("c-v0", box(4), box(1, bound=1.0), np.ones((4, 4)), np.ones((3, 1)))
    text = refused("c-v0", config())
    assert "acts in Box(-1.0, 1.0, (1,)" in text
    assert "acts in Box(-3.0, 3.0, (1,)" in text
    create("d-v0", box(4), gymnasium.spaces.Discrete(2), np.ones((4, 4)), [0, 1, 0])
    assert "acts in Discrete(2)" in refused("d-v0", config())
    space = gymnasium.spaces.Dict({"state": box(4)})
    create("e-v0", space, box(1), {"state": np.ones((4, 4))}, np.ones((3, 1)))
    assert "observes Dict('state': Box(" in refused("e-v0", config())


def test_a_dataset_of_another_environment(root, record):
    env = gymnasium.make("CartPole-v1")
    record("cart-v0", env, randomly(env), 1)
    text = refused("cart-v0", config())
    assert "was recorded in CartPole-v1" in text
    assert "environment is InvertedPendulum-v5" in text


def test_where_datasets_are_looked_for(root, tmp_path, monkeypatch):
    create("a-v0", box(4), box(1), np.ones((4, 4)), np.ones((3, 1)))
    assert find_dataset("a-v0") == find_dataset(root / "a-v0") == root / "a-v0"
    create("some/b-v0", box(4), box(1), np.ones((4, 4)), np.ones((3, 1)))
    text = refused("other-v0", config())
    assert text.endswith(f"nor one in {root}. There are a-v0, some/b-v0.")
    # Without the variable: here, then in Minari's own folder.
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / ".minari").mkdir()
    root.rename(tmp_path / ".minari" / "datasets")
    assert find_dataset("a-v0") == tmp_path / ".minari" / "datasets" / "a-v0"
    (tmp_path / ".minari" / "datasets").rename("datasets")
    assert find_dataset("a-v0") == Path("datasets/a-v0")


def test_a_damaged_dataset_and_an_empty_one(root):
    create("a-v0", box(4), box(1), np.ones((4, 4)), np.ones((3, 1)))
    file = root / "a-v0" / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:-100])
    assert f"dataset {root / 'a-v0'} cannot be read (" in refused("a-v0", config())
    metadata = file.with_name("metadata.json")
    empty = {"total_steps": 0, "total_episodes": 0}
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), **empty}))
    assert "holds no episode" in refused("a-v0", config())


@pytest.mark.parametrize("missing", ["observation_space", "action_space"])
def test_no_entry_point_of_a_dataset_is_called(root, missing):
    """Minari calls ``gymnasium.make`` on what a dataset names if a space is missing."""
    create("a-v0", box(4), box(1), np.ones((4, 4)), np.ones((3, 1)))
    metadata = root / "a-v0" / "data" / "metadata.json"
    spec = copy.deepcopy(gymnasium.spec("InvertedPendulum-v5"))
    spec.entry_point, spec.kwargs = "os:system", {"command": f"touch {root / 'mark'}"}
    stored = {**json.loads(metadata.read_text()), "env_spec": spec.to_json()}
    del stored[missing]
    metadata.write_text(json.dumps(stored))
    assert "names no spaces" in refused("a-v0", config())
    assert not (root / "mark").exists()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("data_format", "arrow", "pyarrow"),
        ("data_format", "parchment", "parchment"),
        ("observation_space", '{"type": "Sphere"}', "cannot be read ("),
        ("observation_space", None, "names no spaces"),
        ("total_steps", 10**12, "cannot be read ("),
        ("total_steps", 2, "cannot be read ("),
        ("total_steps", 4, "total_steps is 4, and it holds 3"),
        ("total_steps", "many", "'many'"),
        ("total_episodes", 10**9, "episode_999999999"),
        ("total_episodes", [1], "cannot be read ("),
        ("env_spec", "[]", "cannot be read ("),
    ],
)
def test_metadata_that_say_something_else(name, value, why, root):
    create("a-v0", box(4, bound=np.inf), box(1), np.ones((4, 4)), np.ones((3, 1)))
    file = root / "a-v0" / "data" / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    assert why in refused("a-v0", config())


def test_metadata_of_another_kind_and_a_pipe_for_episodes(root):
    create("a-v0", box(4), box(1), np.ones((4, 4)), np.ones((3, 1)))
    data = root / "a-v0" / "data"
    (data / "metadata.json").write_text("[]")
    assert "names no spaces" in refused("a-v0", config())
    create("b-v0", box(4), box(1), np.ones((4, 4)), np.ones((3, 1)))
    file = root / "b-v0" / "data" / "main_data.hdf5"
    file.unlink()
    os.mkfifo(file)
    assert "main_data.hdf5 is no file" in refused("b-v0", config())
