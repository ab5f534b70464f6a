"""A search: trials are experiments, worse ones end early, a killed study goes on."""

import contextlib
import dataclasses
import io
import math
import os
import shlex

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jax_es import train, tune
from jax_es.presets import PRESETS, preset
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_runs
from jax_es.runs.folders import STUDY_FILE
from jax_es.runs.metrics import read_metrics
from jax_es.runs.records import WALL_CLOCK_FIELDS
from jax_es.training.build import with_machine
from jax_es.training.seeds import SeedResult
from jax_es.tuning import study as tuning
from jax_es.tuning.search_space import configured, default_search, space, unchanged
from tests.trials import inputs

optuna = pytest.importorskip("optuna")

# An episode's return is its length, and two steps at least keep the pole up: a trial
# with episodes of one step is worse than one with five.
OPTIONS = [*inputs.TINY.split(), "--seed", "7", "--max-env-steps", "36"]
SEARCH = ("env.max-episode-steps=1,5", "es.sigma=0.01:0.1:log")
STUDY = [*OPTIONS, "--trials", "3", "--seeds", "1", "--reduction-factor", "2"]
STUDY += ["--search", *SEARCH]


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory):
    """Compiled programs on disk, as the program itself keeps them: trials are alike."""
    cache = str(tmp_path_factory.mktemp("cache"))
    options = {
        "jax_compilation_cache_dir": cache,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: jax.config.values[name] for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def study(stay_as_configured, tmp_path_factory):
    """A finished study: its folder, and what the program printed."""
    path = tmp_path_factory.mktemp("study") / "runs" / "whole"
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parents[1])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert tune.main([*STUDY, "--name", "whole"]) == 0, err.getvalue()
    return path, out.getvalue(), err.getvalue()


def trials(path):
    """Returns what the database says."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{path / tuning.DATABASE}")
    loaded = optuna.load_study(study_name="jax-es", storage=storage).trials
    storage.remove_session()
    storage.engine.dispose()
    return loaded


def summaries(path):
    return [
        (t.number, t.state, t.params, t.value, t.intermediate_values, t.system_attrs)
        for t in trials(path)
    ]


def numbers(path):
    """Returns the metrics of a study's runs, by their folders."""
    return {
        str(run.relative_to(path)): [
            {k: v for k, v in values.items() if k not in WALL_CLOCK_FIELDS}
            for values in map(dataclasses.asdict, read_metrics(run))
        ]
        for run in sorted(path.glob("trial-*/seed-*"))
    }


def begin(path, *options, base=STUDY):
    """Makes a study's folder without training."""
    settings, *_ = tune.parse([*base, *options, "--name", path.name])
    folder = RunDirectory(path, STUDY_FILE)
    config = with_machine(settings.config)
    tuning.create(folder, tuning.check(settings._replace(config=config)))
    return folder


def test_trials_are_experiments_and_worse_ones_end_early(study):
    path, _, _ = study
    found = trials(path)
    lengths = [trial.params["env.max_episode_steps"] for trial in found]
    assert lengths == ["5", "1", "5"]
    # The first is the preset itself, and goes all the way.
    assert found[0].params["es.sigma"] == PRESETS["inverted-pendulum"].es.sigma
    assert list(found[0].intermediate_values) == [9, 18, 36]
    assert found[0].value >= 2
    assert found[1].state == optuna.trial.TrialState.PRUNED
    assert found[1].intermediate_values == {9: 1.0}
    for trial in found:
        (run,) = find_runs(tuning.trial_folder(path, trial.number).path)
        assert run.config().es.sigma == trial.params["es.sigma"]
        best = read_metrics(run.path)[-1].best_evaluation_return
        assert best <= tuning.outcome(trial)[1]
    # Its first generation took more steps than the second budget, too.
    records = read_metrics(path / "trial-0000" / "seed-7")
    assert 18 <= records[0].total_env_steps < 36 <= records[-1].total_env_steps


