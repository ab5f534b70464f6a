"""Measures a network's rows: ``python -m jax_es.benchmark.measure ROWS OPTIONS``.

``program.py`` starts such a process for each network, so that its devices and its
peak of memory are its own. What is timed has run once before, so that no time
goes into compilation. A generation here is one of training without θ's own episodes:
ten among ten thousands, they would be a large part of the small ones measured here.
"""

import contextlib
import dataclasses
import gc
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_es.benchmark.learning import falls, learning
from jax_es.benchmark.rows import (
    GAMES,
    GENERATION_STEPS,
    MEAN_LENGTHS,
    ON_ONE_CORE,
    UPDATE_PAIRS,
    Row,
    Work,
    config_of,
)
from jax_es.cli.train_program import start_jax
from jax_es.envs.base import available_cores, use_cores
from jax_es.envs.physics import (
    EPISODE_LENGTHS,
    GAME_LENGTH,
    WARM_UP_STEPS,
    Regime,
    calls_per_second,
    random_actions,
    random_lengths,
    remaining_lengths,
    simulator_speed,
)
from jax_es.es.noise import make_noise
from jax_es.es.openai_es import OpenAIES, openai_es
from jax_es.rollout.evaluator import RolloutProgress
from jax_es.rollout.slots import Shared, SlotPrograms
from jax_es.rollout.tasks import Tasks
from jax_es.rollout.weighted_sum import spread_weighted_sum
from jax_es.training.episodes import population_tasks
from jax_es.training.generation import TrainState, initial_state, view
from jax_es.training.parts import Parts, build

SLICE_SECONDS = 4
"""Length of a slice of a generation, in units of a policy's measurement."""

Fields = dict[str, Any]
"""What was measured of a row, as JSON values."""


class Network(NamedTuple):
    """A network's running parts, and its state before the first generation."""

    parts: Parts
    state: TrainState
    update_pairs: int
    seconds: float
    update_costs: dict[int, Fields]
    """What updates of so many pairs took."""


def main(argv: list[str]) -> None:
    """Measures rows of one network, prints a JSON object with the fields of each."""
    given, options = map(json.loads, argv)
    rows, work = [Row(*values) for values in given], Work(**options)
    use_cores(work.cores or (1 if rows[0].kind in ON_ONE_CORE else available_cores()))
    start_jax()
    measured = measure(rows, work)
    sys.stdout.write(json.dumps(measured) + "\n")


def measure(rows: list[Row], work: Work) -> dict[str, Fields]:
    """Measures rows of one network and of the same number of slots."""
    if rows[0].kind == "learning":
        return {row.name: learning(row, work) for row in rows}
    if rows[0].kind == "jax":
        from jax_es.benchmark.jax_envs import in_jax  # which measures by this file

        return {row.name: in_jax(row, work) for row in rows}
    if rows[0].kind == "physics":
        return {
            row.name: {"physics_samples": [simulator_speed(row.regime, work.seconds)]}
            for row in rows
        }
    network = build_network(rows[0], work)
    measures = {"policy": policy, "update": update, "generation": generation}
    return {row.name: measures[row.kind](network, row) for row in rows}


def build_network(row: Row, work: Work) -> Network:
    """Builds the parts of the row's network."""
    config = config_of(row.network)
    slots = work.num_slots or config.rollout.slots_on(available_cores())
    if row.condition == "whole" and not (work.full or work.num_slots):
        slots //= 8  # with all of them it would take minutes
    rollout = dataclasses.replace(
        config.rollout, num_slots=slots, num_groups=work.num_groups
    )
    # Four tasks a slot: with fewer, the tail would count more than in training.
    pairs = max(2 * slots, 512 if work.full else 0)
    es = dataclasses.replace(config.es, num_pairs=pairs)
    parts = build(dataclasses.replace(config, rollout=rollout, es=es))
    update_pairs = 20_000 if work.full else UPDATE_PAIRS.get(row.network, 20_000)
    network = Network(parts, initial_state(parts), update_pairs, work.seconds, {})
    if row.kind in ("policy", "generation"):
        # Two episodes of two steps a slot compile the rollout's refills and widths.
        run(network, population_tasks(parts.config, 0, 2, 2 * parts.num_slots))
    return network


def run(network: Network, tasks: Tasks, **options: Any) -> Any:
    """Runs tasks of the first generation's population."""
    parts, state = network.parts, network.state
    population = parts.strategy.ask(state.es)
    return parts.rollout.evaluate(
        population, tasks, view(parts.config, state), **options
    )


