"""Behaviour cloning as a run: epochs of gradient descent, evaluated in between.

Everything that an epoch depends on is in the checkpoint of the one before or follows
from the seed, so a run that is killed at any instant continues to the same numbers.
"""

import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.cli.progress import Progress, opening
from jax_es.imitation.cloning import Cloner, CloningState
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.datasets import Episodes, read_episodes
from jax_es.imitation.epoch_records import (
    EPOCHS,
    EpochRecord,
    read_epochs,
    target_evaluation,
    write_epoch,
)
from jax_es.imitation.gradient_run import (
    GradientRun,
    begin,
    build_for_evaluation,
    checkpoint_state,
)
from jax_es.imitation.windows import (
    Steps,
    covering,
    hold_out,
    random_starts,
    statistics_of,
    steps_of,
)
from jax_es.rollout.memory import check_memory
from jax_es.rollout.observation_statistics import ObservationStatistics, view_of
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import CLONING, Method
from jax_es.streams import stream
from jax_es.training.build import TrainConfig, policy_kind, with_machine
from jax_es.training.parts import EvaluationParts
from jax_es.types import ClonablePolicy, PyTree


class PretrainingResult(NamedTuple):
    """What a finished cloning returns."""

    mean: PyTree
    """θ after the last epoch."""
    records: list[EpochRecord]
    """One for each epoch of the run."""
    best_evaluation: float
    """The highest mean return of an evaluation."""


def pretrain_run(
    config: TrainConfig,
    cloning: CloningConfig,
    dataset: str | os.PathLike[str],
    path: str | os.PathLike[str],
    resume: bool = False,
    preset: str = "python",
    target_returns: Sequence[float] = (),
    check_stop: Callable[[], None] = lambda: None,
) -> PretrainingResult:
    """Clones from Python, as ``python -m jax_es.pretrain`` does.

    On a CPU call ``jax_es.configure_cpu_devices()`` before the first use of
    JAX, or one core computes nearly all. (The program's own defaults, 100 evaluation
    episodes and no observation statistics, are :func:`jax_es.presets.for_cloning`'s.)

    Args:
        config: of the run, for instance ``for_cloning(jax_es.preset("hopper"))``.
        cloning: the settings.
        dataset: id or folder of a Minari dataset.
        path: the run's folder, usually ``runs/<name>``.
        resume: continue the run that is there.
        preset: recorded in ``config.json`` as where ``config`` comes from.
        target_returns: what evaluations ask for besides the configuration's own; the
            best return in the dataset if none is given.
        check_stop: called often; raises an exception to end the run, whose finished
            epochs are then saved.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work, or if the loss
            is no longer finite.
    """
    run = RunDirectory(Path(path))
    if resume:
        config = run.with_stored_machine(config)
    # The run remembers it: another number of devices adds in another order.
    config = with_machine(config)
    parts = build_for_evaluation(config)
    episodes = read_episodes(dataset, config)
    returns = episodes.returns
    asked = _target_returns(config, target_returns, float(returns.max()))
    _warn_of_odd_settings(config, cloning, float(returns.max()))
    normalizes = config.rollout.observation_statistics
    statistics = statistics_of(episodes) if normalizes else None
    cloner = _make_cloner(parts, cloning, statistics, episodes.observations[:1].nbytes)
    state = initial_state(cloner, config.seed)
    settings = {**dataclasses.asdict(cloning), "target_returns": list(target_returns)}
    method = Method(CLONING, {"dataset": os.fspath(dataset), **settings})
    data = {
        "num_episodes": len(returns),
        "num_steps": len(episodes.rewards),
        "mean_return": float(returns.mean()),
        "best_return": float(returns.max()),
    }
    check_stop()
    with run.lock():
        finished = begin(run, config, method, resume, preset, **data)
        require(
            finished <= cloning.epochs,
            f"epochs must be at least {finished}, the epochs that {run.path} has "
            f"finished, got {cloning.epochs}.",
        )
        if finished:
            template = checkpoint_state(jax.device_get(state.mean), statistics)
            template["optimizer_state"] = jax.device_get(state.optimizer_state)
            step, saved = Checkpoints(run.checkpoints).restore("last", template)
            state = CloningState(
                saved["es"]["mean"], saved["optimizer_state"], jnp.int32(step)
            )
        if resume:
            run.resume(config)
            run.update(method=method)
        progress = Progress(cloning.epochs, finished, layout=EPOCHS)
        mean_return = f"{returns.mean():.1f}"
        progress.message(
            opening(
                f"Resuming after step {state.step}:" if resume else "Cloning",
                config,
                state.mean,
                f": {len(returns):,} episodes of {dataset}, {data['num_steps']:,} "
                f"steps, mean return {mean_return}",
                run.path,
            )
        )
        with GradientRun(run, parts, statistics, finished) as gradient_run, progress:
            state = _train(
                cloner, state, episodes, asked, gradient_run, progress, check_stop
            )
    progress.message(
        f"Evaluation return: {gradient_run.best:.1f} at best; mean return of the "
        f"dataset's episodes: {mean_return}."
    )
    mean = jax.device_get(state.mean)
    return PretrainingResult(mean, read_epochs(run.path), gradient_run.best)


