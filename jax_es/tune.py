"""Searches for hyperparameters: ``python -m jax_es.tune [PRESET] [--options]``.

Optuna chooses configurations around a preset; each is an experiment of ``--seeds``
runs, of which the worse ones end early (successive halving).
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from jax_es.checks import require
from jax_es.cli.options import parse_options, split_command_line
from jax_es.cli.program import input_errors, program, run_errors
from jax_es.cli.signals import Stopped, StopSignals, outcome_of_run
from jax_es.cli.train_program import RunArguments, check_pretrained, start_jax
from jax_es.presets import (
    DEFAULT_PRESET,
    PRESETS,
    current_name,
    for_fine_tuning,
    meant_by,
    preset,
)
from jax_es.runs.changes import changed_jax
from jax_es.runs.directory import RunDirectory, resume_options
from jax_es.runs.folders import STUDY_FILE
from jax_es.runs.reproduce import command
from jax_es.runs.trust import trust_source
from jax_es.runs.wording import markdown, significant
from jax_es.train_config import (
    POLICY_KINDS,
    CustomPolicyConfig,
    TrainConfig,
    differing,
    flat,
    policy_kind,
    require_same,
)
from jax_es.tuning import study as tuning
from jax_es.tuning.search_space import configured
from jax_es.tuning.settings import TuningConfig

DESCRIPTION = f"""Searches for hyperparameters with Optuna, by successive halving.

PRESET: {", ".join(PRESETS)} (default: {DEFAULT_PRESET}; with --env.id the own-… that
fits the task).

KIND: {", ".join(POLICY_KINDS)} (default: the preset's). --strategy and --fine-tune as
of train.

The options' defaults below are those of the chosen preset; what is not searched stays
as they say."""

LAST_BUDGET = 1_000_000
"""Environment steps of a run that nothing ends early, where a preset has no limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(RunArguments):
    """The command line, after PRESET and KIND."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    tuning: Annotated[TuningConfig, tyro.conf.arg(name="")]


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    with StopSignals() as signals, contextlib.ExitStack() as stack:
        with input_errors():
            settings, folder, resume = parse(argv)
            from jax_es.analysis import drawing
            from jax_es.training.build import with_machine

            with drawing.style():  # not after hours of work
                tuning.load_optuna()
            start_jax(settings.config.rollout.num_devices)
            if not resume:
                folder.check_new()
                config = with_machine(settings.config)
                settings = tuning.check(settings._replace(config=config))
            stack.enter_context(folder.lock())
            if resume:  # for more trials, perhaps
                folder.update(tuning=dataclasses.asdict(settings.tuning))
            else:
                tuning.create(folder, settings)
        _say(f"Searching {'  '.join(settings.tuning.search)}. Study: {folder.path}")
        try:
            with run_errors(folder.path, resume_options(folder)):
                study = tuning.tune(folder, _say, signals.check)
        except Stopped as stop:
            saved = "what is finished is saved"
            stop.outcome = outcome_of_run(folder, "tune", saved)
            raise
        with input_errors():
            _report(study, settings, folder.path)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def parse(argv: list[str]) -> tuple[tuning.Settings, RunDirectory, bool]:
    """Returns what the study is, its folder, and whether to continue what is there."""
    line = split_command_line(argv)
    stored = None
    if line.resumes:
        path = line.path_to_resume
        stored = tuning.read(RunDirectory(path, STUDY_FILE))
        own = stored.preset, policy_kind(stored.config.policy)
        require(
            line.preset in (None, own[0], *meant_by(own[0]))
            and line.kind in (None, own[1]),
            f"--resume would change the study in {path}: it searches around preset "
            f"{own[0]} with policy {own[1]}; leave PRESET and --policy out.",
        )
    name = DEFAULT_PRESET if line.preset is None else line.preset
    task = None if line.resumes else line.environment()
    if task is not None:
        from jax_es.training.own_task import own_task

        name, task = own_task(task, line.kind)
    default = stored or around(current_name(name), line.kind)
    config = default.config
    if task is not None:
        config = dataclasses.replace(config, env=task)
    if isinstance(config.policy, CustomPolicyConfig):
        from jax_es.training.custom_policy import with_options

        config = with_options(config)
    config = line.with_parts(config)
    fine_tune = line.take_fine_tune()
    if fine_tune:
        config = for_fine_tuning(config)
    first = Arguments(config=config, tuning=default.tuning)
    arguments = parse_options(
        Arguments, line.rest, "tune", default=first, description=DESCRIPTION
    )
    from jax_es.training.build import check_cores, with_game

    config = with_game(arguments.config)
    if task is not None:  # with what it takes to train it
        config = dataclasses.replace(config, env=task)
    settings = tuning.Settings(config, arguments.tuning, default.preset)
    if stored is not None:
        path = line.path_to_resume
        before, now = (  # more trials are the same study's
            {**flat(each.config), **dataclasses.asdict(each.tuning), "trials": None}
            for each in (stored, settings)
        )
        changed = differing(before, now) | changed_jax(RunDirectory(path, STUDY_FILE))
        remedy = "start a new study with another --name"
        require_same(f"the study in {path}", changed, remedy)
        arguments.check_imports(config, path, line)
    else:
        path = arguments.new_run(f"tune-{default.preset}").path
        check_cores(config.rollout)
        check_pretrained(fine_tune, config)
    if arguments.trust and config.init is not None:
        trust_source(config.init)
    return settings, RunDirectory(path, STUDY_FILE), stored is not None


def around(preset_name: str, kind: str | None = None) -> tuning.Settings:
    """Returns a search around a preset, whose runs end by steps, not by generations."""
    config = preset(preset_name, kind)
    steps = config.max_env_steps or LAST_BUDGET
    config = dataclasses.replace(config, num_generations=100_000, max_env_steps=steps)
    return tuning.Settings(config, TuningConfig(), preset_name)


def _report(study: tuning.Study, settings: tuning.Settings, path: Path) -> None:
    """Prints the trials and the best one's command; draws the picture."""
    from jax_es.analysis import drawing, figures

    sys.stdout.write(table(study) + "\n")
    best = max(study.trials, key=tuning.outcome)
    steps, value = tuning.outcome(best)
    require(
        steps > 0,
        "no trial could be trained: their fields do not fit together; search others "
        "with another --name.",
    )
    outcomes = [tuning.outcome(trial) for trial in study.trials]
    figure = figures.search(outcomes, tuning.importances(study))
    pictures = drawing.save(figure, path / "plots", "search")
    config, options, preset_name = settings
    again = command(configured(config, best.params), preset_name, options.seeds)
    _say(
        f"Best: trial {best.number}, {significant(value)} ({options.value} over "
        f"{options.seeds} seeds): {tuning.trial_folder(path, best.number).path}\n"
        f"Train it again: {again}\n"
        f"Pictures: {' '.join(map(str, pictures))}"
    )


def table(study: tuning.Study) -> str:
    """Returns the trials, best first, as a Markdown table."""
    trials = sorted(study.trials, key=tuning.outcome, reverse=True)
    fields = list(trials[0].params)
    rows: list[list[str]] = []
    for trial in trials:
        steps, value = tuning.outcome(trial)
        values = [
            f"{each:.4g}" if isinstance(each, float) else str(each)
            for each in trial.params.values()
        ]
        rows.append([str(trial.number), *values, f"{steps:,}", significant(value)])
    return markdown(["trial", *fields, "env steps", "return"], rows)


if __name__ == "__main__":
    sys.exit(main())
