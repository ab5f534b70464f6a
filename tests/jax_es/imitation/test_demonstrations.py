"""Collected datasets: true to the environment, extended, never half written."""

import resource
import signal
import sys
from pathlib import Path

import gymnasium
import jax
import mujoco
import numpy as np
import pytest

from jax_es import collect
from jax_es.collect import main
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.envs.atari_env import make_single_atari_env
from jax_es.imitation import demonstrations
from jax_es.imitation.datasets import draft_of, read_episodes
from jax_es.imitation.demonstrations import first_seed
from jax_es.imitation.recording_env import RecordingEnv
from jax_es.models import DecisionTransformerConfig, MLPConfig
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.wording import significant
from jax_es.training.build import TrainConfig, make_policy
from jax_es.training.load_policy import load_policy
from jax_es.training.trained_mean import load_mean, spaces

minari = pytest.importorskip("minari")

LIMIT = 20
"""Some Hoppers have fallen by then, others have not."""

SLOTS = 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A feed-forward network, a transformer, and one with discrete actions."""
    folder = tmp_path_factory.mktemp("runs")
    hopper, cart_pole = EnvConfig("Hopper-v5", LIMIT), EnvConfig("CartPole-v1", 12)
    transformer = DecisionTransformerConfig(
        context_length=3, width=8, num_layers=1, attention="cache"
    )
    for name, env, policy in (
        ("mlp", hopper, MLPConfig(hidden_sizes=(8,))),
        ("transformer", hopper, transformer),
        ("cart", cart_pole, MLPConfig(hidden_sizes=(4,))),
    ):
        rollout = RolloutConfig(
            num_slots=SLOTS, num_threads=1, num_devices=1, observation_statistics=False
        )
        run = RunDirectory(folder / name)
        config = TrainConfig(env, policy, rollout=rollout)
        run.create(config, "hopper")
        network = make_policy(policy, *spaces(config))
        mean = jax.jit(network.init)(jax.random.key(0))
        # The one stands for a while, the other heeds what it is asked for.
        scale = {"mlp": 0.3, "transformer": 3.0, "cart": 1.0}[name]
        mean = jax.tree.map(lambda leaf, scale=scale: scale * leaf, mean)
        state = {"es": {"mean": mean, "generation": np.int32(1)}}
        Checkpoints(run.checkpoints).save_best(1, state)
    return folder


def collected(run, *options, dataset="a-v0", episodes=5):
    arguments = [str(run), "--dataset", dataset, "--episodes", str(episodes), *options]
    assert main(arguments) == 0
    return Path("datasets") / dataset


def opened(path):
    return minari.MinariDataset(path / "data")


def seeds(path):
    storage = opened(path).storage
    episodes = storage.get_episode_metadata(range(storage.total_episodes))
    return [each["seed"] for each in episodes]


@pytest.mark.parametrize(
    ("name", "env_id", "limit", "noise"),
    [("mlp", "Hopper-v5", LIMIT, "0.6"), ("cart", "CartPole-v1", 12, "0")],
)
def test_gymnasium_repeats_every_episode_to_the_bit(
    runs, monkeypatch, name, env_id, limit, noise
):
    path = collected(runs / name, "--action-noise", noise, episodes=12)
    monkeypatch.setenv("MINARI_DATASETS_PATH", "datasets")
    dataset = minari.load_dataset("a-v0")
    env = dataset.recover_environment()
    assert (env.spec.id, env.spec.max_episode_steps) == (env_id, limit)
    first_seed = opened(path).storage.metadata["jax_es"]["first_seed"]
    assert sorted(seeds(path)) == [first_seed + i for i in range(12)]
    endings = set()
    for episode, seed in zip(dataset, seeds(path), strict=True):
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
        endings.add((terminated, truncated))
    assert name == "cart" or endings >= {(True, False), (False, True)}
    env.close()


def test_noise_is_added_to_the_policys_action(runs):
    sigma, config = 0.05, load_mean(runs / "mlp").config
    policy = load_policy(runs / "mlp")
    episodes = read_episodes(collected(runs / "mlp"), config)
    expected = policy(episodes.observations)
    np.testing.assert_allclose(episodes.actions, expected, rtol=1e-4, atol=1e-5)

    noisy = ["--action-noise", str(sigma)]
    path = collected(runs / "mlp", *noisy, dataset="b-v0", episodes=40)
    episodes = read_episodes(path, config)
    policy.reset()
    noise = episodes.actions - policy(episodes.observations)
    noise = noise[abs(episodes.actions) < 1]  # what was not clipped
    assert noise.size > 1000
    assert abs(noise.std() - sigma) < 4 * sigma / np.sqrt(2 * noise.size)


def test_the_policys_own_action_is_recorded_beside_noise(runs):
    noisy = ["--action-noise", "0.05", "--record", "chosen"]
    path = collected(runs / "mlp", *noisy, dataset="c-v0")
    episodes = read_episodes(path, load_mean(runs / "mlp").config)
    expected = load_policy(runs / "mlp")(episodes.observations)
    np.testing.assert_allclose(episodes.actions, expected, rtol=1e-4, atol=1e-5)
    recipe = opened(path).storage.metadata["jax_es"]["recipe"]
    assert recipe["record"] == "chosen"


def test_each_episode_has_a_body_of_its_own(runs):
    ranges = ["--variation-range", "mass", "0.5", "2", "--variation-range"]
    path = collected(runs / "mlp", *ranges, "friction", "0.7", "0.7", episodes=4)
    own = {}
    for seed, entry, episode in zip(
        seeds(path),
        opened(path).storage.get_episode_metadata(range(4)),
        opened(path),
        strict=True,
    ):
        own[seed] = entry["options"]["variation"]
        mass, friction = own[seed]["mass"], own[seed]["friction"]
        assert 0.5 <= mass <= 2 and friction == 0.7
        env = gymnasium.make("Hopper-v5", max_episode_steps=LIMIT)
        model = env.unwrapped.model
        model.body_mass[:] *= mass
        model.body_inertia[:] *= mass
        model.geom_friction[:, 0] *= friction
        mujoco.mj_setConst(model, env.unwrapped.data)
        env.reset(seed=seed)
        for action, reward in zip(episode.actions, episode.rewards, strict=True):
            assert env.step(action)[1] == reward
    assert len({each["mass"] for each in own.values()}) == 4
    more = collected(runs / "mlp", *ranges, "friction", "0.7", "0.7", dataset="b-v0")
    entries = opened(more).storage.get_episode_metadata(range(5))
    found = dict(zip(seeds(more), entries, strict=True))
    assert all(found[s]["options"]["variation"] == each for s, each in own.items())


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("mlp", ["wheels", "1", "2"], "--variation-range wheels: expected one of"),
        ("mlp", ["mass", "2", "1"], "the lower one first"),
        ("cart", ["mass", "1", "2"], "--variation-range has no meaning"),
    ],
)
def test_a_wrong_range_is_refused(runs, refused, name, given, words):
    options = ["--dataset", "a-v0", "--variation-range", *given]
    refused(main, [str(runs / name), *options], words)


def test_a_transformer_is_asked_for_the_return(runs):
    own, asked = (load_policy(runs / "transformer") for _ in range(2))
    asked.ask(-5000.0)
    path = collected(runs / "transformer", "--target-return", "-5000", episodes=1)
    (episode,) = opened(path)
    rewards = [0.0, *episode.rewards[:-1]]
    steps = list(zip(episode.observations[:-1], rewards, strict=True))
    expected = [asked(*step) for step in steps]
    np.testing.assert_allclose(episode.actions, expected, rtol=1e-3, atol=1e-4)
    assert abs(episode.actions[0] - own(*steps[0])).max() > 1e-3


@pytest.mark.slow
def test_a_game_is_shown_otherwise_than_the_policy_sees_it(monkeypatch):
    """It acts on the memory, and the dataset has the frames of the same game."""
    pytest.importorskip("ale_py")
    run = Path(__file__).parents[3] / "results" / "policies" / "space-invaders-linear"
    rules = {"max_episode_steps": 300, "sticky_actions": 0.0, "noop_max": 0}
    changed = {"observation": "frames", "frame_size": 42, **rules}
    options = ["--num-slots", "2"]
    for name, value in changed.items():
        options += [f"--env.{name.replace('_', '-')}", str(value)]
    path = collected(run, *options, episodes=3)
    recipe = opened(path).storage.metadata["jax_es"]["recipe"]
    told = {name: new for name, new in recipe.items() if name.startswith("env.")}
    assert told == {f"env.{name}": new for name, new in changed.items()}

    monkeypatch.setenv("MINARI_DATASETS_PATH", "datasets")
    dataset = minari.load_dataset("a-v0")
    policy, env = load_policy(run), dataset.recover_environment()
    acting = make_single_atari_env(policy.env_id, **{**policy.env_options, **rules})
    for episode, seed in zip(dataset, seeds(path), strict=True):
        frames, _ = env.reset(seed=seed)
        memory, _ = acting.reset(seed=seed)
        policy.reset()
        for t, action in enumerate(episode.actions):
            np.testing.assert_array_equal(episode.observations[t], frames)
            assert policy(memory) == action
            frames, reward, *_ = env.step(action)
            memory, *_ = acting.step(action)
            assert episode.rewards[t] == reward
    assert episode.observations.shape == (301, 4, 42, 42)
    assert len({*episode.actions.tolist()}) > 1


def test_what_the_metadata_and_the_program_say(runs, capsys):
    path = collected(runs / "mlp", "--action-noise", "0.1", "--seed", "3")
    returns = [each.rewards.sum() for each in opened(path)]
    steps = sum(len(each) for each in opened(path))
    trained, metadata = load_mean(runs / "mlp"), opened(path).storage.metadata
    assert metadata["algorithm_name"] == "openai-es"
    assert metadata["total_steps"] == steps
    ours = metadata["jax_es"]
    assert ours["recipe"] == {
        "run": "mlp",
        "checkpoint": "best",
        "generation": trained.generation,
        "target_return": None,
        "action_noise": 0.1,
        "seed": 3,
    }
    score = ours["scores"]["returns"]
    assert score["mean"] == pytest.approx(np.mean(returns))
    assert score["std"] == pytest.approx(np.std(returns))
    assert ours["failed_seeds"] == []
    assert ours["command"].endswith("--action-noise 0.1 --seed 3")

    out, err = capsys.readouterr()
    first, second, third, last = out.splitlines()
    assert first == f"Dataset: 5 episodes, {steps} steps in {path}"
    assert second.startswith(f"Returns: {significant(np.mean(returns))} ± ")
    assert third.startswith("Lengths: ")
    assert last.endswith("MINARI_DATASETS_PATH=datasets, minari.load_dataset('a-v0')")
    said = f"Collecting 5 episodes of Hopper-v5 by {runs / 'mlp'}. Dataset: {path}"
    assert err.splitlines()[0] == said
    assert err.splitlines()[-1].startswith("episodes      5  return ")


@pytest.mark.filterwarnings("ignore:.*out of date")
def test_another_task_than_the_policys_own_is_said(runs, capsys):
    collected(runs / "mlp", "--env.id", "Hopper-v4", episodes=1)
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("Collecting 1 episode of Hopper-v4 by ")
    assert ", which was trained in Hopper-v5. Dataset: " in first
    assert main([str(runs / "mlp"), "--dataset", "b-v0", "--env.id", "Ant-v5"]) == 2
    assert "cannot act with --env.id Ant-v5" in capsys.readouterr().err


@pytest.mark.parametrize("rules", [[], ["--env.hide-observation", "0", "1"]])
def test_a_dataset_grows(runs, rules):
    path = collected(runs / "mlp", *rules, episodes=3)
    before = list(opened(path))
    collected(runs / "mlp", *rules, "--resume", episodes=5)
    whole = collected(runs / "mlp", *rules, dataset="whole-v0", episodes=5)
    grown, expected = (
        {seed: each.rewards for seed, each in zip(seeds(x), opened(x), strict=True)}
        for x in (path, whole)
    )
    assert set(grown) == set(expected)
    for seed, rewards in grown.items():
        np.testing.assert_allclose(rewards, expected[seed], rtol=1e-3, atol=1e-3)
    for one, two in zip(before, opened(path), strict=False):
        np.testing.assert_array_equal(one.observations, two.observations)


def test_a_stop_leaves_what_was_there(runs, monkeypatch, capsys):
    path = collected(runs / "mlp", episodes=2)
    before = {file.name: file.read_bytes() for file in (path / "data").iterdir()}
    step = RecordingEnv.step

    def step_and_stop(self, actions):
        signal.raise_signal(signal.SIGTERM)
        return step(self, actions)

    monkeypatch.setattr(RecordingEnv, "step", step_and_stop)
    for dataset, more in (("a-v0", ["--resume"]), ("b-v0", [])):
        arguments = [str(runs / "mlp"), "--dataset", dataset, "--episodes", "4", *more]
        assert main(arguments) == 128 + signal.SIGTERM
        line = capsys.readouterr().err.splitlines()[-1]
        assert f"SIGTERM: nothing is written to datasets/{dataset}; start" in line
    assert {f.name: f.read_bytes() for f in (path / "data").iterdir()} == before
    assert [entry.name for entry in Path("datasets").iterdir()] == ["a-v0"]


@pytest.fixture
def small_disk():
    """No file can have more than 100 kB; HDF5 fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_full_disk_costs_one_line(more, runs, request, capsys):
    if more:
        collected(runs / "mlp", episodes=2)
    before = {file: file.read_bytes() for file in Path("datasets").rglob("*.*5")}
    request.getfixturevalue("small_disk")
    capsys.readouterr()
    arguments = [str(runs / "mlp"), "--dataset", "a-v0", "--episodes", "40", *more]
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Collecting 40 episodes of Hopper-v5 by ")
    assert all(line.startswith("episodes") for line in lines[1:-1])
    assert lines[-1].startswith("error: datasets/a-v0 cannot be written ([Errno 27]")
    assert "then continue with the same command" in lines[-1]
    assert {f: f.read_bytes() for f in Path("datasets").rglob("*.*5")} == before
    assert not list(Path("datasets").glob(".draft*"))


