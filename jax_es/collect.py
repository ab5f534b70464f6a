"""Records episodes of a run: ``python -m jax_es.collect RUN --dataset NAME-v0``."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import shlex
import sys
import typing
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from jax_es.cli.options import (
    input_errors,
    parse_options,
    run_errors,
    run_program,
)
from jax_es.cli.signals import Stopped, StopSignals, report_stop
from jax_es.config import check_types, require
from jax_es.imitation.datasets import (
    OUR_METADATA,
    ROOT_VARIABLE,
    damaged,
    dataset_info,
    dataset_root,
    import_minari,
    read_metadata,
)
from jax_es.runs.directory import RunDirectory, experiment_of
from jax_es.runs.find import find_run
from jax_es.runs.machine import versions

if TYPE_CHECKING:
    from jax_es.imitation.collecting import Collector, Progress


DATASET_ID = re.compile(r"([-\w]+/)*[-\w]+-v\d+")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Records episodes of a run's mean policy into a Minari dataset."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder, runs/NAME; trained in any way."""
    dataset: str
    """The dataset's id, NAME-v0 or FOLDER/NAME-v0."""
    episodes: int = 200
    """Episodes that the dataset shall have."""
    checkpoint: str = "best"
    """best (highest evaluation return in training), last, or a number of finished
    generations."""
    target_return: float | None = None
    """Ask the policy (a decision-transformer) for this return, in the environment's
    unit, instead of the one that it was trained with."""
    action_noise: float = 0.0
    """Standard deviation of normal noise on each action, in halves of the action's
    range; actions are recorded as executed. It leads off the policy's own path."""
    seed: int = 0
    """Seeds the episodes; those of training and evaluation are others."""
    num_slots: int | None = None
    """Episodes under way at once; up to twice as many are in memory. As the run was
    trained if not given."""
    resume: bool = False
    """Continue a collection that was stopped, to the same episodes, or add to it."""
    trust: bool = False
    """Import the module that a run's environment names (module:id); it may run any
    code."""
    root: Path | None = None
    """Where datasets are kept; $MINARI_DATASETS_PATH, or datasets, if not given."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        require(
            DATASET_ID.fullmatch(self.dataset) is not None,
            f"--dataset must be an id such as hopper-v0 or teachers/hopper-v0, got "
            f"{self.dataset!r}.",
        )
        require(
            self.episodes >= 1, f"--episodes must be at least 1, got {self.episodes}."
        )
        require(
            0 <= self.seed < 2**31, f"--seed must be in [0, 2^31), got {self.seed}."
        )
        require(
            self.target_return is None or math.isfinite(self.target_return),
            f"--target-return must be finite, got {self.target_return}; leave it out.",
        )
        require(
            0 <= self.action_noise < math.inf,
            f"--action-noise must be at least 0 and finite, got {self.action_noise}; "
            "0.1 is usual.",
        )
        require(
            self.num_slots is None or self.num_slots >= 1,
            f"--num-slots must be at least 1, got {self.num_slots}.",
        )


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    command = shlex.join(["python", "-m", "jax_es.collect", *argv])
    with StopSignals() as signals, contextlib.ExitStack() as stack:
        with input_errors():
            arguments = parse_options(Arguments, argv, "collect")
            from jax_es.imitation.dataset_writer import DatasetWriter, lock

            import_minari()
            path = dataset_root(arguments.root) / arguments.dataset
            run = find_run(arguments.run)
            stored = _stored_recipe(path, arguments)
            collector = _collector(run, arguments, stored)
            stack.callback(collector.close)
            stack.enter_context(lock(path))
            writer = stack.enter_context(contextlib.closing(DatasetWriter(path)))
            if stored is None:
                collector.new_dataset(
                    writer, arguments.dataset, run.method().name, command
                )
            _warn_of_changed_versions(path)
        try:
            with run_errors(path, "--resume"):
                collector.collect(writer, arguments.episodes, signals.check, _say)
        except Stopped as stop:
            return _report_stop(stop, path, command)
    sys.stdout.write(_outcome(path, arguments) + "\n")
    return 0


def _stored_recipe(path: Path, arguments: Arguments) -> dict[str, Any] | None:
    """Returns the recipe of the dataset to continue; None for a new one.

    Raises:
        ConfigError: if it is there and should not be, or the other way round.
    """
    from jax_es.imitation.collecting import Recipe
    from jax_es.imitation.dataset_writer import DatasetWriter

    writer = DatasetWriter(path)
    if not arguments.resume:
        writer.check_new()
        return None
    require(
        writer.exists(),
        f"--resume: there is no dataset {path}; leave --resume out to begin it.",
    )
    collection = read_metadata(path).get(OUR_METADATA)
    require(
        collection is not None,
        f"--resume: {path} was not collected by this program; choose another "
        "--dataset.",
    )
    try:
        entries = check_types(
            collection, recipe=dict, versions=dict, first_seed=int, failed_seeds=list
        )
        return check_types(entries["recipe"], **typing.get_type_hints(Recipe))
    except TypeError as error:
        raise damaged(path, error) from error


def _collector(
    run: RunDirectory, arguments: Arguments, stored: dict[str, Any] | None
) -> Collector:
    """Loads the policy and builds what plays its episodes.

    Raises:
        ConfigError: if that is impossible, or would not continue ``stored``.
        CheckpointError: if the checkpoint is missing, damaged or of another network.
    """
    from jax_es.imitation.collecting import Collector, Recipe, check_same, digest
    from jax_es.rollout.devices import configure_cpu_devices, use_compilation_cache
    from jax_es.training.build import make_devices, num_slots
    from jax_es.training.load_policy import load_mean

    devices = run.config().rollout.num_devices
    # First, because reading a checkpoint starts JAX.
    configure_cpu_devices(devices if stored is None else stored["num_devices"])
    use_compilation_cache()
    trained = load_mean(run.path, arguments.checkpoint, arguments.trust)
    rollout = trained.config.rollout
    if stored is None:
        local = make_devices(rollout)
        num_devices = local.count
        slots = min(num_slots(rollout, local), arguments.episodes)
    else:
        slots, num_devices = stored["num_slots"], stored["num_devices"]
    recipe = Recipe(
        run=_name(run),
        checkpoint=arguments.checkpoint,
        generation=trained.generation,
        weights=digest(trained),
        target_return=arguments.target_return,
        action_noise=arguments.action_noise,
        seed=arguments.seed,
        num_slots=arguments.num_slots or slots,
        num_devices=num_devices,
    )
    if stored is not None:
        check_same(arguments.dataset, stored, recipe)
    return Collector(trained, recipe)


def _name(run: RunDirectory) -> str:
    """Returns the run's name; with its experiment's, if it is part of one."""
    path = run.path.resolve()
    return path.name if experiment_of(run) is None else "/".join(path.parts[-2:])


def _warn_of_changed_versions(path: Path) -> None:
    began = read_metadata(path)[OUR_METADATA].get("versions", {})
    now = versions()
    listed = ", ".join(
        f"{k} {then} → {now.get(k)}" for k, then in began.items() if now.get(k) != then
    )
    if listed:
        warnings.warn(
            f"{path} began with other versions ({listed}); its episodes may differ "
            "from an uninterrupted collection's.",
            stacklevel=2,
        )


def _say(progress: Progress) -> None:
    """Prints a line about how far the collection is."""
    speed = progress.env_steps / max(progress.seconds, 1e-9)
    sys.stderr.write(
        f"episodes {progress.num_written:6d}/{progress.num_episodes}  "
        f"return {progress.mean_return:9.1f}  steps/s {speed:7.0f}\n"
    )


def _outcome(path: Path, arguments: Arguments) -> str:
    """Says what was collected, and how it is read."""
    info = dataset_info(path)
    scores, failed = info.collection["scores"], info.collection["failed_seeds"]
    lines = [
        f"{name.capitalize()}: {s['mean']:.1f} ± {s['std']:.1f} "
        f"({s['min']:.1f} to {s['max']:.1f})"
        for name, s in scores.items()
        if s
    ]
    if failed:
        lines.append(f"Left out: {len(failed)} episodes with numbers not finite")
    root = dataset_root(arguments.root)
    return "\n".join(
        [
            f"Dataset: {info.num_episodes} episodes, {info.num_steps} steps in {path}",
            *lines,
            f"From Minari: {ROOT_VARIABLE}={root}, minari.load_dataset({info.id!r})",
        ]
    )


def _report_stop(stop: Stopped, path: Path, command: str) -> int:
    """Says what is saved; returns the exit code."""
    resume = "" if "--resume" in command else " --resume"
    return report_stop(
        stop,
        f"{dataset_info(path).num_episodes} episodes are in {path}; continue with "
        f"{command}{resume}",
    )


if __name__ == "__main__":
    sys.exit(main())
