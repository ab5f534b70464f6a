"""One call that trains: ``jax_es.train_policy(config, …)``.

What it is given of the user's own (a network, an objective, a strategy, an environment)
becomes part of the configuration (``custom.py``), so that the run resumes, and is read,
as one of the program's is.
"""

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jax_es.checks import require
from jax_es.cli.progress import ending, opening
from jax_es.distributed.session import open_workers
from jax_es.distributed.workers import Workers
from jax_es.phases import in_phase
from jax_es.presets import preset as preset_of
from jax_es.rollout.evaluator import never
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import new_folder
from jax_es.runs.tracking import Callback, check_callbacks
from jax_es.runs.trust import note_unnamed
from jax_es.runs.wording import significant
from jax_es.train_config import TrainConfig
from jax_es.training.build import for_run
from jax_es.training.custom import AnyPart, AnyPolicy, with_parts
from jax_es.training.generation import TrainState
from jax_es.training.loop import PolicyTraining, begin, run_training
from jax_es.training.parts import Parts, build
from jax_es.training.phases import try_phases
from jax_es.training.result import TrainingResult
from jax_es.training.session import session_progress
from jax_es.training.warm_start import find_source


def train_policy(
    config: TrainConfig | str,
    path: str | os.PathLike[str] | None = None,
    *,
    policy: AnyPolicy = None,
    objective: AnyPart = None,
    strategy: AnyPart = None,
    env: AnyPart = None,
    callbacks: Sequence[Callback] = (),
    workers: Workers | int | None = None,
    resume: bool = False,
    verbose: bool = True,
    preset: str | None = None,
    label: str = "",
    check_stop: Callable[[], None] = never,
) -> TrainingResult:
    """Trains one run, as ``python -m jax_es.train`` does.

    It uses all cores, unless JAX has started before with fewer devices
    (:func:`jax_es.configure_cpu_devices`).

    Args:
        config: the run, for instance ``jax_es.preset("half-cheetah")``, or the name of
            a preset.
        path: the run's folder; one in ``runs/``, named by preset, seed and time, if not
            given.
        policy: instead of the configuration's: settings, a kind (``"mlp"``) at its
            defaults, or a network of your own (:func:`jax_es.custom_policy`).
        objective: instead of the configuration's: a function of episodes that returns
            the fitness of each (:func:`jax_es.objective`), or a name.
        strategy: instead of the configuration's: one of your own
            (:class:`jax_es.Strategy`), or a name.
        env: instead of the configuration's: an id, a ``gymnasium.Env`` class, or a
            function that makes one.
        callbacks: told of each generation, for instance ``[jax_es.WandB(path)]``; one
            that returns ``True`` ends the run.
        workers: who evaluates: how many processes, or those of
            :func:`jax_es.open_workers`; this process if not given.
        resume: continue the run that is there.
        verbose: whether to show progress.
        preset: recorded in ``config.json`` as where ``config`` comes from; its name, or
            ``"python"``, if not given.
        label: what progress shows before the generation.
        check_stop: called often; raises an exception to end the run, after a checkpoint
            of the last finished generation.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.

    Example::

        config = jax_es.preset("half-cheetah").replace({"es.sigma": 0.05})
        result = jax_es.train_policy(config)
        action = result.policy(observation, reward)
    """
    config, preset = named_config(config, preset)
    config = with_parts(config, policy, objective, strategy, env)
    require(
        not resume or path is not None,
        "--resume needs a path, the folder of the run to continue.",
    )
    check_callbacks(callbacks)
    if path is None:
        path = new_folder(f"{preset}-seed{config.seed}")
    require(os.fspath(path) != "", "path must be the folder of a run, got ''.")
    run = RunDirectory(Path(path))
    config = for_run(config, run, resume, workers is not None)
    with contextlib.ExitStack() as stack:
        team = stack.enter_context(team_of(workers))
        parts = build(config, check_stop, workers=team)
        stack.callback(parts.close)
        # Before there is a folder.
        if config.phases:
            try_phases(config)
        source = None
        if config.init is not None and not resume:
            source = find_source(config.init, parts)
        with run.lock():
            state = begin(parts, run, resume, preset, source)
            training = PolicyTraining(parts, state, check_stop)
            stack.callback(training.close)
            progress = session_progress(
                config,
                training,
                state.total_env_steps,
                [_opening(parts, state, run, resume), *note_unnamed(config, run.path)],
                resume=resume,
                label=label,
                team=team,
                verbose=verbose,
            )
            result = run_training(training, run, progress, check_stop, callbacks)
    first = result.first_evaluation
    began = "" if math.isnan(first) else f"{significant(first)} at the start, "
    progress.message(
        f"Evaluation {result.evaluated}: {began}"
        f"{significant(result.final_evaluation)} at the end, "
        f"{significant(result.best_evaluation)} at best. "
        + ending(
            training.limits_reached(),
            training.generation,
            result.state.total_env_steps,
        )
    )
    return result


