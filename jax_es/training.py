"""The training loop: what a run does from its first generation to its last.

``run_generation`` is one turn of OpenAI-ES around the rollout; ``run_training`` wraps
it in what a run needs on disk. Between two generations everything that the next one
depends on is in :class:`TrainState`, so a run that is cut off anywhere continues from
its last checkpoint to the same numbers.
"""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jax_es.checkpoint import Checkpoints
from jax_es.config import require
from jax_es.devices import Devices, spread_weighted_sum
from jax_es.experiment import (
    TrainConfig,
    make_devices,
    make_env,
    make_noise,
    make_policy,
    num_slots,
)
from jax_es.metrics import (
    METRICS_FILE,
    GenerationRecord,
    MetricsWriter,
    read_metrics,
    return_statistics,
)
from jax_es.normalization import ObservationStatistics, initial_statistics, merge
from jax_es.openai_es import ESInfo, ESState, OpenAIES, Population, openai_es
from jax_es.progress import Progress
from jax_es.rollout import Rollout, RolloutResult
from jax_es.run_directory import RunDirectory
from jax_es.task_queue import IDLE, Tasks
from jax_es.types import Policy, PyTree, VectorEnv


class TrainState(NamedTuple):
    """Everything that the next generation depends on; what a checkpoint holds.

    Attributes:
        es: mean, optimizer state, generation and key.
        observation_statistics: sums over the observations seen so far.
        step_cap: environment steps after which the next generation cuts an episode.
        total_env_steps: environment steps taken so far, evaluation included.
        best_evaluation_return: the highest mean evaluation return so far.
    """

    es: ESState
    observation_statistics: ObservationStatistics
    step_cap: int
    total_env_steps: int
    best_evaluation_return: float


class Parts(NamedTuple):
    """The running parts that a configuration describes."""

    config: TrainConfig
    devices: Devices
    env: VectorEnv
    policy: Policy
    rollout: Rollout
    es: OpenAIES


def build(config: TrainConfig, on_call: Callable[[], None] = lambda: None) -> Parts:
    """Builds the parts of a training run.

    Args:
        config: the run.
        on_call: called now and then during the update, to notice a stop signal.

    Raises:
        ConfigError: (a ``ValueError``) if the parts do not fit together.
    """
    devices = make_devices(config.rollout)
    num_tasks = (
        2 * config.es.num_pairs * config.es.episodes_per_member
        + config.evaluation.num_episodes
    )
    env = make_env(
        config.env,
        num_slots(config.rollout, num_tasks, devices.count),
        config.rollout.num_threads,
    )
    policy = make_policy(
        config.policy, env.single_observation_space, env.single_action_space
    )
    noise = make_noise(config.es)
    es = openai_es(config.es, noise, spread_weighted_sum(noise, devices, on_call))
    return Parts(config, devices, env, policy, Rollout(policy, noise, env, devices), es)


def initial_state(parts: Parts) -> TrainState:
    """Returns the state before the first generation; the seed decides it."""
    # The implementation is pinned: another one would change every number of a run.
    init_key, noise_key = jax.random.split(
        jax.random.key(parts.config.seed, impl="threefry2x32")
    )
    state = TrainState(
        es=parts.es.init(noise_key, jax.jit(parts.policy.init)(init_key)),
        observation_statistics=initial_statistics(
            parts.env.single_observation_space.shape[0]
        ),
        step_cap=parts.env.max_episode_steps,
        total_env_steps=0,
        best_evaluation_return=-math.inf,
    )
    return place(parts, state)


def place(parts: Parts, state: TrainState) -> TrainState:
    """Puts the state where later generations have it, so that none compiles anew."""
    return state._replace(es=parts.devices.share(state.es))


class Generation(NamedTuple):
    """The outcome of one generation.

    Attributes:
        state: what the next generation starts from.
        evaluation: episodes of this generation's mean, before the update.
        population: episodes of the members.
        info: what ``tell`` reports.
        step_cap: the cap that the members' episodes had.
        seconds: wall-clock by ``"policy"``, ``"environment"``, ``"noise"``,
            ``"update"`` and ``"total"``.
        slot_utilization: live slot-steps / computed slot-steps.
        is_best: whether this generation's mean had the highest evaluation so far.
    """

    state: TrainState
    evaluation: RolloutResult
    population: RolloutResult
    info: ESInfo
    step_cap: int
    seconds: dict[str, float]
    slot_utilization: float
    is_best: bool


