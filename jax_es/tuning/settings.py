"""Settings of a hyperparameter search."""

import dataclasses
from typing import Literal

from jax_es.checks import require


@dataclasses.dataclass(frozen=True)
class TuningConfig:
    """Settings of a hyperparameter search."""

    search: tuple[str, ...] = ()
    """What is searched: FIELD=LOW:HIGH, FIELD=LOW:HIGH:log or FIELD=A,B,C, as
    es.sigma=0.01:0.1:log policy.width=32,64,128 policy.hidden-sizes=64,64x64. The word
    default stands for the preset's own fields, which are searched if none is given."""
    trials: int = 20
    """Configurations to try, the preset's own first; a resume may ask for more."""
    seeds: int = 3
    """Runs a trial, their seeds counting up from --seed."""
    value: Literal["median", "mean"] = "median"
    """What a trial is worth: median or mean of its runs' best evaluations."""
    rungs: int = 3
    """Budgets that a trial trains to, one after another, the last max-env-steps (of
    each run); trials that are not among the best at one end there. 1 ends none."""
    reduction_factor: int = 3
    """η of successive halving: each budget is η times the one before, and about one
    trial of η goes on to it."""

    def __post_init__(self) -> None:
        """Checks every field but search, which needs the configuration."""
        for name, least in (
            *(("trials", 1), ("seeds", 1), ("rungs", 1)),
            ("reduction_factor", 2),
        ):
            value = getattr(self, name)
            require(value >= least, f"{name} must be at least {least}, got {value}.")
        require(
            self.value in ("median", "mean"),
            f"value must be median or mean, got {self.value!r}.",
        )
