"""The benchmark: its rows, its report and its errors; no speed is asserted."""

import dataclasses
import json
import signal
import subprocess

import numpy as np
import pytest

from jax_es.benchmark import jax_envs, learning, measure
from jax_es.benchmark import program as benchmark
from jax_es.benchmark.rows import (
    IN_JAX,
    LEARNING,
    NETWORKS,
    ROWS,
    Row,
    Work,
    choose,
    config_of,
)
from jax_es.envs import physics

NETWORK = "humanoid-mlp-fast"
TINY = Work(num_slots=4, seconds=0.01)
BY_NAME = {row.name: row for row in ROWS}


@pytest.fixture(autouse=True)
def few_simulations(monkeypatch):
    few = {"trained": 1, "untrained": 1, "atari": 1}
    monkeypatch.setattr(physics, "ENVS_PER_CORE", few)
    monkeypatch.setattr(measure, "UPDATE_PAIRS", dict.fromkeys(NETWORKS, 6))


def check(row):
    assert row["steps_per_second"] > 0 and row["seconds"] > 0
    assert row["compilations"] == 0 and row["peak_rss_mib"] > 0
    assert 0 < row.get("slot_utilization", 1) <= 1
    assert sum(row.get("shares", {"all": 1}).values()) == pytest.approx(1)


def test_rows_have_names_networks_and_regimes():
    assert len(BY_NAME) == len(ROWS)
    assert {row.network for row in ROWS} == {"", *NETWORKS, *LEARNING, *IN_JAX}
    assert BY_NAME["generation/hero-dt"].regime == "atari"
    assert BY_NAME["generation/humanoid-dt-fast/own-actions"].regime == "untrained"
    assert config_of("humanoid-dt+cache").policy.attention == "cache"
    # The form that the documentation names.
    assert len(choose(["generation/*-fast/whole"])) == 2


def test_a_process_has_one_network_and_its_physics():
    rows = choose(["*/humanoid-mlp-fast", "*/humanoid-mlp-fast/whole"])
    names = [[row.name for row in group] for group in benchmark.processes(rows)]
    assert names == [
        ["physics"],
        [f"{kind}/{NETWORK}" for kind in ("policy", "generation", "update")],
        [f"generation/{NETWORK}/whole"],
    ]


@pytest.mark.slow
def test_measures_slices_at_steady_state():
    names = [
        *(f"policy/{NETWORK}", f"generation/{NETWORK}"),
        *(f"generation/{NETWORK}/untrained", f"update/{NETWORK}"),
    ]
    rows = measure.measure([BY_NAME[name] for name in names], TINY)
    assert list(rows) == names
    for row in rows.values():
        check(row)
    policy, generation, _, update = rows.values()
    assert policy["num_slots"] == generation["num_slots"] == 4
    # No slot is ever idle in a slice.
    assert generation["slot_utilization"] == 1 and generation["env_steps"] % 4 == 0
    assert len(generation["physics_samples"]) == 2
    assert update["num_pairs"] == 6


@pytest.mark.slow
def test_measures_games_beside_their_emulators():
    rows = measure.measure(choose(["policy/atari-cnn", "generation/atari-cnn"]), TINY)
    for row in rows.values():
        check(row)


@pytest.mark.slow
def test_a_generation_is_measured_from_its_start_to_its_tail(monkeypatch):
    lengths = np.array([20, 40, 60, 50])
    monkeypatch.setattr(measure, "random_lengths", lambda rng, count: lengths)
    row = Row("generation", NETWORK, "whole")
    network = measure.build_network(row, TINY)
    config = dataclasses.replace(network.parts.config.es, num_pairs=2)
    config = dataclasses.replace(network.parts.config, es=config)
    parts = dataclasses.replace(network.parts, config=config)
    network = network._replace(parts=parts)
    fields = measure.generation(network, row)
    check(fields)
    # Nothing but their lengths ends the episodes.
    assert (fields["num_pairs"], fields["env_steps"]) == (2, lengths.sum())


@pytest.mark.slow
def test_learning_rows_are_measured_beside_their_own_environment(monkeypatch):
    monkeypatch.setattr(learning, "REPETITIONS", 1)
    fewer = {"es.interactions_per_generation": 10_000}
    chosen = LEARNING["hopper-linear"]._replace(changes=fewer)
    monkeypatch.setitem(LEARNING, "hopper-linear", chosen)
    assert [len(group) for group in benchmark.processes(choose(["learning/*"]))] == (
        [1] * len(LEARNING)  # and no physics
    )
    fields = learning.learning(BY_NAME["learning/hopper-linear"], TINY)
    assert fields["steps_per_second"] > 0 and fields["num_slots"] == 4
    assert sum(fields["shares"].values()) == pytest.approx(1)
    # As many blocks of 64 pairs as make 10,000 steps of episodes of 50.
    assert fields["num_pairs"] == 128 and 0 < fields["slot_utilization"] <= 1
    row, *_ = benchmark.finish({"learning/hopper-linear": fields})
    assert row["ratio_to_physics"] == fields["ratio_to_physics"] > 0