def run_generation(
    parts: Parts,
    state: TrainState,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Generation:
    """Evaluates θ and its population, then updates θ.

    θ's own evaluation episodes share the rollout with the population's: alone they
    would leave nearly all slots idle.
    """
    config = parts.config
    started = time.perf_counter()
    generation = int(state.es.generation)
    population = parts.es.ask(state.es)
    evaluation = evaluation_tasks(
        config.seed,
        generation,
        config.evaluation.num_episodes,
        parts.env.max_episode_steps,
    )
    members = population_tasks(config, generation, state.step_cap)
    result = parts.rollout.run(
        population,
        Tasks(*(np.concatenate(f) for f in zip(evaluation, members, strict=True))),
        used_statistics(config, state),
        on_step,
    )
    evaluated, told = split(result, config.evaluation.num_episodes)
    update_started = time.perf_counter()
    es_state, info = jax.block_until_ready(
        parts.es.tell(state.es, fitness(told.returns, config))
    )
    finished = time.perf_counter()
    return Generation(
        state=TrainState(
            es=es_state,
            observation_statistics=merge(
                state.observation_statistics, result.observations
            ),
            step_cap=next_step_cap(parts, told.lengths),
            total_env_steps=state.total_env_steps + result.env_steps,
            best_evaluation_return=max(
                state.best_evaluation_return, score(evaluated.returns)
            ),
        ),
        evaluation=evaluated,
        population=told,
        info=info,
        step_cap=state.step_cap,
        seconds={
            **result.seconds,
            "update": finished - update_started,
            "total": finished - started,
        },
        slot_utilization=result.slot_utilization,
        is_best=score(evaluated.returns) > state.best_evaluation_return,
    )


def used_statistics(
    config: TrainConfig, state: TrainState
) -> ObservationStatistics | None:
    """Returns the statistics that policies see observations through, if any."""
    return (
        state.observation_statistics if config.rollout.observation_statistics else None
    )


def population_tasks(config: TrainConfig, generation: int, step_cap: int) -> Tasks:
    """Lists a generation's episodes: ``[N, episodes per member, 2]``, flattened.

    The two signs of a pair share their environment seed (common random numbers).
    """
    num_pairs, episodes = config.es.num_pairs, config.es.episodes_per_member
    rng = np.random.default_rng([config.seed, generation, 0])
    groups = num_pairs if config.es.common_seeds == "pair" else 1
    seeds = rng.integers(2**31, size=(groups, episodes), dtype=np.int32)
    seeds = np.broadcast_to(seeds, (num_pairs, episodes))
    total = 2 * num_pairs * episodes
    observed = np.zeros(total, bool)
    if config.rollout.observation_statistics:
        count = max(1, round(config.rollout.statistics_fraction * total))
        observed[rng.choice(total, count, replace=False)] = True
    return Tasks(
        pair=np.repeat(np.arange(num_pairs, dtype=np.int32), 2 * episodes),
        sign=np.tile(np.array([1, -1], np.float32), num_pairs * episodes),
        seed=np.repeat(seeds.ravel(), 2),
        max_steps=np.full(total, step_cap, np.int32),
        observed=observed,
    )


def evaluation_tasks(
    seed: int, generation: int, num_episodes: int, max_steps: int
) -> Tasks:
    """Lists episodes of the mean policy, on seeds of their own, never cut."""
    rng = np.random.default_rng([seed, generation, 1])
    return Tasks(
        pair=np.full(num_episodes, IDLE, np.int32),
        sign=np.zeros(num_episodes, np.float32),
        seed=rng.integers(2**31, size=num_episodes, dtype=np.int32),
        max_steps=np.full(num_episodes, max_steps, np.int32),
        observed=np.zeros(num_episodes, bool),
    )


def split(result: RolloutResult, at: int) -> tuple[RolloutResult, RolloutResult]:
    """Splits the episodes of a result in two."""

    def part(episodes: slice) -> RolloutResult:
        lengths = result.lengths[episodes]
        return result._replace(
            returns=result.returns[episodes],
            lengths=lengths,
            failed=result.failed[episodes],
            env_steps=int(lengths.sum()),
        )

    return part(slice(None, at)), part(slice(at, None))


def fitness(returns: np.ndarray, config: TrainConfig) -> np.ndarray:
    """Averages each member's episodes: flat ``[2N · episodes]`` to ``[N, 2]``."""
    shape = config.es.num_pairs, config.es.episodes_per_member, 2
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, and ranked worst like it
        return returns.reshape(shape).mean(axis=1)


def score(returns: np.ndarray) -> float:
    """Returns the mean return; one that is not finite is below every other."""
    finite = np.isfinite(returns).all()
    return float(np.mean(returns)) if finite else -math.inf


def next_step_cap(parts: Parts, lengths: np.ndarray) -> int:
    """Returns the cap for the next generation: 2 × this one's mean length."""
    factor = parts.config.rollout.step_cap_factor
    limit = parts.env.max_episode_steps
    if factor is None:
        return limit
    return min(limit, math.ceil(factor * float(np.mean(lengths))))


def evaluate_mean(
    parts: Parts,
    mean: PyTree,
    statistics: ObservationStatistics | None,
    tasks: Tasks,
) -> RolloutResult:
    """Runs episodes of the policy with weights ``mean``."""
    state = parts.es.init(jax.random.key(0), mean)
    population: Population = parts.es.ask(parts.devices.share(state))
    return parts.rollout.run(population, tasks, statistics)


class Stopped(Exception):
    """A signal asked the run to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.signum = signum


class TrainingResult(NamedTuple):
    """What a finished run returns.

    Attributes:
        state: after the last generation.
        records: one per generation of this call.
        first_evaluation: mean evaluation return of the run's initial mean.
        final_evaluation: mean evaluation return of the final mean.
        best_evaluation: the highest mean evaluation return of the run.
    """

    state: TrainState
    records: list[GenerationRecord]
    first_evaluation: float
    final_evaluation: float
    best_evaluation: float


def starting_state(parts: Parts, run: RunDirectory, resume: bool) -> TrainState:
    """Returns the state to go on from: the run's last checkpoint, or the beginning.

    Raises:
        ConfigError: if more generations are finished than are asked for.
        CheckpointError: if no checkpoint can be read, or it does not fit ``parts``.
    """
    state = initial_state(parts)
    checkpoints = Checkpoints(run.checkpoints)
    if resume and checkpoints.steps():
        state = place(parts, checkpoints.restore_latest(state).state)
    finished = int(state.es.generation)
    # As many are not too few: the run may have been killed in its final evaluation.
    require(
        finished <= parts.config.num_generations,
        f"num_generations must be at least {finished}, the generations that {run.path} "
        f"has finished, got {parts.config.num_generations}.",
    )
    return state


def run_training(
    parts: Parts,
    state: TrainState,
    run: RunDirectory,
    progress: Progress,
    check_stop: Callable[[], None] = lambda: None,
) -> TrainingResult:
    """Trains from ``state`` to the last generation.

    Args:
        parts: from :func:`build`; closed at the end.
        state: from :func:`starting_state`.
        run: where metrics and checkpoints go.
        progress: what the user sees.
        check_stop: called often; raises :class:`Stopped` to end the run.

    Raises:
        Stopped: after a checkpoint of the last finished generation.
    """
    first = int(state.es.generation)
    session = _Session(parts, run, progress, check_stop, first)
    with MetricsWriter(run.path, first - 1) as writer, progress:
        try:
            for _ in range(first, parts.config.num_generations):
                state = session.advance(state, writer)
            final = session.evaluate_final(state)
        finally:
            session.save(state)
            parts.env.close()
    first_return = read_metrics(run.path)[0].evaluation_return_mean
    best = max(state.best_evaluation_return, final)
    return TrainingResult(state, session.records, first_return, final, best)


def train_run(
    config: TrainConfig,
    path: str | os.PathLike[str],
    resume: bool = False,
    preset: str = "python",
) -> TrainingResult:
    """Trains one run from Python, as ``python -m jax_es.train`` does.

    On a CPU call ``jax_es.devices.configure_cpu_devices()`` before the first use of
    JAX, or one core computes all policies.

    Args:
        config: the run, for instance ``jax_es.preset("half-cheetah")``.
        path: the run's folder, usually ``runs/<name>``.
        resume: continue the run that is there.
        preset: recorded in ``config.json`` as where ``config`` comes from.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    run = RunDirectory(Path(path))
    if resume:
        run.check_resumable(config)
    parts = build(config)
    if not resume:
        run.create(config, preset)
    state = starting_state(parts, run, resume)
    progress = Progress(config.num_generations, int(state.es.generation))
    return run_training(parts, state, run, progress)


class _Session:
    """One call of :func:`run_training`: generations, and what they leave on disk."""

    def __init__(
        self,
        parts: Parts,
        run: RunDirectory,
        progress: Progress,
        check_stop: Callable[[], None],
        first: int,
    ) -> None:
        self._parts = parts
        self._checkpoints = Checkpoints(run.checkpoints)
        self._progress = progress
        self._check_stop = check_stop
        self._saved = first
        self.records: list[GenerationRecord] = []
        kept = [r for r in _records(run) if r.generation < first]
        before = kept[-1].seconds_elapsed if kept else 0.0
        self._started = time.perf_counter() - before

    def advance(self, state: TrainState, writer: MetricsWriter) -> TrainState:
        """Runs one generation; records it, then saves what follows from it.

        The order matters: a run killed after the record but before the checkpoint
        repeats the generation, and its first record is dropped.
        """
        self._progress.generation_started(int(state.es.generation))
        generation = run_generation(self._parts, state, self._on_step)
        if generation.is_best:
            self._save_best(state, generation.state.best_evaluation_return)
        record = generation_record(generation, time.perf_counter() - self._started)
        writer.write(record)
        self.records.append(record)
        self._progress.generation_done(record)
        if record.num_nonfinite:
            self._progress.message(
                f"generation {record.generation + 1}: {record.num_nonfinite} returns "
                f"were NaN or infinite ({record.num_failed} failed simulations); they "
                "rank worst."
            )
        if (record.generation + 1) % self._parts.config.checkpoint_every == 0:
            self.save(generation.state)
        return generation.state

    def evaluate_final(self, state: TrainState) -> float:
        """Evaluates the last update's mean, which no generation will; keeps the best.

        The episodes are those with which the next generation would begin.
        """
        config = self._parts.config
        tasks = evaluation_tasks(
            config.seed,
            int(state.es.generation),
            config.evaluation.num_episodes,
            self._parts.env.max_episode_steps,
        )
        result = self._parts.rollout.run(
            self._parts.es.ask(state.es),
            tasks,
            used_statistics(config, state),
            self._on_step,
        )
        final = score(result.returns)
        if final > state.best_evaluation_return:
            self._save_best(state, final)
        return final

    def save(self, state: TrainState) -> None:
        """Saves ``state`` unless its generation is saved already."""
        step = int(state.es.generation)
        if step > self._saved:
            self._checkpoints.save(step, state)
            self._saved = step

    def _save_best(self, state: TrainState, best: float) -> None:
        self._checkpoints.save_best(
            int(state.es.generation), state._replace(best_evaluation_return=best)
        )

    def _on_step(self, done: int, total: int) -> None:
        self._check_stop()
        self._progress.tasks_done(done, total)


def _records(run: RunDirectory) -> list[GenerationRecord]:
    """Returns the records of a run that may not have begun."""
    return read_metrics(run.path) if (run.path / METRICS_FILE).exists() else []


def generation_record(generation: Generation, elapsed: float) -> GenerationRecord:
    """Summarises a generation for people and plots.

    Args:
        generation: the outcome.
        elapsed: seconds since the run began.
    """
    population, evaluation = generation.population, generation.evaluation
    returns = return_statistics(population.returns)
    evaluated = return_statistics(evaluation.returns)
    env_steps = population.env_steps + evaluation.env_steps
    seconds = generation.seconds
    other = seconds["total"] - sum(v for k, v in seconds.items() if k != "total")
    return GenerationRecord(
        generation=int(generation.state.es.generation) - 1,
        env_steps=env_steps,
        total_env_steps=generation.state.total_env_steps,
        num_episodes=len(population.returns),
        return_mean=returns.mean,
        return_std=returns.std,
        return_min=returns.min,
        return_max=returns.max,
        return_p2_5=returns.p2_5,
        return_p97_5=returns.p97_5,
        num_nonfinite=returns.num_nonfinite,
        num_failed=int(population.failed.sum()),
        episode_length_mean=float(population.lengths.mean()),
        episode_length_max=int(population.lengths.max()),
        step_cap=generation.step_cap,
        evaluation_return_mean=evaluated.mean,
        evaluation_return_std=evaluated.std,
        evaluation_return_min=evaluated.min,
        evaluation_return_max=evaluated.max,
        evaluation_length_mean=float(evaluation.lengths.mean()),
        best_evaluation_return=generation.state.best_evaluation_return,
        gradient_norm=float(generation.info.gradient_norm),
        update_norm=float(generation.info.update_norm),
        mean_norm=float(generation.info.mean_norm),
        slot_utilization=generation.slot_utilization,
        seconds_policy=seconds["policy"],
        seconds_environment=seconds["environment"],
        seconds_noise=seconds["noise"],
        seconds_update=seconds["update"],
        seconds_other=other,
        seconds_total=seconds["total"],
        env_steps_per_second=env_steps / seconds["total"],
        seconds_elapsed=elapsed,
    )
