"""Behaviour cloning as a run: epochs of gradient descent, evaluated in between.

Everything that an epoch depends on is in the checkpoint of the one before or follows
from the seed, so a run that is killed at any instant continues to the same numbers.
"""

import dataclasses
import hashlib
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.cli.progress import Progress
from jax_es.config import CloningConfig, ConfigError, require
from jax_es.imitation.cloning import Cloner, CloningState
from jax_es.imitation.datasets import Episodes, read_episodes
from jax_es.imitation.epochs import (
    CLONING_FILE,
    EPOCHS,
    EpochRecord,
    TargetEvaluation,
    read_epochs,
    target_evaluation,
    write_epoch,
)
from jax_es.imitation.gradient_run import (
    GradientRun,
    build_for_evaluation,
    restore_latest,
)
from jax_es.imitation.windows import (
    Recording,
    covering,
    hold_out,
    random_starts,
    recording,
    statistics_of,
)
from jax_es.rollout.devices import compilation_clock
from jax_es.rollout.memory import check_memory
from jax_es.rollout.observation_statistics import ObservationStatistics
from jax_es.runs.directory import RunDirectory, check_method
from jax_es.runs.method import CLONING, Method
from jax_es.streams import stream
from jax_es.training.build import (
    TrainConfig,
    policy_kind,
    with_machine,
)
from jax_es.training.parts import EvaluationParts
from jax_es.types import ClonablePolicy, PyTree


class Pretraining(NamedTuple):
    """The parts of a cloning, before its first step or its next.

    Attributes:
        parts: what evaluates θ.
        method: what the run's record says of its training.
        config: the settings.
        cloner: takes the steps.
        recording: what was recorded.
        learnt: ``[n]``, steps of it that windows may begin at.
        held_out: ``[m]``, where the windows of held-out episodes begin.
        statistics: through which θ sees observations, if any.
        target_returns: what evaluations ask for, the configuration's own first; None of
            a policy that is not asked.
        initial: state before the first step.
    """

    parts: EvaluationParts
    method: Method
    config: CloningConfig
    cloner: Cloner
    recording: Recording
    learnt: np.ndarray
    held_out: np.ndarray
    statistics: ObservationStatistics | None
    target_returns: tuple[float | None, ...]
    initial: CloningState


class PretrainingResult(NamedTuple):
    """What a finished cloning returns.

    Attributes:
        mean: θ after the last epoch.
        records: one per epoch of the run.
        best_evaluation: the highest mean return of an evaluation.
    """

    mean: PyTree
    records: list[EpochRecord]
    best_evaluation: float


def prepare(
    config: TrainConfig,
    cloning: CloningConfig,
    dataset: str | os.PathLike[str],
    target_returns: Sequence[float] = (),
) -> Pretraining:
    """Reads the dataset and builds what clones its episodes.

    Args:
        config: environment, policy, evaluation, rollout and seed of the run.
        cloning: the settings.
        dataset: id or folder of a Minari dataset.
        target_returns: what to ask for in evaluations besides the configuration's own;
            the best return in the dataset if none is given.

    Raises:
        ConfigError: (a ``ValueError``) if they do not fit together.
    """
    parts = build_for_evaluation(config)
    policy = parts.policy
    if not isinstance(policy, ClonablePolicy):
        raise ConfigError(
            f"policy {policy_kind(config.policy)} cannot be cloned, since it carries a "
            "state that no recorded step has; choose --policy mlp or "
            "decision-transformer."
        )
    episodes = read_episodes(dataset, config)
    # Cut out, on the way to the devices, and there with their gradients.
    window = 4 * policy.window_length * (episodes.observations[:1].nbytes + 64)
    check_memory(
        {f"--batch-size {cloning.batch_size}": window * cloning.batch_size},
        parts.devices.memory,
    )
    asked = _target_returns(config, episodes, target_returns)
    _warn_of_odd_settings(config, cloning, episodes)
    steps = recording(episodes)
    learnt, held_out = hold_out(steps, cloning.holdout, config.seed)
    statistics = (
        statistics_of(episodes) if config.rollout.observation_statistics else None
    )
    # The key of an evolution: with the same seed, both begin with the same weights. The
    # implementation is pinned, since another one would change every number.
    init_key, _ = jax.random.split(jax.random.key(config.seed, impl="threefry2x32"))
    dropout_seed = stream(config.seed, "dropout").integers(2**31)
    dropout_key = jax.random.key(dropout_seed, impl="threefry2x32")
    cloner = Cloner(
        policy, cloning, parts.devices, statistics, dropout_key, parts.config.rollout
    )
    settings = {
        "dataset": os.fspath(dataset),
        **dataclasses.asdict(cloning),
        "target_returns": list(target_returns),
    }
    return Pretraining(
        parts=parts,
        method=Method(CLONING, settings),
        config=cloning,
        cloner=cloner,
        recording=steps,
        learnt=learnt,
        held_out=covering(steps, held_out, policy.window_length),
        statistics=statistics,
        target_returns=asked,
        initial=cloner.init(jax.jit(policy.init)(init_key)),
    )