def policy(network: Network, row: Row) -> Fields:
    """Measures inference alone: observations on the host in, actions there out."""
    parts, state = network.parts, network.state
    space = parts.env.single_observation_space
    shape, width = space.shape, parts.num_slots // parts.devices.count
    lead = parts.devices.count, width
    spec = jax.ShapeDtypeStruct(shape, space.dtype)
    programs = SlotPrograms(parts.policy, parts.devices, width, spec)
    seen = view(parts.config, state)
    normalizer = seen.normalizer(shape, space.dtype)
    shared = Shared(parts.strategy.ask(state.es), *normalizer, seen.reference)
    shared = parts.devices.share(shared)
    slots, carry = programs.empty(shared)
    rng = np.random.default_rng(0)
    if space.dtype == np.uint8:
        observations = rng.integers(256, size=(8, *lead, *shape), dtype=np.uint8)
    else:
        observations = rng.standard_normal((8, *lead, *shape), dtype=np.float32)
    reward = np.zeros(lead, np.float32)
    timesteps = itertools.cycle(range(EPISODE_LENGTHS[1]))

    def step() -> None:
        nonlocal carry
        now = next(timesteps)
        lengths = np.full(lead, now, np.int32)
        carry, actions = programs.act(
            shared, slots, carry, observations[now % 8], reward, lengths
        )
        np.asarray(actions)

    for _ in range(3):
        step()
    with watch() as watched:
        speed = parts.num_slots * calls_per_second(step, network.seconds)
    return {"steps_per_second": speed, "num_slots": parts.num_slots, **watched}


def update(network: Network, row: Row) -> Fields:
    """Measures noise and update as the environment steps/s of its pairs' episodes."""
    num_pairs = network.update_pairs
    cost = update_cost(network, num_pairs)
    steps = num_pairs * sum(EPISODE_LENGTHS)  # two episodes a pair
    return {
        "steps_per_second": steps / cost["seconds"],
        "pairs_per_second": num_pairs / cost["seconds"],
        "num_pairs": num_pairs,
        **cost,
    }


def update_cost(network: Network, num_pairs: int) -> Fields:
    """Measures noise and update once: from the returns of pairs to the next θ."""
    if num_pairs not in network.update_costs:
        es = for_pairs(network, num_pairs)
        returns = np.random.default_rng(0).standard_normal(2 * num_pairs)
        with watch() as watched:
            jax.block_until_ready(es.tell(network.state.es, returns))
        network.update_costs[num_pairs] = watched
    return network.update_costs[num_pairs]


def for_pairs(network: Network, num_pairs: int) -> OpenAIES:
    """Returns the algorithm for a number of pairs, compiled."""
    parts = network.parts
    config = dataclasses.replace(parts.config.es, num_pairs=num_pairs)
    noise = make_noise(config)
    es = openai_es(config, noise, spread_weighted_sum(noise, parts.devices))
    jax.block_until_ready(es.tell(network.state.es, np.zeros(2 * num_pairs)))
    return es


def generation(network: Network, row: Row) -> Fields:
    """Measures a rollout and its update, and before and after it physics.

    A slice is some seconds in the midst of a generation, at steady state: the slots are
    met in the middle of their episodes, the tasks never end, and the update is that of
    the pairs that ended. Other conditions measure all, from the start to the tail.
    """
    parts = network.parts
    is_slice = row.condition in ("", "untrained", "own-actions")
    for env in parts.envs if row.network not in GAMES else ():
        env.terminate_when_unhealthy = row.regime == "untrained"  # type: ignore
    envs = [] if row.condition == "own-actions" else parts.envs
    # Other programs come and go: the samples stand on either side.
    samples = [simulator_speed(row.regime, network.seconds)]
    with random_actions(envs):
        if is_slice:
            seconds = SLICE_SECONDS * network.seconds
            tasks = endless_tasks(parts, row.regime, seconds)
            rolled, cost = roll(network, tasks, WARM_UP_STEPS[row.regime], seconds)
        else:
            rolled, cost = roll(network, whole_tasks(network, row))
    samples.append(simulator_speed(row.regime, network.seconds))
    pairs = rolled.num_done / 2
    measured_pairs = network.update_pairs if is_slice else int(pairs)
    updated = update_cost(network, measured_pairs)
    update_seconds = updated["seconds"] * pairs / measured_pairs
    seconds = cost["seconds"] + update_seconds
    spent = {**rolled.seconds, "update": update_seconds}
    shares = {activity: part / seconds for activity, part in spent.items()}
    return {
        "steps_per_second": rolled.env_steps / seconds,
        "shares": {**shares, "other": max(0.0, 1 - sum(shares.values()))},
        "slot_utilization": rolled.env_steps / rolled.computed_steps,
        "num_slots": parts.num_slots,
        **({} if is_slice else {"num_pairs": measured_pairs}),
        "env_steps": rolled.env_steps,
        "seconds": seconds,
        "compilations": cost["compilations"] + updated["compilations"],
        "peak_rss_mib": max(cost["peak_rss_mib"], updated["peak_rss_mib"]),
        "physics_steps_per_second": statistics.mean(samples),
        "physics_samples": samples,
    }


class _Over(Exception):
    """Ends a rollout whose slice has been measured."""


