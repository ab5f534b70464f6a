"""Measures some of the benchmark's rows: ``python -m jax_es.benchmarks.cases JSON``.

``benchmark.py`` starts one such process for each network, so that the number of
devices and the peak of memory are its own. Whatever is timed has run once before, so
that nothing is compiled under the clock.

A whole generation here is what ``generation.run_generation`` does but for θ's own
evaluation episodes: ten among the ten thousands of a real generation, they would be a
large part of the small ones that are measured here. A slice is a part of a rollout, and
its generation adds the time that the update of its pairs would take.
"""

import contextlib
import copy
import dataclasses
import gc
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from envs import emulation
from envs.base import EpisodeVectorEnv
from envs.emulation import emulation_speed
from envs.physics import (
    EPISODE_LENGTHS,
    WARM_UP_STEPS,
    RegimeEnv,
    VectorEnvKind,
    calls_per_second,
    physics_speed,
    random_lengths,
    remaining_lengths,
    vector_env_speed,
)
from jax_es.benchmarks.rows import (
    ATARI_NETWORKS,
    GENERATION_STEPS,
    MEAN_LENGTHS,
    NORMALS,
    PAIRS_FACTORS,
    PHYSICS_ROWS,
    REGIMES,
    SLICE_SECONDS,
    Case,
    Regime,
    Work,
    config_of,
    parse,
)
from jax_es.es.noise import FullNoise, Noise, member_key
from jax_es.es.openai_es import openai_es
from jax_es.rollout.devices import (
    PAIRS_PER_CALL,
    available_cores,
    configure_cpu_devices,
    spread_weighted_sum,
    use_compilation_cache,
)
from jax_es.rollout.engine import Rollout, RolloutProgress
from jax_es.rollout.observation_statistics import mean_and_std, merge
from jax_es.rollout.slots import Shared, SlotPrograms
from jax_es.rollout.tasks import Tasks
from jax_es.training.build import TrainConfig
from jax_es.training.generation import (
    Parts,
    TrainState,
    build,
    fitness,
    initial_state,
    population_tasks,
    used_statistics,
)
from jax_es.types import PyTree, VectorEnv

PHYSICS_ENVS_PER_CORE = 128
"""Simulations side by side where physics alone is measured: as many as the most slots,
for the fixed costs of a step weigh on physics too."""

CAPPED_STEPS = 5
"""Length of the episodes of ever more pairs."""

EMULATORS_PER_CORE = 16
"""Emulators of the row ``physics/atari``; more are no faster."""

MEAN_LENGTH = sum(EPISODE_LENGTHS) / 2
"""Environment steps of an episode in the regime ``trained``."""

Measured = dict[str, Any]
"""The measured fields of a row, as JSON values."""


class Measurements(NamedTuple):
    """What a case came to.

    Attributes:
        rows: fields by name of the row.
        physics: samples of environment steps/s of physics alone, by regime.
        devices: what JAX computed on; None if nothing.
    """

    rows: dict[str, Measured]
    physics: dict[str, list[float]]
    devices: str | None


def main(argv: list[str]) -> None:
    """Measures the case in ``argv[0]`` and prints its measurements, both JSON."""
    case = Case.from_json(json.loads(argv[0]))
    if case.setting == "1-core":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    configure_cpu_devices()
    use_compilation_cache()
    sys.stdout.write(json.dumps(measure(case)._asdict()) + "\n")


def measure(case: Case) -> Measurements:
    """Measures the rows of a case."""
    if not case.network:
        return measure_physics(case)
    work = case.work
    network = Network(case)
    rows: dict[str, Measured] = {}
    physics: dict[str, list[float]] = {}
    for name in _named(case, "policy"):
        rows[name] = measure_policy(network, work.seconds)
    for regime in REGIMES:
        names = _named(case, "rollout", "generation", regime=regime)
        if not names:
            continue
        network.enter(regime)
        update = network.update(work.update_pairs) if _has_slice(names) else None
        # Before and after what is compared with it: other programs come and go.
        samples = [_physics(regime, work)] if case.setting != "1-core" else []
        measured = measure_generations(names, regime, network, work, update)
        if samples:
            samples.append(_physics(regime, work))
            for row in measured.values():
                row["physics_steps_per_second"] = statistics.mean(samples)
            physics[regime] = samples
        rows |= measured
    for name in _named(case, "update"):
        measure_one = measure_normals if name == NORMALS else measure_update
        rows[name] = measure_one(network, work.update_pairs)
    local = jax.local_devices()
    return Measurements(rows, physics, f"{len(local)} × {local[0].device_kind}")