def begin(
    pretraining: Pretraining, run: RunDirectory, resume: bool, preset: str
) -> CloningState:
    """Creates the run, or checks and takes up the one that is there.

    Call it, and train, inside ``run.lock()``.

    Args:
        pretraining: from :func:`prepare`; its configuration is the run's.
        run: the run's folder.
        resume: continue the run that is there.
        preset: recorded as where a new run's configuration comes from.

    Returns:
        The state to go on from.

    Raises:
        ValueError: (its subclasses for configurations, checkpoints and metrics) if
            the run cannot be created or continued; it is then as it was before.
    """
    config, method = pretraining.parts.config, pretraining.method
    data = _fingerprint(pretraining.recording.episodes)
    if not resume:
        run.create(config, preset, method=method, data=data)
        return pretraining.initial
    # More epochs may be asked for: what is finished does not depend on their number.
    free = ("epochs",)
    settings = {k: v for k, v in method.settings.items() if k not in free}
    check_method(run, method._replace(settings=settings))
    run.check_resumable(config)
    stored = run.record().get("data", data)
    require(
        stored == data,
        f"--dataset {method.settings['dataset']} is not what the run in {run.path} "
        f"learns from: it had {stored.get('num_steps')} steps, now "
        f"{data['num_steps']}, or other ones; restore it, or start a new run with "
        "another --name.",
    )
    state = _restored(pretraining, run)
    finished = int(state.step) // pretraining.config.steps_per_epoch
    require(
        finished <= pretraining.config.epochs,
        f"epochs must be at least {finished}, the epochs that {run.path} has "
        f"finished, got {pretraining.config.epochs}.",
    )
    require(
        len(read_epochs(run.path)) >= finished,
        f"{run.path / CLONING_FILE} lacks records of the {finished} finished epochs: "
        "restore it from a backup, or start a new run with another --name.",
    )
    run.resume(config)
    run.update(method=method)
    return state


def run_pretraining(
    pretraining: Pretraining,
    state: CloningState,
    run: RunDirectory,
    progress: Progress,
    check_stop: Callable[[], None] = lambda: None,
) -> PretrainingResult:
    """Clones from ``state`` to the end of the run; closes the parts.

    Args:
        pretraining: from :func:`prepare`.
        state: from :func:`begin`.
        run: where metrics and checkpoints go; hold its ``lock()``.
        progress: what the user sees.
        check_stop: called often; raises an exception to end the run. Finished epochs
            are then saved.

    Raises:
        ConfigError: if the loss is no longer finite.
    """
    config = pretraining.config
    finished = int(state.step) // config.steps_per_epoch
    state = pretraining.cloner.place(state)
    with GradientRun(run, pretraining.parts, finished) as gradient_run, progress:
        session = _Session(pretraining, gradient_run, run, progress, check_stop)
        for epoch in range(finished, config.epochs):
            progress.generation_started(epoch)
            state = session.advance(state, epoch)
        best = gradient_run.best
    return PretrainingResult(jax.device_get(state.mean), read_epochs(run.path), best)


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
        target_returns: as in :func:`prepare`.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.
    """
    run = RunDirectory(Path(path))
    if resume:
        config = run.with_stored_machine(config)
    pretraining = prepare(with_machine(config), cloning, dataset, target_returns)
    with run.lock():
        state = begin(pretraining, run, resume, preset)
        progress = make_progress(pretraining, state)
        return run_pretraining(pretraining, state, run, progress)


def make_progress(pretraining: Pretraining, state: CloningState) -> Progress:
    """Builds the display of a cloning."""
    config = pretraining.config
    finished = int(state.step) // config.steps_per_epoch
    clock = compilation_clock()
    return Progress(config.epochs, finished, layout=EPOCHS, clock=clock)


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


def _fingerprint(episodes: Episodes) -> dict[str, Any]:
    """Describes the data in a run's record, and tells whether they are the same."""
    digest = hashlib.sha256()
    for part in (episodes.lengths, episodes.rewards, episodes.actions):
        digest.update(np.ascontiguousarray(part).data)
    returns = episodes.returns
    return {
        "num_episodes": len(episodes.lengths),
        "num_steps": len(episodes.rewards),
        "mean_return": float(returns.mean()),
        "best_return": float(returns.max()),
        "sha256": digest.hexdigest(),
    }


