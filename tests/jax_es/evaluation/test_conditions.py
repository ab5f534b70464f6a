"""Changed conditions of real runs, against loops that know nothing of them."""

import csv
import dataclasses
import json
import shutil
import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from jax_es.es.noise import FullNoise, member_key, unflatten
from jax_es.evaluate import main
from jax_es.evaluation.conditions import (
    BASE,
    Condition,
    Evaluation,
    evaluate,
    evaluate_experiment,
    prepare,
    sweeps,
)
from jax_es.evaluation.quantization import round_weights
from jax_es.evaluation.tables import rank_tests, summary_over_runs, table
from jax_es.models import DecisionTransformerConfig, MLPConfig
from jax_es.rollout.streams import stream
from jax_es.runs.checkpoint import CheckpointError, Checkpoints
from jax_es.runs.find import find_runs
from jax_es.runs.method import OPENAI_ES, Method
from jax_es.training.build import TrainConfig
from jax_es.training.episodes import evaluation_tasks
from jax_es.training.load_policy import LoadedPolicy, load_policy
from jax_es.training.trained_mean import TrainedMean, load_mean
from tests.envs.varied import Varied
from tests.made_runs import SHORT, play, results_of, save_run

LIMIT = SHORT.env.max_episode_steps
EPISODES = 5
OBSERVATION_SPACE = gymnasium.spaces.Box(-np.inf, np.inf, (17,))
SAC = Method("sac", {})
DT = DecisionTransformerConfig(context_length=3, width=8, num_layers=1)


