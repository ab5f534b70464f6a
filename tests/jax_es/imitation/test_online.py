"""What a network learns from episodes that it plays itself."""

import dataclasses

import gymnasium
import jax
import numpy as np
import pytest

from jax_es import pretrain
from jax_es.config import EnvConfig, EvaluationConfig, RolloutConfig
from jax_es.imitation.clone_run import pretrain_run
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.datasets import Episodes
from jax_es.imitation.epoch_records import read_epochs
from jax_es.imitation.online import OnlinePlayer
from jax_es.models import DecisionTransformerConfig
from jax_es.rollout.observation_statistics import UNCHANGED
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.metrics import read_metrics
from jax_es.train_config import TrainConfig
from jax_es.training.parts import build_evaluation
from jax_es.training.trained_mean import load_mean

ID = "PaidForItsAction-v0"
ONLINE = CloningConfig(
    steps_per_epoch=60,
    epochs=3,
    batch_size=32,
    learning_rate=3e-3,
    warmup_steps=0,
    gradient_clip=10.0,
    dropout=0.0,
    online_episodes=24,
    online_noise=0.4,
    replay_episodes=96,
)


class PaidForItsAction(gymnasium.Env):
    """One step, which pays for the size of the action: at most 1."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action[0]), True, False, {}


@pytest.fixture(autouse=True)
def here(folder):
    pytest.importorskip("minari")
    gymnasium.register(ID, PaidForItsAction, max_episode_steps=2)
    yield
    del gymnasium.registry[ID]


def config(**more):
    return TrainConfig(
        env=EnvConfig(ID),
        policy=DecisionTransformerConfig(
            context_length=1,
            width=16,
            num_layers=1,
            max_timestep=2,
            target_return=1.0,
            reward_scale=1.0,
        ),
        rollout=RolloutConfig(num_slots=8, num_devices=1, observation_statistics=False),
        evaluation=EvaluationConfig(2),
        **more,
    )


def arrays(path):
    """All that a run's last checkpoint holds."""
    return jax.tree.leaves(Checkpoints(path / "checkpoints").restore("last").state)


def test_it_finds_out_what_its_actions_lead_to(folder):
    """What it plays at first, noise and all, pays a third of what it then reaches."""
    settings = dataclasses.replace(ONLINE, epochs=6)
    result = pretrain_run(config(), settings, None, "runs/a")
    own = [record.own_return_mean for record in result.records]
    assert own[0] < 0.4 and own[-1] > own[0] + 0.3
    assert result.best_evaluation > 0.95
    assert [r.own_steps for r in result.records] == [24 * n for n in range(1, 7)]
    assert [r.total_env_steps for r in read_metrics(folder / "runs/a")][-1] == 24 * 6
    assert result.records[0].holdout_loss is None


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_stopped_run_goes_on_to_the_same_numbers(folder, epochs):
    pretrain_run(config(), ONLINE, None, "runs/whole")
    part = dataclasses.replace(ONLINE, epochs=epochs)
    pretrain_run(config(), part, None, "runs/part")
    pretrain_run(config(), ONLINE, None, "runs/part", resume=True)
    whole, part = arrays(folder / "runs/whole"), arrays(folder / "runs/part")
    assert len(whole) == len(part) > 20
    for one, other in zip(whole, part, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [r.training_loss for r in read_epochs(folder / "runs/part")] == [
        r.training_loss for r in read_epochs(folder / "runs/whole")
    ]


def test_a_stop_while_it_plays_leaves_the_last_epoch(folder):
    """A stop signal is noticed in an episode, not after all of them."""
    calls = []

    def stop():
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain_run(config(), ONLINE, None, "runs/a", check_stop=stop)
    pretrain_run(config(), ONLINE, None, "runs/a", resume=True)
    pretrain_run(config(), ONLINE, None, "runs/whole")
    for one, other in zip(
        arrays(folder / "runs/a"), arrays(folder / "runs/whole"), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_it_begins_with_another_runs_weights(folder):
    pretrain_run(config(), dataclasses.replace(ONLINE, epochs=1), None, "runs/a")
    begun = config(init="runs/a", init_checkpoint="last")
    still = dataclasses.replace(ONLINE, epochs=1, learning_rate=1e-30, weight_decay=0.0)
    pretrain_run(begun, still, None, "runs/b")
    assert pretrain.main(["--resume", "--name", "b", "--epochs", "1"]) == 0
    for one, other in zip(
        jax.tree.leaves(load_mean("runs/a", "last").mean),
        jax.tree.leaves(load_mean("runs/b", "last").mean),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def episodes(*returns):
    """Episodes of one step that came to this."""
    paid = np.array(returns, np.float32)
    ones = np.ones(len(paid), np.int64)
    return Episodes(np.zeros((len(paid), 1), np.float32), paid[:, None], paid, ones)


def test_the_worst_of_the_dataset_are_forgotten_first_then_the_oldest():
    parts = build_evaluation(config(), 8)
    settings = dataclasses.replace(ONLINE, online_episodes=2, replay_episodes=5)
    given = episodes(0.3, 0.1, 0.9, 0.2, 0.5, 0.4)
    player = OnlinePlayer(parts, settings, UNCHANGED, given)
    near = pytest.approx
    assert player.episodes.returns.tolist() == near([0.2, 0.3, 0.4, 0.5, 0.9])
    mean = parts.policy.init(jax.random.key(0))
    first = player.play(mean, 0, lambda: None)
    assert player.episodes.returns[:3].tolist() == near([0.4, 0.5, 0.9])
    assert player.episodes.returns[3:].mean() == near(first, abs=1e-6)
    assert player.num_steps == 2
    player.play(mean, 1, lambda: None)
    player.play(mean, 2, lambda: None)
    assert len(player.episodes.returns) == 5
    assert 0.9 not in player.episodes.returns.round(6)
    parts.close()


def test_it_asks_for_the_best_that_it_remembers(monkeypatch):
    parts = build_evaluation(config(), 8)
    asked = []

    def played(given, population, tasks, *more):
        asked.append(tasks.command)
        raise KeyboardInterrupt

    monkeypatch.setattr("jax_es.imitation.online.Rollout.evaluate", played)
    for settings in (ONLINE, dataclasses.replace(ONLINE, online_return=7.0)):
        player = OnlinePlayer(parts, settings, UNCHANGED, episodes(0.3, 0.75))
        with pytest.raises(KeyboardInterrupt):
            player.play(parts.policy.init(jax.random.key(0)), 0, lambda: None)
    assert [set(each.tolist()) for each in asked] == [{0.75}, {7.0}]
    parts.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hopper"], "--dataset is required"),
        (["hopper", "--online-noise", "0.2"], "without --online-episodes"),
        (
            ["hopper", "--online-episodes", "2", "--rollout.observation-statistics"],
            "--rollout.no-observation-statistics",
        ),
        (
            ["hopper", "--online-episodes", "2", "--replay-episodes", "100000000"],
            "--replay-episodes 100000000",
        ),
        (
            ["own-discrete", "--env.id", "CartPole-v1", "--online-episodes", "2"],
            "add --online-noise 0",
        ),
        (["hopper", "--online-episodes", "2", "--init", "runs/x"], "runs/x"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(refused, words, said):
    refused(pretrain.main, words, said)
