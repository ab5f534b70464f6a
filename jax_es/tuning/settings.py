"""Settings of a hyperparameter search."""

import dataclasses
from typing import Annotated, Literal

from jax_es.checks import Count, Range, check_fields


@dataclasses.dataclass(frozen=True)
class TuningConfig:
    """Settings of a hyperparameter search."""

    search: tuple[str, ...] = ()
    """What is searched: FIELD=LOW:HIGH, FIELD=LOW:HIGH:log or FIELD=A,B,C, as
    es.sigma=0.01:0.1:log policy.width=32,64,128 policy.hidden-sizes=64,64x64. The word
    default stands for the preset's own fields, which are searched if none is given."""
    trials: Count = 20
    """Configurations to try, the preset's own first; a resume may ask for more."""
    seeds: Count = 3
    """Runs a trial, their seeds counting up from --seed."""
    value: Literal["median", "mean"] = "median"
    """What a trial is worth: median or mean of its runs' best evaluations."""
    rungs: Annotated[int, Range("in [1, 63]", lambda n: 1 <= n <= 63)] = 3
    """Budgets that a trial trains to, one after another, the last max-env-steps (of
    each run); trials that are not among the best at one end there. 1 ends none."""
    reduction_factor: Annotated[int, Range("at least 2", lambda n: n >= 2)] = 3
    """η of successive halving: each budget is η times the one before, and about one
    trial of η goes on to it."""

    def __post_init__(self) -> None:
        """Checks every field but search, which needs the configuration."""
        check_fields(self)