def train_run(
    config: TrainConfig,
    path: str | os.PathLike[str],
    resume: bool = False,
    **arguments: Any,
) -> TrainingResult:
    """Is :func:`train_policy` under the name that it had; the next version drops it."""
    warnings.warn(
        "train_run is called train_policy; call that instead",
        DeprecationWarning,
        stacklevel=2,
    )
    return train_policy(config, path, resume=resume, **arguments)


def named_config(
    config: TrainConfig | str, preset: str | None = None
) -> tuple[TrainConfig, str]:
    """Returns a configuration, which a preset's name may mean, and what to record."""
    if isinstance(config, str):
        return preset_of(config), preset or config
    require(
        isinstance(config, TrainConfig),
        "config must be a TrainConfig, for instance jax_es.preset('half-cheetah'), got "
        f"{config!r}.",
    )
    return config, preset or "python"


@contextlib.contextmanager
def team_of(workers: Workers | int | None) -> Iterator[Workers | None]:
    """Starts so many workers, which end with the block; others are left as they are."""
    require(
        workers is None or isinstance(workers, int | Workers),
        f"workers must be a number, or those of jax_es.open_workers, got {workers!r}.",
    )
    if isinstance(workers, int):
        with open_workers(workers) as team:
            yield team
    else:
        yield workers


def _opening(parts: Parts, state: TrainState, run: RunDirectory, resume: bool) -> str:
    """Says what is about to run, and with whose θ it began if not with its own."""
    config, generation, phase = parts.config, int(state.es.generation), ""
    if state.phase:
        number = min(state.phase.index + 1, len(config.phases))
        phase = f". Phase {number} of {len(config.phases)}"
        config = in_phase(config, state.phase.index)
    source, method = run.record().get("init"), run.method_before()
    who, start = f"{config.es.num_pairs:,} pairs", ""
    if config.es.strategy != "openai-es":
        who = f"{2 * config.es.num_pairs:,} members of {run.method().title}"
    if source is not None and method is not None:
        whose = f"{method.title}, checkpoint {source['checkpoint']}"
        start = f" from {source['run']} ({whose})"
    return opening(
        f"Resuming after generation {generation}:" if resume else "Training",
        config,
        state.es.mean,
        f"{start}: {who} a generation, {_machines(parts)}{phase}",
        run.path,
    )


def _machines(parts: Parts) -> str:
    """Says who evaluates."""
    if parts.workers is None:
        devices = parts.devices
        return f"{parts.num_slots} slots on {devices.count} {devices.platform} devices"
    status, rollout = parts.workers.status(), parts.config.rollout
    nodes = "1 node" if status.nodes == 1 else f"{status.nodes} nodes"
    return (
        f"workers: {status.workers} on {nodes}, each with {rollout.num_slots} slots "
        f"and {rollout.shard_size} episodes at a time"
    )
