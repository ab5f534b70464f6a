"""Phases: a run that changes some of its settings on the way, and when it does so."""

import contextlib
import dataclasses
import difflib
import json
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jax_es.checks import (
    ConfigError,
    Count,
    Finite,
    NotNegativeFinite,
    as_fields,
    as_tuple,
    check_fields,
    check_numbers,
    check_types,
    from_json,
    require,
)
from jax_es.config import ESConfig, EvaluationConfig, RolloutConfig

if typing.TYPE_CHECKING:
    from jax_es.train_config import TrainConfig

_FIXED = {
    # A state's structure, the range of commands, and schedules, which count from the
    # start of the run.
    "es": "strategy kwargs objective command_low command_high learning_rate_end "
    "sigma_end obedience_weight_end schedule schedule_generations",
    # The machine, and how a policy sees observations.
    "rollout": "num_slots slots_per_core num_threads vectorization_mode num_devices "
    "shard_size num_groups observation_statistics std_floor observation_clip "
    "hide_constants",
    "evaluation": "",
}
_FIELD = re.compile(r"(?<![\w./:'\"-])((?:env|es|evaluation|policy|rollout)\.\w+)")
_PARTS = {"es": ESConfig, "rollout": RolloutConfig, "evaluation": EvaluationConfig}

CHANGEABLE = tuple(
    f"{part}.{field.name}"
    for part, kind in _PARTS.items()
    for field in dataclasses.fields(kind)
    if field.name not in _FIXED[part].split()
)
"""Fields that a phase may change, by dotted name: none of the environment, the network,
how it sees observations, the machine, the strategy, commands or schedules; of es only
with strategy openai-es."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run; it ends with the first of its ends that is met.

    Only the last may have none: it ends with the run.
    """

    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What differs from the run's own configuration, by dotted name, as
    ``{"es.sigma": 0.01}``; each phase begins from that, not from the phase before."""
    env_steps: Count | None = None
    """End: environment steps of this phase, evaluation included."""
    generations: Count | None = None
    """End: generations of this phase."""
    return_reached: Finite | None = None
    """End: mean return of an evaluation of θ."""
    plateau_generations: Count | None = None
    """End: generations in which the running mean of the population's mean return (over
    about ten generations) rises by no more than plateau_gain."""
    plateau_gain: NotNegativeFinite = 0.05
    """Share of the running mean by which it must rise; read with plateau_generations,
    as the next."""
    plateau_floor: Finite | None = None
    """Running mean below which there is no plateau, so that a first optimum does not
    end the phase; none if not given."""
    restart_below: Finite | None = None
    """Running mean that a θ must have from restart_steps on: below it the phase begins
    again with another random θ. Its ends count anew; the run's count all starts."""
    restart_steps: Count | None = None
    """Environment steps of a start until then, evaluation included; read with
    restart_below."""

    def __post_init__(self) -> None:
        """Takes the changes as a run's record has them, with lists for tuples."""
        try:
            changes = json.loads(json.dumps(self.changes))
        except TypeError as error:
            raise ConfigError(f"changes of a phase: {error}.") from error
        object.__setattr__(self, "changes", changes)


def in_phase(config: "TrainConfig", index: int) -> "TrainConfig":
    """Returns the configuration of a run's phase, which has no phases itself.

    Args:
        config: of the run; without phases it is returned.
        index: from 0; beyond the last phase, or −1, means the last.
    """
    if not config.phases:
        return config
    phase = config.phases[min(index, len(config.phases) - 1)]
    return dataclasses.replace(config, phases=()).replace(phase.changes)


def check_phases(config: "TrainConfig") -> None:
    """Builds the configuration of every phase; an error names the phase."""
    for number, phase in enumerate(config.phases, start=1):
        with naming(number):
            check_fields(phase)
            check_numbers(vars(phase))
            _check_ends(phase, is_last=number == len(config.phases))
            _check_restart(phase, number == 1 and config.init is None)
            for name, value in phase.changes.items():
                _check_change(config.es, name, value)
            in_phase(config, number - 1)


