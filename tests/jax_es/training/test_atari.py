"""Images through the whole: rollouts, statistics, presets, names of games."""

import dataclasses

import jax
import numpy as np
import pytest

import models
from envs.atari_env import make_single_atari_env
from jax_es import load_policy, train_run
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.evaluate import main as evaluate
from jax_es.presets import preset
from jax_es.rollout.devices import Devices
from jax_es.rollout.observation_statistics import (
    View,
    initial_statistics,
    mean_and_std,
    observe,
    scaled,
)
from jax_es.train import main as train
from jax_es.train_config import differences, from_dict, to_dict
from jax_es.training import generation
from jax_es.training.build import TrainConfig, make_policy, with_game
from jax_es.training.generation import initial_state, population_tasks
from jax_es.training.load_policy import load_mean
from jax_es.training.parts import build
from models import CNNConfig, ImageDecisionTransformerConfig, MLPConfig

SMALL = ImageDecisionTransformerConfig(
    width=8, num_heads=2, num_layers=1, context_length=3, max_timestep=50
)


TRANSFORMERS = {
    attention: dataclasses.replace(SMALL, attention=attention)
    for attention in ("cache", "window")
}
CNN = CNNConfig(hidden_size=8, reference_size=9)


def tiny(num_slots, num_devices, policy=TRANSFORMERS["cache"], perturbation="low-rank"):
    config = preset("hero-dt-fast")
    return dataclasses.replace(
        config,
        env=EnvConfig("ALE/Breakout-v5", max_episode_steps=30),
        policy=policy,
        es=dataclasses.replace(config.es, num_pairs=3, perturbation=perturbation),
        rollout=RolloutConfig(
            num_slots=num_slots,
            num_devices=num_devices,
            statistics_fraction=1.0,
            std_floor=25.5,
        ),
        evaluation=dataclasses.replace(config.evaluation, num_episodes=1),
    )


@pytest.mark.parametrize(
    ("policy", "perturbation"),
    [
        (TRANSFORMERS["cache"], "low-rank"),
        (TRANSFORMERS["window"], "full"),
        (CNN, "low-rank"),
    ],
    ids=["cache", "window", "cnn"],
)
def test_returns_do_not_depend_on_the_schedule(policy, perturbation):
    results = []
    for num_slots, num_devices in ((2, 1), (4, 2)):
        parts = build(tiny(num_slots, num_devices, policy, perturbation))
        state = initial_state(parts)
        population = parts.strategy.ask(state.es)
        tasks = population_tasks(parts.config, 0, 30)
        seen = View(reference=state.reference)
        results.append(parts.rollout.evaluate(population, tasks, seen))
        parts.close()
    one, two = results
    np.testing.assert_array_equal(one.returns, two.returns)
    np.testing.assert_array_equal(one.lengths, two.lengths)
    # Breakout pays seldom; the frames tell any two episodes apart.
    for first, second in zip(one.observations, two.observations, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-12)
    assert one.observations.count == one.env_steps == 6 * 30


def test_returns_do_not_depend_on_how_many_resets_come_together():
    """Nor on the slots that wait for them."""
    results = []
    for resets_at_once in (1, 3):
        parts = build(tiny(4, 2, CNN))
        parts.env.resets_at_once = resets_at_once  # pyright: ignore
        state = initial_state(parts)
        tasks = population_tasks(parts.config, 0, 30)
        tasks = tasks._replace(max_steps=np.array([3, 9, 2, 5, 7, 4], np.int32))
        population = parts.strategy.ask(state.es)
        seen = View(reference=state.reference)
        results.append(parts.rollout.evaluate(population, tasks, seen))
        parts.close()
    one, three = results
    assert one.lengths.tolist() == three.lengths.tolist() == [3, 9, 2, 5, 7, 4]
    np.testing.assert_array_equal(one.returns, three.returns)
    for first, second in zip(one.observations, three.observations, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-12)
    # Slots did wait.
    assert three.slot_utilization < one.slot_utilization


