"""Fills an archive: ``python -m jax_es.illuminate [PRESET] [--policy KIND]``.

MAP-Elites keeps of every kind of behaviour the best policy seen. What it leaves is a
run like any other: ``evaluate``, ``plot`` and ``load_policy`` take it, and
``load_archive`` reads all its policies.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from jax_es.checks import require
from jax_es.cli.options import parse_options, split_command_line
from jax_es.cli.program import input_errors, program
from jax_es.cli.train_program import (
    Request,
    SeedArguments,
    preset_of,
    stored_run,
    train_program,
    train_runs,
)
from jax_es.illumination.settings import PRESET_SETTINGS, ArchiveConfig, settings_of
from jax_es.presets import PRESETS
from jax_es.runs.folders import EXPERIMENT_FILE
from jax_es.runs.method import MAP_ELITES
from jax_es.runs.wording import spread
from jax_es.train_config import POLICY_KINDS, TrainConfig
from jax_es.training.method_request import preset_of_method, request_of_method

DEFAULT_PRESET = "ant-uni"

DESCRIPTION = f"""Fills an archive with many different good policies (MAP-Elites).

PRESET: {", ".join(PRESET_SETTINGS)} (default: {DEFAULT_PRESET}), or any other with
--env.descriptor: {", ".join(name for name in PRESETS if name not in PRESET_SETTINGS)}.

KIND: {", ".join(POLICY_KINDS)} (default: the preset's).

The options' defaults below are those of the chosen preset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(SeedArguments):
    """The command line, after PRESET and KIND."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    archive: Annotated[ArchiveConfig, tyro.conf.arg(name="")]
    video: Path | None = None
    """At the end, record nine elites, good ones that differ most, side by side into
    this file (.mp4 or .gif). With --resume of a finished run that is all it does."""

    def __post_init__(self) -> None:
        """Checks the video's ending before anything runs."""
        super().__post_init__()
        if self.video is not None:
            from jax_es.evaluation.video import check_encoder

            check_encoder(self.video)


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    request = train_program("illuminate", argv, parse, _train)
    video = request.arguments.video
    if video is not None:  # now a stop signal ends it at once
        from jax_es.illumination.wall import record_elites

        with input_errors():
            record_elites(request.run.path, video)


def parse(argv: list[str]) -> Request:
    """Reads the command line."""
    line = split_command_line(argv)
    name, _ = preset_of(line, DEFAULT_PRESET)
    if line.resumes_as_stored:
        stored = stored_run(line, MAP_ELITES)
        config, archive = stored.config(), settings_of(stored.method())
    else:
        config = preset_of_method(line, name)
        archive = PRESET_SETTINGS.get(name, ArchiveConfig())
    arguments = parse_options(
        Arguments,
        line.rest,
        "illuminate",
        default=Arguments(config=config, archive=archive),
        description=DESCRIPTION,
    )
    request = request_of_method(arguments, line, name, arguments.archive.method())
    require(
        arguments.video is None or request.run.file != EXPERIMENT_FILE,
        "--video shows one archive, and --seeds fills several; leave it out, or resume "
        "a seed with it (--name seed-…, the experiment's folder being --runs-dir).",
    )
    return request


def _train(request: Request, check_stop: Callable[[], None]) -> str | None:
    from jax_es.illumination.run import illuminate_run, illuminate_seeds

    what = request.config, request.arguments.archive
    one = functools.partial(illuminate_run, *what)
    several = functools.partial(illuminate_seeds, *what)
    return train_runs(
        request, check_stop, one, several, _over_seeds, " --figure growth"
    )


def _over_seeds(results: Sequence[tuple]) -> str:
    """Says what came out of an experiment."""
    coverage, score, best = list(zip(*results, strict=True))[1:]
    return (
        f"Over {len(results)} seeds, median and range: coverage "
        f"{spread(coverage, '{:.1%}'.format)}, QD-score {spread(score)}, best fitness "
        f"{spread(best)}."
    )


if __name__ == "__main__":
    sys.exit(main())
