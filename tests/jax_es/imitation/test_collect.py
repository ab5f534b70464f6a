"""Collected datasets: true to the environment, whole at any instant, the same again."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import jax_es
from jax_es import collect as collect_module
from jax_es.collect import main
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.imitation import collecting
from jax_es.imitation.collecting import Collector, Recipe, _Log, digest, first_seed
from jax_es.imitation.dataset_writer import DatasetWriter, lock
from jax_es.imitation.datasets import dataset_info, read_episodes, read_metadata
from jax_es.imitation.recording import Recording
from jax_es.training.build import TrainConfig, with_target_return
from jax_es.training.load_policy import LoadedPolicy, load_mean, load_policy
from jax_es.training.loop import train_run
from models import DecisionTransformerConfig, MLPConfig
from tests.probe_envs import TargetEnv

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")

LIMIT = 30
"""Some Hoppers have fallen by then, others have not."""

NUM_EPISODES = 11
SLOTS = 2


def tiny(policy, env=None):
    return TrainConfig(
        env=env or EnvConfig("Hopper-v5", LIMIT),
        policy=policy,
        es=ESConfig(num_pairs=2, sigma=0.1, learning_rate=0.5),
        rollout=RolloutConfig(num_slots=SLOTS, num_threads=1, num_devices=1),
        evaluation=EvaluationConfig(num_episodes=2),
        num_generations=2,
    )


TRANSFORMER = DecisionTransformerConfig(
    context_length=3, width=8, num_layers=1, attention="cache"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A feed-forward network, a transformer, and one with discrete actions."""
    folder = tmp_path_factory.mktemp("runs")
    train_run(tiny(MLPConfig(hidden_sizes=(8,))), folder / "mlp")
    train_run(tiny(TRANSFORMER), folder / "transformer")
    train_run(
        tiny(MLPConfig(hidden_sizes=(4,)), EnvConfig("CartPole-v1", 12)),
        folder / "cart",
    )
    return folder


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """An empty working directory; the process's JAX stays as the tests configure it."""
    jax.devices()
    monkeypatch.setattr("jax_es.rollout.devices.use_compilation_cache", lambda: None)
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "datasets"


def collect(run, *options, dataset="a-v0", episodes=NUM_EPISODES):
    arguments = [str(run), "--dataset", dataset, "--episodes", str(episodes), *options]
    assert main(arguments) == 0
    return Path("datasets") / dataset


def contents(path):
    """Returns everything in a dataset's HDF5 file, by its name there."""
    found = {}

    def visit(name, thing):
        found.update({f"{name}@{k}": np.asarray(v) for k, v in thing.attrs.items()})
        if isinstance(thing, h5py.Dataset):
            found[name] = thing[()]

    with h5py.File(path / "data" / "main_data.hdf5") as file:
        file.visititems(visit)
    return found


def assert_same(one, two):
    first, second = contents(one), contents(two)
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def seeds(dataset):
    indices = range(dataset.total_episodes)
    return [each["seed"] for each in dataset.storage.get_episode_metadata(indices)]


@pytest.mark.parametrize("noise", ["0", "0.6"])
@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_gymnasium_repeats_every_episode_to_the_bit(runs, monkeypatch, name, noise):
    collect(runs / name, "--action-noise", noise, episodes=20)
    monkeypatch.setenv("MINARI_DATASETS_PATH", "datasets")
    dataset = minari.load_dataset("a-v0")
    env = dataset.recover_environment()
    assert env.spec.id == "Hopper-v5"
    assert env.spec.max_episode_steps == LIMIT
    assert dataset.total_episodes == 20
    assert seeds(dataset) == [first_seed(0) + i for i in range(20)]
    endings = set()
    for episode, seed in zip(dataset, seeds(dataset), strict=True):
        observation, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(episode.observations[0], observation.astype("f4"))
        assert len(episode.observations) == len(episode.actions) + 1
        for t, action in enumerate(episode.actions):
            assert dataset.action_space.contains(action)
            observation, reward, terminated, truncated, _ = env.step(action)
            expected = observation.astype("f4")
            np.testing.assert_array_equal(episode.observations[t + 1], expected)
            assert episode.rewards[t] == reward
            assert episode.terminations[t] == terminated
            assert episode.truncations[t] == truncated
        assert terminated or truncated
        endings.add((terminated, truncated))
    assert noise == "0" or endings >= {(True, False), (False, True)}
    assert len(dataset.sample_episodes(3)) == 3
    env.close()