def test_frames_stay_bytes_on_the_way_to_the_devices(monkeypatch):
    parts = build(tiny(2, 1))
    placed = []
    put = Devices.put
    monkeypatch.setattr(
        Devices, "put", lambda self, tree: (placed.append(tree), put(self, tree))[1]
    )
    state = initial_state(parts)
    tasks = population_tasks(parts.config, 0, 3)
    parts.rollout.evaluate(parts.strategy.ask(state.es), tasks)
    images = [
        leaf for tree in placed for leaf in jax.tree.leaves(tree) if leaf.ndim == 5
    ]
    assert images
    assert {image.dtype for image in images} == {np.dtype(np.uint8)}
    parts.close()


def test_statistics_of_bytes_are_those_of_what_policies_see():
    """Also where squares of bytes, or their sum in 32 bits, would overflow."""
    frames = np.random.default_rng(0).integers(0, 256, (9, 2, 3, 3), np.uint8)
    seen = np.float64(np.float32(frames) / np.float32(255)).reshape(9, -1)
    statistics = initial_statistics(18)
    for _ in range(3):
        statistics = observe(statistics, scaled(frames))
    mean, std = mean_and_std(statistics)
    np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, seen.std(axis=0), rtol=1e-4)
    assert scaled(frames).dtype == np.float32
    vector = np.float32([300.0])
    assert scaled(vector) is vector


def test_a_fast_twin_differs_in_how_it_is_computed_only():
    assert set(differences(preset("hero-dt"), preset("hero-dt-fast"))) == {
        "es.perturbation",
        "policy.attention",
        "policy.reward_scale",
        "rollout.std_floor",
    }


def test_the_paper_preset_reads_points_and_grey_levels():
    config = preset("hero-dt")
    assert config.policy.target_return * config.policy.reward_scale == 8000.0
    assert config.rollout.std_floor == 0.1
    # Runs from before it was a field go on with the floor that they had.
    stored = to_dict(preset("hero-dt-fast"))
    del stored["rollout"]["std_floor"]
    assert from_dict(stored).rollout.std_floor == 25.5


def test_the_floor_of_frames_is_in_grey_levels():
    frames = np.zeros((2, 4, 84, 84), np.uint8)
    frames[1, :, :, :42] = 204
    statistics = observe(initial_statistics(4 * 84 * 84), scaled(frames))
    seen = View(statistics, std_floor=51.0)
    _, std, _ = seen.normalizer((4, 84, 84), np.uint8)
    # Half of the pixels vary by 102 grey levels, half never do.
    np.testing.assert_allclose(std[..., :42], 0.4, rtol=1e-6)
    np.testing.assert_allclose(std[..., 42:], 0.2, rtol=1e-6)


def test_a_game_by_any_name():
    config = with_game(TrainConfig(env=EnvConfig(game="ms_pacman", noop_max=3)))
    assert config.env == EnvConfig("ALE/MsPacman-v5", noop_max=3)
    assert with_game(config) is config
    with pytest.raises(ValueError, match=r"env.game: ale-py has no game 'heroo'"):
        with_game(TrainConfig(env=EnvConfig(game="heroo")))


def test_policies_say_what_they_take():
    parts = build(tiny(2, 1))
    image, action = parts.env.single_observation_space, parts.env.single_action_space
    with pytest.raises(
        ConfigError, match=r"mlp takes observation vectors.*--policy cnn or im"
    ):
        make_policy(MLPConfig(), image, action)
    parts.close()


def test_trains_evaluates_and_reloads(tmp_path, capsys):
    options = {
        "--env.game": "breakout",
        "--env.max-episode-steps": 12,
        "--es.num-pairs": 2,
        "--num-generations": 1,
        "--evaluation.num-episodes": 1,
        "--policy.width": 8,
        "--policy.num-heads": 1,
        "--policy.num-layers": 1,
        "--policy.context-length": 2,
        "--runs-dir": tmp_path,
        "--name": "run",
    }
    argv = [str(part) for option in options.items() for part in option]
    assert train(["hero-dt-fast", *argv]) == 0
    video = tmp_path / "episode.mp4"
    assert (
        evaluate([str(tmp_path / "run"), "--episodes", "1", "--video", str(video)]) == 0
    )
    assert "ALE/Breakout-v5" in capsys.readouterr().out
    assert video.stat().st_size > 1000
    policy = load_policy(tmp_path / "run")
    frames = np.zeros((4, 84, 84), np.uint8)
    assert policy(frames).shape == ()
    policy.reset()
    assert policy(np.stack([frames, frames])).shape == (2,)


