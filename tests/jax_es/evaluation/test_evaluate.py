"""Evaluation of a run: the numbers, their seeds, the checkpoints, bad input."""

import csv
import dataclasses
import json
import shutil
import warnings
from unittest import mock

import gymnasium
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import EnvConfig
from jax_es.evaluate import main
from jax_es.evaluation.conditions import evaluate
from jax_es.evaluation.tables import summary
from jax_es.evaluation.video import follow_robot, record_video
from jax_es.models import DecisionTransformerConfig, MLPConfig
from jax_es.runs import trust
from jax_es.runs.checkpoint import CheckpointError, Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.training.episodes import evaluation_tasks
from jax_es.training.load_policy import load_policy
from jax_es.training.parts import build_evaluation
from jax_es.training.trained_mean import load_mean
from tests.made_runs import SHORT, play, results_of, save_run

LIMIT = SHORT.env.max_episode_steps
W = "Walker2d-v5"


def tiny(policy, env=SHORT.env, **fields):
    return dataclasses.replace(SHORT, policy=policy, env=env, **fields)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A Decision Transformer, whose actions depend on all that it has seen."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    policy = DecisionTransformerConfig(context_length=3, width=8, num_layers=1)
    return save_run(path, tiny(policy, num_generations=3), steps=(1, 2, 3))


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A feed-forward network that samples discrete actions."""
    path = tmp_path_factory.mktemp("runs") / "cartpole"
    policy = MLPConfig(hidden_sizes=(), sample_actions=True)
    return save_run(path, tiny(policy, EnvConfig("CartPole-v1", LIMIT)))


def seeds(seed, count):
    return evaluation_tasks(seed, 0, count, LIMIT, "test tasks").seed.tolist()


def test_what_trained_in_coarse_physics_is_evaluated_in_the_tasks_own(tmp_path, capsys):
    reports = []
    coarse = {"num_substeps": 1, "integrator": "Euler"}
    for name, physics in ("own", {}), ("coarse", coarse):
        rollout = dataclasses.replace(SHORT.rollout, **physics)
        config = tiny(MLPConfig(), EnvConfig("Hopper-v5", 30), rollout=rollout)
        run = save_run(tmp_path / name, config)
        assert main([str(run), "--episodes", "3", "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out)["return_mean"])
    assert reports[0] == reports[1]


def test_json_holds_the_statistics_of_what_a_gymnasium_loop_gets(run, capsys):
    """The rollout engine and a loaded policy in a loop are one and the same policy."""
    arguments = [str(run), "--checkpoint", "last", "--episodes", "4", "--seed", "3"]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    policy = load_policy(run, "last")
    returns, lengths = zip(*(play(policy, s) for s in seeds(3, 4)), strict=True)
    played = results_of(returns)._replace(lengths=np.array(lengths))
    expected = summary(played)
    given = {name: report.pop(name) for name in expected}
    assert given == pytest.approx(expected, rel=1e-4)
    assert np.std(returns) > 0.01 * abs(np.mean(returns))
    assert report == {
        "run": str(run),
        "env_id": "HalfCheetah-v5",
        "method": "openai-es",
        "checkpoint": "last",
        "generation": 3,
        "seed": 3,
    }


def test_other_rules_and_tasks_go_by_the_options_of_train(run, folder, capsys, refused):
    def report(*options, run=run):
        given = [*options, str(run), "--checkpoint", "last", "--episodes", "2"]
        assert main([*given, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    shorter = report("--env.max-episode-steps", "4")
    assert shorter["length_max"] == 4
    assert shorter["changed"] == {"env.max_episode_steps": 4}
    free = report("--env.kwargs.ctrl_cost_weight", "0")
    assert free["return_mean"] > report()["return_mean"]
    # Another task, of as many numbers, has its own defaults; nothing is varied.
    env = EnvConfig("HalfCheetah-v5", LIMIT, kwargs={"ctrl_cost_weight": 0.5})
    ranges = (("mass", 0.9, 1.1),)
    rollout = dataclasses.replace(SHORT.rollout, variation_range=ranges)
    config = tiny(MLPConfig(), dataclasses.replace(env, kwargs={}), rollout=rollout)
    other = save_run(folder / "other", config)
    walked = report("--env.kwargs.frame_skip", "4", run=other)
    assert walked["changed"] == {"env.kwargs.frame_skip": 4}
    other = save_run(folder / "costly", tiny(MLPConfig(), env))
    walked = report("--env.id", "Walker2d-v5", run=other)
    expected = report(run=save_run(folder / "w", tiny(MLPConfig(), EnvConfig(W))))
    assert walked["env_id"] == W and walked["return_mean"] == expected["return_mean"]
    words = "cannot act with --env.id Hopper-v5"
    refused(main, [run, "--env.id", "Hopper-v5", "--checkpoint", "last"], words)
    words = "perhaps you meant --env.max-episode-steps"
    refused(main, [run, "--env.max-steps", "4"], words)


OBJECTIVES = """
import jax_es


