"""What more workers bring: measured costs of one core, then a simulation of many.

``python -m jax_es.benchmark.scaling`` prints JSON; ``benchmark --only scaling`` runs
it in a process of its own, bound to one core. Costs are seconds of that core, so that
other programs on the machine hardly matter. The simulation is of discrete events: slots
whose episodes end and take the next task, workers that end a shard and take the next
one, a head that hands out jobs one after the other and receives results over its
network.
"""

import heapq
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_es.benchmark.measure import falls
from jax_es.benchmark.rows import MEAN_LENGTHS, config_of
from jax_es.cli.train_program import start_jax
from jax_es.es.noise import make_noise
from jax_es.es.openai_es import openai_es
from jax_es.rollout.devices import available_cores
from jax_es.rollout.memory import num_bytes
from jax_es.rollout.observation_statistics import UNCHANGED
from jax_es.runs.metrics import read_metrics
from jax_es.training.build import with_machine
from jax_es.training.episodes import population_tasks
from jax_es.training.parts import WorkerEngine
from jax_es.training.shards import block_size

NETWORKS = ("humanoid-mlp-fast", "humanoid-dt-fast", "humanoid-dt")

CORES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440)
"""1440: the most of Salimans et al. 2017, figure 1."""

JOB_SECONDS = 1.5e-3
"""Of the head for each job: giving it to Ray and taking its result."""

BYTES_PER_SECOND = 1.25e8
"""Of the head's network, 1 Gbit/s; within a node there is shared memory."""

CORES_PER_NODE = 32


class Costs(NamedTuple):
    """What one core takes; seconds."""

    step: float
    """A step of the engine, however few of its slots are live."""
    slot: float
    """More for each live slot: physics and policy."""
    task: float
    """Noise and reset of a task."""
    block: float
    """Σ wᵢ εᵢ of a block of pairs."""
    add: float
    """Adding two sums of θ's size, at the head."""
    theta_bytes: int


def main() -> None:
    """Prints measured costs and simulated generations of every network."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start_jax(1)
    report = {}
    for name in NETWORKS:
        costs = measure(name)
        report[name] = {"costs": costs._asdict(), "generations": curves(name, costs)}
    sys.stdout.write(json.dumps(report) + "\n")


def measure(network: str) -> Costs:
    """Measures a network's costs with a worker's own engine."""
    config = with_machine(config_of(network), has_workers=True)
    slots = config.rollout.num_slots or 1
    engine = WorkerEngine(config, slots)
    parts = engine.parts
    env: Any = parts.env
    env.terminate_when_unhealthy = False
    mean = jax.jit(parts.policy.init)(jax.random.key(0))
    strategy = openai_es(config.es, make_noise(config.es))
    state = strategy.init(jax.random.key(1), mean)
    shared = jax.device_get((strategy.ask(state), UNCHANGED))

    def run(num_tasks: int, length: int) -> Callable[[], object]:
        tasks = population_tasks(config, 0, length, num_tasks)
        return lambda: engine.evaluate(shared, tasks)

    many, few, long, short = slots, max(2, slots // 8), 40, 2
    full = (seconds(run(many, long)) - seconds(run(many, short))) / (long - short)
    tail = (seconds(run(few, long)) - seconds(run(few, short))) / (long - short)
    slot = max(full - tail, 0.0) / (many - few)
    step = max(tail - few * slot, 1e-5)
    task = max(seconds(run(many, short)) - short * full, 0.0) / many
    block = block_size(config.es)
    key_and_mean = jax.device_get((strategy.ask(state).key, mean))
    weights = np.ones(block, np.float32)
    block_seconds = seconds(lambda: engine.weighted_sum(key_and_mean, 0, weights))
    host = jax.device_get(mean)
    add = seconds(lambda: jax.tree.map(np.add, host, host))
    engine.close()
    return Costs(step, slot, task, block_seconds, add, num_bytes(host))


def side_by_side(folder: Path) -> list[dict[str, Any]]:
    """Trains an untrained network in one process, and on one worker, two and so on.

    Three generations each, after a first one that compiles; with real programs.

    Args:
        folder: for their runs.
    """
    rows = []
    counts = [n for n in CORES if n <= available_cores()]
    for workers in [0, *counts]:
        name = f"{workers} workers" if workers else "one process"
        sys.stderr.write(f"training on {name}\n")
        options = ["--es.num-pairs", "512", "--num-generations", "4", "--runs-dir"]
        command = [sys.executable, "-m", "jax_es.train", NETWORKS[0], *options]
        command += [str(folder), "--name", name.replace(" ", "-")]
        command += ["--workers", str(workers)] * bool(workers)
        subprocess.run(command, check=True, capture_output=True)
        generations = read_metrics(folder / name.replace(" ", "-"))[1:4]
        speeds = [each.env_steps_per_second for each in generations]
        others = [1000 * each.seconds_other for each in generations]
        measured = {"steps_per_second": sorted(speeds)}
        rows.append({"name": name, **measured, "other_milliseconds": sorted(others)})
    return rows


def seconds(function: Callable[[], object]) -> float:
    """Returns the least seconds of this process' core that one of three calls takes."""
    function()  # compiles
    taken = []
    for _ in range(3):
        began = time.process_time()
        function()
        taken.append(time.process_time() - began)
    return min(taken)