def tiny(policy, seed=0):
    rollout = dataclasses.replace(SHORT.rollout, num_slots=2)
    return dataclasses.replace(SHORT, policy=policy, seed=seed, rollout=rollout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """An experiment of two seeds, and a feed-forward network beside it."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        save_run(folder / "dt" / f"seed-{seed}", tiny(DT, seed=seed))
    save_run(folder / "mlp", tiny(MLPConfig(hidden_sizes=(8,))))
    return folder


def prepared(path, conditions, episodes=EPISODES):
    (experiment,) = prepare(find_runs(path), "last", conditions, episodes)
    return experiment


def seeds(count):
    rng = stream(0, "test tasks")
    return rng.integers(2**31, size=count, dtype=np.int32)


def test_each_condition_is_the_policy_that_it_says(runs):
    """Rounded and noisy weights made by hand."""
    conditions = sweeps((), ("int4",), (0.1, 0.2))
    experiment = prepared(runs / "mlp", conditions)
    (trained,), policy = experiment.trained.values(), experiment.parts.policy
    (evaluation,) = evaluate_experiment(experiment, conditions, EPISODES, seed=0)
    noise_seed = stream(0, "weight noise").integers(2**31)
    key = jax.random.key(noise_seed, impl="threefry2x32")

    def noisy(std, episode):
        epsilon = FullNoise().sample(member_key(key, episode), trained.mean)
        return jax.tree.map(
            lambda w, e: w + std * np.asarray(e),
            trained.mean,
            unflatten(epsilon, trained.mean),
        )

    for condition, result in evaluation.results.items():
        acting = LoadedPolicy(policy, trained, OBSERVATION_SPACE)
        for episode, seed in enumerate(seeds(EPISODES)):
            mean = trained.mean
            if condition.weights:
                mean = round_weights(mean, condition.weights)
            if condition.weight_noise:
                mean = noisy(condition.weight_noise, episode)
            acting._variables = {"params": mean}  # a new one would compile anew
            expected, _ = play(acting, seed)
            assert result.returns[episode] == pytest.approx(expected, rel=2e-3), (
                condition
            )
    returns = np.stack([r.returns for r in evaluation.results.values()])
    differences = np.abs(returns[:, None] - returns).max(axis=-1)
    # Far more than the tolerance lies between any two conditions.
    assert differences[~np.eye(len(returns), dtype=bool)].min() > 0.02


@pytest.mark.slow
def test_what_is_compiled_serves_all_conditions_and_seeds(runs, compilations):
    conditions = sweeps((0.0, 5000.0), ("bfloat16", "int8"), (0.01,))
    experiment = prepared(runs / "dt", conditions)
    first, second = experiment.trained.values()
    for condition in (BASE, conditions[-1]):  # without and with weight noise
        evaluate(experiment.parts, first, EPISODES, 0, condition)
    compiled = len(compilations)
    for condition in conditions:
        evaluate(experiment.parts, second, EPISODES, 1, condition)
    assert len(compilations) == compiled
    experiment.parts.close()


def test_random_actions_heed_no_policy(runs):
    """Uniform actions in the base condition's episodes, alike for all runs."""
    conditions = sweeps(random_actions=True)
    assert [str(condition) for condition in conditions] == ["base", "random actions"]
    experiment = prepared(runs / "dt", conditions)
    evaluations = evaluate_experiment(experiment, conditions, EPISODES, seed=0)
    first, second = (e.results[conditions[1]].returns for e in evaluations)
    np.testing.assert_array_equal(first, second)
    env = gymnasium.make("HalfCheetah-v5", max_episode_steps=LIMIT)
    seed = int(evaluation_tasks(0, 0, 1, LIMIT, "test tasks").seed[0])
    env.reset(seed=seed)
    env.action_space.seed(int(stream(seed, "random actions").integers(2**31)))
    rewards = [env.step(env.action_space.sample())[1] for _ in range(LIMIT)]
    assert first[0] == pytest.approx(sum(map(float, rewards)), rel=1e-9)


def test_varied_environments_are_those_changed_by_hand(runs, folder, capsys):
    """In the table of a grid, with each share of the intact return; in a picture."""
    arguments = [str(runs / "mlp"), "--checkpoint", "last", "--episodes", "3"]
    arguments += ["--variation", "mass", "0.8", "1.25", "--variation", "motors", "0.5"]
    assert main([*arguments, "--json", "--picture", "grid.svg"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "mass 1.25 motors 0.5" in (folder / "grid.svg").read_text()
    intact, *rows = report["conditions"]
    assert intact["variation"] is None and "share_of_intact" not in intact
    values = [{"mass": mass, "motors": 0.5} for mass in (0.8, 1.25)]
    assert [row["variation"] for row in rows] == values
    assert report["rank_tests"][0]["changed"] == "variation"
    policy = load_policy(runs / "mlp", "last")
    for row in rows:
        env = gymnasium.make("HalfCheetah-v5", max_episode_steps=LIMIT)
        env = Varied(env, **row["variation"])
        returns = [play(policy, seed, env)[0] for seed in seeds(3)]
        assert row["return_mean"] == pytest.approx(np.mean(returns), rel=1e-3)
        intact_mean = intact["return_mean"]
        share = row["return_mean"] / intact_mean if intact_mean > 0 else None
        assert row["share_of_intact"] == share
    results = {BASE: [4.0], Condition(variation=(("mass", 0.9),)): [3.0]}
    header, _, first, second, *_ = table([[made(results)]]).splitlines()
    assert "of intact" in header and "75%" in second and "%" not in first
    assert "mass 0.9" in second


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* holds no digests")
def test_a_gait_survives_another_body_if_constants_are_hidden(folder, capsys):
    """The stored linear Humanoid would fall at once if all masses grew by 5 %."""
    stored = Path(__file__).parents[3] / "results" / "policies" / "humanoid-linear"
    path = shutil.copytree(stored, folder / "shown")
    record = json.loads((path / "config.json").read_text())
    assert record["config"]["rollout"]["hide_constants"]
    record["config"]["rollout"]["hide_constants"] = False
    del record["digests"]
    (path / "config.json").write_text(json.dumps(record))
    returns = []
    for run in (path, stored):
        given = ["--episodes", "10", "--variation", "mass", "1.05", "--json"]
        assert main([str(run), *given]) == 0
        intact, heavy = json.loads(capsys.readouterr().out)["conditions"]
        assert intact["return_mean"] > 6500
        returns.append(heavy["return_mean"])
    assert returns[0] < 300 and returns[1] >= 1500


def test_conditions_are_sweeps_from_the_base_without_repetition():
    listed = sweeps((1.0, 2.0, 1.0), ("int8",), (0.1,))
    assert list(map(str, listed)) == [
        "base",
        "target return 1",
        "target return 2",
        "weights int8",
        "weight noise 0.1",
    ]
    assert str(Condition(1e6, "int4")) == "target return 1000000, weights int4"


def made(returns, path="a", method=OPENAI_ES):
    """An evaluation with given returns by condition."""
    results = {condition: results_of(values) for condition, values in returns.items()}
    trained = TrainedMean(TrainConfig(), {}, None, 0, method=method)
    return Evaluation(path, trained, results)  # type: ignore[arg-type]


def test_an_experiment_is_summarised_over_its_runs_mean_returns():
    evaluations = [
        made({BASE: [1.0, 3.0, np.nan]}),  # mean 2
        made({BASE: [6.0, 6.0, 6.0]}),
        made({BASE: [9.0, 10.0, 11.0]}),
        made({BASE: [np.nan, np.inf, np.nan]}),  # none
    ]
    over = summary_over_runs(evaluations, BASE)
    assert over == {
        "runs": 4,
        "episodes": 12,
        "nonfinite_returns": 4,
        "length_mean": 2.0,
        "length_min": 1,
        "length_max": 3,
        "return_mean": 6.0,
        "return_std": pytest.approx(np.sqrt(32 / 3)),
        "return_min": 2.0,
        "return_quartile_1": 4.0,
        "return_median": 6.0,
        "return_quartile_3": 8.0,
        "return_max": 10.0,
    }


def test_what_is_tested_against_what():
    random = np.random.default_rng(0)
    conditions = sweeps((0.0, 1.0), ("int8", "int4"), (0.1,))
    evaluation = made({c: random.normal(size=30) for c in conditions})
    tests = {test["changed"]: test for test in rank_tests([evaluation])}
    described = {k: (t["name"], t["num_conditions"]) for k, t in tests.items()}
    assert described == {
        "target_return": ("Wilcoxon signed-rank", 2),  # without the base
        "weights": ("Friedman", 3),
        "weight_noise": ("Wilcoxon signed-rank", 2),
    }
    assert all(t["blocks"] == "episodes" for t in tests.values())
    assert all(t["num_blocks"] == 30 for t in tests.values())
    one = made({c: random.normal(size=30) for c in sweeps((0.0,))})
    assert rank_tests([one])[0]["num_conditions"] == 2
    assert rank_tests([made({BASE: [1.0]})]) == []
    # Six runs of which each gains by the change, whatever their episodes do.
    changed = Condition(weights="int8")
    several = [
        made({BASE: random.normal(size=50), changed: random.normal(9, 1, size=50)})
        for _ in range(6)
    ]
    (test,) = rank_tests(several)
    assert (test["blocks"], test["num_blocks"]) == ("runs", 6)
    assert test["p_value"] == pytest.approx(2 / 2**6)


def test_the_table_tells_what_there_is_to_tell():
    broken = made({BASE: [np.nan, np.nan], Condition(weights="int4"): [1.0, 3.0]}, "b")
    text = table([[broken]])
    header, rule, first, second, *_ = text.splitlines()
    assert "run" not in header and "not finite" in header
    assert len(set(map(len, (header, rule, first, second)))) == 1
    assert "none is finite" in first
    assert (
        "2.00 ± 1.00" in second
        and "1.50 to 2.50" in second
        and "1.5 (1 to 2)" in second
    )
    assert "| 0.00350 ± 0.00150 | 0.00350 " in table([[made({BASE: [0.002, 0.005]})]])
    methods = table([[made({BASE: [1.0]})], [made({BASE: [1.0]}, "b", SAC)]])
    assert [row.split("|")[2].strip() for row in methods.splitlines()[2:]] == [
        "OpenAI-ES",
        "SAC",
    ]
    whole = [made({BASE: [float(i), i + 1.0]}, f"runs/x/seed-{i}") for i in range(3)]
    header, _, *rows = table([whole]).splitlines()
    assert "| run " in header and "not finite" not in header
    assert len(rows) == 4
    assert rows[-1].startswith("| runs/x/seed-* (3 runs) | base ")
    assert "1.50 ± 0.816" in rows[-1]  # the spread of 0.5, 1.5, 2.5


def test_the_program_on_an_experiment_and_another_run(runs, folder, capsys):
    """JSON and CSV hold the same numbers."""
    given = [str(runs / "dt"), str(runs / "mlp"), "--episodes", "3"]
    given += ["--checkpoint", "last"]
    options = ["--weights", "int4", "--weight-noise", "0.1", "--csv", "new/rows.csv"]
    assert main([*given, *options, "--json"]) == 0
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 9  # 3 runs × 3 conditions
    report = json.loads(out)
    dt, mlp = report["experiments"]
    assert [run["run"] for run in dt["runs"]] == [
        str(runs / "dt" / f"seed-{i}") for i in (0, 1)
    ]
    assert "over_runs" not in mlp and len(mlp["runs"]) == 1
    for run in dt["runs"]:
        assert run["return_mean"] == run["conditions"][0]["return_mean"]
    means = [run["return_mean"] for run in dt["runs"]]
    assert dt["over_runs"][0]["return_mean"] == pytest.approx(np.mean(means))
    assert [t["blocks"] for t in dt["rank_tests"]] == ["runs", "runs"]
    with open("new/rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert [row["weights"] for row in rows[:3]] == ["", "int4", ""]
    assert [row["weight_noise"] for row in rows[:3]] == ["", "", "0.1"]
    for row, run in zip(rows[::3], [*dt["runs"], *mlp["runs"]], strict=True):
        assert (row["run"], float(row["return_mean"])) == (
            run["run"],
            run["return_mean"],
        )


def test_a_checkpoint_without_statistics_is_one_line(runs, folder, refused):
    path = shutil.copytree(runs / "mlp", folder / "bare")
    checkpoints = Checkpoints(path / "checkpoints")
    mean = load_mean(path, "last").mean
    checkpoints.save(7, {"es": {"mean": mean}})
    words = "checkpoint 7", "no 'observation_statistics'"
    refused(main, [path, "--checkpoint", "7"], *words)
    with pytest.raises(CheckpointError, match="no 'observation_statistics'"):
        load_policy(path, 7)


def test_a_missing_encoder_is_found_before_any_episode(
    runs, folder, refused, monkeypatch
):
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setattr("jax_es.evaluation.conditions.prepare", lambda *_: 1 / 0)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(folder / "none"))
    words = "needs an encoder", "pip install -e '.[video]'"
    refused(main, [runs / "mlp", "--video", "x.mp4"], *words)
    monkeypatch.setitem(sys.modules, "imageio", None)
    refused(main, [runs / "mlp", "--video", "x.gif"], *words)