@jax_es.objective(last=["x_position"])
def far(episodes, factor=1.0):
    return factor * episodes.last["x_position"]


def soon(episodes):
    return -episodes.lengths
"""


def test_an_objective_of_ones_own_is_evaluated(
    run, folder, capsys, refused, monkeypatch
):
    (folder / "goals.py").write_text(OBJECTIVES)
    monkeypatch.syspath_prepend(str(folder))
    given = [str(run), "--checkpoint", "last", "--episodes", "2"]
    assert main([*given, "--objective", "goals:soon", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["fitness_mean"], report["fitness_std"]) == (-LIMIT, 0)
    assert main([*given, "--objective", "goals:far", "--csv", "far.csv"]) == 0
    assert "fitness mean ± std" in capsys.readouterr().out
    with open("far.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    env, policy = gymnasium.make("HalfCheetah-v5", max_episode_steps=LIMIT), None
    ends = []
    for seed in seeds(0, 2):
        policy = policy or load_policy(run, "last")
        observation, _ = env.reset(seed=seed)
        policy.reset()
        reward, done, info = 0.0, False, {}
        while not done:
            action = policy(observation, reward)
            observation, reward, *flags, info = env.step(action)
            done = any(flags)
        ends.append(info["x_position"])
    assert float(row["fitness_mean"]) == pytest.approx(np.mean(ends), rel=1e-4)
    with pytest.MonkeyPatch.context() as patch:  # what is typed is trusted
        patch.setattr(trust, "_named", set())
        own = tiny(load_mean(run, "last").config.policy)
        es = dataclasses.replace(own.es, objective="goals:soon")
        mine = save_run(folder / "mine", dataclasses.replace(own, es=es))
        refused(main, [mine, "--episodes", "2"], "add --trust")
        assert main([str(mine), "--episodes", "2", "--objective", "goals:soon"]) == 0
    (folder / "needs.py").write_text("def more(episodes, w):\n    return w")
    words = "needs:more needs w; give it a default"
    refused(main, [*given, "--objective", "needs:more"], words)
    words = "random play keeps nothing; leave --random-actions out"
    refused(main, [*given, "--objective", "goals:far", "--random-actions"], words)
    refused(main, [*given, "--objective", "return"], "must be module:function")


def test_a_seed_decides_the_episodes_and_a_checkpoint_the_policy(run):
    trained = load_mean(run, "last")
    parts = build_evaluation(trained.config, num_tasks=4)
    first = evaluate(parts, trained, 4, seed=0).returns
    np.testing.assert_array_equal(evaluate(parts, trained, 4, seed=0).returns, first)
    # Fewer episodes are the first of more.
    np.testing.assert_array_equal(
        evaluate(parts, trained, 2, seed=0).returns, first[:2]
    )
    assert not set(evaluate(parts, trained, 4, seed=1).returns) & set(first)
    earlier = load_mean(run, "1")
    assert (earlier.generation, trained.generation) == (1, 3)
    assert not set(evaluate(parts, earlier, 4, seed=0).returns) & set(first)
    parts.close()


def test_it_is_asked_for_each_return_of_the_grid(run, folder, capsys, monkeypatch):
    """As one that is asked in a Gymnasium loop; in JSON, CSV, picture and video."""
    filmed = {}
    monkeypatch.setattr(
        "jax_es.evaluation.video.record_video", lambda p, *_, **__: filmed.update(p)
    )
    monkeypatch.setattr("jax_es.evaluation.video.check_encoder", lambda file: None)
    options = "--checkpoint last --obedience -9000 9000 --levels 5 --episodes 2 --json"
    files = "--csv grid.csv --picture new/grid.png --video grid.gif"
    assert main([str(run), *options.split(), *files.split()]) == 0
    report = json.loads(capsys.readouterr().out)
    grid = [None, -9000.0, -4500.0, 0.0, 4500.0, 9000.0]
    assert [c["target_return"] for c in report["conditions"]] == grid
    means = [c["return_mean"] for c in report["conditions"]]
    asked = list(filmed.values())
    assert [*filmed] == [f"{c} asked, returned" for c in ("-9000", "0", "9000")]
    for policy, mean in zip(asked, means[1::2], strict=True):
        played = np.mean([play(policy, seed)[0] for seed in seeds(0, 2)])
        assert mean == pytest.approx(played, rel=2e-3)
    assert min(np.abs(np.diff(sorted(means[1:])))) > 2e-3 * max(np.abs(means))
    measures = report["obedience"]
    assert measures["reached_lowest"] == pytest.approx(min(means[1:]))
    assert measures["reached_highest"] == pytest.approx(max(means[1:]))
    assert measures["slope"] == pytest.approx(np.polyfit(grid[1:], means[1:], 1)[0])
    with open("grid.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["target_return"] for row in rows] == ["", *map(str, grid[1:])]
    assert [float(row["return_mean"]) for row in rows] == means
    assert (folder / "new" / "grid.png").stat().st_size > 1000


def test_a_table_is_printed_though_its_file_cannot_be_written(cartpole, capsys):
    assert main([str(cartpole), "--episodes", "2", "--csv", "/dev/full"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: --csv /dev/full cannot be written ([Errno 28] No sp")
    assert len(err.splitlines()) == 1 and "CartPole-v1" in out


def test_another_return_may_be_asked_for_in_the_middle_of_an_episode(run, cartpole):
    policy = load_policy(run)
    scale = load_mean(run).config.policy.reward_scale  # type: ignore

    def remaining():
        return policy._carry.return_to_go[0] / scale

    policy.ask(900.0)
    policy(np.zeros(17), 55.0)
    assert remaining() == pytest.approx(900)
    policy(np.zeros(17), 10.0)
    policy.ask(1000.0)
    policy.ask(400.0)
    policy(np.zeros(17), 20.0)
    assert remaining() == pytest.approx(400 - 30)
    policy(np.zeros(17), 5.0)
    assert remaining() == pytest.approx(400 - 35)
    policy.reset()
    policy(np.zeros(17))
    assert remaining() == pytest.approx(400)
    with pytest.raises(ConfigError, match="mlp has no target return; choose"):
        load_policy(cartpole).ask(1.0)


def test_summary_by_hand():
    report = summary(results_of([4.0, 1.0, np.nan, 2.0, 3.0, np.inf]))
    assert report == {
        "episodes": 6,
        "nonfinite_returns": 2,
        "length_mean": 3.5,
        "length_min": 1,
        "length_max": 6,
        "return_mean": 2.5,
        "return_std": pytest.approx(np.sqrt(1.25)),
        "return_min": 1.0,
        "return_quartile_1": 1.75,
        "return_median": 2.5,
        "return_quartile_3": 3.25,
        "return_max": 4.0,
    }
    nothing = summary(results_of([np.nan]))
    assert nothing["nonfinite_returns"] == 1
    assert "return_mean" not in nothing


@pytest.fixture
def copied(run, folder):
    return shutil.copytree(run, folder / "copied")


def test_checkpoints_of_something_else_are_one_line(copied, cartpole, refused):
    shutil.rmtree(copied / "checkpoints")
    shutil.copytree(cartpole / "checkpoints", copied / "checkpoints")
    refused(main, [copied, "--checkpoint", "last"], "another network")
    with pytest.raises(CheckpointError, match="another network"):
        load_policy(copied, "last")
    Checkpoints(copied / "checkpoints").save(5, {"weights": np.ones(3)})
    refused(main, [copied, "--checkpoint", "5"], "not a training state")


def test_a_batch_acts_like_its_rows_alone(run):
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(6, 3, 17)).astype(np.float32)
    rewards = rng.normal(size=(6, 3)) * 100
    policy = load_policy(run)
    together = [policy(o, r) for o, r in zip(observations, rewards, strict=True)]
    assert together[0].shape == (3, 6)
    for row in range(3):
        policy.reset()
        for step in range(6):
            alone = policy(observations[step, row], rewards[step, row])
            assert alone.shape == (6,)
            np.testing.assert_allclose(alone, together[step][row], atol=1e-5)


def test_it_remembers_until_told_to_forget(run):
    policy = load_policy(run)
    observation = np.full((2, 17), 0.3)
    first = policy(observation)
    second = policy(observation, 5.0)
    assert not np.allclose(first, second)
    # ``first`` forgets for one environment, reset for all.
    third = policy(observation, 5.0, [True, False])
    np.testing.assert_allclose(third[0], first[0], atol=1e-6)
    assert not np.allclose(third[1], first[1])
    policy.reset()
    np.testing.assert_array_equal(policy(observation), first)
    # The reward before an episode's first action is nobody's.
    policy.reset()
    np.testing.assert_array_equal(policy(observation, 9.0), first)


def test_the_number_of_environments_changes_only_at_a_reset(run):
    policy = load_policy(run)
    policy(np.zeros((2, 17)))
    with pytest.raises(ValueError, match=r"3 rows where earlier ones had 2.*reset"):
        policy(np.zeros((3, 17)))
    policy.reset()
    assert policy(np.zeros((3, 17))).shape == (3, 6)


def test_observations_are_normalised_as_in_training(run, folder):
    trained = load_mean(run)
    assert trained.statistics.count > 0
    twin = shutil.copytree(run, folder / "twin")
    stored = RunDirectory(twin).record()
    stored["config"]["rollout"]["observation_statistics"] = False
    RunDirectory(twin).write(stored)
    assert load_mean(twin).statistics is None
    observation = np.full(17, 0.3)
    assert not np.allclose(
        load_policy(run)(observation), load_policy(twin)(observation)
    )


def test_discrete_actions_are_integers_sampled_by_seed(cartpole):
    observations = np.zeros((200, 4))
    actions = load_policy(cartpole, seed=1)(observations)
    assert actions.shape == (200,)
    assert np.issubdtype(actions.dtype, np.integer)
    assert set(actions.tolist()) == {0, 1}
    again = load_policy(cartpole, seed=1)(observations)
    np.testing.assert_array_equal(actions, again)
    other = load_policy(cartpole, seed=2)(observations)
    assert not np.array_equal(actions, other)
    action = load_policy(cartpole)(np.zeros(4))
    assert gymnasium.spaces.Discrete(2).contains(action)


class Coins(gymnasium.Env):
    """A return tells all actions of its episode."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.worth = 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.worth *= 2
        return np.zeros(1, np.float32), float(action) * self.worth, False, False, {}