def test_one_process_at_a_time_writes_a_dataset(runs, capsys):
    arguments = [str(runs / "mlp"), "--dataset", "a-v0", "--episodes", "2"]
    with draft_of(Path("datasets/a-v0")) as draft:
        (draft / "mine").write_text("still here")
        assert main(arguments) == 2
        assert (draft / "mine").exists()
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: datasets/a-v0 is being written by another")
        (draft / "mine").unlink()
    assert main(arguments) == 0


def test_a_dataset_that_appears_meanwhile_is_kept(runs, capsys, monkeypatch):
    player = collect._player

    def slow(*arguments):
        monkeypatch.setattr(collect, "_player", player)
        collected(runs / "mlp", "--seed", "7", episodes=2)
        return player(*arguments)

    monkeypatch.setattr(collect, "_player", slow)
    arguments = [str(runs / "mlp"), "--dataset", "a-v0", "--episodes", "2"]
    assert main(arguments) == 2
    assert "holds a dataset already" in capsys.readouterr().err.splitlines()[-1]
    assert (
        opened(Path("datasets/a-v0")).storage.metadata["jax_es"]["recipe"]["seed"] == 7
    )


def test_failed_episodes_are_left_out(runs, monkeypatch):
    first = first_seed(0)
    monkeypatch.setattr(
        demonstrations, "is_finite", lambda each: each.seed not in (first, first + 3)
    )
    path = collected(runs / "mlp", episodes=5)
    ours = opened(path).storage.metadata["jax_es"]
    assert sorted(ours["failed_seeds"]) == [first, first + 3]
    assert sorted(seeds(path)) == [first + 1, first + 2, first + 4]
    arguments = [str(runs / "mlp"), "--dataset", "b-v0", "--episodes", "1"]
    assert main(arguments) == 2
    assert [entry.name for entry in Path("datasets").iterdir()] == ["a-v0"]


def test_without_minari_one_line_says_what_to_install(runs, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    arguments = [runs / "mlp", "--dataset", "a-v0", "--episodes", "2"]
    refused(main, arguments, "pip install -e '.[pretraining]'")