def test_options_of_the_environment_are_recovered(tmp_path):
    env = EnvConfig("Hopper-v5", 40, terminate_when_unhealthy=False)
    train_run(tiny(MLPConfig(hidden_sizes=(4,)), env), tmp_path / "run")
    path = collect(tmp_path / "run", episodes=2)
    recovered = minari.MinariDataset(path / "data").recover_environment()
    assert recovered.spec.max_episode_steps == 40
    assert recovered.unwrapped._terminate_when_unhealthy is False
    recovered.close()
    assert dataset_info(path).num_steps == 80


def test_the_policy_acted_as_it_was_trained(runs):
    path = collect(runs / "mlp", episodes=3)
    episodes = read_episodes(path, load_mean(runs / "mlp").config)
    policy = load_policy(runs / "mlp")
    expected = policy(episodes.observations)
    np.testing.assert_allclose(episodes.actions, expected, rtol=1e-4, atol=1e-5)


def test_action_noise_is_added_to_the_policys_action(runs):
    sigma = 0.05
    path = collect(runs / "mlp", "--action-noise", str(sigma), episodes=40)
    episodes = read_episodes(path, load_mean(runs / "mlp").config)
    noise = episodes.actions - load_policy(runs / "mlp")(episodes.observations)
    noise = noise[abs(episodes.actions) < 1]  # what was not clipped
    error = sigma / np.sqrt(2 * noise.size)
    assert noise.size > 1000
    assert abs(noise.std() - sigma) < 4 * error


def test_a_transformer_is_asked_for_the_return(runs):
    trained = load_mean(runs / "transformer")
    asked = trained._replace(
        mean=with_target_return(trained.config, trained.mean, -5000.0)
    )
    parts = jax_es.training.parts.build(trained.config)
    actions = {}
    for name, options in {"own": (), "asked": ("--target-return", "-5000")}.items():
        path = collect(runs / "transformer", *options, dataset=f"{name}-v0", episodes=1)
        episode = minari.MinariDataset(path / "data")[0]
        used = asked if name == "asked" else trained
        policy = LoadedPolicy(parts.policy, used, parts.env.single_observation_space)
        rewards = [0.0, *episode.rewards]
        expected = [
            policy(*step)
            for step in zip(episode.observations[:-1], rewards[:-1], strict=True)
        ]
        actions[name] = episode.actions
        np.testing.assert_allclose(episode.actions, expected, rtol=1e-3, atol=1e-4)
    parts.close()
    assert abs(actions["own"][0] - actions["asked"][0]).max() > 1e-3


def test_discrete_actions(runs):
    path = collect(runs / "cart")
    stored = minari.MinariDataset(path / "data")
    env = stored.recover_environment()
    for episode, seed in zip(stored, seeds(stored), strict=True):
        observation, _ = env.reset(seed=seed)
        for t, action in enumerate(episode.actions):
            np.testing.assert_array_equal(episode.observations[t], observation)
            observation, *_ = env.step(int(action))
    env.close()
    episodes = read_episodes(path, load_mean(runs / "cart").config)
    assert episodes.actions.dtype == np.int32


def test_the_metadata_tell_where_it_comes_from(runs):
    path = collect(runs / "mlp", "--action-noise", "0.1", "--seed", "3")
    info = dataset_info(path)
    stored = list(minari.MinariDataset(path / "data"))
    returns = [each.rewards.sum() for each in stored]
    lengths = [len(each) for each in stored]
    for name, values in {"returns": returns, "lengths": lengths}.items():
        assert info.collection["scores"][name] == pytest.approx(
            {
                "mean": np.mean(values),
                "std": np.std(values),
                "min": min(values),
                "max": max(values),
            }
        )
    trained = load_mean(runs / "mlp")
    assert info.algorithm == "openai-es"
    assert info.collection["recipe"] == {
        "run": "mlp",
        "checkpoint": "best",
        "generation": trained.generation,
        "weights": digest(trained),
        "target_return": None,
        "action_noise": 0.1,
        "seed": 3,
        "num_slots": SLOTS,
        "num_devices": 1,
    }
    assert info.collection["first_seed"] == first_seed(3) != first_seed(0)
    assert info.collection["failed_seeds"] == []
    assert info.collection["command"].endswith("--action-noise 0.1 --seed 3")
    assert info.collection["versions"]["jax"] == jax.__version__


