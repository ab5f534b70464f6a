"""The benchmark: its rows, its report and its errors; no speed is asserted."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envs.physics import EPISODE_LENGTHS, WARM_UP_STEPS
from jax_es import benchmark
from jax_es.benchmark import finish, plan, run, table
from jax_es.benchmarks import cases as benchmark_cases
from jax_es.benchmarks.cases import Measurements, measure
from jax_es.benchmarks.rows import (
    NETWORKS,
    NORMALS,
    Case,
    Work,
    all_rows,
    choose,
    config_of,
    default_rows,
    parse,
    work_of,
)
from jax_es.config import ConfigError, EnvConfig
from jax_es.presets import preset
from jax_es.rollout.engine import RolloutProgress
from jax_es.train_config import from_dict, to_dict
from jax_es.training.build import make_env, num_slots

TINY = Work(num_slots=8, num_pairs=2, update_pairs=6, seconds=0.01, num_groups=None)


def test_rows_are_named_once_and_sorted_into_regimes():
    rows = all_rows()
    assert len(rows) == len(set(rows))
    assert set(default_rows()) < set(rows)
    assert {parse(name).network for name in rows} == {"", *NETWORKS}
    regimes = {name: parse(name).regime for name in rows}
    assert regimes["physics"] == regimes["rollout/humanoid-dt/full-length"] == "trained"
    for name in ("physics/untrained", "generation/humanoid-dt/1-core"):
        assert regimes[name] == "untrained"
    slices = [name for name in rows if parse(name).is_slice]
    conditions = {parse(name).condition for name in slices}
    assert conditions == {"", "untrained", "own-actions", "1-core", "1-device"}
    assert regimes["physics/atari"] == regimes["policy/hero-dt"] == "atari"
    assert "rollout/atari-cnn/untrained" not in rows
    assert {parse(name).kind for name in slices} == {"rollout", "generation"}


def test_networks_are_what_they_are_called():
    assert config_of("humanoid-dt+cache").policy.attention == "cache"
    assert config_of("humanoid-dt+cache").es.perturbation == "full"
    assert config_of("humanoid-dt+low-rank").policy.attention == "window"
    assert config_of("humanoid-dt+low-rank").es.perturbation == "low-rank"
    fast = preset("humanoid-dt-fast")
    same = config_of("humanoid-dt+cache+low-rank")
    assert (same.policy, same.es, same.env) == (fast.policy, fast.es, fast.env)


def test_names_and_patterns_choose_rows():
    assert choose(["update/humanoid-dt"]) == ["update/humanoid-dt"]
    assert choose(["policy/*", "physics"]) == [
        "physics",
        *(f"policy/{network}" for network in NETWORKS),
    ]
    with pytest.raises(ConfigError, match=r"called 'rolout/humanoid-dt'; .*rollout/hu"):
        choose(["rolout/humanoid-dt"])


def test_slices_have_the_slots_of_training():
    for network in NETWORKS:
        for cores in (1, 2, 16):
            shown: Any = SimpleNamespace(platform="cpu", count=cores)
            trained = num_slots(config_of(network).rollout, shown)
            assert work_of(network, cores=cores).num_slots == trained
            for setting in ("1-core", "1-device"):
                assert work_of(network, setting, cores).num_slots == trained / cores
    assert work_of("humanoid-dt", cores=16).num_slots == 1024


def test_whole_generations_have_four_tasks_a_slot():
    for network in NETWORKS:
        work = work_of(network, "few-slots")
        assert work.num_slots < work_of(network).num_slots
        assert 2 * work.num_pairs == 2 * work.pairs_unit == 4 * work.num_slots
    full = work_of("humanoid-dt", "few-slots", full=True)
    assert (full.num_slots, full.num_pairs) == (128, 512)
    many = work_of("humanoid-dt", "few-slots", full=True, cores=16)
    assert 2 * many.num_pairs == 4 * many.num_slots
    assert work_of("humanoid-dt", "few-slots", num_pairs=3).num_pairs == 3
    assert work_of("humanoid-dt", "few-slots", num_slots=6).num_slots == 6


def test_a_process_for_each_network_and_setting(monkeypatch):
    monkeypatch.setattr("jax_es.rollout.devices.available_cores", lambda: 4)
    rows = choose(["*/humanoid-dt", "*/humanoid-dt/1*", "*/humanoid-dt/whole", NORMALS])
    cases = plan(rows, benchmark.Arguments(num_groups=2))
    settings = {case.setting: case for case in cases[1:]}
    expected = "", ("physics", "physics/untrained")
    assert (cases[0].network, cases[0].rows) == expected
    assert set(settings) == {"usual", "few-slots", "1-core", "1-device"}
    usual, few, one = (settings[s] for s in ("usual", "few-slots", "1-core"))
    assert NORMALS in usual.rows
    assert set(few.rows) == {
        "rollout/humanoid-dt/whole",
        "generation/humanoid-dt/whole",
        "generation/humanoid-dt/1x-pairs",
        "generation/humanoid-dt/16x-pairs",
    }
    assert one.rows == ("generation/humanoid-dt/1-core",)
    assert 4 * one.work.num_slots == usual.work.num_slots
    assert {case.work.num_groups for case in cases} == {2}
    assert Case.from_json(json.loads(json.dumps(one.to_json()))) == one


NETWORK = "humanoid-mlp-fast"


@pytest.fixture
def few_simulations(monkeypatch):
    monkeypatch.setattr(benchmark_cases, "PHYSICS_ENVS_PER_CORE", 1)


def check(row):
    assert row["steps_per_second"] > 0
    assert row["seconds"] > 0
    assert row["compilations"] == 0
    assert row.get("peak_rss_mib", 1) > 0
    assert 0 < row.get("slot_utilization", 1) <= 1
    assert sum(row.get("shares", {"all": 1}).values()) == pytest.approx(1)


def test_measures_slices_at_steady_state(few_simulations):
    names = [
        f"policy/{NETWORK}",
        f"rollout/{NETWORK}",
        f"generation/{NETWORK}",
        f"rollout/{NETWORK}/untrained",
        f"generation/{NETWORK}/untrained",
        f"update/{NETWORK}",
    ]
    rows, physics, devices = measure(Case(NETWORK, "usual", tuple(names), TINY))
    assert list(rows) == names
    assert devices.startswith("4 × ")
    assert {regime: len(samples) for regime, samples in physics.items()} == {
        "trained": 2,
        "untrained": 2,
    }
    for row in rows.values():
        check(row)
    policy, rollout, generation, *_, update = rows.values()
    assert policy["num_slots"] == rollout["num_slots"] == TINY.num_slots
    # No slot is ever idle in a slice.
    assert rollout["slot_utilization"] == 1
    assert rollout["env_steps"] == generation["env_steps"]
    assert rollout["env_steps"] % TINY.num_slots == 0
    assert rollout["seconds"] <= generation["seconds"]
    assert set(generation["shares"]) - set(rollout["shares"]) == {"update"}
    assert update["num_pairs"] == TINY.update_pairs
    assert "normals_per_second" not in update
    # A generation is its rollout and the update of the pairs that ended in it.
    rollout, generation = (
        rows[f"{kind}/{NETWORK}/untrained"] for kind in ("rollout", "generation")
    )
    pairs = (generation["seconds"] - rollout["seconds"]) * update["pairs_per_second"]
    assert pairs == pytest.approx(round(2 * pairs) / 2, abs=1e-6)


@pytest.mark.parametrize("setting", ["1-device", "usual"])
def test_slices_use_the_devices_and_groups_they_are_told(few_simulations, setting):
    work = TINY._replace(num_groups=2)
    network = benchmark_cases.Network(Case(NETWORK, setting, (), work))
    assert len(network.parts.envs) == 2
    assert benchmark_cases._setting(network.parts)["num_groups"] == 2
    assert network.parts.devices.count == (1 if setting == "1-device" else 4)


def test_a_slice_begins_after_its_warm_up_and_ends_the_run():
    clock = iter(range(0, 1000, 7))
    watched = benchmark_cases._Slice(20.0, clock=lambda: next(clock))
    with pytest.raises(benchmark_cases._Slice.Over):
        for step in range(1, 1000):
            watched(RolloutProgress(step, 1000, 8 * step, 8 * step, {}))
    assert watched.first.env_steps == 8 * WARM_UP_STEPS
    # Three calls of seven seconds are the first to last twenty.
    assert watched.last.env_steps == 8 * (WARM_UP_STEPS + 3)
    assert watched.seconds == 21


def test_episodes_of_a_slice_are_met_at_any_of_their_steps():
    network = benchmark_cases.Network(Case(NETWORK, "usual", (), TINY))
    config = network.parts.config
    low, high = EPISODE_LENGTHS
    tasks = benchmark_cases._endless_tasks(network.parts, "trained", 1.0)
    first, later = np.split(tasks.max_steps, [config.rollout.num_slots])
    assert first.min() < later.mean()
    assert low <= later.min() <= later.max() <= high
    assert later.sum() > 50_000
    untrained = benchmark_cases._endless_tasks(network.parts, "untrained", 1.0)
    first, later = np.split(untrained.max_steps, [config.rollout.num_slots])
    assert first.max() <= low
    assert set(later) == {high}
    assert len(untrained.pair) > len(tasks.pair)


def test_measures_games_beside_their_emulators(monkeypatch):
    monkeypatch.setattr(benchmark_cases, "EMULATORS_PER_CORE", 1)
    names = [f"{kind}/atari-cnn" for kind in ("policy", "rollout", "generation")]
    work = TINY._replace(num_slots=8)
    rows, physics, _ = measure(Case("atari-cnn", "usual", tuple(names), work))
    assert list(rows) == names
    assert set(physics) == {"atari"}
    for row in rows.values():
        check(row)
    assert rows["rollout/atari-cnn"]["physics_steps_per_second"] == pytest.approx(
        np.mean(physics["atari"])
    )
    finished = benchmark.finish(names, [Measurements(rows, physics, None)])
    assert [row["name"] for row in finished] == ["physics/atari", *names]


def test_physics_is_measured_as_far_as_it_is_needed(monkeypatch):
    monkeypatch.setattr(benchmark_cases, "EMULATORS_PER_CORE", 1)
    (physics, _) = plan(["policy/atari-cnn"], benchmark.Arguments())
    assert physics.rows == ("physics/atari",)
    (only,) = plan(["physics/atari"], benchmark.Arguments())
    assert only.rows == ("physics/atari",)
    rows, samples, _ = measure(only._replace(work=TINY))
    assert rows == {}
    assert list(samples) == ["atari"]
    assert samples["atari"][0] > 0


def test_measures_whole_generations(few_simulations, monkeypatch):
    lengths = np.array([20, 40, 60, 50])
    monkeypatch.setattr(benchmark_cases, "random_lengths", lambda rng, count: lengths)
    names = [
        f"rollout/{NETWORK}/whole",
        f"generation/{NETWORK}/whole",
        f"generation/{NETWORK}/4x-pairs",
    ]
    rows, _, _ = measure(Case(NETWORK, "few-slots", tuple(names), TINY))
    assert list(rows) == names
    for row in rows.values():
        check(row)
        assert "slot_utilization" in row
    rollout, generation, grown = rows.values()
    # One run of the same episodes, which nothing but their lengths ends.
    assert rollout["env_steps"] == generation["env_steps"] == lengths.sum()
    assert rollout["seconds"] < generation["seconds"]
    assert grown["num_pairs"] == 4 * TINY.pairs_unit
    assert grown["env_steps"] == 2 * grown["num_pairs"] * benchmark_cases.CAPPED_STEPS


def test_full_noise_is_compared_with_drawing_it():
    names = (NORMALS, "update/humanoid-mlp")
    # The network of NORMALS would take longer to compile.
    rows = measure(Case("humanoid-mlp", "usual", names, TINY)).rows
    for row in rows.values():
        assert row["compilations"] == 0
        weights = row["normals_per_second"] / row["pairs_per_second"]
        assert 159_505 <= weights < 159_505 + 16
    assert rows[NORMALS]["num_pairs"] >= TINY.update_pairs


def measurements():
    """Three processes' worth of round numbers."""
    full = {"num_pairs": 2, "pairs_per_second": 1.0, "seconds": 2.0}
    return [
        Measurements({}, {"trained": [100.0], "untrained": [300.0]}, None),
        Measurements(
            {
                "update/humanoid-dt": {
                    **full,
                    "steps_per_second": 1000.0,
                    "normals_per_second": 5.0,
                },
                NORMALS: {
                    **full,
                    "steps_per_second": 2000.0,
                    "normals_per_second": 10.0,
                },
            },
            {"trained": [500.0, 200.0]},
            "2 × cpu",
        ),
        Measurements(
            {
                "generation/humanoid-dt/4x-pairs": {
                    "steps_per_second": 150.0,
                    "seconds": 2.0,
                    "num_pairs": 500,
                    "slot_utilization": 0.5,
                    "shares": {"policy": 0.25, "environment": 0.75},
                }
            },
            {},
            "2 × cpu",
        ),
    ]