def _has_slice(names: list[str]) -> bool:
    return any(parse(name).is_slice for name in names)


def _named(case: Case, *kinds: str, regime: Regime | None = None) -> list[str]:
    """Returns the case's rows of some kinds, and of one regime if given."""
    rows = [(name, parse(name)) for name in case.rows]
    return [name for name, r in rows if r.kind in kinds and regime in (None, r.regime)]


def measure_physics(case: Case) -> Measurements:
    """Measures physics of Humanoid and games, and Gymnasium's vector environments."""
    seconds = case.work.seconds
    physics = {
        str(regime): [_physics(regime, case.work)]
        for regime in REGIMES
        if PHYSICS_ROWS[regime] in case.rows
    }
    rows: dict[str, Measured] = {}
    vector_envs: dict[VectorEnvKind, int] = {"sync": 16, "async": 2 * available_cores()}
    for kind, num_envs in vector_envs.items():
        if (name := f"physics/{kind}-vector-env") in case.rows:
            speed = vector_env_speed(kind, num_envs, seconds)
            rows[name] = {"steps_per_second": speed, "num_slots": num_envs}
    return Measurements(rows, physics, None)


def _physics(regime: Regime, work: Work) -> float:
    if regime == "atari":
        return emulation_speed(EMULATORS_PER_CORE * available_cores(), work.seconds)
    num_envs = PHYSICS_ENVS_PER_CORE * available_cores()
    return physics_speed(regime, num_envs, work.seconds)


def measure_policy(network: "Network", seconds: float) -> Measured:
    """Measures inference alone: observations on the host in, actions there out."""
    parts, state = network.parts, network.state
    space = parts.env.single_observation_space
    num_devices, shape = parts.devices.count, space.shape
    width = parts.num_slots // num_devices
    spec = jax.ShapeDtypeStruct(shape, space.dtype)
    programs = SlotPrograms(parts.policy, parts.es.noise, parts.devices, width, spec)
    mean, std = (x.reshape(shape) for x in mean_and_std(state.observation_statistics))
    shared = Shared(parts.es.ask(state.es), mean, std, state.reference)
    shared = parts.devices.share(shared)
    slots, carry = programs.empty(shared, width)
    lead = num_devices, width
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((8, *lead, *shape), dtype=np.float32)
    if space.dtype == np.uint8:
        observations = rng.integers(256, size=(8, *lead, *shape), dtype=np.uint8)
    reward = np.zeros(lead, np.float32)
    timesteps = itertools.cycle(range(EPISODE_LENGTHS[1]))

    def step() -> None:
        nonlocal carry
        timestep = next(timesteps)
        carry, actions = programs.act(
            shared,
            slots,
            carry,
            observations[timestep % len(observations)],
            reward,
            np.full(lead, timestep, np.int32),
        )
        np.asarray(actions)

    for _ in range(3):
        step()
    with watch() as watched:
        speed = num_devices * width * calls_per_second(step, seconds)
    return {
        "steps_per_second": speed,
        "num_slots": num_devices * width,
        **watched.costs(),
    }


