"""Hyperparameter search by successive halving: Optuna chooses, experiments train.

A study is a folder. ``study.json`` says what is searched, and ``trial-0000/``,
``trial-0001/`` … are experiments like any other (``seeds.py``), each with the values
that it reached.

All runs of a trial train to a first budget of environment steps. The trials with the
best values there go on to the next budget, which a run does by resuming, so that a
trial's numbers are those of one uninterrupted training.

Optuna's study is kept in memory. What it decides follows from the trials' values and
their numbers: a study that is resumed makes the same decisions again, finds the values
in the trials' folders, and goes on.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jax_es.checks import ConfigError, from_json, is_of_type, require
from jax_es.rollout.streams import stream
from jax_es.runs.changes import check_resumable
from jax_es.runs.digests import DIGESTS, recorded, warn_unchecked
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import EXPERIMENT_FILE, STUDY_FILE
from jax_es.runs.wording import significant
from jax_es.train_config import TrainConfig
from jax_es.tuning.search_space import (
    configured,
    default_search,
    field_of,
    load_optuna,
    space,
    unchanged,
)
from jax_es.tuning.settings import TuningConfig

DATABASE = "study.db"
"""A finished study as Optuna's dashboard reads it."""

DEFAULT = "default"
"""The word in ``--search`` that stands for :func:`default_search`."""

Study = Any
Trial = Any


class Settings(NamedTuple):
    """What a study is; ``study.json`` holds it."""

    config: TrainConfig
    """Of the runs of a trial that changes nothing; its ``max_env_steps`` is the last
    budget."""
    tuning: TuningConfig
    """The search, whose fields are all named."""
    preset: str
    """Where ``config`` comes from."""


def check(settings: Settings) -> Settings:
    """Checks a new study before there is a folder; names all fields of its search.

    Raises:
        ConfigError: (a ``ValueError``) for what cannot be searched or trained.
    """
    from jax_es.training.seeds import check_buildable  # late: it loads the simulators

    config, tuning, _ = settings
    require(
        budgets(settings)[0] >= 1,
        f"rungs {tuning.rungs} and reduction_factor {tuning.reduction_factor} leave "
        f"less than one of max_env_steps {config.max_env_steps} for the first budget; "
        "use fewer rungs or more steps.",
    )
    lines: dict[str, str] = {}
    for given in tuning.search or (DEFAULT,):
        meant = default_search(config) if given == DEFAULT else (given,)
        lines |= {field_of(line): line for line in meant}
    tuning = dataclasses.replace(tuning, search=tuple(lines.values()))
    # One build, of each field's lowest value, finds what only the environment rejects.
    lowest = {
        name: each.choices[0] if hasattr(each, "choices") else each.low
        for name, each in space(config, tuning.search).items()
    }
    seeds = range(config.seed, config.seed + tuning.seeds)
    check_buildable(configured(config, lowest), seeds)
    return settings._replace(tuning=tuning)


def create(folder: RunDirectory, settings: Settings) -> None:
    """Makes a checked study's folder; hold its ``lock()``."""
    folder.create(
        settings.config, settings.preset, tuning=dataclasses.asdict(settings.tuning)
    )


def read(folder: RunDirectory) -> Settings:
    """Reads what :func:`create` wrote.

    Raises:
        ConfigError: if the folder is no study, or it cannot be read.
    """
    require(folder.exists(), f"{folder.path} is not a study (it has no {folder.file}).")
    try:
        record = folder.record()
        if DIGESTS not in record:
            warn_unchecked(folder.path)
        tuning = from_json(TuningConfig, record["tuning"])
        return Settings(folder.config(), tuning, record["preset"])
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder.path / folder.file} is not the record of a study ({error!r}); "
            "restore it from a copy."
        ) from error


def tune(
    folder: RunDirectory,
    say: Callable[[str], None] = lambda text: None,
    check_stop: Callable[[], None] = lambda: None,
) -> Study:
    """Trains the trials that a study lacks.

    Args:
        folder: from :func:`create`; hold its ``lock()``.
        say: tells the user a line.
        check_stop: called often; raises an exception to end the search. Whatever ends
            it, the next call goes on to the same numbers.

    Returns:
        Optuna's study of all trials.
    """
    optuna = load_optuna()
    settings = read(folder)
    config, tuning, _ = settings
    searched = space(config, tuning.search)
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(
        storage=storage,
        study_name="jax-es",
        direction="maximize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(
            budgets(settings)[0], tuning.reduction_factor
        ),
    )
    own = unchanged(config, searched)
    if own is not None:
        study.enqueue_trial(own)
    for number in range(tuning.trials):
        check_stop()
        seed = stream(config.seed, "tuning", number).integers(2**32)
        study.sampler = optuna.samplers.TPESampler(seed=int(seed))
        _train(study, study.ask(searched), settings, folder.path, say, check_stop)
    file = folder.path / DATABASE
    file.unlink(missing_ok=True)
    optuna.copy_study(
        from_study_name="jax-es", from_storage=storage, to_storage=f"sqlite:///{file}"
    )
    return study


