"""One page about runs: ``python -m jax_es.report PATH [PATH …] --output report.html``.

Configuration, curves, evaluation, video, versions and the command that makes it again,
in one file that needs nothing else: it can be mailed, archived, read on a phone.
"""

import dataclasses
import json
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import tyro

from jax_es.analysis.curves import Run, read_runs
from jax_es.analysis.page import MEDIA_TYPES, is_nested, obedience_runs, page
from jax_es.checks import ConfigError, require
from jax_es.cli.options import parse_options
from jax_es.cli.program import input_errors, program
from jax_es.runs.files import whole_file, writing
from jax_es.runs.folders import program_command, seed_folders


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Writes one self-contained HTML page about runs or experiments."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs or of experiments; several are compared."""
    output: Path | None = None
    """The page (.html); report.html in the run's folder if not given, or here for
    several."""
    evaluation: tuple[Path, ...] = ()
    """Files that evaluate --json printed, to be shown as tables, besides obedience.json
    in the folders of runs and experiments."""
    video: tuple[Path, ...] = ()
    """Videos (.mp4, .webm, .gif) to show besides the newest in each run's videos/."""

    def __post_init__(self) -> None:
        require(
            self.runs != (),
            "RUN is missing; give at least one folder of a run or an experiment.",
        )
        require(
            self.file.suffix in (".html", ".htm"),
            f"--output must end in .html, got {self.output}.",
        )
        for file in self.video:
            require(
                file.suffix.lower() in MEDIA_TYPES,
                f"--video must end in {', '.join(MEDIA_TYPES)}, got {file}.",
            )
            require(
                file.is_file(),
                f"--video {file} does not exist; make one with "
                f"{program_command('evaluate')} RUN --video FILE.",
            )

    @property
    def file(self) -> Path:
        """Where the page is written."""
        own = self.runs[0] if len(self.runs) == 1 else Path()
        return own / "report.html" if self.output is None else self.output


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    with input_errors():
        arguments = parse_options(Arguments, argv, "report")
        files = dict.fromkeys([*arguments.evaluation, *_obedience(arguments.runs)])
        evaluations = {str(file): _read_json(file) for file in files}
        text = report(arguments.runs, evaluations, arguments.video)
        file = arguments.file
        with writing(file, "choose another --output"), whole_file(file) as draft:
            draft.write_text(text, encoding="utf-8")
    sys.stderr.write(f"{file}\n")


def report(
    paths: tuple[Path, ...],
    evaluations: dict[str, Any] | None = None,
    videos: tuple[Path, ...] = (),
) -> str:
    """Returns the page.

    Args:
        paths: folders of runs or experiments.
        evaluations: what ``evaluate --json`` said, by the name to show it under.
        videos: to show besides the newest of each run.
    """
    runs = read_runs(paths)
    tasks = "; ".join(dict.fromkeys(run.task for run in runs))
    title = f"{len(runs)} runs of {tasks}"
    if len(paths) == 1:
        said = dict.fromkeys(f"{run.variant} on {run.task}" for run in runs)
        title = f"{paths[0].resolve().name}: {'; '.join(said)}"
    newest = (video for run in runs for video in _newest_video(run))
    return page(title, runs, evaluations, dict.fromkeys([*videos, *newest]))


def _obedience(paths: tuple[Path, ...]) -> list[Path]:
    """Finds what ``evaluate --obedience --json`` said, where it lies beside runs."""
    folders = [folder for path in paths for folder in (path, *seed_folders(path))]
    return [f for d in folders for f in _own_files(d, [d / "obedience.json"])]


def _read_json(file: Path) -> Any:
    try:
        values = json.loads(file.read_text())
        is_evaluation = isinstance(values, dict) and (
            {"run", "episodes"} <= {*values} or is_nested(values.get("experiments"))
        )
        require(is_evaluation, "it holds no results")
        obedience_runs(values)
        return values
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"--evaluation {file} cannot be read ({error}); give a file that "
            f"{program_command('evaluate')} RUN --json printed."
        ) from error


def _newest_video(run: Run) -> list[Path]:
    files = (Path(run.path) / "videos").glob("*")
    videos = [file for file in files if file.suffix.lower() in MEDIA_TYPES]
    own = _own_files(Path(run.path), videos)
    return sorted(own, key=lambda file: file.stat().st_mtime)[-1:]


def _own_files(folder: Path, found: Iterable[Path]) -> list[Path]:
    """Returns those files that lie in a folder; a link may lead to any other file.

    The page is passed on, and the folder may be somebody else's.
    """
    files = [file for file in found if file.is_file()]
    own = [f for f in files if f.resolve().is_relative_to(folder.resolve())]
    for file in files:
        if file not in own:
            warnings.warn(
                f"{file} is a link to {file.resolve()}, outside of the run, and left "
                "out; name that file with --video or --evaluation to show it.",
                stacklevel=2,
            )
    return own


if __name__ == "__main__":
    sys.exit(main())
