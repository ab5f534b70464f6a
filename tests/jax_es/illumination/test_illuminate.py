"""Runs of illuminate and adapt: on disk, resumed, reloaded, drawn."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from jax_es import (
    adapt,
    evaluate,
    illuminate,
    illuminate_run,
    load_archive,
    load_policy,
    plot,
    report,
)
from jax_es.es.population import MeanPopulation
from jax_es.illumination.repertoire import read_archive
from jax_es.illumination.settings import settings_of
from jax_es.rollout.observation_statistics import view_of
from jax_es.rollout.tasks import Tasks
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import read_metrics
from jax_es.training.episodes import evaluation_tasks
from jax_es.training.parts import build_evaluation
from tests.comparing import numbers

TINY = [
    *("hopper-uni", "--env.max-episode-steps", "12", "--policy", "linear"),
    *("--env.hide-observation", "0"),
    *("--batch-size", "6", "--cells", "8", "--initial-batches", "1"),
    *("--evaluation.num-episodes", "1", "--num-generations", "4"),
    *("--checkpoint-every", "1", "--rollout.num-slots", "8"),
    *("--rollout.num-devices", "1", "--rollout.num-threads", "1"),
]


def filled(name, *more):
    assert illuminate.main([*TINY, "--name", name, *more]) == 0
    return Path("runs", name)


def same_archive(one, two):
    for a, b in zip(
        read_archive(one).archive.elites(),
        read_archive(two).archive.elites(),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def run(stay_as_configured, tmp_path_factory):
    """A finished run; its folder is not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("filled"))
        return filled("whole").absolute()


class Killed(BaseException):
    """As sudden as ``kill -9``: nothing is written any more."""


@pytest.mark.parametrize(
    "emitter", ["iso+line", pytest.param("es", marks=pytest.mark.slow)]
)
def test_a_killed_run_goes_on_to_the_same_archive(
    emitter, run, monkeypatch, refused, capsys
):
    more = ["--emitter", emitter]
    if emitter == "es":
        more += ["--es.num-pairs", "3", "--steps-per-parent", "2"]
        run = filled("es", *more)
    save = Checkpoints.save

    def killed(self, step, state):
        if step == 3:
            raise Killed
        return save(self, step, state)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Checkpoints, "save", killed)
        filled("killed", *more)
    assert len(read_metrics("runs/killed")) == 3
    resume = ["--resume", "--name", "killed", "--num-generations", "4"]
    file = Path("runs/killed/metrics.jsonl")
    own = file.read_text()
    file.write_text(own.replace('"total_env_steps": ', '"total_env_steps": 9'))
    refused(illuminate.main, resume, "is another run's: its generation 1 has total_env")
    file.write_text(own)
    assert illuminate.main(resume) == 0
    assert "environment steps: num_generations 4 reached." in capsys.readouterr().err
    assert illuminate.main(resume) == 0
    said = "Nothing is left to train: the run has reached num_generations 4; raise"
    assert said in capsys.readouterr().err
    same_archive(run, "runs/killed")
    assert numbers(run) == numbers("runs/killed")
    first = read_metrics(run)
    assert 0 < first[0].coverage <= first[-1].coverage
    assert first[-1].qd_score > 0  # the offset is below all fitness


def test_each_seed_fills_the_archive_that_it_would_alone(run, capsys):
    many = filled("many", "--seeds", "2")
    said = capsys.readouterr().err
    assert "Over 2 seeds, median and range: coverage " in said
    assert "seed 1  run 2/2  generation" in said
    same_archive(many / "seed-0", run)
    assert numbers(many / "seed-0") == numbers(run) != numbers(many / "seed-1")
    assert illuminate.main(["--resume", "--name", "many"]) == 0
    assert "Nothing is left to train: all seeds" in capsys.readouterr().err
    assert report.main([str(many), "--output", "page.html"]) == 0
    assert "--seeds 2" in Path("page.html").read_text()


def test_a_callback_sees_elites_and_ends_the_run(run, folder):
    seen = []

    class Watch:
        def on_generation(self, record, state):
            seen.append(len(state.archive["cell"]))
            return record.generation == 1

    method, config = RunDirectory(run).method(), RunDirectory(run).config()
    what = {"callbacks": [Watch()], "verbose": False}
    archive = illuminate_run(config, settings_of(method), "watched", **what)
    assert seen == [seen[0], len(archive.elites())]
    assert Checkpoints("watched/checkpoints").steps() == [1, 2]


def played(policy, seed):
    """The return of an episode in Gymnasium's own environment."""
    env = gymnasium.make(policy.env_id, **policy.env_options)
    observation, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        observation, reward, ended, cut, _ = env.step(policy(observation))
        total, done = total + float(reward), ended or cut
    return total