def test_the_digest_tells_policies_apart(runs):
    trained = load_mean(runs / "mlp", "last")
    assert digest(trained) == digest(load_mean(runs / "mlp", "last"))
    assert digest(trained) != digest(trained._replace(statistics=None))
    other = jax.tree.map(lambda leaf: leaf + 1e-6, trained.mean)
    assert digest(trained) != digest(trained._replace(mean=other))


def test_what_is_printed(runs, capsys):
    path = collect(runs / "mlp")
    out, err = capsys.readouterr()
    info = dataset_info(path)
    first, returns, lengths, last = out.splitlines()
    assert first == f"Dataset: 11 episodes, {info.num_steps} steps in {path}"
    mean = info.collection["scores"]["returns"]["mean"]
    assert returns.startswith(f"Returns: {mean:.1f} ± ")
    assert lengths.startswith("Lengths: ")
    assert last.endswith("MINARI_DATASETS_PATH=datasets, minari.load_dataset('a-v0')")
    assert err.splitlines()[-1].startswith("episodes     11/11  return ")


class Stop(Exception):
    pass


def collector(run, **fields):
    trained = load_mean(run)
    recipe = Recipe("x", "best", 0, "", None, 0.1, 0, SLOTS, 1)
    return Collector(trained, dataclasses.replace(recipe, **fields))


def test_a_stopped_collection_goes_on_to_the_same_episodes(runs, root):
    player = collector(runs / "mlp")
    whole = DatasetWriter(root / "whole-v0")
    player.new_dataset(whole, "whole-v0", "openai-es", "")
    player.collect(whole, NUM_EPISODES)
    torn = DatasetWriter(root / "torn-v0")
    player.new_dataset(torn, "torn-v0", "openai-es", "")
    assert len(minari.MinariDataset(torn.path / "data")) == 0
    kept = []
    for after in (1, 35, 50, 2, 60):
        steps = iter(range(after))

        def stop(steps=steps):
            if next(steps, None) is None:
                raise Stop

        with pytest.raises(Stop):
            player.collect(torn, NUM_EPISODES, stop)
        kept.append(len(minari.MinariDataset(torn.path / "data")))
        scores = dataset_info(torn.path).collection["scores"]["returns"]
        done = [each.rewards.sum() for each in minari.MinariDataset(torn.path / "data")]
        assert scores == {} or scores["mean"] == pytest.approx(np.mean(done))
    # It was stopped before, inside and after blocks of four episodes.
    assert kept == sorted(kept)
    assert set(kept) - {0, 4, 8, NUM_EPISODES}
    assert kept[-1] < NUM_EPISODES
    player.collect(torn, NUM_EPISODES)
    player.close()
    assert_same(whole.path, torn.path)
    metadata = [read_metadata(each.path)["jax_es"] for each in (whole, torn)]
    assert metadata[0] == metadata[1]


def test_a_dataset_grows(runs, monkeypatch):
    path = collect(runs / "mlp", episodes=5)
    before = contents(path)
    collect(runs / "mlp", "--resume", episodes=9)
    after = contents(path)
    assert dataset_info(path).num_episodes == 9
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    monkeypatch.delattr(collecting.Rollout, "evaluate")  # nothing is left to play
    for there_already in (2, 9):
        collect(runs / "mlp", "--resume", episodes=there_already)
        assert dataset_info(path).num_episodes == 9


def recording(seed, length=3, value=0.0):
    flags = np.arange(length) == length - 1
    return Recording(
        seed,
        np.full((length + 1, 3), value, np.float32),
        np.full((length, 2), value, np.float32),
        np.full(length, value),
        flags,
        np.zeros(length, bool),
    )


def new_writer(path, **collection):
    writer = DatasetWriter(path)
    env = TargetEnv(1)
    spaces = env.single_observation_space, env.single_action_space
    collection = {"first_seed": 0, "failed_seeds": [], **collection}
    writer.create("a-v0", *spaces, None, algorithm_name="x", jax_es=collection)
    return writer


