"""Records episodes of a run: ``python -m jax_es.collect RUN --dataset NAME-v0``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import tyro

from jax_es.checks import (
    Count,
    Finite,
    NotNegative,
    NotNegativeFinite,
    Range,
    check_fields,
    require,
)
from jax_es.cli.options import changed_environment, parse_beside_environment
from jax_es.cli.program import input_errors, program, run_errors
from jax_es.cli.progress import named
from jax_es.cli.signals import Stopped, StopSignals
from jax_es.cli.train_program import WorkerArguments, start_jax
from jax_es.config import EnvConfig
from jax_es.config.task import Ranges
from jax_es.imitation.datasets import (
    OUR_METADATA,
    ROOT_VARIABLE,
    dataset_roots,
    draft_of,
    import_minari,
    is_dataset,
    open_dataset,
    storage_in,
)
from jax_es.runs.digests import ALWAYS, DIGESTS
from jax_es.runs.directory import RunDirectory, experiment_of
from jax_es.runs.files import check_place
from jax_es.runs.find import find_run
from jax_es.runs.machine import git_commit, versions
from jax_es.runs.wording import significant
from jax_es.train_config import differing, require_same

if TYPE_CHECKING:
    from jax_es.distributed.workers import Workers
    from jax_es.imitation.demonstrations import Player

DatasetId: TypeAlias = Annotated[
    str,
    Range(
        "an id such as hopper-v0 or teachers/hopper-v0",
        lambda text: re.fullmatch(r"([-\w]+/)*[-\w]+-v\d+", text) is not None,
    ),
]


@dataclasses.dataclass(frozen=True)
class Arguments(WorkerArguments):
    """Records episodes of a run's mean policy into a Minari dataset.

    The options --env.NAME of train change the rules, for example --env.sticky-actions
    0. Those that say what is seen of a game (--env.observation, --env.frame-size,
    --env.frame-stack) hold for the dataset alone; the policy sees what it was trained
    with.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder, runs/NAME; trained in any way."""
    dataset: DatasetId
    """The dataset's id, NAME-v0 or FOLDER/NAME-v0."""
    episodes: Count = 200
    """Episodes that the dataset shall have."""
    checkpoint: str = "best"
    """best (highest evaluation return in training), last, or a number of finished
    generations."""
    target_return: Finite | None = None
    """Ask the policy (a decision-transformer) for this return, in the environment's
    unit, instead of the one that it was trained with."""
    action_noise: NotNegativeFinite = 0.0
    """Standard deviation of normal noise on each action, in halves of the action's
    range. It leads off the policy's own path."""
    record: Literal["executed", "chosen"] = "executed"
    """Which actions, where there is noise: with it, or the policy's own, as a clone
    should act (DART)."""
    variation_range: Ranges = ()
    """Each episode's environment draws NAME (mass, friction, gravity, motors,
    observation-noise or delay of MuJoCo's tasks; another's own) from LOW to HIGH,
    uniformly. Once for each name."""
    seed: NotNegative = 0
    """Seeds the episodes; those of training and evaluation are others."""
    num_slots: int | None = None
    """Episodes under way at once, in memory. As the run was trained if not given."""
    resume: bool = False
    """Add the episodes that a dataset lacks, for a larger --episodes."""
    trust: bool = False
    """Import the module that a run's environment names (module:id); it may run any
    code."""
    root: Path | None = None
    """Where datasets are kept; $MINARI_DATASETS_PATH, or datasets, if not given."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            self.record == "executed" or self.action_noise > 0,
            f"--record {self.record} has no meaning without --action-noise; leave it "
            "out, or add --action-noise 0.1.",
        )

    @property
    def place(self) -> Path:
        """Where datasets are kept."""
        return self.root or dataset_roots()[0]

    @property
    def path(self) -> Path:
        """The dataset's folder."""
        return self.place / self.dataset


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    command = shlex.join(["python", "-m", "jax_es.collect", *argv])
    with StopSignals() as signals, contextlib.ExitStack() as stack:
        with input_errors():
            arguments = parse(argv)
            import_minari()
            from jax_es.imitation.demonstrations import collect, first_seed

            path, run = arguments.path, find_run(arguments.run)
            stored = _stored(arguments)
            started = arguments.open(stack)
            player, recipe, task = _player(run, arguments, started, argv)
            stack.callback(player.close)
            changed = differing(stored["recipe"], recipe) if stored else {}
            what = f"the dataset {arguments.dataset}"
            require_same(what, changed, "collect another --dataset")
        first = first_seed(arguments.seed)
        collection = stored or {
            "recipe": recipe,
            "command": command,
            "versions": versions(),
            "git_commit": git_commit(),
            "first_seed": first,
        }
        collection = {**collection, DIGESTS: ALWAYS}
        seeds = first + np.arange(arguments.episodes)
        try:
            with run_errors(path, "the same command"), draft_of(path) as draft:
                require(  # another process may have written it meanwhile
                    _stored(arguments) == stored,
                    f"{path} has just been written by another process; start again "
                    "with the same command.",
                )
                sys.stderr.write(_begins(run, arguments, task))
                method = run.method().name
                storage = storage_in(draft, arguments.dataset, player.env, task, method)
                collection = collect(
                    player, storage, seeds, collection, signals.check, _say
                )
        except Stopped as stop:
            stop.outcome = f"nothing is written to {path}; start again with {command}"
            raise
    sys.stdout.write(_outcome(arguments, collection))


