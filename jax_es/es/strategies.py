"""Strategies by name, what ``--strategy`` chooses besides OpenAI-ES.

All of them hold a generation's members in memory. θ and σ are the run's own, whatever
the algorithm calls them; the rest are its hyperparameters by evosax' names.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import optax
from evosax.algorithms.distribution_based import (
    ARS,
    CMA_ES,
    CR_FM_NES,
    PGPE,
    SNES,
    Sep_CMA_ES,
    SimpleES,
)
from evosax.algorithms.distribution_based.base import DistributionBasedAlgorithm
from evosax.core.fitness_shaping import (
    centered_rank_fitness_shaping_fn,
    standardize_fitness_shaping_fn,
)

from jax_es.checks import Range, is_of_type, require
from jax_es.config import ESTIMATING, ESConfig
from jax_es.es.cem import cem
from jax_es.es.evosax_bridge import EvosaxStrategy, evosax_strategy
from jax_es.es.optimizers import clipup
from jax_es.es.repaired import RepairedMAES, RepairedRmES, RepairedXNES
from jax_es.types import PyTree

ALGORITHMS: dict[str, type[DistributionBasedAlgorithm]] = {
    "cma-es": CMA_ES,
    "sep-cma-es": Sep_CMA_ES,
    "rm-es": RepairedRmES,
    "ma-es": RepairedMAES,
    "snes": SNES,
    "xnes": RepairedXNES,
    "cr-fm-nes": CR_FM_NES,
    "pgpe": PGPE,
    "ars": ARS,
    "simple-es": SimpleES,
}

OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    **dict.fromkeys(("snes", "xnes", "simple-es", "ars"), optax.sgd),
    "pgpe": lambda rate: optax.chain(clipup(0.9, 2.0), optax.scale(-rate)),
}
"""What takes the algorithm's step, by its hyperparameter ``learning_rate``."""

LEARNING_RATES = {"pgpe": 0.01, "ars": 0.02}
"""evosax' of ClipUp, and that of HalfCheetah's linear policy in Mania et al. 2018."""

ANY = Range("finite", math.isfinite)
RANGES = {
    "learning_rate": Range("positive and finite", lambda x: 0 < x < math.inf),
    "elite_ratio": Range("in (0, 1]", lambda x: 0 < x <= 1),
    "extra_std": Range("at least 0 and finite", lambda x: 0 <= x < math.inf),
    **dict.fromkeys(
        ("m", "extra_generations"),
        Range("whole and at least 1", lambda x: x >= 1 and x == int(x)),
    ),
}
"""What hyperparameters may be; others any number that is finite."""

SHAPINGS = {
    "centered_rank": centered_rank_fitness_shaping_fn,
    "standardize": standardize_fitness_shaping_fn,
}
"""For algorithms that leave it open; without one it is their own."""

MATRICES = {"cma-es": 8, "ma-es": 4, "xnes": 8}
"""How many matrices of |θ|² numbers an update has at once, about."""

POPULATIONS = 6
"""How many times a generation's members stand in memory during an update, about."""


def named_strategy(config: ESConfig, mean: PyTree) -> EvosaxStrategy:
    """Builds the strategy of a configuration.

    Args:
        config: its ``strategy`` is one that holds its members.
        mean: gives the shapes of the weights.

    Raises:
        ConfigError: for a hyperparameter that it does not have, or no number.
    """
    name, size = config.strategy, 2 * config.num_pairs
    require(
        name not in ESTIMATING,
        f"es.strategy {name} holds no members; build it with openai_es or "
        "novelty_search.",
    )
    given = dict(config.kwargs)
    known = _hyperparameters(name, size, mean)
    for key, value in given.items():
        require(
            key in known,
            f"es.kwargs.{key}: {name} has no hyperparameter {key}; it has "
            f"{', '.join(sorted(known))}.",
        )
        words, holds = RANGES.get(key, ANY)
        require(
            is_of_type(value, float) and holds(value),
            f"es.kwargs.{key} must be a number, {words}, got {value!r}; leave it out "
            "for the algorithm's own.",
        )
    if "m" in given:
        given["m"] = int(given["m"])
    if name == "cem":
        return cem(size, mean, config.sigma, **given)
    if name in LEARNING_RATES:
        given = {"learning_rate": LEARNING_RATES[name], **given}
    if name == "ars":
        given["std_schedule"] = optax.constant_schedule(config.sigma)
    else:
        given["std_init"] = jnp.float32(config.sigma)
    if "learning_rate" in given:
        given["optimizer"] = OPTIMIZERS[name](given.pop("learning_rate"))
    if config.shaping in SHAPINGS:
        given["fitness_shaping_fn"] = SHAPINGS[config.shaping]
    return evosax_strategy(ALGORITHMS[name], size, mean, **given)


def _hyperparameters(name: str, population_size: int, mean: PyTree) -> set[str]:
    """Returns the names of the numbers that a strategy takes."""
    if name == "cem":
        return {*inspect.signature(cem).parameters} - {
            "population_size",
            "mean",
            "sigma",
        }
    params = ALGORITHMS[name](population_size, mean).default_params
    fields = [field.name for field in dataclasses.fields(params)]
    known = {f for f in fields if np.ndim(getattr(params, f)) == 0} - {"std_init"}
    known |= {"learning_rate"} if name in OPTIMIZERS else set()
    known |= {"elite_ratio"} if name in ("simple-es", "ars") else set()
    return known | ({"m"} if name == "rm-es" else set())


def memory_needs(config: ESConfig, num_weights: int) -> dict[str, tuple[int, str]]:
    """Returns what a strategy would take of each device's memory, about.

    Args:
        config: of the run.
        num_weights: |θ|.

    Returns:
        By what asks for it: bytes, and what to choose instead.
    """
    name, members = config.strategy, 2 * config.num_pairs
    needs = {}
    if name in MATRICES:
        what = f"es.strategy {name}, with matrices of {num_weights:,} x {num_weights:,}"
        needs[f"{what} numbers,"] = (
            4 * MATRICES[name] * num_weights**2,
            "choose --strategy sep-cma-es, snes, cr-fm-nes or openai-es, or a smaller "
            "policy",
        )
    what = f"es.num_pairs {config.num_pairs}, whose {members:,} members of"
    needs[f"{what} {num_weights:,} weights es.strategy {name} holds,"] = (
        4 * POPULATIONS * members * num_weights,
        "choose fewer pairs, --strategy openai-es or a smaller policy",
    )
    return needs
