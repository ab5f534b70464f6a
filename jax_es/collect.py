"""Records episodes of a run: ``python -m jax_es.collect RUN --dataset NAME-v0``."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from jax_es.checks import ConfigError, check_types, require
from jax_es.cli.options import input_errors, parse_options, run_errors, run_program
from jax_es.cli.signals import Stopped, StopSignals, report_stop
from jax_es.cli.train_program import start_jax
from jax_es.imitation.datasets import (
    OUR_METADATA,
    ROOT_VARIABLE,
    dataset_roots,
    import_minari,
    is_dataset,
    read_metadata,
)
from jax_es.runs.directory import RunDirectory, experiment_of
from jax_es.runs.find import find_run
from jax_es.runs.machine import git_commit, versions
from jax_es.train_config import differing

if TYPE_CHECKING:
    from jax_es.imitation.dataset_writer import Summary
    from jax_es.imitation.demonstrations import Player


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
    """Add the episodes that a dataset lacks: after a stop, or for a larger
    --episodes."""
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

    @property
    def place(self) -> Path:
        """Where datasets are kept."""
        return self.root or dataset_roots()[0]

    @property
    def path(self) -> Path:
        """The dataset's folder."""
        return self.place / self.dataset


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    command = shlex.join(["python", "-m", "jax_es.collect", *argv])
    with StopSignals() as signals, contextlib.ExitStack() as stack:
        with input_errors():
            arguments = parse_options(Arguments, argv, "collect")
            from jax_es.imitation.dataset_writer import DatasetWriter
            from jax_es.imitation.demonstrations import collect, first_seed

            import_minari()
            path, run = arguments.path, find_run(arguments.run)
            stored = _stored(arguments)
            player, recipe = _player(run, arguments)
            stack.callback(player.close)
            if stored is not None:
                changed = differing(stored["recipe"], recipe).items()
                listed = "; ".join(f"{k} was {a!r}, now {b!r}" for k, (a, b) in changed)
                require(
                    not changed,
                    f"--resume would change the dataset {arguments.dataset}: {listed}. "
                    "Leave these as they were, or collect another --dataset.",
                )
            stack.enter_context(RunDirectory(path).lock())
        first = first_seed(arguments.seed)
        try:
            with run_errors(path, "the same command"):
                writer = stack.enter_context(contextlib.closing(DatasetWriter(path)))
                if stored is not None:
                    writer.extend()
                else:
                    env = run.config().env
                    writer.create(
                        arguments.dataset,
                        player.env,
                        env,
                        algorithm_name=run.method().name,
                        description=f"Episodes in {env.id}, recorded by jax-es.",
                    )
                    stored = {
                        "recipe": recipe,
                        "command": command,
                        "versions": versions(),
                        "git_commit": git_commit(),
                        "first_seed": first,
                    }
                seeds = first + np.arange(arguments.episodes)
                collection = collect(player, writer, seeds, stored, signals.check, _say)
        except Stopped as stop:
            resume = "" if arguments.resume else " --resume"
            return report_stop(
                stop,
                f"what has ended is in {path}; continue with {command}{resume}"
                if is_dataset(path)
                else f"no episode has ended; start again with {command}",
            )
    sys.stdout.write(_outcome(arguments, collection))
    return 0


def _stored(arguments: Arguments) -> dict[str, Any] | None:
    """Returns our metadata of the dataset to continue; None for a new one.

    Raises:
        ConfigError: if it is there and should not be, or the other way round.
    """
    path = arguments.path
    if not arguments.resume:
        require(
            not is_dataset(path),
            f"{path} holds a dataset already; continue it with --resume or choose "
            "another --dataset.",
        )
        return None
    require(
        is_dataset(path),
        f"--resume: there is no dataset {path}; leave --resume out to start it.",
    )
    try:
        return check_types(read_metadata(path).get(OUR_METADATA), recipe=dict)
    except TypeError as error:
        raise ConfigError(
            f"--resume: {path} was not collected by this program ({error}); choose "
            "another --dataset."
        ) from error


def _player(run: RunDirectory, arguments: Arguments) -> tuple[Player, dict[str, Any]]:
    """Builds what plays the policy's episodes, and says what decides them.

    Raises:
        ValueError: (a ``ConfigError`` or ``CheckpointError``) if that is impossible.
    """
    from jax_es.imitation.demonstrations import Player, digest
    from jax_es.training.load_policy import load_mean

    # First, because reading a checkpoint starts JAX.
    start_jax(run.config().rollout.num_devices)
    trained = load_mean(run.path, arguments.checkpoint, arguments.trust)
    path = run.path.resolve()
    recipe = {
        "run": path.name if experiment_of(run) is None else "/".join(path.parts[-2:]),
        "checkpoint": arguments.checkpoint,
        "generation": trained.generation,
        "weights": digest(trained),
        "target_return": arguments.target_return,
        "action_noise": arguments.action_noise,
        "seed": arguments.seed,
    }
    player = Player(
        trained,
        arguments.episodes,
        arguments.num_slots,
        arguments.target_return,
        arguments.action_noise,
        arguments.seed,
    )
    return player, recipe


def _say(summary: Summary, speed: float) -> None:
    """Prints a line about how far the collection is."""
    mean = summary.returns.mean() if len(summary.returns) else math.nan
    sys.stderr.write(
        f"episodes {len(summary.seeds):6d}  return {mean:9.1f}  steps/s {speed:7.0f}\n"
    )


def _outcome(arguments: Arguments, collection: dict[str, Any]) -> str:
    """Says what was collected, and how it is read."""
    path = arguments.path
    metadata, failed = read_metadata(path), collection["failed_seeds"]
    lines = [
        f"Dataset: {metadata['total_episodes']} episodes, {metadata['total_steps']} "
        f"steps in {path}",
        *(
            f"{name.capitalize()}: {score['mean']:.1f} ± {score['std']:.1f} "
            f"({score['min']:.1f} to {score['max']:.1f})"
            for name, score in collection["scores"].items()
        ),
    ]
    if failed:
        lines.append(f"Left out: {len(failed)} episodes with numbers not finite")
    load = f"minari.load_dataset({arguments.dataset!r})"
    return "\n".join(
        [*lines, f"From Minari: {ROOT_VARIABLE}={arguments.place}, {load}", ""]
    )


if __name__ == "__main__":
    sys.exit(main())