def test_rows_stand_beside_their_yardsticks():
    rows = finish([NORMALS, "generation/humanoid-dt/4x-pairs"], measurements())
    assert [(row["name"], row.get("ratio_to_physics")) for row in rows] == [
        ("physics", 1.0),
        ("physics/untrained", 1.0),
        ("generation/humanoid-dt/4x-pairs", 0.5),
        (NORMALS, 10.0),
    ]
    assert rows[0]["steps_per_second"] == 200  # the median
    (row,) = [
        row
        for row in finish(["update/humanoid-dt"], measurements())
        if row["name"] == "update/humanoid-dt"
    ]
    assert row["seconds_to_normals"] == 2


def test_table():
    about = {
        "machine": {"processor": "Abacus", "cores": 2, "devices": "2 × cpu"},
        "versions": {"mujoco": "4.0.0", "jax": "0.10.2"},
        "seconds": 12.3,
    }
    lines = table(finish(all_rows(), measurements()), about).splitlines()
    assert lines[0].split()[:3] == ["row", "steps/s", "/physics"]
    assert lines[1].split() == ["physics", "200", "1.00"]
    (grown,) = [line for line in lines if "4x-pairs" in line]
    assert "50%" in grown
    assert grown.endswith("policy 25%, environment 75%, 2.00 ms a task")
    (update,) = [line for line in lines if line.startswith("update/humanoid-dt")]
    assert update.endswith("2.00 × the time of its normals")
    assert lines[-1] == (
        "Abacus, 2 cores, JAX devices: 2 × cpu; MuJoCo 4.0.0, JAX 0.10.2; 12 s."
    )


