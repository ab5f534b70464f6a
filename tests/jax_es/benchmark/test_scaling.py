"""The simulation of many workers, against what is computed by hand."""

import numpy as np
import pytest

from jax_es.benchmark import scaling

COSTS = scaling.Costs(
    step=1.0, slot=0.1, task=0.01, block=2.0, add=0.5, theta_bytes=10**8
)


def test_slots_take_the_next_task_when_an_episode_ends():
    # Two slots: 3 and 5 steps, then 4 more in the first; alone from step 5 to 7.
    seconds = scaling.shard_seconds(np.array([3, 5, 4]), 2, COSTS)
    assert seconds == pytest.approx(7 * 1.0 + 12 * 0.1 + 3 * 0.01)


def test_workers_take_the_next_job_when_they_are_free(monkeypatch):
    monkeypatch.setattr(scaling, "JOB_SECONDS", 0.0)
    assert scaling.makespan([3.0, 2.0, 2.0, 2.0], 2, 0.0) == 5.0
    assert scaling.makespan([3.0, 2.0], 1, 0.0) == 5.0
    # The head hands out one at a time: the third begins after three turns.
    assert scaling.makespan([2.0, 2.0, 2.0], 3, 1.0) == 5.0


def test_a_generation_waits_for_its_longest_shard():
    point = scaling.generation([10.0, 1.0], 2, 64, COSTS)
    assert point["rollout"] == pytest.approx(10.0, abs=0.01)
    assert point["broadcast"] == pytest.approx(2 * 0.8)
    assert scaling.bound(point) == "the longest shard"
    alone = scaling.generation([10.0] * 100, 2, 1, COSTS)
    assert scaling.bound(alone) == "cores"