def test_virtual_batch_normalisation_resumes_and_reloads(tmp_path, monkeypatch):
    """The reference batch belongs to the run: its checkpoints have it."""
    config = dataclasses.replace(
        tiny(4, 2, CNN), env=EnvConfig("ALE/Breakout-v5", max_episode_steps=15)
    )

    def train_to(num_generations, name, resume=False):
        prolonged = dataclasses.replace(config, num_generations=num_generations)
        return train_run(prolonged, tmp_path / name, resume=resume)

    whole = train_to(2, "whole")
    train_to(1, "torn")
    monkeypatch.setattr(
        generation, "reference_batch", lambda *_: pytest.fail("it is there already")
    )
    torn = train_to(2, "torn", resume=True)
    assert whole.state.reference.shape == (9, 4, 84, 84)
    assert whole.state.reference.std() > 1
    for one, other in zip(
        jax.tree.leaves(whole.state), jax.tree.leaves(torn.state), strict=True
    ):
        if not jax.dtypes.issubdtype(getattr(one, "dtype", int), jax.dtypes.prng_key):
            np.testing.assert_array_equal(one, other)
    # The loaded policy's statistics are those of its weights on that batch.
    loaded = load_policy(tmp_path / "whole", "last")
    trained = load_mean(tmp_path / "whole", "last")
    np.testing.assert_array_equal(trained.reference, whole.state.reference)
    policy = models.make_policy(CNN, (4, 84, 84), models.DiscreteActions(4))
    variables = {"params": trained.mean}
    mean, std = (
        part.reshape(4, 84, 84)
        for part in mean_and_std(trained.statistics, 25.5, np.uint8)
    )
    seen = (np.float32(trained.reference) / 255 - mean) / std
    expected = policy.prepare(variables, seen)["batch_stats"]
    actual = loaded._variables["batch_stats"]
    for one, other in zip(
        jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert loaded(np.zeros((3, 4, 84, 84), np.uint8)).shape == (3,)


def test_a_loaded_policy_refuses_what_its_environment_does_not_give(tmp_path):
    config = dataclasses.replace(
        tiny(2, 1), env=EnvConfig("ALE/Breakout-v5", max_episode_steps=3)
    )
    config = dataclasses.replace(config, num_generations=1)
    train_run(config, tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    with pytest.raises(ValueError, match=r"float32, expected uint8, .*do not scale"):
        policy(np.zeros((4, 84, 84), np.float32))
    with pytest.raises(ValueError, match=r"\(84, 84, 4\), expected \(4, 84, 84\)"):
        policy(np.zeros((84, 84, 4), np.uint8))
    # The documentation's loop, in a game.
    env = make_single_atari_env(policy.env_id, **policy.env_options)
    observation, _ = env.reset(seed=0)
    steps, done, reward = 0, False, 0.0
    while not done:
        observation, reward, terminated, truncated, _ = env.step(
            policy(observation, reward)
        )
        steps, done = steps + 1, terminated or truncated
    assert steps == 3
    env.close()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--env.game", "heroo"], "env.game: ale-py has no game 'heroo'; the closest"),
        (["--env.game", "joust"], "env.game: ale-py has no game 'joust'; the closest"),
        (["--env.id", "ALE/heroo-v5"], "env.id: ale-py has no game 'ALE/heroo-v5'"),
        (["--env.id", "Hero"], "no environment 'Hero'"),
        (
            ["--env.game", "pong", "--env.id", "Hopper-v5"],
            "--env.game pong and --env.id Hopper-v5 name two environments",
        ),
        (["--env.sticky-actions", "2"], "env.sticky_actions must be in [0, 1), got 2"),
        (["--env.noop-max", "-1"], "env.noop_max must be at least 0, got -1"),
        (["--policy", "mlp"], "policy mlp takes observation vectors"),
        (["--env.id", "Hopper-v5"], "policy image-decision-transformer takes images"),
        (["--policy.context-length", "20000"], "policy.context_length=20000"),
    ],
)
def test_bad_input_is_one_line(options, complaint, tmp_path, capsys):
    argv = ["hero-dt", *options, "--runs-dir", str(tmp_path), "--es.num-pairs", "2"]
    assert train([*argv, "--rollout.num-slots", "2"]) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert "Traceback" not in err
