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
    """Mean evaluation return of the run's initial mean; NaN if its record is lost."""
    final_evaluation: float
    """Mean evaluation return of the final mean."""
    best_evaluation: float
    """The highest mean evaluation return of the run."""

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
            f"{self.state.total_env_steps} environment steps; evaluation return "
            f"{self.first_evaluation:.6g} at the start, {self.final_evaluation:.6g} at "
            f"the end, {self.best_evaluation:.6g} at best)"
        )
