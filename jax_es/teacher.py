"""Trains a teacher: ``python -m jax_es.teacher [PRESET] [--policy KIND] [--options]``.

SAC or TD3, by gradients, learn the task of a preset or of ``--env.id``. What they leave
is a run like any other: ``evaluate``, ``plot`` and ``load_policy`` take it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from jax_es.checks import ConfigError, require
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
from jax_es.cli.progress import StepProgress, opening
from jax_es.cli.signals import Stopped, StopSignals, report_stopped_run
from jax_es.config import EnvConfig, EvaluationConfig, RolloutConfig
from jax_es.imitation.teacher_settings import TeacherSettings, settings_of
from jax_es.presets import PRESETS, for_teaching, preset, unknown
from jax_es.runs.directory import RunDirectory, check_method, resume_options
from jax_es.runs.find import check_name, find_run, how_to_use, path_to_resume
from jax_es.runs.method import Method
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.trust import check_import
from jax_es.train_config import POLICY_KINDS, PolicyConfig, TrainConfig, policy_kind

DESCRIPTION = f"""Trains a teacher by gradients, with SAC or TD3 as SBX has them.

PRESET: {", ".join(PRESETS)}; its environment and transformer are taken. Or --env.id.

KIND: mlp (the default), or with --algo td3 decision-transformer.

The options' defaults below are those of the chosen preset."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The command line, after PRESET and KIND."""

    env: EnvConfig
    """The environment."""
    policy: PolicyConfig
    """The actor."""
    settings: Annotated[TeacherSettings, tyro.conf.arg(name="")]
    """The method."""
    evaluation: EvaluationConfig
    """Evaluation of the actor, without exploration."""
    seed: int = 0
    """Seeds the weights, the exploration and the environments."""
    name: str | None = None
    """Name of the run's folder; method, task, seed and time if not given."""
    runs_dir: Path = Path("runs")
    """Where runs are kept."""
    resume: bool = False
    """Continue the run --name from its last evaluation, to the same numbers as if it
    had never stopped. Without a PRESET its own settings are taken."""
    trust: bool = False
    """Import the module that the environment's id names (module:id), which may run any
    code; needed unless --env.id names it again."""

    @property
    def config(self) -> TrainConfig:
        """What the run evaluates; it reads nothing else."""
        from jax_es.training.build import with_game

        config = TrainConfig(
            env=self.env,
            policy=self.policy,
            evaluation=self.evaluation,
            rollout=RolloutConfig(observation_statistics=False),
            seed=self.seed,
        )
        return with_game(config)


class Request(NamedTuple):
    """What the user asked for."""

    settings: TeacherSettings
    config: TrainConfig
    """What the run evaluates."""
    preset: str
    """Where the configuration comes from."""
    run: RunDirectory
    resume: bool


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

            check_trainable(request)
            # One device, whose matrix products use all cores.
            configure_cpu_devices(1)
            use_compilation_cache()
        run = request.run
        try:
            _train(request, signals)
        except Stopped as stop:
            from jax_es.runs.checkpoint import Checkpoints

            steps = Checkpoints(run.checkpoints).steps()
            saved = f"the first {steps[-1] if steps else 0} steps are saved"
            return report_stopped_run(stop, "teacher", run, saved)
    sys.stderr.write(
        f"Metrics: {run.path / METRICS_FILE} (TensorBoard: tensorboard --logdir "
        f"{run.path})\n{how_to_use(run)}\n"
    )
    return 0


def parse(argv: list[str]) -> Request:
    """Reads the command line.

    Raises:
        ConfigError: for unknown names and impossible values.
    """
    line = split_command_line(argv)
    arguments = parse_options(
        Arguments,
        line.rest,
        "teacher",
        default=_stored(line) if line.resumes_as_stored else _default(line),
        description=DESCRIPTION,
        learning_rate="--learning-rate",
    )
    settings, config = arguments.settings, arguments.config
    require(config.env.id != "", "a PRESET or --env.id is needed; --help lists them.")
    check_name(arguments.name)
    if arguments.resume:
        run = find_run(path_to_resume(arguments.runs_dir, arguments.name))
        # Of the settings only the steps may change: the rest decides the numbers.
        kept = {k: v for k, v in settings.method().settings.items() if k != "steps"}
        check_method(run, Method(settings.algo, kept))
        run.check_resumable(config)
        trust = arguments.trust or names_environment(line.rest)
        check_import(config.env.id, run.path, trust)
    else:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        task = line.preset or config.env.id.replace("/", "-")
        new_name = f"{settings.algo}-{task}-seed{config.seed}-{now}"
        run = RunDirectory(arguments.runs_dir / (arguments.name or new_name))
    preset_name = line.preset or config.env.id
    return Request(settings, config, preset_name, run, arguments.resume)


