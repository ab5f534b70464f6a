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
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from jax_es.cli.options import (
    CommandLine,
    input_errors,
    named_folder,
    names_environment,
    opening,
    parse_options,
    run_errors,
    run_program,
    split_command_line,
)
from jax_es.cli.progress import StepProgress
from jax_es.cli.signals import Stopped, StopSignals, report_stopped_run
from jax_es.config import (
    ConfigError,
    EnvConfig,
    EvaluationConfig,
    RolloutConfig,
    require,
)
from jax_es.imitation.teacher_settings import TeacherSettings, settings_of
from jax_es.presets import PRESETS, for_teaching, preset, unknown
from jax_es.runs.directory import (
    RunDirectory,
    check_method,
    resume_options,
    warn_of_changed_versions,
)
from jax_es.runs.find import check_name, find_run, how_to_use, path_to_resume
from jax_es.runs.method import Method
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.trust import check_import
from jax_es.train_config import POLICY_KINDS, PolicyConfig, TrainConfig, policy_kind

if TYPE_CHECKING:
    from jax_es.imitation.gradient_run import GradientRun


DESCRIPTION = f"""Trains a teacher by gradients, with SAC or TD3 as SBX has them.

PRESET: {", ".join(PRESETS)}; its environment and transformer are taken. Or --env.id.

KIND: mlp (the default), or with --algo td3 decision-transformer.

The options' defaults below are those of the chosen preset."""

SAVED = "sbx"
"""The folder of a run in which SBX' networks and replay buffer lie, for a resume."""


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
    """What the user asked for.

    Attributes:
        settings: the method.
        config: what the run evaluates.
        preset: where the configuration comes from.
        run: the run's folder.
        resume: whether to continue what is there.
    """

    settings: TeacherSettings
    config: TrainConfig
    preset: str
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
        try:
            _train(request, signals)
        except Stopped as stop:
            return _report_stop(stop, request.run)
    path = request.run.path
    sys.stderr.write(
        f"Metrics: {path / METRICS_FILE} (TensorBoard: tensorboard --logdir {path})\n"
        f"{how_to_use(request.run)}\n"
    )
    return 0


def parse(argv: list[str]) -> Request:
    """Reads the command line.

    Raises:
        ConfigError: for unknown names and impossible values.
    """
    line = split_command_line(argv)
    preset_name = line.preset
    if line.resumes_as_stored:
        default = _stored(line)
    else:
        default = _default(preset_name, line.kind)
    arguments = parse_options(
        Arguments,
        line.rest,
        "teacher",
        default=default,
        description=DESCRIPTION,
        learning_rate="--learning-rate",
    )
    settings, config, name = arguments.settings, arguments.config, arguments.name
    require(config.env.id != "", "a PRESET or --env.id is needed; --help lists them.")
    check_name(name)
    if arguments.resume:
        run = find_run(path_to_resume(arguments.runs_dir, name))
        # Of the settings only the steps may change: the rest decides the numbers.
        kept = {k: v for k, v in settings.method().settings.items() if k != "steps"}
        check_method(run, Method(settings.algo, kept))
        run.check_resumable(config)
        named = names_environment(line.rest)
        check_import(config.env.id, run.path, arguments.trust or named)
    else:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        task = preset_name or config.env.id.replace("/", "-")
        new_name = f"{settings.algo}-{task}-seed{config.seed}-{now}"
        run = RunDirectory(arguments.runs_dir / (name or new_name))
    return Request(
        settings, config, preset_name or config.env.id, run, arguments.resume
    )


def _default(preset_name: str | None, kind: str | None) -> Arguments:
    """Returns the options' defaults for a preset, if any, and a kind of policy."""
    kind = kind or "mlp"
    require(kind in POLICY_KINDS, unknown("policy", kind, POLICY_KINDS))
    if preset_name is None:
        config = TrainConfig(env=EnvConfig(id=""), policy=POLICY_KINDS[kind]())
    else:
        config = preset(preset_name, kind)
    config = for_teaching(config)
    return Arguments(config.env, config.policy, TeacherSettings(), config.evaluation)


