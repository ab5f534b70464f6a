"""Trains a teacher by gradients: ``python -m jax_es.teacher [PRESET] [--options]``.

SAC or TD3 of SBX learn the task of a preset, or of ``--env.id``. The run is one like
any other: ``evaluate``, ``plot`` and ``load_policy`` take it.
"""

import contextlib
import dataclasses
import datetime
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from jax_es.checkpoint import CheckpointError, Checkpoints
from jax_es.command_line import (
    InputError,
    Stopped,
    StopSignals,
    input_errors,
    parse_options,
    run_program,
)
from jax_es.config import EnvConfig, EvaluationConfig, RolloutConfig, require
from jax_es.devices import configure_cpu_devices, use_compilation_cache
from jax_es.experiment import PolicyConfig, TrainConfig, make_single_env
from jax_es.gradient_run import GradientRun, build_for_evaluation, check_method
from jax_es.metrics import METRICS_FILE, MetricsError
from jax_es.presets import DEFAULT_PRESET, preset
from jax_es.run_directory import Method, RunDirectory, find_run
from jax_es.sbx_teacher import Teacher, TeacherSettings, prune, saved_steps

POLICY = {"hidden_sizes": (256, 256), "activation": "relu"}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The command line, after PRESET and KIND."""

    env: EnvConfig
    """The environment."""
    policy: PolicyConfig
    """The actor."""
    settings: Annotated[TeacherSettings, tyro.conf.arg(name="")]
    evaluation: EvaluationConfig
    """Evaluation of the actor, without exploration."""
    steps: int = 1_000_000
    """Environment steps to train for, counted from the start of the run."""
    evaluate_every: int = 10_000
    """Environment steps between evaluations, each with a checkpoint."""
    seed: int = 0
    """Seeds the weights, the exploration and the environments."""
    name: str | None = None
    """Name of the run's folder; method, environment, seed and time if not given."""
    runs_dir: Path = Path("runs")
    """Where runs are kept."""
    resume: bool = False
    """Continue the run --name from its last checkpoint."""


class Request(NamedTuple):
    """What the user asked for.

    Attributes:
        arguments: the command line.
        config: what the run evaluates.
        preset: where the configuration comes from.
        run: the run's folder.
    """

    arguments: Arguments
    config: TrainConfig
    preset: str
    run: RunDirectory

    @property
    def method(self) -> Method:
        """How the run is trained."""
        settings = dataclasses.asdict(self.arguments.settings)
        name = settings.pop("algo")
        settings["critic_hidden_sizes"] = list(settings["critic_hidden_sizes"])
        settings["evaluate_every"] = self.arguments.evaluate_every
        return Method(name, settings)


def main(argv: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return run_program(_main, argv)


def _main(argv: list[str]) -> int:
    with StopSignals() as signals:
        with input_errors():
            request = parse(argv)
            # One device, whose matrix products use all cores.
            configure_cpu_devices(1)
            use_compilation_cache()
        try:
            _train(request, signals)
        except Stopped as stop:
            return _report_stop(stop, request.run)
    return 0


def parse(argv: list[str]) -> Request:
    """Reads the command line.

    Raises:
        ConfigError: for unknown names and impossible values.
    """
    rest = list(argv)
    preset_name = rest.pop(0) if rest and not rest[0].startswith("-") else None
    default = preset(preset_name or DEFAULT_PRESET, "mlp")
    arguments = parse_options(
        Arguments,
        rest,
        default=Arguments(
            default.env if preset_name else EnvConfig(),
            dataclasses.replace(default.policy, **POLICY),
            TeacherSettings(),
            EvaluationConfig(),
        ),
        prog="python -m jax_es.teacher",
        config=(tyro.conf.AvoidSubcommands,),
    )
    config = TrainConfig(
        env=arguments.env,
        policy=arguments.policy,
        evaluation=arguments.evaluation,
        rollout=RolloutConfig(observation_statistics=False, num_devices=1),
        seed=arguments.seed,
    )
    if arguments.resume:
        require(arguments.name is not None, "--resume needs --name NAME.")
        run = find_run(arguments.runs_dir / str(arguments.name))
    else:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        new = f"{arguments.settings.algo}-{config.env.id}-seed{config.seed}-{now}"
        run = RunDirectory(arguments.runs_dir / (arguments.name or new))
    return Request(arguments, config, preset_name or config.env.id, run)


def _train(request: Request, signals: StopSignals) -> None:
    arguments, config, run = request.arguments, request.config, request.run
    with contextlib.ExitStack() as stack:
        with input_errors():
            parts = build_for_evaluation(config)
            teacher = Teacher(
                arguments.settings,
                make_single_env(config.env),
                config.policy.hidden_sizes,
                config.policy.activation,
                config.seed,
                arguments.steps,
            )
            stack.enter_context(run.lock())
            if arguments.resume:
                check_method(run, request.method)
                run.check_resumable(config)
            else:
                run.create(config, request.preset, method=request.method)
            saved = run.path / "sbx"
            checkpoints = Checkpoints(run.checkpoints)
            common = {*saved_steps(saved)} & {*checkpoints.steps()}
            num_evaluations = 0
            if arguments.resume and common:
                step = max(common)
                teacher.restore(saved / str(step))
                state = checkpoints.restore(step).state
                num_evaluations = int(state["num_evaluations"])
        gradient_run = stack.enter_context(GradientRun(run, parts, num_evaluations))
        started, at_start = time.perf_counter(), teacher.num_steps

        def evaluate() -> None:
            mean = teacher.mean()
            result = gradient_run.evaluate(mean, on_step=lambda _: signals.check())
            steps = teacher.num_steps
            record = gradient_run.record(result, mean, None, steps, steps)
            teacher.save(saved)
            gradient_run.save(mean, None, steps)
            prune(saved, steps)
            speed = (steps - at_start) / (time.perf_counter() - started)
            left = (arguments.steps - steps) / speed if speed else 0
            sys.stderr.write(
                f"steps {steps}/{arguments.steps}  evaluation "
                f"{record.evaluation_return_mean:.1f}  length "
                f"{record.evaluation_length_mean:.1f}  steps/s {speed:.0f}  "
                f"left {datetime.timedelta(seconds=round(left))}\n"
            )

        try:
            if num_evaluations == 0:
                evaluate()
            while teacher.num_steps < arguments.steps:
                every = arguments.evaluate_every
                until = min((teacher.num_steps // every + 1) * every, arguments.steps)
                teacher.learn(until - teacher.num_steps, lambda _: signals.check())
                evaluate()
        except (CheckpointError, MetricsError) as error:
            raise InputError(str(error)) from error
    sys.stderr.write(
        f"Metrics: {run.path / METRICS_FILE}\n"
        f"Evaluate: python -m jax_es.evaluate {run.path}\n"
    )


def _report_stop(stop: Stopped, run: RunDirectory) -> int:
    name = signal.Signals(stop.signum).name
    sys.stderr.write(f"{name}: continue with --resume --name {run.path.name}\n")
    return 128 + stop.signum


if __name__ == "__main__":
    sys.exit(main())
