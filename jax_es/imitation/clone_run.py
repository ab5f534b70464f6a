"""Behaviour cloning as a run: epochs of gradient descent, evaluated in between.

Everything that an epoch depends on is in the checkpoint of the one before or follows
from the seed, so a run that is killed at any instant continues to the same numbers.
"""

import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_es.checks import ConfigError, require
from jax_es.cli.progress import Progress, opening
from jax_es.config import CloningConfig
from jax_es.imitation.cloning import Cloner, CloningState
from jax_es.imitation.datasets import read_episodes
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
    covering,
    hold_out,
    random_starts,
    statistics_of,
    steps_of,
)
from jax_es.rollout.devices import compilation_clock
from jax_es.rollout.memory import check_memory
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import CLONING, Method
from jax_es.streams import stream
from jax_es.training.build import TrainConfig, policy_kind, with_machine
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
    clone = CloneRun(with_machine(config), cloning, dataset, target_returns)
    check_stop()
    with run.lock():
        state = clone.begin(run, resume, preset)
        clock, finished = compilation_clock(), clone.num_finished(state)
        progress = Progress(cloning.epochs, finished, layout=EPOCHS, clock=clock)
        mean_return = f"{clone.episodes.returns.mean():.1f}"
        progress.message(
            opening(
                f"Resuming after step {state.step}:" if resume else "Cloning",
                clone.parts.config,
                state.mean,
                f": {len(clone.episodes.lengths):,} episodes of {dataset}, "
                f"{len(clone.episodes.rewards):,} steps, mean return {mean_return}",
                run.path,
            )
        )
        result = clone.train(state, run, progress, check_stop)
    progress.message(
        f"Evaluation return: {result.best_evaluation:.1f} at best; mean return of the "
        f"dataset's episodes: {mean_return}."
    )
    return result


