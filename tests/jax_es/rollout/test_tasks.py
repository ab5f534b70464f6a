"""Every task goes out once, in order, and a pair's tasks go to one device."""

import itertools

import numpy as np
import pytest

from jax_es.es.population import MEAN
from jax_es.rollout.tasks import IDLE, TaskQueue


def members_of(num_pairs, tasks_per_pair, num_mean=0):
    """Both members of a pair in turn, after tasks of the mean."""
    pairs = np.repeat(np.arange(num_pairs, dtype=np.int32), tasks_per_pair)
    members = 2 * pairs + np.arange(len(pairs)) % 2
    return np.concatenate([np.full(num_mean, MEAN, np.int32), members])


@pytest.mark.parametrize("num_devices", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_takes_hands_out_each_task_once(num_devices, seed):
    rng = np.random.default_rng(seed)
    member = members_of(rng.integers(1, 30), rng.integers(1, 7), rng.integers(0, 9))
    queue, pair = TaskQueue(member, 2, num_devices), member // 2
    taken = {device: [] for device in range(num_devices)}
    empty = set()
    while len(empty) < num_devices:
        device = int(rng.integers(num_devices))
        task = queue.take(device)
        if task == IDLE:
            empty.add(device)
        else:
            assert device not in empty, "a device got a task after it had got none"
            taken[device].append(task)
        num_taken = sum(map(len, taken.values()))
        assert queue.is_empty() == (num_taken == len(pair))
    everything = itertools.chain.from_iterable(taken.values())
    assert sorted(everything) == list(range(len(pair)))
    homes = {}
    for device, tasks in taken.items():
        assert tasks == sorted(tasks)
        changes = [pair[task] for task in tasks if pair[task] != IDLE]
        for p in changes:
            assert homes.setdefault(p, device) == device
        # Once a device leaves a pair it never comes back: one draw of ε is enough.
        assert len(set(changes)) == sum(np.diff(changes, prepend=IDLE) != 0)


def test_devices_alternate_between_pairs():
    queue = TaskQueue(members_of(3, 2), 2, num_lanes=2)
    assert [queue.take(d) for d in (0, 1, 0, 1)] == [0, 2, 1, 3]
    assert [queue.take(d) for d in (1, 0, 1, 1)] == [4, IDLE, 5, IDLE]
    # Members that share nothing go out one by one.
    queue = TaskQueue(np.arange(4), 1, num_lanes=2)
    assert [queue.take(lane) for lane in (0, 1, 0, 1)] == [0, 1, 2, 3]
