"""Evaluates runs: ``python -m jax_es.evaluate RUN [RUN …]``.

Does a policy return what it is asked for (``--obedience``, ``--target-returns``), and
does it survive rounded (``--weights``) and noisy weights (``--weight-noise``), another
body or floor (``--variation``)? Each option is a sweep of its own from the policy as it
was trained. All conditions meet the same seeds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import tyro

from jax_es.checks import (
    Count,
    Finite,
    NotNegative,
    Positive,
    Range,
    check_fields,
    is_own,
    require,
)
from jax_es.cli.options import changed_environment, parse_beside_environment
from jax_es.cli.program import input_errors, program
from jax_es.cli.train_program import WorkerArguments, start_jax
from jax_es.config import Precision
from jax_es.runs.files import check_writable, writing
from jax_es.runs.find import find_run, find_runs

if TYPE_CHECKING:
    from jax_es.evaluation.conditions import Condition, Evaluation, SeedGroup
    from jax_es.rollout.evaluator import EpisodeResults

PICTURES = (".png", ".svg", ".pdf")
"""Files that --picture writes."""

Ends: TypeAlias = Annotated[
    tuple[float, float],
    Range(
        "two finite returns, LOW below HIGH",
        lambda ends: -math.inf < ends[0] < ends[1] < math.inf,
    ),
]
Levels: TypeAlias = Annotated[int, Range("in [2, 1000]", lambda n: 2 <= n <= 1000)]


@dataclasses.dataclass(frozen=True)
class Arguments(WorkerArguments):
    """Evaluates the mean policies of runs.

    In other rules or another task by the options --env.NAME of train, as
    --env.sticky-actions 0 or --env.id Hopper-v4.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, runs/NAME, or experiment folders with runs seed-0, seed-1, … in
    them. All must have the same environment. Runs that differ in their seeds alone are
    also summarised together, over their mean returns."""
    checkpoint: str = "best"
    """best (highest evaluation return in training, or least error where returns were
    asked for), last, or a number of finished generations; of POET also niche-N."""
    episodes: Count | None = None
    """Episodes to run, under each condition: 100 if not given, with --obedience 20."""
    seed: NotNegative = 0
    """Seeds the episodes, alike under all conditions; training used others."""
    target_returns: tuple[Finite, ...] = ()
    """Also ask the policy, one that reads a target return, for each of these, in the
    environment's unit; with a rank test between them, and how far it obeys."""
    obedience: Ends | None = None
    """LOW and HIGH: ask for returns from one to the other, evenly spaced."""
    levels: Levels | None = None
    """How many returns --obedience asks for, both ends counted; 9 if not given."""
    picture: Path | None = None
    """Also draw what was returned against what was asked for, or under each variation,
    into this file (.png, .svg, .pdf)."""
    weights: tuple[Precision, ...] = ()
    """Also round all weights to each of these, and compute in float32 with the rounded
    values. Integers are symmetric with a scale per output channel; a bias or another
    vector has one scale."""
    weight_noise: tuple[Positive, ...] = ()
    """Also add normal noise of each of these standard deviations to every weight; each
    episode has a draw of its own, so statistics are over draws as well."""
    variation: Annotated[
        tuple[tuple[str, ...], ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(metavar="NAME VALUE [VALUE ...]"),
    ] = ()
    """Also change the environment: of MuJoCo's tasks factors on mass, friction, gravity
    or motors, the standard deviation of observation-noise, or a delay of 1 step; of
    others what they have variations of. Given for several names, all combinations of
    their values; beside each, its share of the intact return."""
    objective: str | None = None
    """Also say what episodes come to by an objective of your own, module:function; with
    the arguments of a run that it trained."""
    random_actions: bool = False
    """Also play the episodes with uniformly random actions, as a baseline."""
    trust: bool = False
    """Import the module that a run's environment names (module:id); it may run any
    code."""
    json: bool = False
    """Print one JSON object instead of a table."""
    csv: Path | None = None
    """Also write a row for each condition of each run into this file."""
    video: Path | None = None
    """Also record the first episode of the first run, as it was trained, into this file
    (.mp4 or .gif). With returns that are asked for, it is asked for the lowest, the
    middle one and the highest, side by side. Of POET the latest three niches that were
    solved, each in its own terrain, unless --checkpoint names one."""

    def __post_init__(self) -> None:
        from jax_es.evaluation.video import check_encoder

        require(self.runs != (), "RUN is required; give at least one run's folder.")
        check_fields(self)
        require(
            self.obedience is None or self.target_returns == (),
            "--obedience asks for returns of its own; leave --target-returns out.",
        )
        require(
            self.levels is None or self.obedience is not None,
            f"--levels {self.levels} has no meaning without --obedience LOW HIGH.",
        )
        require(
            self.objective is None or is_own(self.objective),
            f"--objective must be module:function, got {self.objective}; returns are "
            "shown at any rate.",
        )
        self.variations()  # checks them
        if self.video is not None:
            check_encoder(self.video)
        if self.picture is not None:
            require(
                self.picture.suffix in PICTURES,
                f"--picture must end in {', '.join(PICTURES)}, got {self.picture}.",
            )
            require(
                len(self.commands) > 1 or self.variation != (),
                f"--picture {self.picture} has no meaning without returns that are "
                "asked for, or variations; add --obedience LOW HIGH or --variation "
                "mass 0.95 1.05.",
            )
            require(
                self.commands == () or self.variation == (),
                f"--picture {self.picture} shows either returns that are asked for or "
                "variations; leave --variation out.",
            )

    @property
    def num_episodes(self) -> int:
        """Episodes under each condition."""
        return self.episodes or (100 if self.obedience is None else 20)

    @property
    def commands(self) -> tuple[float, ...]:
        """The returns to ask for."""
        from jax_es.evaluation.obedience import levels

        if self.obedience is None:
            return tuple(dict.fromkeys(self.target_returns))
        return levels(*self.obedience, self.levels or 9)

    def variations(self) -> dict[str, tuple[float, ...]]:
        """Returns the values of each name."""
        found: dict[str, tuple[float, ...]] = {}
        for name, *values in (each or ("",) for each in self.variation):
            try:
                numbers = tuple(dict.fromkeys(map(float, values)))
            except ValueError:
                numbers = ()
            require(
                len(numbers) > 0,
                f"--variation needs a name and one or more numbers, got "
                f"{' '.join([name, *values])!r}; write --variation NAME VALUE, as "
                "--variation mass 0.95 1.05.",
            )
            require(
                name not in found,
                f"--variation {name} was given twice; write --variation {name} "
                f"{' '.join(f'{n:g}' for n in (*found.get(name, ()), *numbers))}.",
            )
            found[name] = numbers
        return found


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    with contextlib.ExitStack() as stack:
        _run(argv, stack)


def parse(argv: list[str]) -> Arguments:
    """Reads the command line, all but what ``--env`` options change of a run's."""
    return parse_beside_environment(Arguments, argv, "evaluate")


def _run(argv: list[str], stack: contextlib.ExitStack) -> None:
    with input_errors():
        arguments = parse(argv)
        from jax_es.analysis import drawing
        from jax_es.evaluation.conditions import prepare, sweeps
        from jax_es.evaluation.tables import experiment_report, write_csv

        conditions = sweeps(
            arguments.commands,
            arguments.weights,
            arguments.weight_noise,
            arguments.random_actions,
            arguments.variations(),
        )
        runs = [run for path in arguments.runs for run in find_runs(path)]
        # First, because reading a checkpoint starts JAX.
        counts = [run.config().rollout.num_devices for run in runs]
        start_jax(max(filter(None, counts), default=None))
        groups = prepare(
            runs,
            arguments.checkpoint,
            conditions,
            arguments.num_episodes,
            arguments.trust,
            arguments.open(stack),
            lambda env: changed_environment(argv, env),
            arguments.objective,
        )
        check_writable("--csv", arguments.csv)
        check_writable("--picture", arguments.picture)
        if arguments.picture is not None:
            with drawing.style():  # which says if there is no matplotlib
                pass
        if arguments.video is not None:
            # Before the episodes, since a machine may have no way to render.
            _record(arguments, groups[0], arguments.video)
    _say_niches(groups, arguments.checkpoint)
    evaluated = _evaluate(groups, conditions, arguments)
    origin = arguments.checkpoint, arguments.seed
    experiments = [experiment_report(each, *origin) for each in evaluated]
    reports = [run for experiment in experiments for run in experiment["runs"]]
    text = _text(evaluated, arguments)
    if arguments.json:
        shown = reports[0] if len(reports) == 1 else {"experiments": experiments}
        text = json.dumps(shown, indent=2, allow_nan=False)
    sys.stdout.write(f"{text}\n")
    if arguments.csv is not None:
        with writing(f"--csv {arguments.csv}", "free space, or choose another file"):
            write_csv(arguments.csv, evaluated, *origin)
    if arguments.picture is not None:
        from jax_es.analysis import figures

        if arguments.variation:
            all_runs = [each for group in evaluated for each in group]
            figure, name = figures.conditions(all_runs, "variation"), "variations"
        else:
            figure, name = figures.obedience(reports), "obedience"
        drawing.save(figure, arguments.picture, name)


def _say_niches(groups: list[SeedGroup], checkpoint: str) -> None:
    """Says whose policies are played, and where they are at home."""
    from jax_es.niches.saved import played

    for path in (path for group in groups for path in group.trained):
        if found := played(find_run(path), checkpoint):
            number, terrain = found
            home = " ".join(f"--variation {n} {v:.9g}" for n, v in terrain.items())
            sys.stderr.write(f"{path}: niche {number}'s policy, at home in {home}\n")


def _record(arguments: Arguments, group: SeedGroup, file: Path) -> None:
    """Records the first of the episodes of the table."""
    from jax_es.evaluation.conditions import episode_tasks
    from jax_es.evaluation.video import record_video
    from jax_es.niches.niche import NEVER
    from jax_es.niches.saved import load_niches
    from jax_es.training.load_policy import acting

    path, trained = next(iter(group.trained.items()))
    # The seed decides the actions, too, of a policy that samples them.
    seed = int(episode_tasks(group.parts, 1, arguments.seed).seed[0])
    asked = sorted(arguments.commands) or [None]
    policies = {}
    # A dictionary, since of one or two the middle is an end as well.
    for command in dict.fromkeys((asked[0], asked[len(asked) // 2], asked[-1])):
        policy = acting(trained, seed)
        if command is not None:
            policy.ask(command)
        policies["" if command is None else f"{command:g} asked, returned"] = policy
    terrains = []
    if find_run(path).has_niches and arguments.checkpoint in ("best", "last"):
        niches = load_niches(path, seed, arguments.trust)
        niches = [each for each in niches if each.solved != NEVER] or niches
        policies = {f"niche {n.number}": n.policy for n in niches[-3:]}
        terrains = [niche.terrain for niche in niches[-3:]]
    record_video(policies, trained.config.env, file, seed, terrains=terrains)
    sys.stderr.write(f"{file}\n")


def _evaluate(
    groups: list[SeedGroup], conditions: list[Condition], arguments: Arguments
) -> list[list[Evaluation]]:
    """Evaluates everything; says how far it is where there is more than one thing."""
    from jax_es.evaluation.conditions import evaluate_experiment

    total = sum(len(group.trained) for group in groups) * len(conditions)
    done = itertools.count(1)

    def say(path: Path, condition: Condition, result: EpisodeResults) -> None:
        if total > 1:
            text = f"{path}, {condition}: {result.env_steps} environment steps"
            sys.stderr.write(f"{next(done)}/{total} {text}\n")

    how = conditions, arguments.num_episodes, arguments.seed, say
    return [evaluate_experiment(group, *how) for group in groups]


def _text(evaluated: list[list[Evaluation]], arguments: Arguments) -> str:
    """Returns a table under a line that says of what."""
    from jax_es.evaluation.tables import table

    first, changed = evaluated[0][0], {"env.id": evaluated[0][0].trained.config.env.id}
    for each in (run.trained for group in evaluated for run in group):
        changed |= each.changed
    env_id, *others = (f"{name} {new}" for name, new in changed.items())
    where = ", ".join([env_id.removeprefix("env.id "), *others])
    heading = f"{where}, checkpoint {arguments.checkpoint}"
    if sum(map(len, evaluated)) == 1:
        heading = f"{first.path}: {heading} (generation {first.trained.generation})"
    return f"{heading}, seed {arguments.seed}\n\n{table(evaluated)}"


if __name__ == "__main__":
    sys.exit(main())
