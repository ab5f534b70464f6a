"""Images through the whole: rollouts, statistics, presets, names of games."""

import dataclasses

import jax
import numpy as np
import pytest

from jax_es import load_policy, models, train_policy
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.evaluate import main as evaluate
from jax_es.models import CNNConfig, ImageDecisionTransformerConfig
from jax_es.presets import preset
from jax_es.rollout.observation_statistics import (
    View,
    constant_entries,
    mean_and_std,
)
from jax_es.train import main as train
from jax_es.train_config import from_dict, to_dict
from jax_es.training import generation
from jax_es.training.build import TrainConfig, with_game
from jax_es.training.episodes import population_tasks
from jax_es.training.generation import initial_state
from jax_es.training.parts import build
from jax_es.training.trained_mean import load_mean

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "perturbation"),
    [(TRANSFORMERS["window"], "full"), (CNN, "low-rank")],
    ids=["window", "cnn"],
)
def test_returns_do_not_depend_on_the_schedule(policy, perturbation):
    results = []
    for num_slots, num_devices in ((2, 1), (4, 2)):
        parts = build(tiny(num_slots, num_devices, policy, perturbation))
        state = initial_state(parts)
        population = parts.strategy.ask(state.es)
        tasks = population_tasks(parts.config, 0, 12, 6)
        seen = View(reference=state.reference)
        results.append(parts.rollout.evaluate(population, tasks, seen))
        parts.close()
    one, two = results
    np.testing.assert_array_equal(one.returns, two.returns)
    np.testing.assert_array_equal(one.lengths, two.lengths)
    # Breakout pays seldom; the frames tell any two episodes apart.
    for first, second in zip(one.observations, two.observations, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-12)
    assert one.observations.count == one.env_steps == 6 * 12


def test_the_paper_preset_reads_points_and_grey_levels():
    config = preset("hero-dt")
    assert config.policy.target_return * config.policy.reward_scale == 8000.0
    assert config.rollout.std_floor == 0.1
    # Runs from before it was a field go on with the floor that they had.
    stored = to_dict(preset("hero-dt-fast"))
    del stored["rollout"]["std_floor"]
    assert from_dict(stored).rollout.std_floor == 25.5


def test_a_game_by_any_name():
    config = with_game(TrainConfig(env=EnvConfig(game="ms_pacman", noop_max=3)))
    assert config.env == EnvConfig("ALE/MsPacman-v5", noop_max=3)
    assert with_game(config) is config
    with pytest.raises(ValueError, match=r"env.game: ale-py has no game 'heroo'"):
        with_game(TrainConfig(env=EnvConfig(game="heroo")))


@pytest.mark.slow
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
    policy.reset()
    with pytest.raises(ValueError, match=r"float32, expected uint8, .*do not scale"):
        policy(np.zeros((4, 84, 84), np.float32))
    with pytest.raises(ValueError, match=r"\(84, 84, 4\), expected \(4, 84, 84\)"):
        policy(np.zeros((84, 84, 4), np.uint8))


@pytest.mark.slow
def test_virtual_batch_normalisation_resumes_and_reloads(tmp_path, monkeypatch):
    """The reference batch belongs to the run: its checkpoints have it."""
    config = dataclasses.replace(
        tiny(4, 2, CNN), env=EnvConfig("ALE/Breakout-v5", max_episode_steps=15)
    )

    def train_to(num_generations, name, resume=False):
        prolonged = dataclasses.replace(config, num_generations=num_generations)
        return train_policy(prolonged, tmp_path / name, resume=resume)

    train_to(1, "run")
    monkeypatch.setattr(
        generation, "reference_batch", lambda *_: pytest.fail("it is there already")
    )
    whole = train_to(2, "run", resume=True)
    assert whole.state.reference.shape == (9, 4, 84, 84)
    assert whole.state.reference.std() > 1
    # The loaded policy's statistics are those of its weights on that batch.
    loaded = load_policy(tmp_path / "run", "last")
    trained = load_mean(tmp_path / "run", "last")
    np.testing.assert_array_equal(trained.reference, whole.state.reference)
    policy = models.make_policy(CNN, (4, 84, 84), models.DiscreteActions(4))
    variables = {"params": trained.mean}
    mean, std = (
        part.reshape(4, 84, 84)
        for part in mean_and_std(trained.statistics, 25.5, np.uint8)
    )
    seen = (np.float32(trained.reference) / 255 - mean) / std
    # Random play also shows pixels that never changed for the members.
    seen[:, constant_entries(trained.statistics).reshape(4, 84, 84)] = 0
    expected = policy.prepare(variables, seen)["batch_stats"]
    actual = loaded._variables["batch_stats"]
    for one, other in zip(
        jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert loaded(np.zeros((3, 4, 84, 84), np.uint8)).shape == (3,)
