"""Faults at random instants on a Ray of several nodes change no number.

``JAX_ES_FAULTS=50 python -m pytest -m slow tests/jax_es/distributed/test_cluster.py``
makes fifty of them; a few are enough to notice what breaks.
"""

import os
import random
import signal
import time
from dataclasses import replace

import jax
import pytest

import jax_es
from jax_es.distributed import session, workers
from jax_es.distributed.member import Patience
from tests.comparing import assert_equal_bits, numbers

pytest.importorskip("ray")
from ray.cluster_utils import Cluster

# Nodes that end leave processes and files behind, of which Python warns.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

NUM_FAULTS = int(os.environ.get("JAX_ES_FAULTS", "3"))

CONFIG = replace(
    jax_es.preset("half-cheetah-small", "linear"),
    es=jax_es.ESConfig(num_pairs=64, sigma=0.1),
    env=jax_es.EnvConfig(id="HalfCheetah-v5", max_episode_steps=100),
    num_generations=10**6,
)


class Over(Exception):
    """The faults are made, and overcome."""


class Faults:
    """Kills and stops workers, and takes nodes away and brings others."""

    def __init__(self, cluster, nodes, team):
        self.cluster, self.nodes, self.team = cluster, nodes, team
        self.made = []
        self.rng = random.Random(0)
        self.set_time()

    def set_time(self):
        self.due = time.monotonic() + self.rng.uniform(0.2, 2.0)

    def check(self):
        """Is called often; makes the next fault when it is time.

        The time is that in which somebody works: starting a worker takes longer than
        most faults are apart, and ten losses of the same job would end the run.
        """
        if not self.busy():
            self.set_time()
        if time.monotonic() < self.due:
            return
        if len(self.made) == NUM_FAULTS:
            raise Over
        kind = ("kill", "stop", "node")[len(self.made) % 3]
        if kind == "node":
            self.exchange_node()
        elif not self.signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP):
            return
        self.made.append(kind)
        self.set_time()

    def busy(self):
        members = self.team._members
        return [member.place.pid for member in members if member.stage == "busy"]

    def signal(self, signum):
        try:
            os.kill(self.rng.choice(self.busy()), signum)
        except ProcessLookupError:  # gone with its node, which nobody noticed yet
            return False
        return True

    def exchange_node(self):
        lost = self.rng.choice(self.nodes)
        self.cluster.remove_node(lost, allow_graceful=False)
        self.nodes.remove(lost)
        self.nodes.append(self.cluster.add_node(num_cpus=1))


@pytest.fixture(scope="module")
def cluster():
    jax.devices()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        yield cluster
    finally:
        cluster.shutdown()


def test_faults_change_no_number(cluster, tmp_path):
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    lines = []
    with session.ray_session(None, cluster.address) as ray:
        patience = Patience(slack=5.0, alone=300.0, build=120.0)
        team = workers.Workers(ray, None, lines.append, patience)
        faults_began = time.monotonic()
        path, whole = tmp_path / "disturbed", tmp_path / "whole"
        # One generation first: until then nobody knows how long a job takes.
        first = replace(CONFIG, num_generations=2)
        jax_es.train_policy(first, path, workers=team)
        faults = Faults(cluster, nodes, team)
        with pytest.raises(Over):
            jax_es.train_policy(
                CONFIG, path, resume=True, workers=team, check_stop=faults.check
            )
        generations = len(numbers(path)) + 1
        config = replace(CONFIG, num_generations=generations)
        disturbed = jax_es.train_policy(config, path, resume=True, workers=team)
        seconds = time.monotonic() - faults_began
        undisturbed = jax_es.train_policy(config, whole, workers=team)
        status = team.status()
        team.close()
    assert len(faults.made) == NUM_FAULTS
    assert numbers(path) == numbers(whole)
    assert_equal_bits(disturbed.state, undisturbed.state)
    print(f"{faults.made}, {generations} generations, {seconds:.0f} s, {status}")  # noqa: T201


def test_without_workers_a_run_is_saved_and_says_so(cluster, tmp_path):
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node, allow_graceful=False)
    node = cluster.add_node(num_cpus=1)
    with session.ray_session(None, cluster.address) as ray:
        team = workers.Workers(ray, None, lambda line: None, Patience(alone=5.0))
        done = []

        def check():
            if len(numbers(tmp_path / "run")) >= 2 and not done:
                cluster.remove_node(node, allow_graceful=False)
                done.append(True)

        with pytest.raises(workers.WorkersGone, match="all workers are gone"):
            jax_es.train_policy(
                CONFIG, tmp_path / "run", workers=team, check_stop=check
            )
        team.close()
    assert (tmp_path / "run" / "checkpoints").exists()
    assert len(numbers(tmp_path / "run")) >= 2
