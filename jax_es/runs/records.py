"""What is recorded of a generation, and statistics of returns."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class GenerationRecord:
    """What happened in one generation.

    A finished run of OpenAI-ES has one record more than generations: the closing
    evaluation of its last θ. It has no population (``num_episodes`` is 0), and a resume
    to more generations replaces it.

    Returns are undiscounted reward sums of an episode in the environment's unit;
    lengths and steps are environment steps; times are wall-clock seconds. What was not
    measured is NaN, or 0 if it is counted.
    """

    generation: int
    """How many were finished before it: 0 for what progress counts as the first. The
    evaluation is of θ before the update, hence of the checkpoint with this number."""
    phase: int = 0
    """Phase of the run, from 1; 0 in a run without phases."""
    env_steps: int = 0
    """Steps of this generation, evaluation included."""
    total_env_steps: int
    """Steps since the run began."""
    num_episodes: int = 0
    """Episodes of the population."""
    return_mean: float = math.nan
    """Mean of the population's finite returns; the next five are over these, too."""
    return_std: float = math.nan
    return_min: float = math.nan
    return_max: float = math.nan
    return_p2_5: float = math.nan
    """2.5th percentile of the population's returns."""
    return_p97_5: float = math.nan
    """97.5th percentile of the population's returns."""
    fitness_mean: float = math.nan
    """Mean of the members' finite fitness; the mean return, unless the healthy reward
    or an objective counts otherwise."""
    num_nonfinite: int = 0
    """Episodes of the population whose return was NaN or infinite."""
    num_failed: int = 0
    """Episodes of the population that the simulator reported as failed."""
    episode_length_mean: float = math.nan
    """Of the population, as the next."""
    episode_length_max: int = 0
    step_cap: int = 0
    """Length at which this generation's episodes were cut."""
    evaluation_return_mean: float = math.nan
    """Mean of the mean policy's finite returns; the next three are over these, too."""
    evaluation_return_std: float = math.nan
    evaluation_return_min: float = math.nan
    evaluation_return_max: float = math.nan
    evaluation_num_nonfinite: int = 0
    """Evaluation episodes whose return was NaN or infinite."""
    evaluation_length_mean: float = math.nan
    evaluation_fitness: float = math.nan
    """Mean fitness of the mean policy's episodes by an objective of your own, which
    decides about the checkpoint ``best``; −∞ if one is not finite, NaN under ours."""
    best_evaluation_return: float = math.nan
    """Highest ``evaluation_return_mean`` so far, among evaluations all of whose returns
    were finite."""
    command_low: float = math.nan
    """Range of the returns that episodes were asked for, as the next; these seven are
    NaN unless ``--es.objective`` is commanded-return."""
    command_high: float = math.nan
    obedience_weight: float = math.nan
    """How much obedience counted, from 0 to 1."""
    command_error_mean: float = math.nan
    """Mean of return − command over the population's finite returns, as the next."""
    command_error_std: float = math.nan
    evaluation_command_error: float = math.nan
    """Mean |return − command| / range over θ's evaluation episodes, whose commands
    are evenly spaced; NaN while the range is unknown."""
    least_command_error: float = math.nan
    """The lowest so far: what decides about the checkpoint ``best``."""
    coverage: float = math.nan
    """Share of an archive's cells that have an elite; the next are of archives, too."""
    qd_score: float = math.nan
    """Sum of all elites' fitness, each less ``qd_offset``."""
    best_fitness: float = math.nan
    """Of the best elite, in the episodes that made it one."""
    num_new_elites: int = 0
    """Policies that filled an empty cell."""
    num_better_elites: int = 0
    """Policies that took an elite's place."""
    num_out_of_bounds: int = 0
    """Policies whose descriptor lies outside of the bounds; they count as at the
    nearest end."""
    num_left_out: int = 0
    """Policies whose fitness or descriptor is NaN or infinite."""
    num_niches: int = 0
    """Active niches after the generation; these five are POET's alone, which evaluates
    the policy of the latest niche that was ever solved, or else of the oldest."""
    num_admitted: int = 0
    """Niches that the generation admitted."""
    num_transfers: int = 0
    """Policies that the generation put in another's place."""
    num_solved: int = 0
    """Niches that were ever solved, the first included."""
    annecs: int = 0
    """Accumulated number of novel environments created and solved (arXiv
    2003.08536)."""
    gradient_norm: float = math.nan
    """Euclidean norm of the estimated gradient."""
    update_norm: float = math.nan
    """Euclidean norm of the change of θ, weight decay included."""
    mean_norm: float = math.nan
    """Euclidean norm of θ after the update."""
    novelty_mean: float = math.nan
    """Mean novelty of the members, in the descriptor's unit; as the next two, of
    novelty search alone."""
    fitness_weight: float = math.nan
    """Share of the fitness in the ranks, the rest being novelty's."""
    num_nonfinite_descriptors: int = 0
    """Descriptors that were NaN or infinite, those of the members and of θ."""
    slot_utilization: float = math.nan
    """Live slot-steps per computed slot-step, from 0 to 1."""
    seconds_policy: float = math.nan
    """In the policy network."""
    seconds_environment: float = math.nan
    """In the simulator."""
    seconds_noise: float = math.nan
    """In drawing perturbations."""
    seconds_update: float = math.nan
    """In estimating the gradient and updating θ."""
    seconds_other: float = math.nan
    """The rest of the generation."""
    seconds_total: float = math.nan
    """The whole generation."""
    env_steps_per_second: float = math.nan
    """``env_steps / seconds_total``."""
    seconds_elapsed: float = math.nan
    """Since the run began, time before a resume included."""
    cpu_seconds: float = math.nan
    """CPU seconds of all threads of the run's own process, without its workers: what a
    busy machine hardly stretches. They count from where ``seconds_elapsed`` does, so
    imports are left out, and what a kill lost."""
    strategy: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What ``tell`` of a strategy of your own reports, by name; NaN if not finite."""

    def numbers(self) -> dict[str, float]:
        """Returns the measured numbers by their names in files, ``group/name``.

        A group is there if one of its numbers was measured (:data:`GROUPS`); those of
        ``strategy`` are ``strategy/NAME``.
        """
        values = {field.name: getattr(self, field.name) for field in FIELDS}
        unmeasured = {field.name: field.default for field in FIELDS}
        found = {name: v for name, v in values.items() if name not in _GROUP_OF}
        for names in GROUPS.values():
            if any(not _equal(values[name], unmeasured[name]) for name in names):
                found |= {written(name): values[name] for name in names}
        return found | {f"{OWN}{name}": v for name, v in self.strategy.items()}

    def number(self, name: str) -> float:
        """Returns a field, or ``strategy/NAME``: NaN if that was not reported."""
        if name.startswith(OWN):
            return self.strategy.get(name.removeprefix(OWN), math.nan)
        return getattr(self, name)

    def __repr__(self) -> str:
        """Leaves out what was not measured."""
        measured = {k: v for k, v in vars(self).items() if v == v}  # not NaN
        listed = ", ".join(f"{name}={value!r}" for name, value in measured.items())
        return f"GenerationRecord({listed})"

    def __post_init__(self) -> None:
        """Turns NumPy and JAX scalars into plain Python numbers."""
        for field in FIELDS:
            convert = int if field.type is int else float
            object.__setattr__(self, field.name, convert(getattr(self, field.name)))
        own = {name: float(value) for name, value in self.strategy.items()}
        object.__setattr__(self, "strategy", own)


FIELDS = tuple(
    field
    for field in dataclasses.fields(GenerationRecord)
    if field.type in (int, float)
)
"""Those that hold one number."""

GROUPS = {
    "population": (
        *("num_episodes", "return_mean", "return_std", "return_min", "return_max"),
        *("return_p2_5", "return_p97_5", "fitness_mean", "num_nonfinite"),
        *("num_failed", "episode_length_mean", "episode_length_max", "step_cap"),
    ),
    "evaluation": (
        *("evaluation_return_mean", "evaluation_return_std", "evaluation_return_min"),
        *("evaluation_return_max", "evaluation_num_nonfinite"),
        *("evaluation_length_mean", "evaluation_fitness", "best_evaluation_return"),
    ),
    "command": (
        *("command_low", "command_high", "obedience_weight", "command_error_mean"),
        *("command_error_std", "evaluation_command_error", "least_command_error"),
    ),
    "archive": (
        *("coverage", "qd_score", "best_fitness", "num_new_elites"),
        *("num_better_elites", "num_out_of_bounds", "num_left_out"),
    ),
    "niches": (
        *("num_niches", "num_admitted", "num_transfers", "num_solved", "annecs"),
    ),
    "update": ("gradient_norm", "update_norm", "mean_norm"),
    "novelty": ("novelty_mean", "fitness_weight", "num_nonfinite_descriptors"),
    "time": (
        *("slot_utilization", "seconds_policy", "seconds_environment"),
        *("seconds_noise", "seconds_update", "seconds_other", "seconds_total"),
        *("env_steps_per_second", "seconds_elapsed", "cpu_seconds"),
    ),
}
"""Fields that are measured together; those of no group are written always."""

_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


@functools.cache
def written(name: str) -> str:
    """Returns a field's name in files: ``evaluation/return_mean``.

    The group's own name is not repeated behind it.
    """
    group = _GROUP_OF.get(name)
    return f"{group}/{name.replace(f'{group}_', '')}" if group else name


def _equal(a: float, b: Any) -> bool:
    """Returns whether two numbers are equal or both NaN."""
    return a == b or (a != a and b != b)


OWN = "strategy/"
"""What the names of a strategy's own numbers begin with."""

