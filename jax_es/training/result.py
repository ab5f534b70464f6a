"""What training a run returns."""

import dataclasses
import functools
from pathlib import Path

from jax_es.runs.records import GenerationRecord
from jax_es.training.generation import TrainState
from jax_es.training.load_policy import LoadedPolicy, load_policy


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class TrainingResult:
    """What a finished run returns."""

    path: Path
    """The run's folder."""
    state: TrainState
    """After the last generation; ``state.es.mean`` is θ."""
    records: list[GenerationRecord]
    """One per generation of this call."""
    first_evaluation: float
    """Mean evaluation return of the run's initial mean, as the next two its mean
    fitness where an objective is of your own; NaN if its record is lost."""
    final_evaluation: float
    """That of the final mean."""
    best_evaluation: float
    """The highest one of the run."""
    evaluated: str = "return"
    """What these three are: ``"return"`` or ``"fitness"``."""

    @functools.cached_property
    def policy(self) -> LoadedPolicy:
        """The run's best policy, which acts: ``policy(observation, reward)``.

        It is read when it is first used; :func:`~jax_es.training.load_policy` reads
        others of the run, and runs of other processes.
        """
        return load_policy(self.path)

    def __repr__(self) -> str:
        """Says how well it went; a state and its records would fill the screen."""
        return (
            f"TrainingResult({self.path}: generation {int(self.state.es.generation)}, "
            f"{self.state.total_env_steps} environment steps; evaluation "
            f"{self.evaluated} {self.first_evaluation:.6g} at the start, "
            f"{self.final_evaluation:.6g} at the end, {self.best_evaluation:.6g} at "
            "best)"
        )