def test_writes_table_and_json(tmp_path, capsys):
    file = tmp_path / "rows.json"
    names = ["physics/sync-vector-env", "update/humanoid-mlp-fast"]
    options = ["--only", *names, "--update-pairs", "4", "--seconds", "0.01"]
    assert benchmark.main([*options, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["versions"]["mujoco"]
    assert report["machine"]["devices"]
    expected = ["physics", "physics/untrained", *names]
    assert [row["name"] for row in report["rows"]] == expected
    for row in report["rows"]:
        assert np.isfinite([row["steps_per_second"], row["ratio_to_physics"]]).all()
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == expected
    assert err.splitlines() == [
        "measuring 1 of 2: physics",
        "measuring 2 of 2: humanoid-mlp-fast",
    ]


def test_a_process_that_fails_costs_its_rows_alone(monkeypatch, capsys):
    broken = Case("no-such-preset", "1-core", (), TINY)
    found, failures = run([broken])
    assert found == []
    assert len(failures) == 1
    assert failures[0].startswith("no-such-preset, 1-core ended with 1: ")
    assert "'no-such-preset' is unknown" in failures[0]
    monkeypatch.setattr(benchmark, "run", lambda cases: (measurements(), failures))
    assert benchmark.main(["--only", "physics"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("physics")
    assert err.splitlines()[-1] == f"error: {failures[0]}"


def test_ctrl_c_ends_without_a_traceback(monkeypatch, capsys):
    def interrupted(cases):
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "run", interrupted)
    assert benchmark.main([]) == 130
    assert capsys.readouterr().err.startswith("SIGINT: stopped; ")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--only", "policy/hopper"], "--only: no row is called 'policy/hopper'"),
        (["--num-slots", "2"], "--num-slots must be at least 4, got 2."),
        (["--num-groups", "0"], "--num-groups must be at least 1, got 0."),
        (["--num-pairs", "0"], "--num-pairs must be at least 2, got 0."),
        (["--update-pairs", "1"], "--update-pairs must be at least 2, got 1."),
        (["--seconds", "nan"], "--seconds must be positive and finite, got nan."),
        (["--json", "/proc/x"], "--json /proc/x cannot be written (No such file"),
        (["--profile", "/proc/x"], "/proc/x cannot be written"),
        (["--profile-network", "x"], "--profile-network must be one of humanoid-mlp"),
    ],
)
def test_bad_input_is_one_line(options, complaint, capsys):
    assert benchmark.main(options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {complaint}")
    assert err.count("\n") == 1


def test_lists_its_rows(capsys):
    assert benchmark.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[2:] for line in lines] == all_rows()
    assert [line[2:] for line in lines if line[0] == "*"] == default_rows()


def test_profile_is_readable_by_perfetto(tmp_path):
    folder = benchmark_cases.profile(tmp_path, "humanoid-mlp-fast", TINY)
    assert folder.parent == tmp_path / "plugins" / "profile"
    assert (folder / "perfetto_trace.json.gz").stat().st_size > 1000


def test_configurations_may_let_the_fallen_go_on():
    config = preset("humanoid-mlp")
    assert config.env.terminate_when_unhealthy
    older = to_dict(config)
    del older["env"]["terminate_when_unhealthy"]
    assert from_dict(older) == config
    fallen = EnvConfig("Hopper-v5", terminate_when_unhealthy=False)
    env = make_env(fallen, 2, 1)
    env.reset(seed=0)
    for _ in range(200):
        terminated = env.step(env.action_space.sample())[2]
    assert not terminated.any()
    for env_id in ("CartPole-v1", "HalfCheetah-v5"):
        with pytest.raises(ValueError, match=f"unhealthy: {env_id} has no such option"):
            make_env(EnvConfig(env_id, terminate_when_unhealthy=False), 2, 1)