class Network:
    """A network's parts in either regime, for any number of pairs, each compiled once.

    Attributes:
        parts: for one pair a slot.
        state: before the first generation.

    Args:
        case: which network, and how many slots, groups and devices it may use.
    """

    def __init__(self, case: Case) -> None:
        parts = build(_sized(config_of(case.network), case))
        self.state = initial_state(parts)
        self._envs = [RegimeEnv(cast(EpisodeVectorEnv, env)) for env in parts.envs]
        noise, devices = parts.es.noise, parts.devices
        envs = cast(list[VectorEnv], self._envs)
        rollout = Rollout(parts.policy, noise, envs, devices)
        self.parts = parts._replace(envs=tuple(envs), rollout=rollout)
        self._weighted_sum = spread_weighted_sum(noise, devices)
        self._by_pairs: dict[int, Parts] = {}
        self._updates: dict[int, Watch] = {}
        self._is_rollout_warm = False

    def enter(self, regime: Regime, own_actions: bool = False) -> None:
        """Changes the regime; the rollout's programs are compiled and run."""
        for env in self._envs:
            env.enter(regime, own_actions)
        if not self._is_rollout_warm:
            # Two episodes of two steps in each slot: refills, and narrower widths.
            self.parts.rollout.run(
                self.parts.es.ask(self.state.es),
                population_tasks(self.parts.config, 0, 2),
                used_statistics(self.parts.config, self.state),
                self.state.reference,
            )
            self._is_rollout_warm = True

    def with_pairs(self, num_pairs: int) -> Parts:
        """Returns the parts for a number of pairs; their update has been run."""
        if num_pairs not in self._by_pairs:
            config = _with_pairs(self.parts.config, num_pairs)
            es = openai_es(config.es, self.parts.es.noise, self._weighted_sum)
            jax.block_until_ready(es.tell(self.state.es, np.zeros((num_pairs, 2))))
            self._by_pairs[num_pairs] = self.parts._replace(config=config, es=es)
        return self._by_pairs[num_pairs]

    def update(self, num_pairs: int) -> "Watch":
        """Measures noise + update once: from returns to the next mean."""
        if num_pairs not in self._updates:
            parts = self.with_pairs(num_pairs)
            returns = np.random.default_rng(0).standard_normal((num_pairs, 2))
            with watch() as watched:
                jax.block_until_ready(parts.es.tell(self.state.es, returns))
            self._updates[num_pairs] = watched
        return self._updates[num_pairs]


def measure_generations(
    names: list[str],
    regime: Regime,
    network: Network,
    work: Work,
    update: "Watch | None",
) -> dict[str, Measured]:
    """Measures rollouts and generations of one regime.

    Args:
        names: of the rows.
        regime: which the network has entered.
        network: whose they are.
        work: how much.
        update: what an update of ``work.update_pairs`` costs, where a slice is named.
    """
    rows: dict[str, Measured] = {}
    for condition in dict.fromkeys(parse(name).condition for name in names):
        same = [name for name in names if parse(name).condition == condition]
        network.enter(regime, own_actions=condition == "own-actions")
        if _has_slice(same):
            assert update is not None
            rollout, generation = measure_slice(network, regime, work, update)
        else:
            num_pairs, max_steps = _episodes(condition, work)
            rollout, generation = measure_generation(
                network.with_pairs(num_pairs), network.state, max_steps
            )
        for name in same:
            rows[name] = rollout if parse(name).kind == "rollout" else generation
    return rows


