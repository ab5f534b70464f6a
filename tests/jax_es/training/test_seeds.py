"""Several seeds: each an ordinary run, resumable as a whole, stopped as a whole."""

import dataclasses
import json
import os
import signal

import pytest

import jax_es
from jax_es import train
from jax_es.checks import ConfigError
from jax_es.config import ESConfig, EvaluationConfig, RolloutConfig
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_run, find_runs
from jax_es.runs.folders import EXPERIMENT_FILE
from jax_es.training.build import EnvConfig, TrainConfig
from jax_es.training.loop import train_run
from models import MLPConfig
from tests.comparing import numbers

TINY = TrainConfig(
    env=EnvConfig("InvertedPendulum-v5", max_episode_steps=5),
    policy=MLPConfig(hidden_sizes=(2,)),
    es=ESConfig(num_pairs=2),
    rollout=RolloutConfig(num_slots=1, num_devices=1),
    evaluation=EvaluationConfig(num_episodes=1),
    num_generations=3,
    seed=9,
)


def begin_experiment(path):
    """An experiment whose first seed has begun, and nothing more."""
    folder = RunDirectory(path, EXPERIMENT_FILE)
    folder.create(TINY, "test", num_seeds=1, results={})
    RunDirectory(path / "seed-9").create(TINY, "test")
    return folder


OPTIONS = [
    *("inverted-pendulum", "--env.max-episode-steps", "5", "--policy", "mlp"),
    *("--policy.hidden-sizes", "2", "--es.num-pairs", "2", "--seed", "9"),
    *("--rollout.num-slots", "1", "--rollout.num-devices", "1"),
    *("--evaluation.num-episodes", "1", "--num-generations", "3"),
]


def test_each_seed_is_the_run_that_it_would_be_alone(folder):
    results = jax_es.train_seeds(TINY, 2, folder / "both")
    runs = find_runs(folder / "both")
    # As a number: 10 comes after 9.
    assert [run.path.name for run in runs] == ["seed-9", "seed-10"]
    for run, seed, result in zip(runs, (9, 10), results, strict=True):
        config = dataclasses.replace(TINY, seed=seed)
        assert run.config() == config
        alone = train_run(config, folder / f"alone-{seed}")
        assert numbers(run.path) == numbers(folder / f"alone-{seed}")
        assert result == (
            seed,
            alone.first_evaluation,
            alone.final_evaluation,
            alone.best_evaluation,
        )
        assert callable(jax_es.load_policy(run.path))
    assert numbers(runs[0].path) != numbers(runs[1].path)


@pytest.mark.slow
def test_a_stopped_experiment_resumes_to_the_same_numbers(folder, capsys, monkeypatch):
    assert train.main([*OPTIONS, "--seeds", "3", "--name", "whole"]) == 0
    text = capsys.readouterr().err
    assert "seed 10  run 2/3  generation  2/3  evaluation" in text
    assert "Evaluation return over 3 seeds, median and range" in text

    stop_after(monkeypatch, seed=10, generation=1)
    code = train.main([*OPTIONS, "--seeds", "3", "--name", "torn"])
    assert code == 128 + signal.SIGTERM
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        "SIGTERM: 1 of 3 seeds are finished, 2 finished generations are saved in "
        "runs/torn/seed-10; continue with python -m jax_es.train --resume --name torn"
    )
    assert [run.path.name for run in find_runs("runs/torn")] == ["seed-9", "seed-10"]
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    finished = {
        p: p.stat().st_mtime_ns for p in (folder / "runs/torn/seed-9").iterdir()
    }
    assert train.main(["--resume", "--name", "torn"]) == 0
    text = capsys.readouterr().err
    assert "seed 9" not in text and "Resuming after generation 2" in text
    assert "Evaluation return over 3 seeds" in text
    assert finished == {p: p.stat().st_mtime_ns for p in finished}
    for seed in (9, 10, 11):
        a, b = (f"runs/{name}/seed-{seed}" for name in ("whole", "torn"))
        assert numbers(a) == numbers(b) and len(numbers(b)) == 4
    records = [
        json.loads((folder / "runs" / name / "experiment.json").read_text())
        for name in ("whole", "torn")
    ]
    assert records[0]["results"] == records[1]["results"]
    preset = json.loads((folder / "runs/torn/seed-11/config.json").read_text())
    assert preset["preset"] == "inverted-pendulum"


