"""What programs that train or evaluate share: options, resuming, what is saved."""

import contextlib
import dataclasses
import resource
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jax_es.checks import Count, require
from jax_es.cli.options import CommandLine
from jax_es.cli.program import input_errors, run_errors
from jax_es.cli.signals import Stopped, StopSignals, outcome_of_run
from jax_es.presets import DEFAULT_PRESET, current_name, meant_by
from jax_es.runs.changes import (
    check_method,
    check_resumable,
    check_workers,
    with_stored_machine,
)
from jax_es.runs.directory import RunDirectory, resume_options, seed_runs, trust_option
from jax_es.runs.files import check_place
from jax_es.runs.find import (
    check_new_name,
    find_run_or_experiment,
    how_to_use,
    obedience_option,
    path_to_resume,
)
from jax_es.runs.folders import (
    EXPERIMENT_FILE,
    new_folder,
    program_command,
    seed_of,
)
from jax_es.runs.method import Method
from jax_es.runs.metrics import METRICS_FILE
from jax_es.runs.reproduce import origin
from jax_es.runs.tracking import Callback, WandB, import_wandb
from jax_es.runs.trust import check_imports
from jax_es.train_config import TrainConfig, policy_kind

if TYPE_CHECKING:
    from jax_es.distributed.workers import Workers

SEEDS_ARE_OVER = (
    "Nothing is left to train: all seeds are finished. Raise --seeds, or what ended "
    "them (num_generations, max_env_steps or stop_at_return), to go on."
)

