"""Clones recorded behaviour: ``python -m jax_es.pretrain [PRESET] --dataset DATASET``.

The preset says which environment and which network; options change single fields of it,
as in ``python -m jax_es.train``. The run is one like any other: ``evaluate``, ``plot``,
``load_policy`` and ``train --init`` take it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from jax_es.checks import ConfigError, from_json, require
from jax_es.cli.options import (
    CommandLine,
    input_errors,
    named_folder,
    names_environment,
    parse_options,
    run_errors,
    run_program,
    split_command_line,
)
from jax_es.cli.progress import opening
from jax_es.cli.signals import Stopped, StopSignals, report_stopped_run
from jax_es.config import CloningConfig, EnvConfig, EvaluationConfig, RolloutConfig
from jax_es.presets import DEFAULT_PRESET, PRESETS, for_cloning, preset
from jax_es.runs.directory import RunDirectory, check_method, resume_options
from jax_es.runs.find import check_name, find_run, how_to_use, path_to_resume
from jax_es.runs.folders import program_command
from jax_es.runs.method import CLONING, Method
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.trust import check_import
from jax_es.train_config import POLICY_KINDS, PolicyConfig, TrainConfig

DESCRIPTION = f"""Clones recorded behaviour: a network learns to act as in --dataset.

PRESET: {", ".join(PRESETS)} (default: {DEFAULT_PRESET}).

KIND: {", ".join(POLICY_KINDS)} (default: the preset's); not lstm.

The options' defaults below are those of the chosen preset."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The command line, after PRESET and KIND."""

    env: EnvConfig
    """The environment."""
    policy: PolicyConfig
    """The network and how its outputs become actions."""
    rollout: RolloutConfig
    """How evaluation episodes are run. With observation statistics, the network sees
    observations normalised by those of the whole dataset."""
    evaluation: EvaluationConfig
    """Evaluation after every epoch, for each target return."""
    cloning: Annotated[CloningConfig, tyro.conf.arg(name="")]
    dataset: str | None = None
    """Minari dataset: its id, or its folder."""
    target_returns: tuple[float, ...] = ()
    """Returns that evaluations ask for besides policy.target-return (which decides the
    best checkpoint); the best return in the dataset if not given."""
    seed: int = 0
    """Seeds the weights, the windows, the dropout and the environments."""
    name: str | None = None
    """Name of the run's folder; preset, seed and time if not given."""
    runs_dir: Path = Path("runs")
    """Where runs are kept."""
    resume: bool = False
    """Continue the run --name after its last epoch, to the same numbers as if it had
    never stopped. Without a PRESET its own settings are taken."""
    trust: bool = False
    """Import the module that the environment's id names (module:id), which may run any
    code; needed unless --env.id names it again."""


class Request(NamedTuple):
    """What the user asked for."""

    arguments: Arguments
    config: TrainConfig
    preset: str
    """Where the configuration comes from."""
    run: RunDirectory


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with StopSignals() as signals:
        with input_errors():
            request = parse(argv)
            from jax_es.rollout.devices import (
                configure_cpu_devices,
                use_compilation_cache,
            )
            from jax_es.training.build import with_machine

            configure_cpu_devices(request.config.rollout.num_devices)
            use_compilation_cache()
            # The run remembers it: another number of devices adds in another order.
            request = request._replace(config=with_machine(request.config))
        try:
            _pretrain(request, signals)
        except Stopped as stop:
            from jax_es.runs.checkpoint import Checkpoints

            steps = Checkpoints(request.run.checkpoints).steps()
            saved = f"{steps[-1] if steps else 0} steps are saved"
            return report_stopped_run(stop, "pretrain", request.run, saved)
    return 0


def parse(argv: list[str]) -> Request:
    """Reads the command line.

    Raises:
        ConfigError: for unknown names and impossible values.
    """
    line = split_command_line(argv)
    preset_name = DEFAULT_PRESET if line.preset is None else line.preset
    if line.resumes_as_stored:
        base, defaults = _stored(line)
    else:
        base = for_cloning(preset(preset_name, line.kind))
        defaults = _arguments(base, CloningConfig())
    arguments = parse_options(
        Arguments,
        line.rest,
        "pretrain",
        default=defaults,
        description=DESCRIPTION,
        learning_rate="--learning-rate",
    )
    from jax_es.training.build import check_cores, with_game

    fields = ("env", "policy", "rollout", "evaluation", "seed")
    given = {name: getattr(arguments, name) for name in fields}
    config = with_game(dataclasses.replace(base, **given))
    require(
        bool(arguments.dataset),
        "--dataset is required: the id or the folder of a Minari dataset; "
        f"{program_command('collect')} records one.",
    )
    check_name(arguments.name)
    if arguments.resume:
        run = find_run(path_to_resume(arguments.runs_dir, arguments.name))
        trust = arguments.trust or names_environment(line.rest)
        check_import(config.env.id, run.path, trust)
        config = run.with_stored_machine(config)
    else:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        name = arguments.name or f"{preset_name}-cloning-seed{config.seed}-{now}"
        check_cores(config.rollout)
        run = RunDirectory(arguments.runs_dir / name)
        run.check_new()
    return Request(arguments, config, preset_name, run)


def _arguments(config: TrainConfig, cloning: CloningConfig, **more) -> Arguments:
    parts = config.env, config.policy, config.rollout, config.evaluation, cloning
    return Arguments(*parts, seed=config.seed, **more)


def _stored(line: CommandLine) -> tuple[TrainConfig, Arguments]:
    """Returns the configuration and the settings of the run that ``--name`` names."""
    run = find_run(path_to_resume(*named_folder(line.rest)))
    config, method = run.config(), run.method()
    # To see that it is a clone; its settings are compared when all are known.
    check_method(run, Method(CLONING, {}))
    line.check_kind(config)
    settings = dict(method.settings)
    try:
        dataset = settings.pop("dataset")
        target_returns = tuple(settings.pop("target_returns"))
        cloning = from_json(CloningConfig, settings)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"--resume: {run.path} was begun by another version of jax-es ({error}); "
            "start a new run with another --name."
        ) from error
    return config, _arguments(
        config, cloning, dataset=dataset, target_returns=target_returns
    )