def roll(
    network: Network, tasks: Tasks, warm_up: int = 0, seconds: float = math.inf
) -> tuple[RolloutProgress, Fields]:
    """Measures a rollout, or so many seconds of it after the steps of a warm-up."""
    idle = {"policy": 0.0, "environment": 0.0, "noise": 0.0}
    marks = [(time.perf_counter(), RolloutProgress(0, 0, 0, 0, idle))]
    steps = itertools.count(1)

    def on_step(progress: RolloutProgress) -> None:
        now = time.perf_counter()
        if next(steps) <= warm_up:
            marks[:] = [(now, progress)]
            return
        marks[1:] = [(now, progress)]
        if now - marks[0][0] >= seconds:
            raise _Over

    with watch() as watched, contextlib.suppress(_Over):
        run(network, tasks, on_step=on_step)
    (start, first), (end, last) = marks
    if warm_up and last.num_done == last.num_tasks:
        raise RuntimeError("a slice outlasted its tasks; choose fewer --seconds")
    rolled = RolloutProgress(
        last.num_done - first.num_done,
        last.num_tasks,
        last.env_steps - first.env_steps,
        last.computed_steps - first.computed_steps,
        {name: last.seconds[name] - first.seconds[name] for name in last.seconds},
    )
    return rolled, {**watched, "seconds": end - start}


def endless_tasks(parts: Parts, regime: Regime, seconds: float) -> Tasks:
    """Returns more tasks than a slice of some seconds can end.

    The first of each slot is met at some step of it, so that slots do not go in step.
    """
    fall, longest = EPISODE_LENGTHS
    steps = 50_000 * available_cores() * seconds  # physics makes a tenth of it
    mean_length = sum(EPISODE_LENGTHS) / 2 if regime == "trained" else fall
    if regime == "atari":
        longest, steps = parts.env.max_episode_steps, steps / 10
    num_tasks = 4 * parts.num_slots + math.ceil(steps / mean_length)
    tasks = population_tasks(parts.config, 0, longest, num_tasks)
    rng, num_tasks, slots = np.random.default_rng(0), len(tasks.member), parts.num_slots
    if regime == "trained":
        lengths = random_lengths(rng, num_tasks)
        lengths[:slots] = remaining_lengths(rng, slots)
    else:
        lengths = np.full(num_tasks, longest)
        ended = fall if regime == "untrained" else GAME_LENGTH
        lengths[:slots] = rng.integers(1, ended + 1, slots)
    return tasks._replace(max_steps=lengths.astype(np.int32))


def whole_tasks(network: Network, row: Row) -> Tasks:
    """Returns all episodes of a generation, each with its length."""
    config = network.parts.config
    rng, size = np.random.default_rng(0), 2 * config.es.num_pairs
    if row.condition == "whole":
        lengths = random_lengths(rng, size)
    else:
        mean = MEAN_LENGTHS[row.condition]
        size = GENERATION_STEPS // mean
        lengths = falls(rng, mean, size)
    tasks = population_tasks(config, 0, 1, size)
    return tasks._replace(max_steps=lengths.astype(np.int32))


def profile(folder: Path, network_name: str, work: Work) -> Path:
    """Traces one untrained generation; returns the folder of the trace."""
    row = Row("generation", network_name, "untrained")
    network = build_network(row, work)
    config = network.parts.config
    es = for_pairs(network, config.es.num_pairs)
    # A game's whole episodes would make gigabytes of events.
    limit = 40 if network_name in GAMES else EPISODE_LENGTHS[1]
    trace = jax.profiler.ProfileOptions()
    # Every Python call would be an event: larger files, and the loop would slow down.
    trace.python_tracer_level = 0
    with (
        random_actions(network.parts.envs),
        jax.profiler.trace(folder, create_perfetto_trace=True, profiler_options=trace),
    ):
        returns = run(
            network, population_tasks(config, 0, limit, 2 * config.es.num_pairs)
        ).returns
        jax.block_until_ready(es.tell(network.state.es, returns))
    return max(folder.glob("plugins/profile/*"))


@contextlib.contextmanager
def watch() -> Iterator[Fields]:
    """Fills in the seconds, compiled programs and peak memory of what runs inside."""
    watched: Fields = {"compilations": 0}

    def listen(event: str, duration_secs: float, **_: object) -> None:
        compiled = event == "/jax/core/compile/backend_compile_duration"
        watched["compilations"] += compiled

    gc.collect()
    with contextlib.suppress(OSError):  # the peak is the process's then
        Path("/proc/self/clear_refs").write_text("5")
    jax.monitoring.register_event_duration_secs_listener(listen)
    started = time.perf_counter()
    try:
        yield watched
    finally:
        watched["seconds"] = time.perf_counter() - started
        jax.monitoring.unregister_event_duration_listener(listen)
        status = Path("/proc/self/status").read_text()
        peak = status.partition("VmHWM:")[2].split()[0]
        watched["peak_rss_mib"] = int(peak) / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