def stop_after(monkeypatch, seed, generation):
    """Sends this process a real SIGTERM once a generation is written."""
    from jax_es.runs.metrics import MetricsWriter

    write = MetricsWriter.write

    def write_and_stop(self, record):
        write(self, record)
        if f"seed-{seed}" in str(self._path) and record.generation == generation:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(MetricsWriter, "write", write_and_stop)


@pytest.mark.slow
def test_a_resume_may_train_longer_and_more_seeds(folder):
    short = dataclasses.replace(TINY, num_generations=2, stop_at_return=1.0)
    jax_es.train_seeds(short, 1, "grown")
    assert len(numbers("grown/seed-9")) == 2  # a generation reached it
    results = jax_es.train_seeds(TINY, 2, "grown", resume=True)
    whole = jax_es.train_seeds(TINY, 2, "whole")
    assert results == whole
    for a, b in zip(find_runs("grown"), find_runs("whole"), strict=True):
        assert numbers(a.path) == numbers(b.path)
    for config, num_seeds, words in (
        (TINY, 1, "--seeds must be at least 2"),
        (dataclasses.replace(TINY, num_generations=2), 2, "num_generations must be"),
        (dataclasses.replace(TINY, max_env_steps=9), 2, "at least no limit"),
        (dataclasses.replace(TINY, seed=8), 2, "seed was 9, now 8"),
    ):
        before = (folder / "grown/experiment.json").read_bytes()
        with pytest.raises(ConfigError, match=words):
            jax_es.train_seeds(config, num_seeds, "grown", resume=True)
        assert (folder / "grown/experiment.json").read_bytes() == before


def test_an_experiment_without_its_record_is_not_begun_anew(folder, capsys):
    begin_experiment(folder / "runs/many")
    (folder / "runs/many/experiment.json").unlink()
    assert train.main([*OPTIONS, "--seeds", "1", "--name", "many"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "runs/many holds a run already (runs/many/seed-9)" in line
    assert not (folder / "runs/many/experiment.json").exists()


def test_one_experiment_has_one_process(folder):
    experiment = begin_experiment(folder / "here")
    with experiment.lock(), pytest.raises(ConfigError, match="another process"):
        jax_es.train_seeds(TINY, 1, "here", resume=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--seeds", "2", "--seed", str(2**31 - 1)], "at most 2^31"),
        (["--seeds", "2", "--env.id", "Hoper-v5"], "Hopper-v5"),
        (["--seeds", "two"], "--seeds"),
    ],
)
def test_bad_input_leaves_nothing(arguments, words, capsys, folder):
    assert train.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and words in line
    assert list(folder.iterdir()) == []


def test_a_run_and_an_experiment_are_told_apart(folder, capsys):
    RunDirectory(folder / "runs/run").create(TINY, "test")
    begin_experiment(folder / "runs/many")
    assert [run.path.name for run in find_runs("runs/run")] == ["run"]
    for arguments, words in (
        ([*OPTIONS, "--name", "many"], "runs/many holds a run already"),
        ([*OPTIONS, "--name", "run", "--seeds", "2"], "runs/run holds a run already"),
        (["--resume", "--name", "run", "--seeds", "2"], "runs/run is a single run"),
        (["--resume"], "Runs in runs: run, many"),
    ):
        assert train.main(arguments) == 2
        assert words in capsys.readouterr().err
    with pytest.raises(ConfigError, match="choose one of runs/many/seed-9"):
        find_run("runs/many")
    for path in ("runs", "runs/none"):
        with pytest.raises(ConfigError, match="is not a run"):
            find_runs(path)
    (folder / "runs/many/seed-9/config.json").unlink()
    with pytest.raises(ConfigError, match="no run has begun"):
        find_runs("runs/many")