WALL_CLOCK_FIELDS = tuple(field.name for field in FIELDS if "second" in field.name)
"""The fields in which a repeated or resumed run may differ from the first."""


def evaluation_record(
    generation: int,
    total_env_steps: int,
    returns: ArrayLike,
    lengths: ArrayLike,
    best: float,
    seconds_elapsed: float,
    **more: Any,
) -> GenerationRecord:
    """Returns the record of an evaluation without a population.

    Args:
        generation: index of the evaluation, from 0.
        total_env_steps: training steps since the run began, 0 for a run without any.
        returns: ``[E]``, of the evaluation's episodes.
        lengths: ``[E]``, theirs.
        best: highest mean evaluation return so far.
        seconds_elapsed: since the run began.
        **more: further fields.
    """
    return GenerationRecord(
        generation=generation,
        total_env_steps=total_env_steps,
        **evaluation_fields(returns, lengths),
        best_evaluation_return=best,
        seconds_elapsed=seconds_elapsed,
        **more,
    )


def evaluation_fields(returns: ArrayLike, lengths: ArrayLike) -> dict[str, Any]:
    """Returns a record's fields about θ's episodes, of their returns and lengths."""
    found = return_statistics(returns)._asdict()
    names = ("return_mean", "return_std", "return_min", "return_max", "num_nonfinite")
    return {
        **{f"evaluation_{name}": found[name.removeprefix("return_")] for name in names},
        "evaluation_length_mean": float(np.asarray(lengths).mean()),
    }