def test_a_run_evaluates_policies_as_they_act(run):
    """Also what its configuration hides from them."""
    record = read_metrics(run)[-1]
    seed = int(evaluation_tasks(0, record.generation, 1, 12).seed[0])
    total = played(load_policy(run, "last"), seed)
    np.testing.assert_allclose(total, record.evaluation_return_mean, rtol=1e-4)


def test_an_elite_acts_as_the_member_that_it_was(run):
    repertoire = load_archive(run)
    assert len(repertoire) == len(repertoire.fitness) == len({*repertoire})
    best = repertoire.cells[repertoire.fitness.argmax()]
    policy = repertoire[best]
    parts = build_evaluation(repertoire.config, 1)
    seed = np.array([7], np.int32)
    tasks = Tasks(np.array([-1], np.int32), seed, np.array([12]), np.zeros(1, bool))
    mean, view = MeanPopulation(repertoire.params(best)), view_of(parts.config, None)
    result = parts.rollout.evaluate(mean, tasks, view)
    np.testing.assert_allclose(played(policy, 7), result.returns[0], rtol=1e-4)
    assert result.descriptors.shape == (1, 1)
    parts.close()
    cell = repertoire.cell_of(repertoire.descriptors)
    np.testing.assert_array_equal(cell, repertoire.cells)
    missing = next(c for c in range(9) if c not in repertoire)
    with pytest.raises(KeyError):
        repertoire[missing]
    assert "elites in 8 cells for Hopper-v5, 36 parameters" in repr(repertoire)


def test_other_programs_take_the_run(run, capsys):
    assert "MAP-Elites" in repr(load_policy(run, "last"))
    assert evaluate.main([str(run), "--episodes", "1", "--checkpoint", "last"]) == 0
    assert plot.main([str(run), "--figure", "all", "--output", "pictures"]) == 0
    drawn = {file.stem for file in Path("pictures").iterdir()}
    assert {"learning", "growth", "elites"} <= drawn
    assert report.main([str(run), "--output", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "jax_es.illuminate hopper-uni" in page and "Elites on Hopper-v5" in page


def test_adapt_prints_a_row_for_each_damage_and_rule(run, capsys):
    options = ["--damage", "foot", "hip-weak", "--trials", "2", "--seeds", "2"]
    options += ["--reevaluations", "1"]
    where = ["--output", "pictures/recovery.png", "--baselines"]
    where += ["--exhaustive"]
    capsys.readouterr()
    assert adapt.main([str(run), *options, *where]) == 0
    out, err = capsys.readouterr()
    rows = out.splitlines()[2:]
    assert len(rows) == 2 * 4
    assert rows[0].startswith("| foot | intelligent trial and error |")
    assert all(row.rpartition("|")[0].endswith((" % ", " none ")) for row in rows)
    assert "in 2 episodes; the archive says" in err
    assert "trial 1/2: 16 robots" in err
    assert Path("pictures/recovery.png").stat().st_size > 12_000
    capsys.readouterr()
    assert adapt.main([str(run), *options, *where[:2], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["recoveries"]
    assert len(found) == 4 and {*found[0]["cells"]} <= {*load_archive(run)}


class TestBadInput:
    def test_a_resume_that_would_change_the_archive(self, run, refused):
        resume = [*TINY, "--resume", "--name", run.name, "--runs-dir", run.parent]
        refused(illuminate.main, [*resume, "--high", "2"], "high was [], now [2.0]")
        refused(illuminate.main, [*resume, "--cells", "9"], "cells was [8], now [9]")
        fewer = [*resume, "--num-generations", "3"]
        refused(illuminate.main, fewer, "num-generations must be at least 4")
        refused(illuminate.main, [*resume, "--seeds", "2"], "is a single run")
        refused(illuminate.main, [*resume, "--workers", "1"], "began in one process")
        other = [*resume, "--env.id", "Walker2d-v5"]
        refused(illuminate.main, other, "env.id was 'Hopper-v5', now 'Walker2d-v5'")

    def test_an_archive_without_elites(self, run, refused, monkeypatch):
        restored = Checkpoints(run / "checkpoints").restore("last")
        del restored.state["archive"]["cell"]
        monkeypatch.setattr(Checkpoints, "restore", lambda *_: restored)
        refused(adapt.main, [run, "--damage", "foot"], "has no elites; illuminate")

    def test_what_is_no_damage(self, run, refused):
        refused(adapt.main, [run, "--damage", "leg"], "damage 'leg' is unknown")
        refused(adapt.main, [run, "--damage", "foot", "--trials", "0"], "trials must")