def test_failed_episodes_are_left_out(root):
    writer = new_writer(root / "a-v0")
    log = _Log(writer, 5, lambda progress: None)
    for seed in (2, 0, 1):
        log.add(recording(seed, value=np.nan if seed == 1 else seed))
    log.write()
    log = _Log(writer, 5, lambda progress: None)
    assert log.position == 3
    for seed in (4, 0, 1, 2, 3):  # the block from its beginning
        log.add(recording(seed, value=seed))
    log.write()
    assert dataset_info(writer.path).collection["failed_seeds"] == [1]
    dataset = minari.MinariDataset(writer.path / "data")
    assert [each.rewards[0] for each in dataset] == [0, 2, 3, 4]
    assert seeds(dataset) == [0, 2, 3, 4]


def test_whoever_reads_is_not_disturbed(root):
    writer = new_writer(root / "a-v0")
    writer.append([recording(0)], {})
    with h5py.File(writer.path / "data" / "main_data.hdf5") as open_file:
        for seed in range(1, 5):
            writer.append([recording(seed)], {})
            assert set(open_file) == {"episode_0"}
            assert open_file["episode_0/rewards"][()].tolist() == [0, 0, 0]
    assert len(minari.MinariDataset(writer.path / "data")) == 5
    writer.close()
    assert sorted(path.name for path in writer.path.iterdir()) == ["data"]


@pytest.mark.parametrize("moment", ["link", "first", "second", "last"])
def test_dying_while_files_change_places(root, monkeypatch, moment):
    """Each rename of the four happens or does not: nothing else can be seen."""
    writer = new_writer(root / "a-v0")
    writer.append([recording(0)], {"n": 1})
    writer.append([recording(1), recording(2)], {"n": 3})
    whole = Path.replace
    count = {"link": 0, "first": 1, "second": 2, "last": 3}[moment]
    renames = iter(range(count))

    def replace_or_die(source, target):
        if next(renames, None) is None:
            raise Stop
        return whole(source, target)

    with monkeypatch.context() as patched, pytest.raises(Stop):
        patched.setattr(Path, "replace", replace_or_die)
        if moment == "last":
            next(renames)
        writer.append([recording(3)], {"n": 4})
        raise Stop
    there = len(minari.MinariDataset(writer.path / "data"))
    assert there == (4 if moment in ("second", "last") else 3)
    assert read_metadata(writer.path)["jax_es"]["n"] == there
    again = DatasetWriter(writer.path)
    again.append([recording(seed) for seed in range(there, 5)], {"n": 5})
    dataset = minari.MinariDataset(writer.path / "data")
    assert seeds(dataset) == list(range(5))
    assert dataset.total_steps == 15
    assert [len(each) for each in dataset] == [3] * 5


# SIGKILL at a moment that no clock could hit: the episodes are renamed into place, what
# is said of them is not.
DIES_BETWEEN_TWO_RENAMES = """
import os, pathlib, signal, sys
from jax_es import collect
whole = pathlib.Path.replace
def replace_and_die(source, target):
    whole(source, target)
    if target.parent.name == "data" and target.name == "main_data.hdf5":
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace_and_die
sys.exit(collect.main())
"""


def start(folder, *arguments, program=("-m", "jax_es.collect")):
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(jax_es.__file__).parents[1]),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_episodes(process, path, count):
    deadline = time.monotonic() + 120
    while True:
        there = (path / "data" / "metadata.json").exists()
        # As anybody would look at it, at any instant.
        if there and len(minari.MinariDataset(path / "data")) >= count:
            return
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def check_whole(path):
    """Reads everything; returns the number of episodes."""
    return sum(len(each.rewards) > 0 for each in minari.MinariDataset(path / "data"))