class ReturnStatistics(NamedTuple):
    """Statistics of the finite ones of some returns; NaN if there is none."""

    mean: float
    std: float
    """Of the set, not of an estimate."""
    min: float
    max: float
    p2_5: float
    """2.5th percentile, linearly interpolated."""
    p97_5: float
    """97.5th percentile."""
    num_nonfinite: int
    """How many returns were NaN or infinite."""


def nulled(values: Mapping[str, float]) -> dict[str, float | None]:
    """Returns numbers as JSON has them, which knows no NaN and no infinity."""
    return {name: v if math.isfinite(v) else None for name, v in values.items()}


def return_statistics(returns: ArrayLike) -> ReturnStatistics:
    """Summarises returns of any shape, leaving out those that are not finite.

    Example:
        >>> return_statistics([1.0, 3.0, float("nan")])[:4]
        (2.0, 1.0, 1.0, 3.0)
    """
    values = np.asarray(returns, np.float64).ravel()
    finite = values[np.isfinite(values)]
    num_nonfinite = values.size - finite.size
    # A NaN stands in for an empty set: every statistic of it is NaN, without warnings.
    finite = finite if finite.size else np.array([np.nan])
    low, high = np.percentile(finite, [2.5, 97.5])
    return ReturnStatistics(
        mean=float(finite.mean()),
        std=float(finite.std()),
        min=float(finite.min()),
        max=float(finite.max()),
        p2_5=float(low),
        p97_5=float(high),
        num_nonfinite=num_nonfinite,
    )