def curves(network: str, costs: Costs) -> dict[str, list[dict[str, float]]]:
    """Simulates a generation of the network's own population on more and more cores.

    Returns:
        For each mean length of episodes a list by number of cores.
    """
    config = with_machine(config_of(network), has_workers=True)
    es, rollout = config.es, config.rollout
    num_blocks = -(-es.num_pairs // block_size(es))
    result = {}
    for name, mean in MEAN_LENGTHS.items():
        lengths = falls(np.random.default_rng(0), mean, 2 * es.num_pairs)
        points = []
        for cores in CORES:
            # As the guide says, with more workers than the default is meant for.
            size = min(rollout.shard_size or 1, max(8, len(lengths) // (4 * cores)))
            slots = min(rollout.num_slots or 1, size)
            shards = [
                shard_seconds(lengths[i : i + size], slots, costs)
                for i in range(0, len(lengths), size)
            ]
            points.append(generation(shards, num_blocks, cores, costs))
        alone = points[0]["seconds"]
        result[name] = [
            {**point, "efficiency": alone / (point["cores"] * point["seconds"])}
            for point in points
        ]
    return result


def shard_seconds(lengths: np.ndarray, num_slots: int, costs: Costs) -> float:
    """Simulates the slots of an engine; see :class:`Costs`."""
    ends: list[int] = []
    queue = iter(lengths.tolist())
    for _ in range(min(num_slots, len(lengths))):
        heapq.heappush(ends, next(queue))
    clock = live_steps = 0
    while ends:
        end = heapq.heappop(ends)
        live_steps += (end - clock) * (len(ends) + 1)
        clock = end
        length = next(queue, None)
        if length is not None:
            heapq.heappush(ends, clock + length)
    return clock * costs.step + live_steps * costs.slot + len(lengths) * costs.task


def generation(
    shards: Sequence[float], num_blocks: int, cores: int, costs: Costs
) -> dict[str, float]:
    """Simulates one generation on so many workers.

    Returns:
        ``seconds``, and those of them in which θ travels (``broadcast``), shards run
        (``rollout``) and the noise is summed (``update``); ``longest``, one shard's;
        ``head``, those of handing shards out.
    """
    nodes = math.ceil(cores / CORES_PER_NODE)
    transfer = costs.theta_bytes / BYTES_PER_SECOND
    broadcast = 2 * (nodes - 1) * transfer  # to evaluate, and to sum
    rollout = makespan(shards, cores, 0.0)
    received = costs.add + (transfer if nodes > 1 else 0.0)
    update = makespan([costs.block] * num_blocks, cores, received)
    return {
        "cores": cores,
        "seconds": broadcast + rollout + update,
        "broadcast": broadcast,
        "rollout": rollout,
        "update": update,
        "longest": max(shards),
        "head": len(shards) * JOB_SECONDS,
    }


def makespan(jobs: Sequence[float], num_workers: int, received: float) -> float:
    """Simulates workers that take jobs in order from a head that does one at a time.

    Args:
        jobs: seconds of each.
        num_workers: how many.
        received: what the head takes for each result, besides the job itself.
    """
    free = [(0.0, worker) for worker in range(min(num_workers, len(jobs)))]
    heapq.heapify(free)
    head = last = 0.0
    for job in jobs:
        ready, worker = heapq.heappop(free)
        head = max(head, ready) + JOB_SECONDS + received
        end = head + job
        last = max(last, end)
        heapq.heappush(free, (end, worker))
    return last


def bound(point: dict[str, float]) -> str:
    """Says what a generation waits for."""
    rest = point["seconds"] - point["rollout"]
    if rest > point["rollout"]:
        return "update and broadcast"
    if point["rollout"] > 2 * max(point["longest"], point["head"]):
        return "cores"
    return "the head" if point["head"] > point["longest"] else "the longest shard"


def table(report: dict[str, Any]) -> str:
    """Returns what was measured, then the simulated generations, for a terminal."""
    lines = []
    for row in report["side_by_side"]:
        speeds = " ".join(f"{speed:7.0f}" for speed in row["steps_per_second"])
        others = " ".join(f"{spent:5.0f}" for spent in row["other_milliseconds"])
        lines.append(f"{row['name']:12} {speeds} steps/s, other {others} ms")
    lines.append("network             length  cores   seconds  used  bound")
    for network, fields in report["simulated"].items():
        for condition, points in fields["generations"].items():
            for point in points:
                if point["cores"] in (1, 16, 64, 1440):
                    length = condition.removeprefix("length-")
                    lines.append(
                        f"{network:18} {length:>7} {point['cores']:6.0f} "
                        f"{point['seconds']:9.2f} {point['efficiency']:5.0%}  "
                        f"{bound(point)}"
                    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