LEAST_FILES = 64
"""That a process must be able to open at once; a tiny run's checkpoint took 20."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunArguments:
    """Options of every program that trains a run."""

    name: str | None = None
    """Name of the run's folder; what is trained, seed and time if not given."""
    runs_dir: Path = Path("runs")
    """Where runs are kept."""
    resume: bool = False
    """Continue the run --name from its last checkpoint, to the same numbers as if it
    had never stopped (a teacher's will be others). Without a PRESET its own settings
    are taken."""
    trust: bool = False
    """Import the modules of what --resume and --init name as module:Name (environments,
    policies, strategies, objectives), which may run any code; not needed for what the
    command line names."""

    def run_to_resume(self, config: TrainConfig, line: CommandLine) -> RunDirectory:
        """Returns the run or experiment to continue, or raises ``ConfigError``.

        Its modules are imported only if they are trusted, or named on the command line.
        """
        run = find_run_or_experiment(path_to_resume(self.runs_dir, self.name))
        self.check_imports(config, run.path, line)
        return run

    def check_imports(self, config: TrainConfig, run: Path, line: CommandLine) -> None:
        """Raises ``ConfigError`` if a resumed run's modules may not be imported."""
        check_imports(config, run, self.trust, line.typed)

    def new_run(self, name: str) -> RunDirectory:
        """Returns the folder of a new run: ``--name``, or ``name`` and the time."""
        check_new_name(self.name)
        given = self.name
        path = self.runs_dir / given if given else new_folder(name, self.runs_dir)
        check_place(path)  # lock() does as well, but after everything is built
        return RunDirectory(path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerArguments:
    """Options that say who evaluates."""

    workers: Count | None = None
    """Evaluate in this many processes of one core each (extra distributed). Numbers do
    not depend on how many there are or die. One process with all cores if not given."""
    cluster: str | None = None
    """HOST:PORT of a running Ray cluster, on whose nodes the workers are; one for each
    of its cores if --workers is not given."""

    @property
    def has_workers(self) -> bool:
        """Whether this process leaves episodes to others."""
        return self.workers is not None or self.cluster is not None

    def open(self, stack: contextlib.ExitStack) -> "Workers | None":
        """Starts the workers, which end with ``stack``; None without any."""
        if not self.has_workers:
            return None
        from jax_es.distributed.session import open_workers

        return stack.enter_context(open_workers(self.workers, self.cluster))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedArguments(RunArguments, WorkerArguments):
    """Options of programs that train one run, or several seeds as an experiment."""

    seeds: int | None = None
    """Train this many runs, one after another, into one experiment NAME/seed-…; their
    seeds count up from --seed. A single run if not given."""
    track: Literal["wandb"] | None = None
    """Where curves are sent, besides metrics.jsonl and TensorBoard's events: wandb is
    Weights & Biases (extra track). Repeat it on a resume."""

    def __post_init__(self) -> None:
        """Imports what is needed before any work."""
        if self.track:
            import_wandb()

    def callbacks(self, path: Path) -> list[Callback]:
        """Returns who is told of the generations of a run in this folder."""
        return [WandB(path)] if self.track else []

    def new_runs(self, what: str, seed: int) -> RunDirectory:
        """Returns the folder of a new run, or of a new experiment."""
        number = f"seed{seed}" if self.seeds is None else f"{self.seeds}seeds"
        run = self.new_run(f"{what}-{number}")
        if self.seeds is None:
            return run
        return RunDirectory(run.path, EXPERIMENT_FILE)

    def runs_to_resume(
        self, config: TrainConfig, line: CommandLine, method: Method
    ) -> tuple[RunDirectory, TrainConfig]:
        """Returns the run or the experiment to continue, and its configuration.

        Raises:
            ConfigError: if that would not go on to the same numbers.
        """
        run = self.run_to_resume(config, line)
        check_method(run, method)
        config = with_stored_machine(run, config)
        check_resumable(run, config)
        check_workers(run, config, self.has_workers)
        require(
            run.file == EXPERIMENT_FILE or self.seeds is None,
            f"--seeds: {run.path} is a single run, not an experiment; leave --seeds "
            "out, or start an experiment with another --name.",
        )
        return run, config

    def devices(self, config: TrainConfig) -> int | None:
        """Returns how many devices this process needs."""
        return 1 if self.has_workers else config.rollout.num_devices


def train_runs(
    request: "Request",
    check_stop: Callable[[], None],
    one: Callable[..., object],
    several: Callable[..., Sequence[tuple]],
    said: Callable[[Sequence[tuple]], str],
    figure: str = "",
) -> str | None:
    """Trains a run or an experiment; returns what to say of an experiment.

    Args:
        request: what the user asked for; its arguments are :class:`SeedArguments`.
        check_stop: called often.
        one: trains a run; both take what ``train_policy`` takes after its path.
        several: trains an experiment of so many seeds; returns one result a seed.
        said: of the results.
        figure: further options of plot.
    """
    arguments, run = request.arguments, request.run
    with contextlib.ExitStack() as stack:
        what: dict[str, Any] = {
            "path": run.path,
            "resume": arguments.resume,
            "preset": request.preset,
            "check_stop": check_stop,
            "workers": arguments.open(stack),
        }
        if run.file != EXPERIMENT_FILE:
            one(callbacks=arguments.callbacks(run.path), **what)
            return None
        before = run.record() if arguments.resume else {}
        count = arguments.seeds
        results = several(
            num_seeds=before["num_seeds"] if count is None else count,
            callbacks=arguments.callbacks,
            **what,
        )
        was_over = run.record()["results"] == before.get("results")
    path = shlex.quote(str(run.path))
    text = (
        f"{said(results)}\n"
        f"Runs: {run.path}/seed-… (TensorBoard: tensorboard --logdir {path})\n"
        f"Evaluate: {program_command('evaluate')} {path}"
        f"{obedience_option(run)}{trust_option(run)}\n"
        f"Plot: {program_command('plot')} {path}{figure}\n"
        f"Report: {program_command('report')} {path}"
    )
    return f"{SEEDS_ARE_OVER}\n{text}" if was_over else text


def shared_fields(source: Any, arguments: type) -> dict[str, Any]:
    """Returns the parts of a configuration that a program's ``Arguments`` have, too.

    The source is a ``TrainConfig``, or an instance of ``arguments``.
    """
    names = {f.name for f in dataclasses.fields(arguments)}
    shared = names & {f.name for f in dataclasses.fields(TrainConfig)}
    return {name: getattr(source, name) for name in shared}


def stored_run(line: CommandLine, *methods: str) -> RunDirectory:
    """Returns the run to continue, whose settings are the options' defaults.

    It was trained by one of the methods; their settings are compared when all are
    known.
    """
    run = find_run_or_experiment(line.path_to_resume)
    name = run.method().name
    check_method(run, Method(name if name in methods else methods[0], {}))
    kind = policy_kind(run.config().policy)
    require(
        line.kind in (None, kind),
        f"--resume would change the policy: it was {kind}, now {line.kind}. Leave "
        "--policy out, or start a new run with another --name.",
    )
    return run


def preset_of(line: CommandLine, default: str = DEFAULT_PRESET) -> tuple[str, bool]:
    """Returns the preset that a command line names, and whether its name fine-tunes.

    A resume may name it as the run recorded it, when the name meant something else.

    Raises:
        ConfigError: there is no such preset.
    """
    name = default if line.preset is None else line.preset
    if line.resumes and line.path_to_resume.exists():
        run = find_run_or_experiment(line.path_to_resume)
        if run.record()["preset"] == name and meant_by(name):
            start = origin(run.config(), name, run.method())
            return start.preset, start.fine_tune
    return current_name(name), False


def check_pretrained(fine_tune: bool, config: TrainConfig) -> None:
    """Checks that a new run that is to be fine-tuned names the run that it begins with.

    Raises:
        ConfigError: it does not.
    """
    require(
        not fine_tune or config.init is not None,
        "--fine-tune goes on from a pretrained policy; add --init RUN (the program "
        "pretrain makes one).",
    )


def start_jax(num_devices: int | None = None) -> None:
    """Sets up JAX's devices and its cache of programs, and starts it.

    Raises:
        ConfigError: it does not start, or the process may open too few files.
    """
    from jax_es.rollout.devices import (
        configure_cpu_devices,
        local_devices,
        use_compilation_cache,
    )

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    require(
        soft >= LEAST_FILES,
        f"this process may open {soft} files, and saving a run takes {LEAST_FILES}; "
        f"ulimit -n {LEAST_FILES} allows them"
        + ("." if hard >= LEAST_FILES else ", in a shell that may raise the limit."),
    )
    configure_cpu_devices(num_devices)
    use_compilation_cache()
    local_devices()


class Request(NamedTuple):
    """What the user of such a program asked for."""

    arguments: Any
    """The program's own ``Arguments``."""
    config: TrainConfig
    preset: str
    """Where the configuration comes from."""
    run: RunDirectory
    """The run's folder, or an experiment's."""
    num_devices: int | None
    """CPU devices that JAX starts with; one per core if not given."""
    unit: str = "steps"
    """What its checkpoints count."""


def train_program(
    program: str,
    argv: list[str],
    parse: Callable[[list[str]], Request],
    train: Callable[[Request, Callable[[], None]], str | None],
) -> Request:
    """Trains the run that a command line asks for; returns what it asked for.

    Args:
        program: its name, as ``"teacher"``.
        argv: the command line.
        parse: reads it.
        train: of the request and a function that it calls often, and that raises
            :class:`Stopped` once a stop signal has come. It returns what to say at the
            end; of a single run nothing.
    """
    with StopSignals() as signals:
        with input_errors():
            request = parse(argv)
            run = request.run
            how_to_continue = resume_options(run)
            start_jax(request.num_devices)
            if sys.stderr.isatty():  # elsewhere, an error that follows stays one line
                sys.stderr.write("Building the network and the environments\n")
        try:
            with run_errors(run.path, how_to_continue):
                text = train(request, signals.check)
        except Stopped as stop:
            stop.outcome = _what_is_saved(program, run, request.unit)
            raise
    text = text or (
        f"Metrics: {run.path / METRICS_FILE} (TensorBoard: tensorboard --logdir "
        f"{shlex.quote(str(run.path))})\n{how_to_use(run)}"
    )
    sys.stderr.write(f"{text}\n")
    return request


def _what_is_saved(program: str, run: RunDirectory, unit: str) -> str:
    from jax_es.runs.checkpoint import Checkpoints  # late: it loads JAX

    seeds = ""
    if run.file == EXPERIMENT_FILE and run.exists():
        record = run.record()
        done = record["results"]
        seeds = f"{len(done)} of {record['num_seeds']} seeds are finished, "
        begun = seed_runs(run.path)
        run = next((r for r in begun if str(seed_of(r.path)) not in done), run)
    steps = Checkpoints(run.checkpoints).steps()
    saved = f"{seeds}the first {steps[-1] if steps else 0} {unit} are saved"
    return outcome_of_run(run, program, saved)