def test_a_killed_collection_is_a_valid_dataset_and_goes_on(runs, tmp_path):
    shutil.copytree(runs / "mlp", tmp_path / "runs" / "mlp")
    options = ["runs/mlp", "--episodes", "150", "--action-noise", "0.1"]
    torn, whole = ([*options, "--dataset", f"{x}-v0"] for x in ("torn", "whole"))
    path = tmp_path / "datasets" / "torn-v0"

    process = start(tmp_path, *torn)
    try:
        wait_for_episodes(process, path, 3)
        process.kill()
        process.communicate()
        counts = [check_whole(path)]

        process = start(
            tmp_path, *torn, "--resume", program=("-c", DIES_BETWEEN_TWO_RENAMES)
        )
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
        counts.append(check_whole(path))
        with h5py.File(path / "data" / "main_data.hdf5") as file:
            assert len(file) > counts[-1]

        process = start(tmp_path, *torn, "--resume")
        wait_for_episodes(process, path, counts[-1] + 3)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGTERM, err
        counts.append(check_whole(path))
        assert err.splitlines()[-1] == (
            f"SIGTERM: {counts[-1]} episodes are in datasets/torn-v0; continue with "
            f"python -m jax_es.collect {' '.join(torn)} --resume"
        )
        assert 0 < counts[0] == counts[1] < counts[2] < 150

        for arguments in ([*torn, "--resume"], whole):
            process = start(tmp_path, *arguments)
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
    finally:
        process.kill()
        process.communicate()
    assert check_whole(path) == 150
    assert_same(path, path.with_name("whole-v0"))


def refused(arguments, capsys):
    """Runs the program on bad input; returns the one line that it prints."""
    assert main([str(each) for each in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--dataset", "name"], "--dataset must be an id such as hopper-v0"),
        (["--dataset", "../name-v0"], "--dataset must be an id such as hopper-v0"),
        (["--episodes", "0"], "--episodes must be at least 1, got 0"),
        (["--seed", "-1"], "--seed must be in [0, 2^31), got -1"),
        (["--action-noise", "-0.1"], "--action-noise must be at least 0"),
        (["--num-slots", "0"], "--num-slots must be at least 1, got 0"),
        (["--target-return", "nan"], "--target-return must be finite, got nan"),
        (["--target-return", "100"], "--target-return: policy mlp has no target"),
        (["--checkpoint", "77"], "77"),
        (["--resume"], "--resume: there is no dataset datasets/a-v0"),
    ],
)
def test_bad_options(runs, capsys, options, complaint):
    arguments = [runs / "mlp", "--dataset", "a-v0", "--episodes", "2", *options]
    assert complaint in refused(arguments, capsys)
    assert not Path("datasets").exists()


def test_bad_runs_and_datasets(runs, root, capsys, monkeypatch):
    arguments = [runs / "mlp", "--dataset", "a-v0", "--episodes", "2"]
    assert "is not a run" in refused(["runs/none", *arguments[1:]], capsys)
    noise = [runs / "cart", *arguments[1:], "--action-noise", "0.1"]
    assert "--action-noise is a share" in refused(noise, capsys)

    collect(*arguments[:1], episodes=2)
    capsys.readouterr()
    line = refused(arguments, capsys)
    assert "datasets/a-v0 holds a dataset already; continue it with --resume" in line
    changed = ["--resume", "--seed", "1", "--action-noise", "0.5"]
    line = refused([*arguments, *changed], capsys)
    assert "action_noise was 0.0, now 0.5; seed was 0, now 1." in line
    line = refused([runs / "transformer", *arguments[1:], "--resume"], capsys)
    assert "run was 'mlp', now 'transformer'" in line
    with lock(root / "a-v0"):
        line = refused([*arguments, "--resume"], capsys)
    assert "is being collected by another process" in line

    metadata = root / "a-v0" / "data" / "metadata.json"
    file = metadata.with_name("main_data.hdf5")
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    line = refused([*arguments, "--resume"], capsys)
    assert "dataset datasets/a-v0 cannot be read (" in line
    file.write_bytes(whole)
    text = metadata.read_text()
    stored = json.loads(text)
    del stored["jax_es"]
    metadata.write_text(json.dumps(stored))
    line = refused([*arguments, "--resume"], capsys)
    assert "was not collected by this program" in line
    metadata.write_text(text[:30])
    assert "cannot be read" in refused([*arguments, "--resume"], capsys)

    monkeypatch.setitem(sys.modules, "minari", None)
    assert "pip install -e '.[pretraining]'" in refused(arguments, capsys)


def test_other_versions_are_warned_of(runs, root, capsys):
    path = collect(runs / "mlp", episodes=2)
    metadata = path / "data" / "metadata.json"
    stored = json.loads(metadata.read_text())
    stored["jax_es"]["versions"]["mujoco"] = "0.1"
    metadata.write_text(json.dumps(stored))
    capsys.readouterr()
    with pytest.warns(UserWarning, match="began with other versions"):
        collect_module._warn_of_changed_versions(path)
