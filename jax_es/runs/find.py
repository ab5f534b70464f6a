"""Finds the runs and experiments that a user names."""

import os
import shlex
import unicodedata
from pathlib import Path

from jax_es.checks import ConfigError, require
from jax_es.runs.directory import RunDirectory, seed_runs, trust_option
from jax_es.runs.folders import EXPERIMENT_FILE, no_run, program_command, runs_in


def find_run(path: str | os.PathLike[str]) -> RunDirectory:
    """Opens an existing run; lists the newest in a ``ConfigError`` if it is none."""
    run = RunDirectory(Path(path))
    if not run.exists():
        raise ConfigError(no_run(run.path))
    return run


def find_runs(path: str | os.PathLike[str]) -> list[RunDirectory]:
    """Opens a run, or the runs of an experiment in the order of their seeds.

    Raises:
        ConfigError: if neither is there, or no run of the experiment has begun.
    """
    run = RunDirectory(Path(path))
    if run.exists():
        return [run]
    runs, experiment = seed_runs(run.path), RunDirectory(run.path, EXPERIMENT_FILE)
    if not runs and experiment.exists():
        program = experiment.method().program.removeprefix("jax_es.")
        raise ConfigError(
            f"{path} is an experiment in which no run has begun; continue it with "
            f"{program_command(program)} --resume --name {shlex.quote(run.path.name)}."
        )
    return runs or [find_run(path)]


def find_run_or_experiment(path: str | os.PathLike[str]) -> RunDirectory:
    """Opens what can be resumed: an experiment as a whole, or one run."""
    experiment = RunDirectory(Path(path), EXPERIMENT_FILE)
    return experiment if experiment.exists() else find_run(path)


def check_name(name: str | None) -> None:
    """Raises ``ConfigError`` unless ``--name``, if given, is the name of a folder."""
    require(
        name is None or (name not in ("", ".", "..") and Path(name).name == name),
        f"--name must be the name of a folder in --runs-dir, got {name!r}; "
        "give the path with --runs-dir.",
    )


def check_new_name(name: str | None) -> None:
    """Raises ``ConfigError`` unless a new run can have ``--name``, if given.

    Letters and combining marks of any script, digits, space, and ``._-``: no program
    and no storage reads one of them as something else.
    """
    check_name(name)
    allowed = ("L", "M", "Nd")
    odd = [
        character
        for character in name or ""
        if character not in " ._-"
        and not unicodedata.category(character).startswith(allowed)
    ]
    require(
        not odd,
        f"--name must consist of letters, digits, spaces and ._- alone, got {name!r}; "
        f"leave {' '.join(map(repr, dict.fromkeys(odd)))} out.",
    )


def path_to_resume(runs_dir: Path, name: str | None) -> Path:
    """Returns the folder that ``--resume --name NAME`` means.

    Raises:
        ConfigError: without a name of a folder; it lists the newest runs.
    """
    if name is None:
        newest = ", ".join(run.name for run in runs_in(runs_dir)[-5:]) or "none"
        raise ConfigError(
            "--resume needs --name NAME, the run to continue. "
            f"Runs in {runs_dir}: {newest}."
        )
    check_name(name)
    return runs_dir / name


def how_to_use(run: RunDirectory) -> str:
    """Says what can be done with a trained run."""
    path, asked, trust = str(run.path), obedience_option(run), trust_option(run)
    load = "load_niches" if run.has_niches else "load_policy"
    # A run none of whose evaluations was finite has no best one.
    has_last = run.checkpoints.exists() and not (run.checkpoints / "best").exists()
    option, argument = (" --checkpoint last", ", 'last'") if has_last else ("", "")
    return (
        f"Evaluate: {program_command('evaluate')} {shlex.quote(path)}{option}{asked}"
        f"{trust}\nFrom Python: jax_es.{load}({path!r}{argument}"
        f"{', trust=True' * bool(trust)})"
    )


def obedience_option(run: RunDirectory) -> str:
    """Returns `` --obedience LOW HIGH`` for a run that was trained on commands."""
    es = run.config().es
    if not es.is_commanded:
        return ""
    high = "HIGH" if es.command_high is None else f"{es.command_high:g}"
    return f" --obedience {es.command_low:g} {high}"