def parse(argv: list[str]) -> Arguments:
    """Reads the command line, all but what ``--env`` options change of a run's."""
    return parse_beside_environment(Arguments, argv, "collect")


def _stored(arguments: Arguments) -> dict[str, Any] | None:
    """Returns our metadata of the dataset to continue; None for a new one."""
    path = arguments.path
    check_place(path)
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
    stored = open_dataset(path).storage.metadata.get(OUR_METADATA)
    require(
        stored is not None,
        f"--resume: {path} was not collected by this program; choose another "
        "--dataset.",
    )
    there = open_dataset(path).total_episodes
    require(
        arguments.episodes >= there,
        f"--episodes must be at least {there}, which {path} has, got "
        f"{arguments.episodes}; leave --resume out and choose another --dataset.",
    )
    return stored


def _player(
    run: RunDirectory, arguments: Arguments, workers: Workers | None, argv: list[str]
) -> tuple[Player, dict[str, Any], EnvConfig]:
    """Builds what plays the policy's episodes, says what decides them, and where."""
    from jax_es.imitation.demonstrations import Player
    from jax_es.training.build import shown_and_played
    from jax_es.training.trained_mean import load_mean

    # First, because reading a checkpoint starts JAX.
    start_jax(run.config().rollout.num_devices)
    own = load_mean(run.path, arguments.checkpoint, arguments.trust)
    trained = own.in_environment(lambda env: changed_environment(argv, env))
    task, played = shown_and_played(own.config.env, trained.config.env)
    if trained.changed:  # else it acts as it was trained, in ranges as well
        own = trained._replace(config=dataclasses.replace(trained.config, env=played))
    path = run.path.resolve()
    recipe = {
        "run": path.name if experiment_of(run) is None else "/".join(path.parts[-2:]),
        "checkpoint": arguments.checkpoint,
        "generation": own.generation,
        "target_return": arguments.target_return,
        "action_noise": arguments.action_noise,
        "seed": arguments.seed,
    }
    if arguments.record == "chosen":
        recipe["record"] = "chosen"
    if arguments.variation_range:
        recipe["variation_range"] = [list(each) for each in arguments.variation_range]
    recipe |= json.loads(json.dumps(trained.changed))  # as it is read again
    player = Player(
        own,
        arguments.episodes,
        arguments.num_slots,
        arguments.target_return,
        arguments.action_noise,
        arguments.seed,
        workers,
        arguments.record,
        arguments.variation_range,
        None if played == task else task,
    )
    return player, recipe, task


def _begins(run: RunDirectory, arguments: Arguments, task: EnvConfig) -> str:
    """Says what the dataset will have; another task than the policy's own, too."""
    trained, count = run.config().env.id, arguments.episodes
    other = "" if task.id == trained else f", which was trained in {trained}"
    return (
        f"Collecting {count} episode{'s' * (count > 1)} of {task.id} by "
        f"{arguments.run}{other}. Dataset: {arguments.path}\n"
    )


def _say(returns: list[float]) -> None:
    sys.stderr.write(
        f"episodes {len(returns):6d}  {named('return', float(np.mean(returns)))}\n"
    )


def _outcome(arguments: Arguments, collection: dict[str, Any]) -> str:
    """Says what was collected, and how it is read."""
    path, failed = arguments.path, collection["failed_seeds"]
    dataset = open_dataset(path)
    size = f"{dataset.total_episodes} episodes, {dataset.total_steps} steps"
    text = f"Dataset: {size} in {path}\n"
    for name, score in collection["scores"].items():
        text += (
            f"{name.capitalize()}: {significant(score['mean'])} ± "
            f"{significant(score['std'])} ({significant(score['min'])} to "
            f"{significant(score['max'])})\n"
        )
    if failed:
        text += f"Left out: {len(failed)} episodes with numbers not finite\n"
    load = f"minari.load_dataset({arguments.dataset!r})"
    return f"{text}From Minari: {ROOT_VARIABLE}={arguments.place}, {load}\n"


if __name__ == "__main__":
    sys.exit(main())