def test_what_is_printed_is_the_study(study):
    path, table, text = study
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    fields = ["env.max_episode_steps", "es.sigma"]
    assert rows[0] == ["trial", *fields, "env steps", "return"]
    assert rows[2][3] == "36" and rows[-1][3:] == ["9", "1"]
    assert {file.name for file in (path / "plots").iterdir()} == {
        "search.png",
        "search.svg",
    }
    (line,) = (x for x in text.splitlines() if x.startswith("Train it again: "))
    program, *options = shlex.split(line.partition(": ")[2])[2:]
    assert program == "jax_es.train"
    best = max(trials(path), key=tuning.outcome)
    (run,) = find_runs(tuning.trial_folder(path, best.number).path)
    assert with_machine(train.parse(options).config) == run.config()


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_to_the_same_numbers(study, folder, capsys):
    killed, calls = begin(folder / "runs" / "killed"), []

    def check_stop():
        calls.append(None)
        if len(calls) in (20, 80):  # in the middle of a rollout
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            tuning.tune(killed, check_stop=check_stop)
    assert tune.main(["--resume", "--name", "killed"]) == 0
    assert capsys.readouterr().out == study[1]
    assert summaries(killed.path) == summaries(study[0])
    assert numbers(killed.path) == numbers(study[0])


@pytest.mark.parametrize(("value", "expected"), [("median", 3.0), ("mean", 11.0)])
def test_a_trial_is_worth_what_its_seeds_reach(folder, monkeypatch, value, expected):
    def reach(config, num_seeds, path, resume=False, **_):
        bests = [3.0, 29.0, 1.0, math.nan][:num_seeds]
        if not resume:
            RunDirectory(path, "experiment.json").create(
                config, "preset", num_seeds=num_seeds, results={}
            )
        return [SeedResult(seed, 0.0, 0.0, best) for seed, best in enumerate(bests)]

    monkeypatch.setattr("jax_es.training.seeds.train_seeds", reach)
    options = ("--value", value, "--trials", "1")
    three = tuning.tune(begin(folder / "three", "--seeds", "3", *options))
    assert three.best_value == expected
    # What diverges counts as the lowest.
    four = tuning.tune(begin(folder / "four", "--seeds", "4", *options))
    assert four.best_value == (2.0 if value == "median" else -math.inf)
    again = tuning.tune(RunDirectory(folder / "four", STUDY_FILE))
    assert again.best_value == four.best_value