def _episodes(condition: str, work: Work) -> tuple[int, int | np.ndarray]:
    """Returns a whole generation's pairs, and how long each of its episodes lasts."""
    if condition == "full-length":
        return max(2, work.num_slots // 2), EPISODE_LENGTHS[1]
    if condition in PAIRS_FACTORS:
        return work.pairs_unit * PAIRS_FACTORS[condition], CAPPED_STEPS
    rng = np.random.default_rng(0)
    if condition in MEAN_LENGTHS:
        mean = MEAN_LENGTHS[condition]
        num_pairs = GENERATION_STEPS // (2 * mean)
        return num_pairs, _falls(rng, mean, 2 * num_pairs)
    return work.num_pairs, random_lengths(rng, 2 * work.num_pairs)


def _falls(rng: np.random.Generator, mean: int, count: int) -> np.ndarray:
    """Draws lengths: after the first steps bodies fall at any one alike, or never."""
    fall, longest = EPISODE_LENGTHS
    if mean == longest:
        return np.full(count, longest)
    return np.minimum(fall + rng.geometric(1 / (mean - fall), count), longest)


class _Slice:
    """Ends a run some seconds after its warm-up; an ``on_step`` of :class:`Rollout`.

    Attributes:
        first: how far the run had come when the slice began.
        last: the same at the slice's end.
        seconds: its length.

    Args:
        seconds: how long it should last, at least.
        warm_up: steps before it begins.
        clock: tells the time in seconds.
    """

    class Over(Exception):
        """Ends the run."""

    def __init__(
        self,
        seconds: float,
        warm_up: int = WARM_UP_STEPS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._wanted = seconds
        self._warm_up = warm_up
        self._clock = clock
        self._num_steps = 0
        self._started = 0.0

    def __call__(self, progress: RolloutProgress) -> None:
        self._num_steps += 1
        now = self._clock()
        if self._num_steps == self._warm_up:
            self.first, self._started = progress, now
        elif self._num_steps > self._warm_up and now - self._started >= self._wanted:
            self.last, self.seconds = progress, now - self._started
            raise _Slice.Over


def measure_slice(
    network: Network, regime: Regime, work: Work, update: "Watch"
) -> tuple[Measured, Measured]:
    """Measures some seconds of a rollout at steady state, and a generation at its rate.

    The slots are met in the middle of their episodes, and the tasks never end. The
    generation adds the update of the pairs that ended, at what each of
    ``work.update_pairs`` takes.
    """
    parts, state = network.parts, network.state
    # Games have no fall to warm up to.
    warm_up = WARM_UP_STEPS // 5 if regime == "atari" else WARM_UP_STEPS
    slice_ = _Slice(SLICE_SECONDS * work.seconds, warm_up)
    tasks = _endless_tasks(parts, regime, SLICE_SECONDS * work.seconds)
    with watch() as watched:
        try:
            parts.rollout.run(
                parts.es.ask(state.es),
                tasks,
                used_statistics(parts.config, state),
                state.reference,
                slice_,
            )
        except _Slice.Over:
            pass
        else:
            raise RuntimeError("a slice outlasted its tasks; choose fewer --seconds")
    first, last = slice_.first, slice_.last
    watched.seconds = slice_.seconds
    seconds = {name: last.seconds[name] - first.seconds[name] for name in last.seconds}
    num_pairs = (last.num_done - first.num_done) / 2
    updated = update.times(num_pairs / work.update_pairs)
    env_steps = last.env_steps - first.env_steps
    common = {
        "slot_utilization": env_steps / (last.computed_steps - first.computed_steps),
        **_setting(parts),
        "env_steps": env_steps,
    }
    return _rows(common, seconds, watched, updated)


def _endless_tasks(parts: Parts, regime: Regime, seconds: float) -> Tasks:
    """Returns more tasks than a slice of some seconds can end.

    The first of each slot is met at some step of it, so that slots do not go in step.
    """
    fall, longest = EPISODE_LENGTHS
    mean_length = {"trained": MEAN_LENGTH, "untrained": fall, "atari": fall}[regime]
    steps = 50_000 * available_cores() * seconds  # physics makes a tenth of it
    if regime == "atari":
        longest, steps = parts.env.max_episode_steps, steps / 10
    num_tasks = 4 * parts.num_slots + math.ceil(steps / mean_length)
    config = _with_pairs(parts.config, -(-num_tasks // 2))
    tasks = population_tasks(config, 0, longest)
    rng = np.random.default_rng(0)
    if regime == "trained":
        lengths = random_lengths(rng, len(tasks.pair))
        lengths[: parts.num_slots] = remaining_lengths(rng, parts.num_slots)
    else:
        lengths = np.full(len(tasks.pair), longest)
        ended = fall if regime == "untrained" else emulation.MEAN_LENGTH
        lengths[: parts.num_slots] = rng.integers(1, ended + 1, parts.num_slots)
    return tasks._replace(max_steps=lengths.astype(np.int32))


def measure_generation(
    parts: Parts, state: TrainState, max_steps: int | np.ndarray
) -> tuple[Measured, Measured]:
    """Measures one generation: its rollout, and all of it."""
    config = parts.config
    tasks = population_tasks(config, 0, 1)
    tasks = tasks._replace(
        max_steps=np.broadcast_to(max_steps, tasks.pair.shape).astype(np.int32)
    )
    statistics = used_statistics(config, state)
    with watch() as rolled:
        result = parts.rollout.run(
            parts.es.ask(state.es), tasks, statistics, state.reference
        )
    with watch() as updated:
        merge(state.observation_statistics, result.observations)
        jax.block_until_ready(parts.es.tell(state.es, fitness(result, config.es)))
    common = {
        "slot_utilization": result.slot_utilization,
        **_setting(parts),
        "num_pairs": config.es.num_pairs,
        "env_steps": result.env_steps,
    }
    return _rows(common, result.seconds, rolled, updated)


def _setting(parts: Parts) -> Measured:
    """Returns how many slots, groups and devices there really are."""
    return {
        "num_slots": parts.num_slots,
        "num_groups": len(parts.envs),
        "num_devices": parts.devices.count,
    }


def _rows(
    common: Measured, seconds: dict[str, float], rolled: "Watch", updated: "Watch"
) -> tuple[Measured, Measured]:
    """Returns the rows of a rollout, and of the generation that it is a part of.

    Args:
        common: fields of both, ``env_steps`` among them.
        seconds: of the rollout, by activity.
        rolled: what the rollout cost.
        updated: what the update cost.
    """
    both = rolled.and_then(updated)
    rollout = {
        **_shares(seconds, rolled.seconds),
        **common,
        **rolled.costs(),
        "steps_per_second": common["env_steps"] / rolled.seconds,
    }
    generation = {
        **_shares({**seconds, "update": updated.seconds}, both.seconds),
        **common,
        **both.costs(),
        "steps_per_second": common["env_steps"] / both.seconds,
    }
    return rollout, generation


def _shares(seconds: dict[str, float], total: float) -> Measured:
    """Returns where the time went, as shares of all of it."""
    shares = {activity: spent / total for activity, spent in seconds.items()}
    return {"shares": {**shares, "other": max(0.0, 1 - sum(shares.values()))}}


def measure_update(network: Network, num_pairs: int) -> Measured:
    """Measures noise + update: from the returns of a population to the next mean."""
    noise, mean = network.parts.es.noise, network.state.es.mean
    return _update_costs(network.update(num_pairs), num_pairs, noise, mean)


def measure_normals(network: Network, num_pairs: int) -> Measured:
    """Measures how long drawing full noise takes, pair after pair as the update does.

    Each pair's ε is written over the last one's.
    """
    mean, devices, noise = network.state.es.mean, network.parts.devices, FullNoise()
    key = jax.random.key(0, impl="threefry2x32")

    def draw(pairs: jax.Array, mean: PyTree) -> jax.Array:
        first = noise.sample(key, mean)
        return jax.lax.fori_loop(
            0,
            len(pairs),
            lambda i, _: noise.sample(member_key(key, pairs[i]), mean),
            first,
        )

    program = devices.map(draw, in_axes=(0, None))
    width = min(PAIRS_PER_CALL, -(-num_pairs // devices.count))
    num_calls = -(-num_pairs // (width * devices.count))
    pairs = devices.put(
        np.arange(devices.count * width, dtype=np.int32).reshape(-1, width)
    )
    mean = devices.share(mean)
    jax.block_until_ready(program(pairs, mean))
    with watch() as watched:
        for _ in range(num_calls):
            jax.block_until_ready(program(pairs, mean))
    return _update_costs(watched, num_calls * width * devices.count, noise, mean)


def _update_costs(
    watched: "Watch", num_pairs: int, noise: Noise, mean: PyTree
) -> Measured:
    """Returns an update's fields; its steps are those of its pairs' episodes."""
    record = {
        "steps_per_second": 2 * num_pairs * MEAN_LENGTH / watched.seconds,
        "pairs_per_second": num_pairs / watched.seconds,
        "num_pairs": num_pairs,
        **watched.costs(),
    }
    if isinstance(noise, FullNoise):
        epsilon = jax.eval_shape(noise.sample, jax.random.key(0), mean)
        record["normals_per_second"] = num_pairs * epsilon.size / watched.seconds
    return record


def profile(directory: Path, network: str, work: Work) -> Path:
    """Traces one untrained generation; returns the folder of the trace.

    Args:
        directory: where TensorBoard looks for profiles.
        network: one of the benchmark's networks.
        work: its slots and pairs.
    """
    profiled = Network(Case(network, "usual", (), work))
    is_game = network in ATARI_NETWORKS
    profiled.enter("atari" if is_game else "untrained")
    parts, state = profiled.with_pairs(work.num_pairs), profiled.state
    options = jax.profiler.ProfileOptions()
    # Every Python call would be an event: larger files, and the loop would slow down.
    options.python_tracer_level = 0
    # A game's whole episodes would make gigabytes of events.
    tasks = population_tasks(parts.config, 0, 40 if is_game else EPISODE_LENGTHS[1])
    with jax.profiler.trace(
        directory, create_perfetto_trace=True, profiler_options=options
    ):
        result = parts.rollout.run(
            parts.es.ask(state.es),
            tasks,
            used_statistics(parts.config, state),
            state.reference,
        )
        jax.block_until_ready(parts.es.tell(state.es, fitness(result, parts.config.es)))
    return max(directory.glob("plugins/profile/*"))


def _sized(config: TrainConfig, case: Case) -> TrainConfig:
    """Returns the configuration for a case's slots, groups and devices."""
    slots = case.work.num_slots
    rollout = dataclasses.replace(
        config.rollout,
        num_slots=slots,
        num_groups=case.work.num_groups,
        num_devices=1 if case.setting == "1-device" else None,
    )
    return _with_pairs(dataclasses.replace(config, rollout=rollout), slots)


def _with_pairs(config: TrainConfig, num_pairs: int) -> TrainConfig:
    es = dataclasses.replace(config.es, num_pairs=num_pairs)
    return dataclasses.replace(config, es=es)


class Watch:
    """What a part of the program costs, from :func:`watch`."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.seconds = 0.0
        self.compilations = 0
        self.peak_rss_mib: float | None = None

    def and_then(self, later: "Watch") -> "Watch":
        """Returns what this part and a later one cost together."""
        both = Watch()
        both.seconds = self.seconds + later.seconds
        both.compilations = self.compilations + later.compilations
        if self.peak_rss_mib is not None and later.peak_rss_mib is not None:
            both.peak_rss_mib = max(self.peak_rss_mib, later.peak_rss_mib)
        return both

    def times(self, factor: float) -> "Watch":
        """Returns what ``factor`` times as much of this part would cost."""
        scaled = copy.copy(self)
        scaled.seconds = factor * self.seconds
        return scaled

    def costs(self) -> Measured:
        """Returns the costs as fields of a row."""
        costs: Measured = {"seconds": self.seconds, "compilations": self.compilations}
        if self.peak_rss_mib is not None:
            costs["peak_rss_mib"] = self.peak_rss_mib
        return costs


@contextlib.contextmanager
def watch() -> Iterator[Watch]:
    """Measures the time, programs compiled and peak memory of what runs inside."""

    def listen(event: str, duration_secs: float, **_: object) -> None:
        del duration_secs
        watched.compilations += event == "/jax/core/compile/backend_compile_duration"

    gc.collect()
    knows_peak = _reset_peak_rss()
    watched = Watch()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield watched
    finally:
        watched.seconds = time.perf_counter() - watched.started
        jax.monitoring.unregister_event_duration_listener(listen)
        if knows_peak:
            watched.peak_rss_mib = _peak_rss_mib()


def _reset_peak_rss() -> bool:
    """Makes Linux forget the process' peak memory; returns whether it could."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak_rss_mib() -> float | None:
    """Returns the most memory that the process has held since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
