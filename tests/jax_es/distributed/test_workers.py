"""Workers' numbers do not depend on how many they are, nor on who dies: real Ray."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jax_es
from jax_es.checks import ConfigError
from jax_es.distributed import session, worker, workers
from jax_es.distributed.member import Patience
from jax_es.evaluation import conditions
from jax_es.imitation.demonstrations import Player
from jax_es.runs import machine
from jax_es.runs.directory import RunDirectory
from tests.comparing import assert_equal_bits, numbers
from tests.made_runs import SHORT, save_run

ray = pytest.importorskip("ray")

# Chaotic physics, and shards of some tenths of a second. Novelty search takes
# OpenAI-ES's steps, and reads descriptors besides.
CONFIG = replace(
    jax_es.preset("half-cheetah-small", "linear"),
    es=jax_es.ESConfig(
        strategy="novelty",
        kwargs={"parents": 2, "fitness_weight": 0.5},
        num_pairs=40,
        sigma=0.1,
    ),
    env=jax_es.EnvConfig(
        id="HalfCheetah-v5", max_episode_steps=100, descriptor=("gait",)
    ),
    num_generations=3,
)


@pytest.fixture(scope="module")
def started():
    """Ray for four workers, and lines that they say."""
    jax.devices()
    with session.ray_session(4) as started:
        yield started


@contextlib.contextmanager
def workers_of(started, count, **patience):
    lines = []
    team = workers.Workers(started, count, lines.append, Patience(**patience))
    team.lines = lines
    try:
        yield team
    finally:
        team.close()


def kill_one(team, killed):
    """Kills another worker that is at work, if any, and adds its process."""
    pids = {member.place.pid for member in team._members if member.stage == "busy"}
    for pid in sorted(pids - killed)[:1]:  # who is dead looks busy for a moment
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)


class Interrupted(Exception):
    pass


@pytest.mark.slow
def test_numbers_depend_on_nothing_that_happens_to_workers(started, tmp_path, capfd):
    with workers_of(started, 1) as team:
        whole = jax_es.train_policy(CONFIG, tmp_path / "one", workers=team)

        team._count = 3  # two join while the run is under way
        killed = set()

        def disturb():
            if team.status().workers == 3 and len(killed) < 2:
                kill_one(team, killed)
            if team.status().repeated == 2:
                raise Interrupted

        path = tmp_path / "three"
        with pytest.raises(Interrupted):
            jax_es.train_policy(
                replace(CONFIG, num_generations=10**6),
                path,
                workers=team,
                check_stop=disturb,
            )
        shown = capfd.readouterr().err
        assert len(killed) == shown.count(" ended; job ") == 2
        generations = max(CONFIG.num_generations, len(numbers(path)))
        team._count = 2
        config = replace(CONFIG, num_generations=generations)
        resumed = jax_es.train_policy(config, path, resume=True, workers=team)
        if generations > CONFIG.num_generations:
            one = tmp_path / "one"
            whole = jax_es.train_policy(config, one, resume=True, workers=team)
    assert numbers(path) == numbers(tmp_path / "one")
    assert_equal_bits(resumed.state, whole.state)


@pytest.mark.slow
@pytest.mark.parametrize("emitter", ["iso+line", "es"])
def test_archives_do_not_depend_on_how_many_workers_there_are(
    emitter, started, tmp_path
):
    settings = jax_es.ArchiveConfig(
        emitter=emitter, cells=(4,), batch_size=40, initial_batches=1
    )
    es = replace(CONFIG.es, strategy="openai-es", kwargs={})
    env = replace(CONFIG.env, descriptor=("feet",), max_episode_steps=20)
    rollout = jax_es.RolloutConfig(observation_statistics=False)
    config = replace(CONFIG, es=es, env=env, rollout=rollout, num_generations=2)

    def filled(name, config, **more):
        path = tmp_path / name
        archive = jax_es.illuminate_run(config, settings, path, workers=team, **more)
        return archive.elites()

    with workers_of(started, 1) as team:
        whole = filled("one", config)
        filled("torn", replace(config, num_generations=1))
    with workers_of(started, 2) as team:
        resumed = filled("torn", config, resume=True)
    for a, b in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(a, b)
    assert numbers(tmp_path / "one") == numbers(tmp_path / "torn")
    assert RunDirectory(tmp_path / "one").config().rollout.shard_size == 16


@pytest.mark.slow
def test_niches_do_not_depend_on_how_many_workers_there_are(started, tmp_path):
    settings = jax_es.PoetConfig(
        mutate=(("friction", 0.2, 0.5, 1.5),),
        mutate_every=1,
        transfer_every=1,
        reproduce_at=-1000.0,
        criterion_low=-1000.0,
        criterion_high=1000.0,
        children=2,
        max_niches=2,
    )
    es = replace(CONFIG.es, strategy="openai-es", kwargs={}, num_pairs=4)
    env = replace(CONFIG.env, descriptor=(), max_episode_steps=20)
    rollout = jax_es.RolloutConfig(observation_statistics=False)
    config = replace(CONFIG, es=es, env=env, rollout=rollout, num_generations=4)

    def grown(name, config, **more):
        what = {"workers": team, "verbose": False, **more}
        return jax_es.poet_run(config, settings, tmp_path / name, **what)

    with workers_of(started, 1) as team:
        whole = grown("one", config)
        grown("torn", replace(config, num_generations=2))
    with workers_of(started, 2) as team:
        resumed = grown("torn", config, resume=True)
    assert len(whole) == 4
    for one, other in zip(whole, resumed, strict=True):
        assert_equal_bits(jax.device_get(one.mean), jax.device_get(other.mean))
        assert one.terrain.tolist() == other.terrain.tolist()
    assert numbers(tmp_path / "one") == numbers(tmp_path / "torn")


class Arithmetic:
    """An engine without JAX; a job that finds a file does what it says, once."""

    def close(self):
        pass

    def square(self, shared, number, file=None):
        if file and os.path.exists(file):
            with open(file) as opened:
                fault = opened.read()
            os.remove(file)
            if fault == "hang":
                os.kill(os.getpid(), signal.SIGSTOP)
            if fault == "memory":
                raise MemoryError
            if fault == "exit":
                os._exit(1)
        if shared == "always":
            os._exit(1)
        if shared == "error":
            raise ZeroDivisionError("division by zero")
        return number**2


def squares(team, faults=(), shared=None):
    """Lets workers square 0 to 8, meeting the faults that files name."""
    taken = []
    jobs = [(i, faults[i] if i < len(faults) else None) for i in range(9)]
    team.use(Arithmetic)
    team.run("square", shared, jobs, taken.append)
    return taken


@pytest.mark.slow
def test_jobs_of_workers_that_fail_run_again(started, tmp_path, monkeypatch):
    ray.cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    with workers_of(started, 2, slack=1.0) as team:
        expected = [i**2 for i in range(9)]
        assert squares(team) == expected

        # What is installed meanwhile is not what this process runs.
        monkeypatch.setattr(machine, "versions", dict)
        files = []
        for name in ("exit", "hang", "memory"):
            files.append(str(tmp_path / name))
            (tmp_path / name).write_text(name)
        assert squares(team, files) == expected
        assert [
            next(w for w in ("ended", "no answer for", "out of memory") if w in line)
            for line in sorted(team.lines, key=lambda line: line.split("; job")[1])
        ] == ["ended", "no answer for", "out of memory"]
        # Who had no memory is not replaced.
        assert team.status()[2:] == (3, 3)
        assert squares(team) == expected
        assert team.status().workers == 1

        with pytest.raises(ZeroDivisionError, match="division by zero"):
            squares(team, shared="error")
        monkeypatch.setattr(workers, "MOST_LOSSES", 2)
        with pytest.raises(workers.WorkersGone, match="2 workers ended in the same"):
            squares(team, shared="always")
        (tmp_path / "memory").write_text("memory")
        with pytest.raises(workers.WorkersGone, match="last one, ran out of memory"):
            squares(team, files)


class Threads:
    """An engine that says where it may run, and names its threads."""

    def close(self):
        pass

    def look(self, shared):
        import jax

        jax.numpy.ones((99, 99)).sum().block_until_ready()
        threads = Path("/proc/self/task").glob("*/comm")
        names = [thread.read_text().strip() for thread in threads]
        return os.sched_getaffinity(0), names.count("tf_XLAEigen")


def test_a_worker_has_one_thread_on_whichever_core_is_free(started):
    ray.cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    looked = []
    with workers_of(started, 1) as team:
        team.use(Threads)
        team.run("look", None, [()], looked.append)
    assert looked == [(os.sched_getaffinity(0), 1)]


class Settings(Arithmetic):
    """An engine that says how JAX computes."""

    def settings(self, shared):
        return machine.jax_settings()


def test_a_worker_computes_with_the_settings_of_the_head():
    given = {**machine.JAX_SETTINGS, "jax_random_seed_offset": 3}
    member = worker.Worker()
    try:
        member.build(Settings, given)
        assert member.call("settings", None) == given
    finally:
        jax.config.update("jax_random_seed_offset", 0)


@pytest.mark.slow
def test_workers_compute_with_the_settings_of_the_head(started):
    ray.cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    answers = []
    with workers_of(started, 1) as team, jax.threefry_partitionable(False):
        team.use(Settings)
        team.run("settings", None, [()], answers.append)
        assert answers == [machine.jax_settings()] != [machine.JAX_SETTINGS]


def test_a_worker_of_another_version_is_refused(started, monkeypatch):
    versions = machine.versions()
    monkeypatch.setattr(machine, "versions", lambda: versions | {"mujoco": "3.9.9"})
    ray.cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    with (
        workers_of(started, 1) as team,
        pytest.raises(ConfigError, match=r"mujoco 4\.\d\.\d there and 3.9.9 here"),
    ):
        team.use(Arithmetic)


@pytest.mark.parametrize(
    ("count", "address", "complaint"),
    [
        (0, None, "workers must be at least 1, got 0"),
        (2, "elsewhere", "address must be HOST:PORT"),
        (2, "ray://head:10001", "address must be HOST:PORT"),
        (None, "127.0.0.1:9", "address 127.0.0.1:9: nobody answers within 10 s"),
    ],
)
def test_bad_input_is_one_line(count, address, complaint):
    with (
        pytest.raises(ConfigError, match=complaint),
        session.open_workers(count, address),
    ):
        pass


def test_ray_that_starts_too_slowly_costs_one_line(monkeypatch):
    def init(**options):
        raise Exception("The current node timed out.\nLast lines: " + 999 * "x")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError) as caught, session.open_workers(1):
        pass
    line = str(caught.value)
    assert line.startswith("workers: Ray does not start (The current node timed out.")
    assert "when the machine is less busy" in line
    assert "\n" not in line and len(line) < 500


TEAM = """
import time
from jax_es.distributed.session import open_workers