def _restored(pretraining: Pretraining, run: RunDirectory) -> CloningState:
    """Returns the state of the run's last checkpoint, or the beginning."""
    template = jax.device_get(pretraining.initial)
    saved = restore_latest(
        run,
        template.mean,
        pretraining.statistics,
        optimizer_state=template.optimizer_state,
    )
    if saved is None:
        return pretraining.initial
    step = jnp.int32(saved["es"]["generation"])
    return CloningState(saved["es"]["mean"], saved["optimizer_state"], step)


def _check_loss(loss: float, epoch: int) -> None:
    require(
        math.isfinite(loss),
        f"the training loss is no longer finite in epoch {epoch + 1}; start a new run "
        "with a lower --learning-rate.",
    )


class _Session(NamedTuple):
    """One call of :func:`run_pretraining`: epochs, and what they leave on disk."""

    pretraining: Pretraining
    gradient_run: GradientRun
    run: RunDirectory
    progress: Progress
    check_stop: Callable[[], None]

    def advance(self, state: CloningState, epoch: int) -> CloningState:
        """Learns, evaluates and records; then saves what follows from it.

        The order matters: a run killed after the records but before the checkpoint
        repeats the epoch, and its first records are dropped.
        """
        pretraining, gradient_run = self.pretraining, self.gradient_run
        statistics = pretraining.statistics
        started = time.perf_counter()
        state, training_loss = self._descend(state, epoch)
        seconds = time.perf_counter() - started
        holdout_loss = math.nan
        if len(pretraining.held_out):
            holdout_loss = pretraining.cloner.loss(
                state.mean, pretraining.recording, pretraining.held_out
            )
        step, mean = int(state.step), jax.device_get(state.mean)
        own, *others = (
            gradient_run.evaluate(mean, statistics, asked, lambda _: self.check_stop())
            for asked in (None, *pretraining.target_returns[1:])
        )
        gradient_run.record(own, mean, statistics, 0, step)
        asked = zip(pretraining.target_returns, (own, *others), strict=True)
        evaluations: tuple[TargetEvaluation, ...] = tuple(
            target_evaluation(*each) for each in asked
        )
        record = EpochRecord(
            epoch=epoch,
            step=step,
            training_loss=training_loss,
            holdout_loss=holdout_loss,
            evaluations=evaluations,
            steps_per_second=pretraining.config.steps_per_epoch / seconds,
            seconds_elapsed=gradient_run.seconds(),
        )
        write_epoch(self.run.path, record)
        optimizer_state = jax.device_get(state.optimizer_state)
        gradient_run.save(mean, statistics, step, optimizer_state=optimizer_state)
        self.progress.generation_done(record)
        return state

    def _descend(self, state: CloningState, epoch: int) -> tuple[CloningState, float]:
        """Takes the epoch's steps; returns the mean loss, too."""
        cloner, recording = self.pretraining.cloner, self.pretraining.recording
        config, seed = self.pretraining.config, self.pretraining.parts.config.seed
        num_steps, learnt = config.steps_per_epoch, self.pretraining.learnt
        starts = random_starts(learnt, num_steps, config.batch_size, seed, epoch)
        at_once = cloner.batches_per_call(recording)
        sums: list[Any] = []
        for at in range(0, num_steps, at_once):
            batches = [next(starts) for _ in range(min(at_once, num_steps - at))]
            state, loss = cloner.descend(state, recording, batches)
            sums.append(loss)
            # The devices work while the next windows are cut; but only one call ahead,
            # so that a stop signal waits for no queue.
            if len(sums) > 1:
                sums[-2] = float(sums[-2])
                _check_loss(sums[-2], epoch)
            self.check_stop()
            self.progress.tasks_done(at + len(batches), num_steps)
        total = math.fsum(map(float, sums))
        _check_loss(total, epoch)
        return state, total / num_steps