def _make_cloner(
    parts: EvaluationParts,
    cloning: CloningConfig,
    statistics: ObservationStatistics | None,
    observation_bytes: int,
) -> Cloner:
    """Builds the gradient descent, if the policy can be cloned and memory suffices."""
    config, policy = parts.config, parts.policy
    if not isinstance(policy, ClonablePolicy):
        raise ConfigError(
            f"policy {policy_kind(config.policy)} cannot be cloned, since it carries a "
            "state that no recorded step has; choose --policy mlp or "
            "decision-transformer."
        )
    # Cut out, on the way to the devices, and there with their gradients.
    window_bytes = 4 * policy.window_length * (observation_bytes + 64)
    batch_bytes = window_bytes * cloning.batch_size
    check_memory(
        {f"--batch-size {cloning.batch_size}": batch_bytes}, parts.devices.memory
    )
    seed = stream(config.seed, "dropout").integers(2**31)
    key = jax.random.key(seed, impl="threefry2x32")
    view = view_of(config, statistics)
    return Cloner(policy, cloning, parts.devices, view, key)


def initial_state(cloner: Cloner, seed: int) -> CloningState:
    """Returns the state before the first step: an evolution's θ of the same seed."""
    # The implementation is pinned, since another one would change every number.
    key, _ = jax.random.split(jax.random.key(seed, impl="threefry2x32"))
    return cloner.init(jax.jit(cloner.policy.init)(key))


def _train(
    cloner: Cloner,
    state: CloningState,
    episodes: Episodes,
    target_returns: Sequence[float | None],
    gradient_run: GradientRun,
    progress: Progress,
    check_stop: Callable[[], None],
) -> CloningState:
    """Goes through the epochs that are left; each is evaluated, recorded and saved."""
    config, seed = cloner.config, gradient_run.parts.config.seed
    steps = steps_of(episodes)
    learnt, held_out = hold_out(steps, config.holdout, seed)
    held_out = covering(steps, held_out, cloner.policy.window_length)
    state = cloner.place(state)
    first, num_steps = gradient_run.num_evaluations, config.steps_per_epoch

    def on_step(done: int) -> None:
        check_stop()
        progress.tasks_done(done, num_steps)

    for epoch in range(first, config.epochs):
        progress.generation_started(epoch)
        started = time.perf_counter()
        starts = random_starts(learnt, num_steps, config.batch_size, seed, epoch)
        state, loss = _descend(cloner, state, steps, starts, on_step)
        require(
            math.isfinite(loss),
            f"the training loss is no longer finite in epoch {epoch + 1}; start a new "
            "run with a lower --learning-rate.",
        )
        seconds = time.perf_counter() - started
        mean = jax.device_get(state.mean)
        results = [
            gradient_run.evaluate(mean, asked, lambda _: check_stop())
            for asked in (None, *target_returns[1:])
        ]
        holdout_loss = None
        if len(held_out):
            holdout_loss = cloner.loss(state.mean, steps, held_out)
        record = EpochRecord(
            epoch=epoch,
            step=int(state.step),
            training_loss=loss,
            holdout_loss=holdout_loss,
            evaluations=list(map(target_evaluation, target_returns, results)),
            steps_per_second=num_steps / seconds,
            seconds_elapsed=gradient_run.seconds(),
        )
        # In this order: a run killed between the two repeats the epoch.
        write_epoch(gradient_run.path, record)
        optimizer_state = jax.device_get(state.optimizer_state)
        gradient_run.save(
            results[0], mean, 0, record.step, optimizer_state=optimizer_state
        )
        progress.generation_done(record)
    return state


def _descend(
    cloner: Cloner,
    state: CloningState,
    steps: Steps,
    starts: Iterator[np.ndarray],
    on_step: Callable[[int], None],
) -> tuple[CloningState, float]:
    """Takes an epoch's steps; returns the mean loss, too."""
    losses, ahead = [], jnp.float32(0.0)
    for done, batch in enumerate(starts, 1):
        # The devices work while the next windows are cut; but only one step ahead, so
        # that a stop signal waits for no queue.
        before = ahead
        state, ahead = cloner.descend(state, steps, batch)
        losses.append(float(before))
        on_step(done)
        if not math.isfinite(losses[-1]):
            break
    return state, (sum(losses) + float(ahead)) / len(losses)


def _target_returns(
    config: TrainConfig, given: Sequence[float], best_return: float
) -> tuple[float | None, ...]:
    """Lists what evaluations ask for, without repetition."""
    own = getattr(config.policy, "target_return", None)
    require(
        own is not None or not given,
        f"--target-returns: policy {policy_kind(config.policy)} has no target return; "
        "leave it out, or choose --policy decision-transformer.",
    )
    for value in given:
        require(math.isfinite(value), f"--target-returns must be finite, got {value}.")
    asked = [] if own is None else given or [best_return]
    return tuple(dict.fromkeys([own, *asked]))


def _warn_of_odd_settings(
    config: TrainConfig, cloning: CloningConfig, best_return: float
) -> None:
    asked = getattr(config.policy, "target_return", None)
    if asked is not None and asked > best_return + 0.5 * abs(best_return):
        warnings.warn(
            f"policy.target_return {asked:.10g} is far above all that the dataset "
            f"holds, whose best return is {best_return:.1f}; --policy.target-return "
            f"{best_return:.0f} would ask for that.",
            stacklevel=2,
        )
    num_steps = cloning.epochs * cloning.steps_per_epoch
    if cloning.warmup_steps >= num_steps:
        warnings.warn(
            f"warmup_steps {cloning.warmup_steps} outlast the run's {num_steps} steps: "
            "the learning rate never reaches its full value; --warmup-steps "
            f"{num_steps // 10} would be a tenth of them.",
            stacklevel=2,
        )