@contextlib.contextmanager
def naming(number: int) -> Iterator[None]:
    """Says of a ``ConfigError`` raised inside which phase it is about, from 1.

    Fields are spelled as the file of phases has them.
    """
    try:
        yield
    except ConfigError as error:
        quoted = _FIELD.sub(r'"\1"', as_fields(error.args[0]))
        raise ConfigError(f"phase {number}: {quoted}") from error


def _check_ends(phase: Phase, is_last: bool) -> None:
    has_plateau = phase.plateau_generations is not None
    given = (phase.env_steps, phase.generations, phase.return_reached)
    require(
        is_last or has_plateau or any(end is not None for end in given),
        "it has no end, and others follow; add env_steps, generations, return_reached "
        "or plateau_generations.",
    )
    for name in ("plateau_gain", "plateau_floor"):
        value = getattr(phase, name)
        require(
            has_plateau or value == getattr(Phase, name),
            f"{name} {value} has no meaning without plateau_generations; add it.",
        )


def _check_restart(phase: Phase, begins_at_random: bool) -> None:
    below, steps = phase.restart_below, phase.restart_steps
    require(
        (below is None) == (steps is None),
        f"restart_below {below} and restart_steps {steps} have no meaning without each "
        "other; give both.",
    )
    require(
        below is None or begins_at_random,
        f"restart_below {below} draws another θ, which is for the first phase of a run "
        "without init; leave it out.",
    )


def _check_change(es: ESConfig, name: str, value: Any) -> None:
    close = difflib.get_close_matches(name, CHANGEABLE, n=1)
    hint = f"perhaps you meant {close[0]}" if close else "leave it out"
    require(name in CHANGEABLE, f"{name} may not change in a phase; {hint}.")
    part, _, field = name.partition(".")
    require(
        part != "es" or es.strategy == "openai-es",
        f"{name} may not change with es.strategy {es.strategy}; leave it out.",
    )
    end = getattr(es, f"{field}_end", None)
    require(
        part != "es" or end is None,
        f"{name} may not change while es.{field}_end {end} leads elsewhere; leave one "
        "of them out.",
    )
    given, value = value, as_tuple(value) if isinstance(value, list) else value
    hint = typing.get_type_hints(_PARTS[part])[field]
    try:
        check_types({field: value}, **{field: hint})
    except TypeError as error:
        require(
            field != "variation_range",
            f"{name} must be a list of [NAME, LOW, HIGH], as "
            f'[["mass", 0.9, 1.1]], got {json.dumps(given)}; choose another.',
        )
        raise ConfigError(f"{part}.{error}; choose another.") from error
    check_numbers({name: value})


def read_phases(texts: Sequence[str]) -> tuple[Phase, ...]:
    """Reads the phases that ``--phases`` means.

    Args:
        texts: one, the name of a JSON file or its text: a list of objects with the
            fields of :class:`Phase`; ``None`` means no phases.

    Raises:
        ConfigError: naming the phase.
    """
    given = texts[0]
    if given == "None":
        return ()
    try:
        text = given if given.lstrip().startswith("[") else Path(given).read_text()
        entries = json.loads(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{given} cannot be read as JSON ({reason}).") from error
    require(
        isinstance(entries, list),
        f"{given} must hold a JSON list of phases, as "
        '[{"changes": {"es.sigma": 0.01}, "generations": 20}].',
    )
    fields = ", ".join(field.name for field in dataclasses.fields(Phase))
    phases = []
    for number, entry in enumerate(entries, start=1):
        with naming(number):
            phases.append(from_json(Phase, entry, f"the fields are {fields}"))
    return tuple(phases)


def written(phases: tuple[Phase, ...]) -> str:
    """Returns what :func:`read_phases` reads, defaults left out."""
    entries = [
        {
            field.name: value
            for field in dataclasses.fields(Phase)
            if (value := getattr(phase, field.name)) not in (field.default, {})
        }
        for phase in phases
    ]
    return json.dumps(entries) if entries else "None"
