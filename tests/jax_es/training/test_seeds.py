"""Several seeds: each an ordinary run, resumable as a whole, stopped as a whole."""

import dataclasses

import pytest

import jax_es
from jax_es import train
from jax_es.checks import ConfigError
from jax_es.models import MLPConfig
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_run, find_runs
from jax_es.runs.folders import EXPERIMENT_FILE
from jax_es.training.seeds import SeedResult
from jax_es.training.train_policy import train_policy
from tests import made_runs
from tests.comparing import numbers
from tests.trials import inputs

TINY = dataclasses.replace(made_runs.TINY, num_generations=3, seed=9)
OPTIONS = [*inputs.TINY.split(), "--seed", "9", "--num-generations", "3"]


def begin_experiment(path):
    """An experiment whose first seed has begun, and nothing more."""
    folder = RunDirectory(path, EXPERIMENT_FILE)
    folder.create(TINY, "test", num_seeds=1, results={})
    RunDirectory(path / "seed-9").create(TINY, "test")
    return folder


@pytest.mark.slow
def test_each_seed_is_the_run_that_it_would_be_alone(folder):
    results = jax_es.train_seeds(TINY, 2, folder / "both")
    runs = find_runs(folder / "both")
    # As a number: 10 comes after 9.
    assert [run.path.name for run in runs] == ["seed-9", "seed-10"]
    for run, seed, result in zip(runs, (9, 10), results, strict=True):
        config = dataclasses.replace(TINY, seed=seed)
        assert run.config() == config
        alone = train_policy(config, folder / f"alone-{seed}")
        assert numbers(run.path) == numbers(folder / f"alone-{seed}")
        assert result == (
            seed,
            alone.first_evaluation,
            alone.final_evaluation,
            alone.best_evaluation,
        )
        assert callable(jax_es.load_policy(run.path))
    assert numbers(runs[0].path) != numbers(runs[1].path)


def test_later_runs_of_a_process_compile_nothing(folder, compilations):
    unlike_others = dataclasses.replace(TINY, policy=MLPConfig(hidden_sizes=(7,)))
    jax_es.train_seeds(unlike_others, 1, folder / "first")
    before = len(compilations)
    assert before > 0
    later = dataclasses.replace(unlike_others, seed=10)
    jax_es.train_seeds(later, 2, folder / "later")
    assert len(compilations) == before


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
        (TINY, 1, "num_seeds must be at least 2"),
        (dataclasses.replace(TINY, num_generations=2), 2, "num_generations must be"),
        (dataclasses.replace(TINY, max_env_steps=9), 2, "at least no limit"),
        (dataclasses.replace(TINY, seed=8), 2, "seed was 9, now 8"),
    ):
        before = (folder / "grown/experiment.json").read_bytes()
        with pytest.raises(ConfigError, match=words):
            jax_es.train_seeds(config, num_seeds, "grown", resume=True)
        assert (folder / "grown/experiment.json").read_bytes() == before


def test_an_experiment_without_its_record_is_not_begun_anew(folder, refused):
    begin_experiment(folder / "runs/many")
    (folder / "runs/many/experiment.json").unlink()
    words = "runs/many holds a run already (runs/many/seed-9)"
    refused(train.main, [*OPTIONS, "--seeds", "1", "--name", "many"], words)


def test_a_resume_of_finished_seeds_says_so(folder, capsys):
    done = dict.fromkeys(SeedResult._fields[1:], 1.0)
    begin_experiment(folder / "runs/many").update(results={"9": done})
    assert train.main(["--resume", "--name", "many"]) == 0
    said = "Nothing is left to train: all seeds are finished. Raise --seeds, or what"
    assert said in capsys.readouterr().err


def test_a_run_and_an_experiment_are_told_apart(folder, refused):
    RunDirectory(folder / "runs/run").create(TINY, "test")
    begin_experiment(folder / "runs/many")
    assert [run.path.name for run in find_runs("runs/run")] == ["run"]
    many = [*OPTIONS, "--name", "run", "--seeds", "2"]
    refused(train.main, many, "runs/run holds a run already")
    resume = ["--resume", "--name", "run", "--seeds", "2"]
    refused(train.main, resume, "runs/run is a single run")
    with pytest.raises(ConfigError, match="choose one of runs/many/seed-9"):
        find_run("runs/many")
    for path in ("runs", "runs/none"):
        with pytest.raises(ConfigError, match="is not a run"):
            find_runs(path)
    (folder / "runs/many/seed-9/config.json").unlink()
    with pytest.raises(ConfigError, match="no run has begun"):
        find_runs("runs/many")