def _pretrain(request: Request, signals: StopSignals) -> None:
    """Clones, and says what came out.

    Raises:
        InputError: for what the user can do something about.
        Stopped: between two epochs' checkpoints.
    """
    from jax_es.imitation.clone_run import CloneRun
    from jax_es.imitation.epoch_records import CLONING_FILE

    arguments, run, dataset = request.arguments, request.run, request.arguments.dataset
    with contextlib.ExitStack() as stack:
        with input_errors():
            clone = CloneRun(
                request.config,
                arguments.cloning,
                str(dataset),
                arguments.target_returns,
            )
            signals.check()
            stack.enter_context(run.lock())
            state = clone.begin(run, arguments.resume, request.preset)
        episodes, progress = clone.episodes, clone.progress(state)
        mean_return = f"{episodes.returns.mean():.1f}"
        begins = f"Resuming after step {state.step}:"
        progress.message(
            opening(
                begins if arguments.resume else "Cloning",
                request.config,
                state.mean,
                f": {len(episodes.lengths):,} episodes of {dataset}, "
                f"{len(episodes.rewards):,} steps, mean return {mean_return}",
                run.path,
            )
        )
        with run_errors(run.path, resume_options(run)):
            result = clone.train(state, run, progress, signals.check)
    progress.message(
        f"Evaluation return: {result.best_evaluation:.1f} at best; mean return of the "
        f"dataset's episodes: {mean_return}.\n"
        f"Metrics: {run.path / METRICS_FILE}, {run.path / CLONING_FILE}\n"
        f"{how_to_use(run)}"
    )


if __name__ == "__main__":
    sys.exit(main())