def test_a_video_is_of_the_first_episode_though_actions_are_sampled(
    folder, monkeypatch, capsys
):
    filmed = []

    def film(policies, env, file, seed, terrains):
        filmed.extend(play(policy, seed)[0] for policy in policies.values())

    monkeypatch.setattr("jax_es.evaluation.video.record_video", film)
    monkeypatch.setattr("jax_es.evaluation.video.check_encoder", lambda file: None)
    policy = MLPConfig(hidden_sizes=(), sample_actions=True)
    save_run(folder / "x", tiny(policy, EnvConfig("Coins-v0")))
    assert main(["x", "--json", "--episodes", "1", "--video", "x.gif"]) == 0
    (returned,) = filmed
    out, err = capsys.readouterr()
    assert json.loads(out)["return_mean"] == returned
    assert "x.gif\n" in err.splitlines(keepends=True)


class Renderer(gymnasium.Env):
    """Draws frames of a changing grey, or cannot."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, broken=False, render_mode=None):
        self.render_mode = render_mode
        self.broken = broken

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shade = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.shade += 20 + int(action[0])
        return np.zeros(2, np.float32), 1.0, self.shade >= 100, False, {}

    def render(self):
        if self.broken:
            raise RuntimeError("no GL library\nand a long story")
        return np.full((32, 48, 3), self.shade, np.uint8)


class StillPolicy:
    def __init__(self, action=0.0):
        self.action = action

    def reset(self):
        pass

    def __call__(self, observation, reward):
        return np.full(1, self.action, np.float32)


@pytest.fixture(autouse=True)
def registered():
    """Registers two environments: no machine needs a GL library for these tests."""
    with mock.patch.dict(gymnasium.registry):
        gymnasium.register("Coins-v0", Coins, max_episode_steps=LIMIT)
        gymnasium.register("Renderer-v0", Renderer, max_episode_steps=50)
        yield


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_video_shows_every_step(folder, suffix):
    imageio = pytest.importorskip("imageio")
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg")
    file = folder / "new" / f"episode{suffix}"
    env = EnvConfig("Renderer-v0")
    assert record_video({"": StillPolicy()}, env, file, seed=0) == [5]
    shades = [frame.mean() for frame in frames_of(imageio, file)]
    np.testing.assert_allclose(shades, [0, 20, 40, 60, 80], atol=6)


def test_episodes_are_shown_side_by_side_under_captions(folder):
    """The shorter one stays as it ended."""
    imageio = pytest.importorskip("imageio")
    file, env = folder / "episodes.gif", EnvConfig("Renderer-v0")
    policies = {"": StillPolicy(), "asked": StillPolicy(20.0)}
    assert record_video(policies, env, file, seed=0) == [5, 3]
    frames = np.stack(frames_of(imageio, file)).astype(float)
    assert frames.shape == (5, 32, 96, 3)
    np.testing.assert_allclose(
        frames[:, -8:, :48].mean(axis=(1, 2, 3)), [0, 20, 40, 60, 80], atol=6
    )
    np.testing.assert_allclose(
        frames[:, -8:, 48:].mean(axis=(1, 2, 3)), [0, 40, 80, 120, 120], atol=6
    )
    has_text = frames[:, :16].max(axis=(1, 3)) > 200
    assert has_text[:, 48:].any(axis=1).all() and not has_text[:, :48].any()


def frames_of(imageio, file):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of the decoder's process
        reader = imageio.get_reader(file)
        frames = [np.asarray(frame)[..., :3] for frame in reader]
        reader.close()
    return frames


@pytest.mark.parametrize(
    ("env", "file", "words"),
    [
        (
            EnvConfig("Renderer-v0", kwargs={"broken": True}),
            "x.gif",
            r"cannot be rendered here \(no GL library\); install EGL",
        ),
        (EnvConfig("Coins-v0"), "x.gif", "let its __init__ take render_mode, and"),
        (EnvConfig("Renderer-v0"), "file/x.gif", "cannot be written"),
    ],
)
def test_a_video_that_cannot_be_made_is_one_line(folder, env, file, words):
    pytest.importorskip("imageio")
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match=words) as caught:
        record_video({"": StillPolicy()}, env, folder / file, seed=0)
    assert "\n" not in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("env_id", "camera"), [("HalfCheetah-v5", 0), ("InvertedPendulum-v5", -1)]
)
def test_the_camera_follows_a_robot_that_runs_away(env_id, camera):
    env = gymnasium.make(env_id, render_mode="rgb_array")
    renderer = env.unwrapped.mujoco_renderer
    follow_robot(env)
    assert renderer.camera_id == camera
    env.close()