def _stored(line: CommandLine) -> Arguments:
    """Returns what the run was begun with that ``--name`` names."""
    run = find_run(path_to_resume(*named_folder(line.rest)))
    method, config = run.method(), run.config()
    line.check_kind(config)
    # To see that it is a teacher's; its settings are compared when all are known.
    check_method(run, Method("td3" if method.name == "td3" else "sac", {}))
    settings = settings_of(method)
    return Arguments(
        config.env, config.policy, settings, config.evaluation, config.seed
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
    from jax_es.imitation.gradient_run import GradientRun, build_for_evaluation
    from jax_es.rollout.devices import compilation_clock

    settings, run = request.settings, request.run
    with contextlib.ExitStack() as stack:
        with input_errors():
            sbx_teacher = _import_sbx()
            parts = build_for_evaluation(request.config)
            teacher = sbx_teacher.Teacher(settings, request.config, settings.steps)
            stack.callback(teacher.close)
            stack.enter_context(run.lock())
            num_evaluations = _begin(request, teacher)
            record = stack.enter_context(GradientRun(run, parts, num_evaluations))
        clock = compilation_clock()
        progress = StepProgress(settings.steps, teacher.num_steps, clock=clock)
        progress.message(_opening(request, teacher))
        stack.enter_context(progress)
        training = _Training(request, teacher, record, progress, signals)
        with run_errors(run.path, resume_options(run)):
            training.run()


def _import_sbx() -> Any:
    try:
        from jax_es.imitation import sbx_teacher
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"teachers need SBX, and {error.name} is not installed: "
            "pip install -e '.[pretraining]'."
        ) from error
    return sbx_teacher


def _begin(request: Request, teacher: Any) -> int:
    """Creates the run, or takes up the one that is there.

    Returns:
        How many evaluations are behind it.

    Raises:
        ConfigError: if it cannot be created or continued.
        CheckpointError: likewise.
    """
    from jax_es.runs.checkpoint import Checkpoints

    run, settings = request.run, request.settings
    if not request.resume:
        run.create(request.config, request.preset, method=settings.method())
        return 0
    step = _last_step(run)
    require(
        settings.steps >= step,
        f"--steps must be at least {step}, the steps that {run.path} has taken, got "
        f"{settings.steps}.",
    )
    num_evaluations = 0
    # A run that was killed before its first evaluation was saved begins anew.
    if step >= 0:
        state = Checkpoints(run.checkpoints).restore(step).state
        num_evaluations = int(state["num_evaluations"])
        teacher.restore(run.path / SAVED / str(step))
    warn_of_changed_versions(run)
    if run.method() != settings.method():
        run.update(method=settings.method())
    return num_evaluations


def _last_step(run: RunDirectory) -> int:
    """Returns the step at which a resume begins; -1 if nothing is saved."""
    from jax_es.runs.checkpoint import Checkpoints

    saved = {*_import_sbx().saved_steps(run.path / SAVED)}
    return max(saved & {*Checkpoints(run.checkpoints).steps()}, default=-1)


class _Training:
    """A run's parts at work."""

    def __init__(
        self,
        request: Request,
        teacher: Any,
        record: GradientRun,
        progress: StepProgress,
        signals: StopSignals,
    ) -> None:
        self._settings, self._saved = request.settings, request.run.path / SAVED
        self._teacher, self._record = teacher, record
        self._progress, self._signals = progress, signals

    def run(self) -> None:
        """Evaluates, then learns and evaluates in turn."""
        if self._record.num_evaluations == 0:
            self._evaluate()
        every, steps = self._settings.evaluate_every, self._settings.steps
        while (taken := self._teacher.num_steps) < steps:
            until = min((taken // every + 1) * every, steps)
            self._teacher.learn(until - taken, self._on_step)
            self._evaluate()

    def _on_step(self, taken: int) -> None:
        self._signals.check()
        self._progress.steps_done(taken)

    def _evaluate(self) -> None:
        """Evaluates θ, and saves all that the next stretch depends on."""
        mean, step = self._teacher.mean(), self._teacher.num_steps
        result = self._record.evaluate(mean, on_step=lambda _: self._signals.check())
        evaluated = self._record.record(result, mean, None, step, step)
        # A resume needs both, so the last of the two makes the step count.
        self._teacher.save(self._saved)
        self._record.save(mean, None, step)
        _import_sbx().prune(self._saved, step)
        self._progress.report(
            evaluation=f"{evaluated.evaluation_return_mean:9.1f}",
            best=f"{evaluated.best_evaluation_return:9.1f}",
            length=f"{evaluated.evaluation_length_mean:7.1f}",
        )


def _opening(request: Request, teacher: Any) -> str:
    """Says what is about to run."""
    steps = teacher.num_steps
    return opening(
        f"Resuming after {steps} steps:" if request.resume else "Training",
        request.config,
        teacher.mean(),
        f" by {request.settings.algo.upper()}: {request.settings.steps:,} environment "
        "steps",
        request.run.path,
    )


def _report_stop(stop: Stopped, run: RunDirectory) -> int:
    """Says what is saved; returns the exit code."""
    saved = f"the first {max(_last_step(run), 0)} steps are saved"
    return report_stopped_run(stop, "teacher", run, saved)


if __name__ == "__main__":
    sys.exit(main())