@pytest.mark.slow
def test_rows_in_jax_are_measured_beside_their_environment(monkeypatch):
    pytest.importorskip("gymnax")
    monkeypatch.setattr(jax_envs, "MEMBERS", 8)
    monkeypatch.setattr(jax_envs, "WARM_UP_CALLS", 1)
    assert [len(group) for group in benchmark.processes(choose(["jax/ant*"]))] == [2, 2]
    for row in choose(["jax/cartpole-mlp", "jax/cartpole-mlp/*"]):
        fields = measure.measure([row], TINY)[row.name]
        check(fields)
        assert fields["num_slots"] == 4 and fields["ratio_to_physics"] > 0


def test_all_rows_in_jax_have_a_configuration():
    for name in IN_JAX:
        config = jax_envs.config_of(name, TINY)
        assert config.rollout.num_slots == 4 and not config.phases


def test_all_learning_rows_have_a_configuration():
    for name in LEARNING:
        config = learning.config_of(name, Work(num_groups=2))
        assert config.rollout.num_groups == 2 and not config.phases
    assert learning.config_of("humanoid-paper-dt", TINY).es.rank == 1


def test_rows_stand_beside_physics():
    measured = {
        "physics": {"physics_samples": [100.0]},
        "policy/humanoid-dt": {"steps_per_second": 1000.0},
        "generation/humanoid-dt": {
            "steps_per_second": 150.0,
            "physics_steps_per_second": 300.0,
            "physics_samples": [200.0, 400.0],
            "slot_utilization": 0.5,
            "shares": {"policy": 0.25, "environment": 0.75},
        },
    }
    rows = benchmark.finish(measured)
    ratios = {row["name"]: row["ratio_to_physics"] for row in rows}
    assert ratios == {
        "physics": 1.0,
        "policy/humanoid-dt": 5.0,  # of the median of all samples
        "generation/humanoid-dt": 0.5,  # of those beside it
    }
    about = {"machine": {"processor": "Abacus", "cores": 2}, "seconds": 12.3}
    about["versions"] = {"mujoco": "4.0.0", "jax": "0.10.2"}
    lines = benchmark.table({**about, "rows": rows}).splitlines()
    assert lines[0].split()[:3] == ["row", "steps/s", "/physics"]
    assert lines[1].split() == ["physics", "200", "1.00"]
    assert "50%" in lines[3] and lines[3].endswith("policy 25%, environment 75%")
    assert lines[-1] == "Abacus, 2 cores; MuJoCo 4.0.0, JAX 0.10.2; 12 s."


@pytest.mark.slow
def test_writes_table_and_json(tmp_path, capsys):
    file = tmp_path / "rows.json"
    options = ["--only", "policy/humanoid-mlp-fast", "--seconds", "0.01"]
    assert benchmark.main([*options, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["versions"]["mujoco"] and report["machine"]["cores"]
    assert [row["name"] for row in report["rows"]] == ["physics", options[1]]
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == [
        row["name"] for row in report["rows"]
    ]
    assert err.splitlines() == [
        "measuring 1 of 2: physics",
        "measuring 2 of 2: humanoid-mlp-fast",
    ]


@pytest.mark.slow
def test_what_is_measured_stays_if_the_rest_is_stopped(tmp_path, capsys, monkeypatch):
    run = subprocess.run

    def physics_alone(command, **options):
        if "humanoid-mlp" in " ".join(command):
            raise KeyboardInterrupt
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", physics_alone)
    file = tmp_path / "rows.json"
    options = ["--only", "policy/humanoid-mlp", "--seconds", "0.01"]
    assert benchmark.main([*options, "--json", str(file)]) == 128 + signal.SIGINT
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["physics"]
    assert "physics" in capsys.readouterr().out


def test_lists_its_rows(capsys):
    assert benchmark.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[2:] for line in lines] == [row.name for row in ROWS]
    assert [line[0] == "*" for line in lines] == [row.is_default for row in ROWS]


@pytest.mark.slow
def test_profile_is_readable_by_perfetto(tmp_path):
    folder = measure.profile(tmp_path, NETWORK, TINY)
    assert folder.parent == tmp_path / "plugins" / "profile"
    assert (folder / "perfetto_trace.json.gz").stat().st_size > 1000


def test_lengths_of_a_mean_are_those_of_bodies_that_fall_at_any_step():
    rng = np.random.default_rng(0)
    lengths = learning.falls(rng, 100, 20_000)
    assert lengths.mean() == pytest.approx(100, rel=0.03) and lengths.min() > 20
    assert set(learning.falls(rng, 1000, 5)) == {1000}
    lengths = [row for row in ROWS if row.condition.startswith("length-")]
    assert len(lengths) == 12 and not any(row.is_default for row in lengths)
