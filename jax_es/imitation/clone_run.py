"""Behaviour cloning as a run: epochs of gradient descent, evaluated in between.

Everything that an epoch depends on is in the checkpoint of the one before or follows
from the seed, so a run that is killed at any instant continues to the same numbers.
"""

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import ConfigError, optional, require, spelled
from jax_es.cli.progress import Progress, nothing_left, opening
from jax_es.imitation import windows
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
    build_for_evaluation,
    gradient_run,
)
from jax_es.rollout.memory import check_memory
from jax_es.rollout.observation_statistics import ObservationStatistics, view_of
from jax_es.rollout.streams import stream
from jax_es.runs.changes import with_stored_machine
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import CLONING, Method
from jax_es.runs.state_arrays import like_template
from jax_es.runs.wording import significant
from jax_es.training.build import TrainConfig, draw_weights, policy_kind, with_machine
from jax_es.training.parts import EvaluationParts
from jax_es.training.trained_mean import TrainedMean
from jax_es.training.warm_start import find_source, provenance
from jax_es.types import ClonablePolicy, PyTree

if TYPE_CHECKING:
    from jax_es.imitation.online import OnlinePlayer


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
    dataset: str | os.PathLike[str] | None,
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
        config: of the run, for instance ``for_cloning(jax_es.preset("hopper"))``. With
            ``init`` it begins with the θ of another run.
        cloning: the settings.
        dataset: id or folder of a Minari dataset; may be None where θ plays episodes
            itself (``online_episodes``).
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
        config = with_stored_machine(run, config)
    # The run remembers it: another number of devices adds in another order.
    config = with_machine(config)
    parts = build_for_evaluation(config)
    require(
        dataset is not None or cloning.online_episodes > 0,
        "nothing is there to learn from: name a --dataset, or let the network play "
        "--online-episodes.",
    )
    source = None if config.init is None else find_source(config.init, parts)
    episodes = Episodes.zeros(
        parts.env.single_observation_space, parts.env.single_action_space
    )
    data: dict[str, Any] = {}
    if source is not None:  # as JSON reads it, since a resume compares it
        data = json.loads(json.dumps(provenance(source)))
    if dataset is not None:
        episodes = read_episodes(dataset, config)
        data |= _described(episodes)
    asked = _target_returns(config, target_returns, data.get("best_return"))
    statistics = _statistics(config, source, episodes)
    cloner = _make_cloner(parts, cloning, statistics)
    player = None
    if cloning.online_episodes:
        with optional("episodes of one's own need Minari", "pretraining"):
            from jax_es.imitation.online import OnlinePlayer
        player = OnlinePlayer(parts, cloning, view_of(config, statistics), episodes)
    settings = {**cloning.read, "target_returns": list(target_returns)}
    named = None if dataset is None else os.fspath(dataset)
    method = Method(CLONING, {"dataset": named, **settings})
    check_stop()
    with gradient_run(run, parts, method, resume, preset, statistics, **data) as cloned:
        state = initial_state(cloner, config.seed)
        if source is not None:
            state = cloner.init(source.mean)
        if cloned.restored is not None:
            saved = {
                "mean": cloned.restored.state["es"]["mean"],
                "optimizer_state": cloned.restored.state["optimizer_state"],
                "step": np.int32(cloned.restored.step),
            }
            state = CloningState(
                **like_template(saved, jax.device_get(state)._asdict())
            )
            if player is not None:
                player.restore(cloned.restored.state["online"])
        progress = Progress(cloning.epochs, cloned.num_evaluations, layout=EPOCHS)
        start = f"Resuming after step {state.step}:" if resume else "Cloning"
        learned_from = ": its own episodes"
        if dataset is not None:
            learned_from = (
                f": {data['num_episodes']:,} episodes of {dataset}, "
                f"{data['num_steps']:,} steps, mean return "
                f"{significant(data['mean_return'])}"
            )
        progress.message(opening(start, config, state.mean, learned_from, run.path))
        if cloned.num_evaluations == cloning.epochs:
            progress.message(nothing_left([f"epochs {cloning.epochs}"]))
        with progress:
            state = _train(
                cloner, state, player or episodes, asked, cloned, progress, check_stop
            )
    text = f"Evaluation return: {significant(cloned.best)} at best"
    if dataset is not None:
        mean_return = significant(data["mean_return"])
        text += f"; mean return of the dataset's episodes: {mean_return}"
    progress.message(f"{text}.")
    mean = jax.device_get(state.mean)
    return PretrainingResult(mean, read_epochs(run.path), cloned.best)


