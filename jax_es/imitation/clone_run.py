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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_es.checks import ConfigError, require
from jax_es.cli.progress import Progress
from jax_es.config import CloningConfig
from jax_es.imitation.cloning import Cloner, CloningState
from jax_es.imitation.datasets import Episodes, read_episodes
from jax_es.imitation.epoch_records import (
    CLONING_FILE,
    EPOCHS,
    EpochRecord,
    read_epochs,
    target_evaluation,
    write_epoch,
)
from jax_es.imitation.gradient_run import (
    GradientRun,
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
from jax_es.runs.directory import RunDirectory, check_method
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
        target_returns: as of :class:`CloneRun`.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    run = RunDirectory(Path(path))
    if resume:
        config = run.with_stored_machine(config)
    clone = CloneRun(with_machine(config), cloning, dataset, target_returns)
    with run.lock():
        state = clone.begin(run, resume, preset)
        return clone.train(state, run, clone.progress(state))


class CloneRun:
    """A dataset, the network that learns it, and the parts that evaluate it.

    Args:
        config: environment, policy, evaluation, rollout and seed of the run.
        cloning: the settings.
        dataset: id or folder of a Minari dataset.
        target_returns: what to ask for in evaluations besides the configuration's own;
            the best return in the dataset if none is given.

    Attributes:
        parts: what evaluates θ.
        episodes: the dataset's.
        target_returns: what evaluations ask for, the configuration's own first; None of
            a policy that is not asked.
        initial: the state before the first step.

    Raises:
        ConfigError: (a ``ValueError``) if they do not fit together.
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
        self.target_returns = _target_returns(config, self.episodes, target_returns)
        _warn_of_odd_settings(config, cloning, self.episodes)
        self._settings = {
            "dataset": os.fspath(dataset),
            **dataclasses.asdict(cloning),
            "target_returns": list(target_returns),
        }
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

    def begin(self, run: RunDirectory, resume: bool, preset: str) -> CloningState:
        """Creates the run, or with ``resume`` takes up the one that is there.

        Call it, and :meth:`train`, inside ``run.lock()``. Returns the state to go on
        from; ``preset`` is recorded as where a new run's configuration comes from.

        Raises:
            ValueError: (its subclasses for configurations, checkpoints and metrics) if
                the run cannot be created or continued; it is then as it was before.
        """
        config, returns = self.parts.config, self.episodes.returns
        method = Method(CLONING, self._settings)
        data = {
            "num_episodes": len(returns),
            "num_steps": len(self.episodes.rewards),
            "mean_return": float(returns.mean()),
            "best_return": float(returns.max()),
        }
        if not resume:
            run.create(config, preset, method=method, data=data)
            return self.initial
        # More epochs may be asked for: what is finished does not depend on them.
        kept = {k: v for k, v in self._settings.items() if k != "epochs"}
        check_method(run, method._replace(settings=kept))
        run.check_resumable(config)
        stored = run.record().get("data", data)
        require(
            all(stored.get(name) == value for name, value in data.items()),
            f"--dataset {self._settings['dataset']} is not what the run in {run.path} "
            f"learns from: it had {stored.get('num_steps')} steps, now "
            f"{data['num_steps']}, or other ones; restore it, or start a new run with "
            "another --name.",
        )
        state = self._restored(Checkpoints(run.checkpoints))
        finished = self._finished(state)
        require(
            finished <= self._config.epochs,
            f"epochs must be at least {finished}, the epochs that {run.path} has "
            f"finished, got {self._config.epochs}.",
        )
        require(
            len(read_epochs(run.path)) >= finished,
            f"{run.path / CLONING_FILE} lacks records of the {finished} finished "
            "epochs: restore it from a backup, or start a new run with another --name.",
        )
        run.resume(config)
        run.update(method=method)
        return state

    def progress(self, state: CloningState) -> Progress:
        """Builds the display of what is to come after a state."""
        first, clock = self._finished(state), compilation_clock()
        return Progress(self._config.epochs, first, layout=EPOCHS, clock=clock)

    def train(
        self,
        state: CloningState,
        run: RunDirectory,
        progress: Progress,
        check_stop: Callable[[], None] = lambda: None,
    ) -> PretrainingResult:
        """Clones from ``state`` to the end of the run; closes the parts.

        ``check_stop`` is called often and raises an exception to end the run; finished
        epochs are then saved.

        Raises:
            ConfigError: if the loss is no longer finite.
        """
        finished = self._finished(state)
        state = self._cloner.place(state)
        with GradientRun(run, self.parts, finished) as gradient_run, progress:
            for epoch in range(finished, self._config.epochs):
                progress.generation_started(epoch)
                started = time.perf_counter()
                state, loss = self._descend(state, epoch, progress, check_stop)
                seconds = time.perf_counter() - started
                step, mean = int(state.step), jax.device_get(state.mean)
                results = [
                    gradient_run.evaluate(
                        mean, self._statistics, asked, lambda _: check_stop()
                    )
                    for asked in (None, *self.target_returns[1:])
                ]
                gradient_run.record(results[0], mean, self._statistics, 0, step)
                asked_for = map(target_evaluation, self.target_returns, results)
                record = EpochRecord(
                    epoch=epoch,
                    step=step,
                    training_loss=loss,
                    holdout_loss=self._holdout_loss(state),
                    evaluations=tuple(asked_for),
                    steps_per_second=self._config.steps_per_epoch / seconds,
                    seconds_elapsed=gradient_run.seconds(),
                )
                # In this order: a run killed between the two repeats the epoch, and its
                # first records are dropped.
                write_epoch(run.path, record)
                optimizer_state = jax.device_get(state.optimizer_state)
                gradient_run.save(
                    mean, self._statistics, step, optimizer_state=optimizer_state
                )
                progress.generation_done(record)
        mean, best = jax.device_get(state.mean), gradient_run.best
        return PretrainingResult(mean, read_epochs(run.path), best)

    def _finished(self, state: CloningState) -> int:
        """Returns the epochs that led to a state."""
        return int(state.step) // self._config.steps_per_epoch

    def _restored(self, checkpoints: Checkpoints) -> CloningState:
        """Returns the state of the last checkpoint; the initial one without any."""
        if not checkpoints.steps():
            return self.initial
        template = checkpoint_state(jax.device_get(self.initial.mean), self._statistics)
        template["optimizer_state"] = jax.device_get(self.initial.optimizer_state)
        saved = checkpoints.restore("last", template).state
        step = jnp.int32(saved["es"]["generation"])
        return CloningState(saved["es"]["mean"], saved["optimizer_state"], step)

    def _descend(
        self,
        state: CloningState,
        epoch: int,
        progress: Progress,
        check_stop: Callable[[], None],
    ) -> tuple[CloningState, float]:
        """Takes the epoch's steps; returns the mean loss, too."""
        num_steps, seed = self._config.steps_per_epoch, self.parts.config.seed
        starts = random_starts(
            self._learnt, num_steps, self._config.batch_size, seed, epoch
        )
        at_once = self._cloner.batches_per_call(self._steps)
        sums: list[Any] = []
        for at in range(0, num_steps, at_once):
            batches = [next(starts) for _ in range(min(at_once, num_steps - at))]
            state, loss = self._cloner.descend(state, self._steps, batches)
            sums.append(loss)
            # The devices work while the next windows are cut; but only one call ahead,
            # so that a stop signal waits for no queue.
            if len(sums) > 1:
                sums[-2] = _finite(float(sums[-2]), epoch)
            check_stop()
            progress.tasks_done(at + len(batches), num_steps)
        return state, _finite(math.fsum(map(float, sums)), epoch) / num_steps

    def _holdout_loss(self, state: CloningState) -> float:
        if not len(self._held_out):
            return math.nan
        return self._cloner.loss(state.mean, self._steps, self._held_out)


def _finite(loss: float, epoch: int) -> float:
    require(
        math.isfinite(loss),
        f"the training loss is no longer finite in epoch {epoch + 1}; start a new run "
        "with a lower --learning-rate.",
    )
    return loss


def _target_returns(
    config: TrainConfig, episodes: Episodes, given: Sequence[float]
) -> tuple[float | None, ...]:
    """Lists what evaluations ask for, without repetition."""
    own = getattr(config.policy, "target_return", None)
    if own is None:
        require(
            not given,
            f"--target-returns: policy {policy_kind(config.policy)} has no target "
            "return; leave it out, or choose --policy decision-transformer.",
        )
        return (None,)
    for value in given:
        require(math.isfinite(value), f"--target-returns must be finite, got {value}.")
    return tuple(dict.fromkeys([own, *(given or [float(episodes.returns.max())])]))


def _warn_of_odd_settings(
    config: TrainConfig, cloning: CloningConfig, episodes: Episodes
) -> None:
    best = float(episodes.returns.max())
    asked = getattr(config.policy, "target_return", -math.inf)
    if asked > best + 0.5 * abs(best):
        warnings.warn(
            f"policy.target_return {asked:.10g} is far above all that the dataset "
            f"holds, whose best return is {best:.1f}; --policy.target-return "
            f"{best:.0f} would ask for that.",
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