class CloneRun:
    """A dataset, the network that learns it, and the parts that evaluate it.

    Takes the arguments of :func:`pretrain_run`. Of its attributes, ``target_returns``
    is what evaluations ask for, the configuration's own first (None if it has none),
    and ``initial`` the state before the first step.
    """

    def __init__(
        self,
        config: TrainConfig,
        cloning: CloningConfig,
        dataset: str | os.PathLike[str],
        target_returns: Sequence[float] = (),
    ) -> None:
        self.parts = build_for_evaluation(config)
        policy = self.parts.policy
        if not isinstance(policy, ClonablePolicy):
            raise ConfigError(
                f"policy {policy_kind(config.policy)} cannot be cloned, since it "
                "carries a state that no recorded step has; choose --policy mlp or "
                "decision-transformer."
            )
        self._config = cloning
        self.episodes = read_episodes(dataset, config)
        # Cut out, on the way to the devices, and there with their gradients.
        step_bytes = self.episodes.observations[:1].nbytes + 64
        batch_bytes = 4 * policy.window_length * step_bytes * cloning.batch_size
        check_memory(
            {f"--batch-size {cloning.batch_size}": batch_bytes},
            self.parts.devices.memory,
        )
        best_return = float(self.episodes.returns.max())
        self.target_returns = _target_returns(config, target_returns, best_return)
        _warn_of_odd_settings(config, cloning, best_return)
        self._method = Method(
            CLONING,
            {
                "dataset": os.fspath(dataset),
                **dataclasses.asdict(cloning),
                "target_returns": list(target_returns),
            },
        )
        self._steps = steps_of(self.episodes)
        self._learnt, held_out = hold_out(self._steps, cloning.holdout, config.seed)
        self._held_out = covering(self._steps, held_out, policy.window_length)
        self._statistics = (
            statistics_of(self.episodes)
            if config.rollout.observation_statistics
            else None
        )
        # The key of an evolution: with the same seed, both begin with the same weights.
        # The implementation is pinned, since another one would change every number.
        key, _ = jax.random.split(jax.random.key(config.seed, impl="threefry2x32"))
        dropout_seed = stream(config.seed, "dropout").integers(2**31)
        self._cloner = Cloner(
            policy,
            cloning,
            self.parts.devices,
            self._statistics,
            jax.random.key(dropout_seed, impl="threefry2x32"),
            self.parts.config.rollout,
        )
        self.initial = self._cloner.init(jax.jit(policy.init)(key))

    def num_finished(self, state: CloningState) -> int:
        """Returns the epochs that led to a state."""
        return int(state.step) // self._config.steps_per_epoch

    def begin(self, run: RunDirectory, resume: bool, preset: str) -> CloningState:
        """Creates the run, or takes up the one that is there; within ``run.lock()``.

        Returns the state to go on from. A run that cannot be continued is as it was.
        """
        config, returns = self.parts.config, self.episodes.returns
        step = begin(
            run,
            config,
            self._method,
            resume,
            preset,
            num_episodes=len(returns),
            num_steps=len(self.episodes.rewards),
            mean_return=float(returns.mean()),
            best_return=float(returns.max()),
        )
        finished = (step or 0) // self._config.steps_per_epoch
        require(
            finished <= self._config.epochs,
            f"epochs must be at least {finished}, the epochs that {run.path} has "
            f"finished, got {self._config.epochs}.",
        )
        if step is None:
            return self.initial
        template = checkpoint_state(jax.device_get(self.initial.mean), self._statistics)
        template["optimizer_state"] = jax.device_get(self.initial.optimizer_state)
        step, saved = Checkpoints(run.checkpoints).restore("last", template)
        read_epochs(run.path)  # damaged records are rejected before any work
        run.resume(config)
        run.update(method=self._method)
        return CloningState(
            saved["es"]["mean"], saved["optimizer_state"], jnp.int32(step)
        )

    def train(
        self,
        state: CloningState,
        run: RunDirectory,
        progress: Progress,
        check_stop: Callable[[], None],
    ) -> PretrainingResult:
        """Clones from ``state`` to the end of the run; closes the parts."""
        finished, config = self.num_finished(state), self._config
        state = self._cloner.place(state)
        with (
            GradientRun(run, self.parts, self._statistics, finished) as gradient_run,
            progress,
        ):
            for epoch in range(finished, config.epochs):
                progress.generation_started(epoch)
                started = time.perf_counter()
                state, loss = self._descend(state, epoch, progress, check_stop)
                seconds = time.perf_counter() - started
                step, mean = int(state.step), jax.device_get(state.mean)
                results = [
                    gradient_run.evaluate(mean, asked, lambda _: check_stop())
                    for asked in (None, *self.target_returns[1:])
                ]
                holdout_loss = None
                if len(self._held_out):
                    holdout_loss = self._cloner.loss(
                        state.mean, self._steps, self._held_out
                    )
                record = EpochRecord(
                    epoch=epoch,
                    step=step,
                    training_loss=loss,
                    holdout_loss=holdout_loss,
                    evaluations=list(
                        map(target_evaluation, self.target_returns, results)
                    ),
                    steps_per_second=config.steps_per_epoch / seconds,
                    seconds_elapsed=gradient_run.seconds(),
                )
                # In this order: a run killed between the two repeats the epoch, and its
                # first records are dropped.
                write_epoch(run.path, record)
                optimizer_state = jax.device_get(state.optimizer_state)
                gradient_run.save(
                    results[0], mean, 0, step, optimizer_state=optimizer_state
                )
                progress.generation_done(record)
        mean, best = jax.device_get(state.mean), gradient_run.best
        return PretrainingResult(mean, read_epochs(run.path), best)

    def _descend(
        self,
        state: CloningState,
        epoch: int,
        progress: Progress,
        check_stop: Callable[[], None],
    ) -> tuple[CloningState, float]:
        """Takes the epoch's steps; returns the mean loss, too."""
        num_steps, batch_size = self._config.steps_per_epoch, self._config.batch_size
        seed, total, ahead = self.parts.config.seed, 0.0, jnp.float32(0.0)
        starts = random_starts(self._learnt, num_steps, batch_size, seed, epoch)
        for done, batch in enumerate(starts, 1):
            # The devices work while the next windows are cut; but only one step ahead,
            # so that a stop signal waits for no queue.
            before = ahead
            state, ahead = self._cloner.descend(state, self._steps, batch)
            total += float(before)
            check_stop()
            progress.tasks_done(done, num_steps)
            if not math.isfinite(total):
                break
        mean_loss = (total + float(ahead)) / num_steps
        require(
            math.isfinite(mean_loss),
            f"the training loss is no longer finite in epoch {epoch + 1}; start a new "
            "run with a lower --learning-rate.",
        )
        return state, mean_loss


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
    asked = getattr(config.policy, "target_return", -math.inf)
    if asked > best_return + 0.5 * abs(best_return):
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