def _described(episodes: Episodes) -> dict[str, Any]:
    """Returns what a run's record says of its dataset."""
    return {
        "num_episodes": len(episodes.lengths),
        "num_steps": len(episodes.rewards),
        "mean_return": float(episodes.returns.mean()),
        "best_return": float(episodes.returns.max()),
    }


def _statistics(
    config: TrainConfig, source: TrainedMean | None, episodes: Episodes
) -> ObservationStatistics | None:
    """Returns what observations are normalised by, if they are."""
    if not config.rollout.observation_statistics:
        return None
    if source is not None:
        if source.statistics is not None:
            return source.statistics
        warnings.warn(
            spelled(
                f"--init: θ of {source.path} saw observations as they are; they are "
                "normalised here. --rollout.no-observation-statistics leaves them."
            ),
            stacklevel=2,
        )
    require(
        len(episodes.lengths) > 0,
        "rollout.observation_statistics are those of a dataset, or of the run that "
        "--init names; add one that has them, or "
        "--rollout.no-observation-statistics.",
    )
    return windows.statistics_of(episodes)


def _target_returns(
    config: TrainConfig, given: Sequence[float], best_return: float | None
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
    asked = list(given)
    if own is not None and best_return is not None and not asked:
        asked = [best_return]
    return tuple(dict.fromkeys([own, *asked]))


def _make_cloner(
    parts: EvaluationParts,
    cloning: CloningConfig,
    statistics: ObservationStatistics | None,
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
    observed = parts.env.single_observation_space
    observation_bytes = observed.dtype.itemsize * int(np.prod(observed.shape))
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
    return cloner.init(draw_weights(cloner.policy, key))


def _train(
    cloner: Cloner,
    state: CloningState,
    source: "Episodes | OnlinePlayer",
    target_returns: Sequence[float | None],
    cloned: GradientRun,
    progress: Progress,
    check_stop: Callable[[], None],
) -> CloningState:
    """Goes through the epochs that are left; each is evaluated, recorded and saved."""
    config, seed = cloner.config, cloned.config.seed
    num_steps = config.steps_per_epoch
    if isinstance(source, Episodes):
        steps, player = windows.steps_of(source), None
        learnt, held_out = windows.hold_out(steps, config.holdout, seed)
        held_out = windows.covering(steps, held_out, cloner.policy.window_length)
    else:
        player, held_out = source, np.zeros(0, int)
    state = cloner.place(state)
    for epoch in range(cloned.num_evaluations, config.epochs):
        progress.generation_started(epoch)
        own_return = None
        if player is not None:
            own_return = player.play(state.mean, epoch, check_stop)
            steps = windows.steps_of(player.episodes)
            learnt = np.arange(len(steps.last))
        started, losses = time.perf_counter(), []
        batches = num_steps, config.batch_size
        starts = windows.random_starts(learnt, *batches, seed, epoch)
        ahead = jnp.float32(0.0)
        for done, batch in enumerate(starts, 1):
            # The devices work while the next windows are cut; but only one step ahead,
            # so that a stop signal waits for no queue.
            before = ahead
            state, ahead = cloner.descend(state, steps, batch)
            losses.append(float(before))
            check_stop()
            progress.tasks_done(done, num_steps)
            if not math.isfinite(losses[-1]):
                break
        loss = (sum(losses) + float(ahead)) / len(losses)
        require(
            math.isfinite(loss),
            f"the training loss is no longer finite in epoch {epoch + 1}; start a new "
            "run with a lower --learning-rate.",
        )
        seconds = time.perf_counter() - started
        mean = jax.device_get(state.mean)
        results = [
            cloned.evaluate(mean, asked, check_stop)
            for asked in (None, *target_returns[1:])
        ]
        record = EpochRecord(
            epoch=epoch,
            step=int(state.step),
            training_loss=loss,
            holdout_loss=(
                cloner.loss(state.mean, steps, held_out) if len(held_out) else None
            ),
            evaluations=list(map(target_evaluation, target_returns, results)),
            steps_per_second=num_steps / seconds,
            seconds_elapsed=cloned.seconds(),
            own_return_mean=own_return,
            own_steps=0 if player is None else player.num_steps,
        )
        # In this order: a run killed between the two repeats the epoch.
        write_epoch(cloned.path, record)
        optimizer_state = jax.device_get(state.optimizer_state)
        more = {"optimizer_state": optimizer_state}
        if player is not None:
            more["online"] = player.state()
        cloned.save(results[0], mean, record.own_steps, record.step, **more)
        progress.generation_done(record)
    return state