class Engine:
    def sleep(self, shared):
        time.sleep(0.1)

with open_workers(1) as team:
    team.use(Engine)
    print("started", flush=True)
    team.run("sleep", None, 10**5 * [()], lambda result: None)
"""


@pytest.mark.slow
@pytest.mark.parametrize("server", ["gcs_server", "raylet"])
def test_without_rays_servers_a_run_ends_at_once_and_says_so(server):
    import psutil

    command = [sys.executable, "-c", TEAM]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout.readline() == "started\n"
        (process,) = (
            child
            for child in psutil.Process(program.pid).children()
            if child.name() == server
        )
        process.kill()
        # Ray itself ends the program, after a minute.
        _, lines = program.communicate(timeout=45)
    assert program.returncode == 1
    # Ray ends a program that asks the raylet just as it dies at once, without a word.
    if lines or server == "gcs_server":
        assert lines.splitlines()[-2].startswith(
            "jax_es.distributed.workers.WorkersGone: Ray's server at"
        )


def test_ray_may_be_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r"pip install -e '\.\[distributed\]'"),
        session.open_workers(1),
    ):
        pass


@pytest.mark.slow
def test_workers_get_the_physics_of_each_phase(started, tmp_path):
    coarse = {"rollout.integrator": "Euler", "rollout.num_substeps": 2}
    phases = jax_es.Phase(changes=coarse, generations=2), jax_es.Phase(generations=1)
    config = replace(SHORT, num_generations=3, phases=phases)
    jax_es.train_policy(config, tmp_path / "alone")
    jax_es.train_policy(replace(config, phases=()), tmp_path / "fine")
    with workers_of(started, 2) as team:
        jax_es.train_policy(config, tmp_path / "two", workers=team)
    for count, resume in ((1, False), (2, True)):  # stopped at the border
        calls = SimpleNamespace(on_generation=lambda record, _: stop_in(record))
        with workers_of(started, count) as team, contextlib.suppress(KeyError):
            jax_es.train_policy(
                config,
                tmp_path / "torn",
                resume=resume,
                workers=team,
                callbacks=() if resume else [calls],
            )
    assert numbers(tmp_path / "torn") == numbers(tmp_path / "two")
    alone, fine, two = (
        np.array([[r["return_mean"], r["evaluation_return_mean"]] for r in numbers(p)])
        for p in (tmp_path / "alone", tmp_path / "fine", tmp_path / "two")
    )
    np.testing.assert_allclose(two, alone, rtol=1e-3)
    assert not np.isclose(alone[:3], fine[:3], rtol=1e-2).any()


def stop_in(record):
    if record.generation == 1:
        raise KeyError


def test_evaluations_and_collections_do_not_depend_on_workers(started, tmp_path):
    path = save_run(tmp_path / "run", CONFIG)
    with workers_of(started, 1) as team:

        def outcomes():
            base = conditions.BASE
            (group,) = conditions.prepare(
                [RunDirectory(path)], "best", [base], 40, workers=team
            )
            (one,) = conditions.evaluate_experiment(group, [base], 40, 0)
            played = []
            player = Player(group.trained[path], 40, action_noise=0.1, workers=team)
            player.play(np.arange(40), played.extend)
            player.close()
            episodes = [(each.seed, each.rewards) for each in played]
            return one.results[base].returns, episodes

        alone = outcomes()
        team._count = 2
        together = outcomes()
    assert_equal_bits(alone, together)
    assert [seed for seed, _ in alone[1]] == sorted(range(40))