def test_fields_that_do_not_fit_together_fail_their_trial_alone(folder, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing is trained")

    monkeypatch.setattr("jax_es.training.seeds.train_seeds", refuse)
    options = ("--policy", "decision-transformer", "--trials", "1", "--search")
    # 24 may have two heads or three, 32 two alone.
    search = ("policy.width=24,32", "policy.num_heads=2,3")
    base = (OPTIONS[0], "--policy.width", "24")
    study = begin(folder / "study", *options, *search, base=base)
    monkeypatch.setattr(
        tuning, "unchanged", lambda *_: {"policy.width": "32", "policy.num_heads": "3"}
    )
    said = []
    found = tuning.tune(study, said.append)
    assert [trial.state for trial in found.trials] == [optuna.trial.TrialState.FAIL]
    assert "do not fit together: policy.num_heads=3" in said[0]


def test_a_study_is_not_changed(study, monkeypatch, refused):
    path, _, _ = study
    monkeypatch.chdir(path.parents[1])
    before = (path / STUDY_FILE).read_text()
    for options, complaint in (
        (STUDY, "holds a run already"),
        (["--resume", "--seeds", "2"], "seeds was 1, now 2"),
        (["--resume", "--es.sigma", "0.5"], "es.sigma was 0.05, now 0.5"),
        (["--resume", "--policy", "lstm"], "leave PRESET and --policy out"),
        (["hopper-small", "--resume"], "leave PRESET and --policy out"),
    ):
        refused(tune.main, [*options, "--name", "whole"], complaint)
    assert (path / STUDY_FILE).read_text() == before
    train_there = ["inverted-pendulum", "--name", "whole"]
    refused(train.main, train_there, "holds a run already")


def test_a_stop_signal_says_how_to_go_on(folder, monkeypatch, capsys):
    def stop(*_, check_stop, **__):
        os.kill(os.getpid(), 2)
        check_stop()

    monkeypatch.setattr("jax_es.training.seeds.train_seeds", stop)
    assert tune.main([*STUDY, "--name", "stopped"]) == 130
    error = capsys.readouterr().err
    assert "continue with python -m jax_es.tune --resume --name stopped\n" in error


@pytest.mark.parametrize("name", ["quickstart", "humanoid-dt-fast", "hopper"])
@pytest.mark.parametrize("kind", [None, "mlp"])
def test_the_default_search_is_around_the_preset(name, kind):
    config = preset(name, kind)
    lines = default_search(config)
    found = space(config, lines)
    assert unchanged(config, found) is not None
    assert ("policy.width" in found) == (kind is None)
    assert ("es.healthy_reward_weight" in found) == (name != "quickstart")


def test_a_strategys_own_numbers_can_be_searched():
    config = preset("hopper-small", "linear", "cma-es")
    assert not [line for line in default_search(config) if "learning_rate" in line]
    (found,) = space(config, ["es.kwargs.c_std=0.1:0.5"]).values()
    assert (found.low, found.high) == (0.1, 0.5)
    made = configured(config, {"es.kwargs.c_std": 0.2, "es.sigma": 0.3})
    assert made.es.kwargs == {"c_std": 0.2} and made.es.sigma == 0.3
    assert unchanged(config, {"es.kwargs.c_std": found}) is None
    (found,) = space(config, ["es.kwargs.mu=2,0.5"]).values()
    values = [configured(config, {"es.kwargs.mu": c}).es.kwargs for c in found.choices]
    assert [repr(each["mu"]) for each in values] == ["2", "0.5"]


def test_a_line_of_a_search_is_not_taken_for_an_option(folder):
    line = "es.kwargs.c_std=0.1,0.2"
    typed = ["cartpole", "--strategy", "cma-es", "--search", line, "--name", "study"]
    settings, *_ = tune.parse(typed)
    assert settings.tuning.search == (line,) and settings.config.es.kwargs == {}


NETWORK = """
import flax.linen as nn


class Net(nn.Module):
    num_outputs: int
    width: int = 8

    @nn.compact
    def __call__(self, observation):
        return nn.Dense(self.num_outputs)(nn.tanh(nn.Dense(self.width)(observation)))
"""


def test_a_task_and_a_network_of_ones_own(folder, monkeypatch):
    (folder / "nets.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(folder))
    own = ["--env.id", "Pendulum-v1", "--policy", "nets:Net", "--policy.width", "4"]
    search = ["--search", "policy.width=4,16"]
    settings, *_ = tune.parse([*own, *search, "--name", "study"])
    assert settings.preset == "own-vector"
    assert settings.config.policy.options == {"width": 4}
    (field,) = space(settings.config, settings.tuning.search)
    made = configured(settings.config, {field: "16"})
    assert made.policy.options == {"width": 16}


def test_values_are_of_their_fields_types():
    config = preset("hopper-small", "mlp")
    lines = [
        "policy.hidden-sizes=64,64x64",
        "es.max_num_pairs=none",
        "es.momentum=0,1e-1",
    ]
    found = space(config, [*lines, "env.terminate_when_unhealthy=true,false"])
    params = {name: each.choices[-1] for name, each in found.items()}
    made = configured(config, params)
    assert made.policy.hidden_sizes == (64, 64)
    assert made.es.max_num_pairs is None and made.es.momentum == 0.1
    assert made.env.terminate_when_unhealthy is False