def _train(
    study: Study,
    trial: Trial,
    settings: Settings,
    path: Path,
    say: Callable[[str], None],
    check_stop: Callable[[], None],
) -> None:
    """Trains a trial to its last budget, or to the one where it is not good enough."""
    from jax_es.training.seeds import train_seeds

    states = load_optuna().trial.TrialState
    config, tuning, preset = settings
    name = f"trial {trial.number:04d} ({trial.number + 1} of {tuning.trials})"
    try:
        config = configured(config, trial.params)
    except ValueError as error:
        say(f"{name} fails, its fields do not fit together: {error}")
        study.tell(trial, state=states.FAIL)
        return
    folder = trial_folder(path, trial.number)
    values = _values_so_far(folder, config, recorded(path / STUDY_FILE))
    last = config.max_env_steps
    for rung, budget in enumerate(budgets(settings)):
        if rung == len(values):
            results = train_seeds(
                dataclasses.replace(config, max_env_steps=budget),
                tuning.seeds,
                folder.path,
                resume=folder.exists(),
                preset=preset,
                label=name,
                check_stop=check_stop,
            )
            best = [_finite_or_lowest(result.best_evaluation) for result in results]
            average = {"median": statistics.median, "mean": statistics.fmean}
            values.append(average[tuning.value](best))
            folder.update(rungs=[v if math.isfinite(v) else None for v in values])
        trial.report(values[rung], budget)
        if budget != last and trial.should_prune():
            say(f"{name} ends at {significant(values[rung])} after {budget:,} steps")
            study.tell(trial, state=states.PRUNED)
            return
    say(f"{name} reaches {significant(values[-1])} after {last:,} steps")
    study.tell(trial, values[-1])


def trial_folder(study: Path, number: int) -> RunDirectory:
    """Returns the folder of a trial's experiment, which may not have begun."""
    return RunDirectory(study / f"trial-{number:04d}", EXPERIMENT_FILE)


def _values_so_far(
    folder: RunDirectory, config: TrainConfig, entry: Any
) -> list[float]:
    """Reads what a trial has reached; none of another configuration's.

    Its record must hold a digest if the study's ``entry`` says that all do.
    """
    if not folder.exists():
        return []
    check_resumable(folder, config)
    record = folder.record()
    values = record.get("rungs", [])
    if DIGESTS not in record:
        require(
            "first_step" not in (entry or {}),
            f"{folder.path / folder.file} has lost its digest; restore it from a copy.",
        )
        warn_unchecked(folder.path.parent)
    require(
        is_of_type((*values,), tuple[float | None, ...]),
        f"{folder.path / folder.file}: rungs must be numbers or null, got {values}; "
        "restore it from a copy.",
    )
    return [_finite_or_lowest(value) for value in values]


def _finite_or_lowest(value: float | None) -> float:
    return -math.inf if value is None or math.isnan(value) else value


def budgets(settings: Settings) -> list[int]:
    """Returns the environment steps that a run has taken at the end of each rung.

    Example:
        >>> config = TrainConfig(max_env_steps=1000)
        >>> budgets(Settings(config, TuningConfig(rungs=3), "hopper"))
        [111, 333, 1000]
    """
    last = settings.config.max_env_steps or 0
    factor, rungs = settings.tuning.reduction_factor, settings.tuning.rungs
    first = last // factor ** (rungs - 1)
    return [first * factor**rung for rung in range(rungs - 1)] + [last]


def outcome(trial: Trial) -> tuple[int, float]:
    """Returns a finished trial's last budget and its value there.

    The largest is the best trial's. The budget is 0 if the trial's fields do not fit
    together.
    """
    return max(trial.intermediate_values.items(), default=(0, -math.inf))


def importances(study: Study) -> dict[str, float]:
    """Returns each field's share in what makes a good value at the first budget.

    There, trials that ended early count as well. Empty if too few differ.
    """
    optuna = load_optuna()
    first = optuna.create_study(direction="maximize")
    for trial in study.trials:
        _, value = min(trial.intermediate_values.items(), default=(0, -math.inf))
        if math.isfinite(value):
            complete = optuna.trial.create_trial(
                params=trial.params, distributions=trial.distributions, value=value
            )
            first.add_trial(complete)
    if len({trial.value for trial in first.trials}) < 2:
        return {}
    return optuna.importance.get_param_importances(first)