def _default(line: CommandLine) -> Arguments:
    """Returns the options' defaults for a preset, if any, and a kind of policy."""
    kind = line.kind or "mlp"
    require(kind in POLICY_KINDS, unknown("policy", kind, POLICY_KINDS))
    if line.preset is None:
        config = TrainConfig(env=EnvConfig(id=""), policy=POLICY_KINDS[kind]())
    else:
        config = preset(line.preset, kind)
    config = for_teaching(config)
    return Arguments(config.env, config.policy, TeacherSettings(), config.evaluation)


def _stored(line: CommandLine) -> Arguments:
    """Returns what the run was begun with that ``--name`` names."""
    run = find_run(path_to_resume(*named_folder(line.rest)))
    method, config = run.method(), run.config()
    line.check_kind(config)
    # To see that it is a teacher's; its settings are compared when all are known.
    check_method(run, Method("td3" if method.name == "td3" else "sac", {}))
    return Arguments(
        config.env, config.policy, settings_of(method), config.evaluation, config.seed
    )


def check_trainable(request: Request) -> None:
    """Checks that the method can train this actor on this task.

    Raises:
        ConfigError: if not.
    """
    from jax_es.training.build import check_vector_control
    from jax_es.training.load_policy import spaces

    algo, config = request.settings.algo, request.config
    kind, policy = policy_kind(config.policy), config.policy
    kinds = ["mlp", *(["decision-transformer"] if algo == "td3" else [])]
    require(
        kind in kinds,
        f"--policy {kind} cannot be trained by --algo {algo}; choose --policy "
        f"{' or '.join(kinds)}"
        + (", or --algo td3." if kind == "decision-transformer" else "."),
    )
    attention = getattr(policy, "attention", "window")
    require(
        attention == "window",
        f"--policy.attention {attention} cannot be trained by --algo {algo}, which "
        "stores windows of the last steps; choose --policy.attention window.",
    )
    require(
        policy.action_scale == "bounds",
        f"--policy.action-scale {policy.action_scale} is not possible: --algo {algo} "
        "acts within the bounds of the action space; choose bounds.",
    )
    check_vector_control(f"--algo {algo}", config.env.id, *spaces(config))


def _train(request: Request, signals: StopSignals) -> None:
    """Trains a run from where it is to its end.

    Raises:
        InputError: for what the user can do something about.
        Stopped: at once; what went before the last evaluation is saved.
    """
    from jax_es.imitation import teacher_run
    from jax_es.imitation.gradient_run import GradientRun, build_for_evaluation
    from jax_es.rollout.devices import compilation_clock

    settings, config, run = request.settings, request.config, request.run
    with contextlib.ExitStack() as stack:
        with input_errors():
            sbx_teacher = _import_sbx()
            parts = build_for_evaluation(config)
            teacher = sbx_teacher.Teacher(settings, config, settings.steps)
            stack.callback(teacher.close)
            stack.enter_context(run.lock())
            num_evaluations = teacher_run.begin(
                run, teacher, settings, config, request.resume, request.preset
            )
            gradient_run = GradientRun(run, parts, num_evaluations)
            stack.enter_context(gradient_run)
        clock, begins = (
            compilation_clock(),
            f"Resuming after {teacher.num_steps} steps:",
        )
        progress = StepProgress(settings.steps, teacher.num_steps, clock=clock)
        progress.message(
            opening(
                begins if request.resume else "Training",
                config,
                teacher.mean(),
                f" by {settings.algo.upper()}: {settings.steps:,} environment steps",
                run.path,
            )
        )
        stack.enter_context(progress)
        with run_errors(run.path, resume_options(run)):
            teacher_run.train(
                run, teacher, settings, gradient_run, progress, signals.check
            )


def _import_sbx() -> Any:
    try:
        from jax_es.imitation import sbx_teacher
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"teachers need SBX, and {error.name} is not installed: "
            "pip install -e '.[pretraining]'."
        ) from error
    return sbx_teacher


if __name__ == "__main__":
    sys.exit(main())
