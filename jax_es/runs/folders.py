"""Folders of runs and experiments, by their names alone."""

import datetime
import itertools
import re
import sys
from pathlib import Path

CONFIG_FILE = "config.json"
EXPERIMENT_FILE = "experiment.json"
STUDY_FILE = "study.json"
EVOLUTION_FILE = "evolution.json"


def new_folder(what: str, runs_dir: Path = Path("runs")) -> Path:
    """Returns a folder for a new run: what is trained, the time, a number if needed."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    names = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    folders = (runs_dir / f"{what}-{now}{name}" for name in names)
    # Runs of a few generations can begin within one second of another.
    return next(folder for folder in folders if not folder.exists())


def seed_folders(experiment: Path) -> list[Path]:
    """Returns the begun runs ``seed-…`` in an experiment's folder, by seed."""
    begun = [path.parent for path in experiment.glob(f"seed-*/{CONFIG_FILE}")]
    seeds = {seed: path for path in begun if (seed := seed_of(path)) is not None}
    return [seeds[seed] for seed in sorted(seeds)]


def seed_of(run: Path) -> int | None:
    """Returns the seed that a run in an experiment's folder is named after."""
    match = re.fullmatch(r"seed-(0|[1-9]\d*)", run.name)
    return int(match[1]) if match else None


def runs_in(directory: Path) -> list[Path]:
    """Returns the runs and experiments in a folder, oldest first."""
    records = [
        record
        for file in (CONFIG_FILE, EXPERIMENT_FILE)
        for record in directory.glob(f"*/{file}")
    ]
    return [file.parent for file in sorted(records, key=lambda f: f.stat().st_mtime)]


def no_run(path: Path, file: str = CONFIG_FILE) -> str:
    """Says that a folder is no run, and which ones are near."""
    seeds = [str(run) for run in seed_folders(path)]
    if seeds:
        return (
            f"{path} is an experiment of several seeds, where one run is needed; "
            f"choose one of {', '.join(seeds)}."
        )
    known = [str(run) for run in runs_in(path.parent)][-5:]
    listed = f"Runs there: {', '.join(known)}." if known else "No run is there."
    return f"{path} is not a run (it has no {file}). {listed}"


def program_command(program: str) -> str:
    """Returns what starts another program, as this one was started."""
    is_script = Path(sys.argv[0]).name == "jax-es"
    return f"jax-es {program}" if is_script else f"python -m jax_es.{program}"
