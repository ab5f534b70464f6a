"""Workers' numbers do not depend on how many they are, nor on who dies: real Ray."""

import contextlib
import os
import signal
from dataclasses import replace

import jax
import pytest

import jax_es
from jax_es.checks import ConfigError
from jax_es.distributed import session, workers
from jax_es.distributed.deadlines import Patience
from tests.comparing import assert_equal_bits, numbers

ray = pytest.importorskip("ray")

# Chaotic physics, and shards of some tenths of a second.
CONFIG = replace(
    jax_es.preset("half-cheetah", "linear"),
    es=jax_es.ESConfig(num_pairs=40, sigma=0.1),
    env=jax_es.EnvConfig(id="HalfCheetah-v5", max_episode_steps=100),
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
    patience = Patience(**patience)
    team = workers.Workers(started, count, lines.append, patience)
    team.lines = lines
    try:
        yield team
    finally:
        team.close()


def kill_one(team, signum=signal.SIGKILL):
    """Sends a signal to a worker that is at work; returns its process, if any."""
    pids = {member.place.pid for member in team._members if member.stage == "busy"}
    for pid in sorted(pids)[:1]:
        os.kill(pid, signum)
        return {pid}
    return set()


class Interrupted(Exception):
    pass


def test_numbers_depend_on_nothing_that_happens_to_workers(started, tmp_path, capfd):
    with workers_of(started, 1) as team:
        whole = jax_es.train_run(CONFIG, tmp_path / "one", workers=team)

        team.resize(3)  # two join while the run is under way
        killed = set()

        def disturb():
            if team.status().workers == 3 and len(killed) < 2:
                killed.update(kill_one(team))
            if team.status().repeated == 2:
                raise Interrupted

        path = tmp_path / "three"
        with pytest.raises(Interrupted):
            jax_es.train_run(
                replace(CONFIG, num_generations=10**6),
                path,
                workers=team,
                check_stop=disturb,
            )
        shown = capfd.readouterr().err
        assert len(killed) == shown.count(" ended; job ") == 2
        generations = max(CONFIG.num_generations, len(numbers(path)))
        team.resize(2)
        config = replace(CONFIG, num_generations=generations)
        resumed = jax_es.train_run(config, path, resume=True, workers=team)
        if generations > CONFIG.num_generations:
            one = tmp_path / "one"
            whole = jax_es.train_run(config, one, resume=True, workers=team)
    assert numbers(path) == numbers(tmp_path / "one")
    assert_equal_bits(resumed.state, whole.state)
