"""Strategies by name: ``jax_es.strategy``, and what ``--strategy`` chooses.

All but OpenAI-ES, novelty search and guided ES hold a generation's members in memory,
the genetic algorithm their parents. θ and σ are the run's own, whatever the algorithm
calls them; the rest are its hyperparameters by evosax' names.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Callable
from typing import Annotated, Any, get_args

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

from jax_es.checks import (
    Fraction,
    NotNegativeFinite,
    Positive,
    Range,
    Share,
    Weight,
    is_of_type,
    require,
)
from jax_es.config import ESTIMATING, ESConfig
from jax_es.es.cem import cem
from jax_es.es.cem_rl import cem_rl, cem_rl_options
from jax_es.es.evosax_bridge import evosax_strategy
from jax_es.es.genetic import genetic
from jax_es.es.guided import guided
from jax_es.es.noise import make_noise
from jax_es.es.novelty import novelty_search
from jax_es.es.openai_es import openai_es
from jax_es.es.optimizers import clipup
from jax_es.es.own_strategy import own_strategy
from jax_es.es.repaired import RepairedMAES, RepairedRmES, RepairedXNES
from jax_es.es.strategy import Strategy, check_floats
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

OURS = {"cem": cem, "ga": genetic}
"""Those that are not evosax': ``(population_size, mean, sigma, **hyperparameters)``."""

_FOLLOWING = {"extra_std": "0.224 sigma", "first_sigma": "sigma", "parents": "20"}
"""Defaults that follow from others."""

OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    **dict.fromkeys(("snes", "xnes", "simple-es", "ars"), optax.sgd),
    "pgpe": lambda rate: optax.chain(clipup(0.9, 2.0), optax.scale(-rate)),
}
"""What takes the algorithm's step, by its hyperparameter ``learning_rate``."""

LEARNING_RATES = {"pgpe": 0.01, "ars": 0.02}
"""evosax' of ClipUp, and that of HalfCheetah's linear policy in Mania et al. 2018."""

_WHOLE = Annotated[
    float, Range("whole, from 1 to 10,000", lambda x: x in range(1, 10_001))
]
RANGES: dict[str, Any] = {
    **dict.fromkeys(("learning_rate", "std_max", "d_std", "mu_eff", "chi_n"), Positive),
    **dict.fromkeys(("c_mean", "c_std", "c_c", "c_1", "c1", "c_mu", "q_star"), Weight),
    **dict.fromkeys(("m", "T", "extra_generations", "parents"), _WHOLE),
    "max_generations": Annotated[
        float, Range("whole, from 1 to 1,000,000", lambda x: x in range(1, 1_000_001))
    ],
    "first_sigma": Positive,
    "elite_ratio": Share,
    "std_max_change": Fraction,
}
"""What hyperparameters may be; others at least 0 and finite."""

SHAPINGS = {
    "centered_rank": centered_rank_fitness_shaping_fn,
    "standardize": standardize_fitness_shaping_fn,
}
"""For algorithms that leave it open; without one it is their own."""


def strategy(
    name: str | Callable[..., Any],
    theta: PyTree,
    *,
    size: int = 64,
    sigma: float = 0.02,
    descriptor_size: int = 0,
    **options: Any,
) -> Strategy:
    """Builds any strategy, to search with it outside of a run.

    Args:
        name: one of :data:`~jax_es.config.STRATEGIES`, or one of your own, ``mine(mean,
            descriptor_size) → (init, ask, tell)``.
        theta: gives the shapes of the weights, a pytree of arrays.
        size: P, members a generation; an even number, since members come in pairs.
        sigma: σ, of the first generation where the strategy adapts it.
        descriptor_size: B, numbers that describe what a member did, for novelty or one
            of your own; ``tell`` then takes a
            :class:`~jax_es.es.strategy.Behaviour`, too.
        **options: fields of :class:`jax_es.ESConfig` that the strategy reads, as
            ``learning_rate``, and its own hyperparameters (``es.kwargs``).

    Raises:
        ConfigError: (a ``ValueError``) for an unknown name, or an option that the
            strategy does not have.

    Example:
        >>> import jax
        >>> theta = {"x": jnp.array([3.0, -2.0])}
        >>> es = strategy("cma-es", theta, size=16, sigma=0.5)
        >>> state = es.init(jax.random.key(0), theta)
        >>> for _ in range(60):
        ...     members = es.ask(state).members  # [P, …] per leaf
        ...     fitness = -jnp.sum((members["x"] - 1.0) ** 2, axis=-1)  # [P]
        ...     state, info = es.tell(state, fitness)
        >>> bool(jnp.all(jnp.abs(state.mean["x"] - 1.0) < 0.05))
        True
    """
    require(
        isinstance(size, int) and size >= 2 and size % 2 == 0,
        f"size must be an even number of at least 2, got {size!r}: members come in "
        "pairs.",
    )
    check_floats("theta", theta)
    module, _, own = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    require(
        not module,
        f"strategy {name!r} is a name in a module; pass the function itself: from "
        f"{module} import {own}.",
    )
    if callable(name):
        title = getattr(name, "__qualname__", type(name).__qualname__)
        return own_strategy(title, name, theta, size, sigma, descriptor_size, options)
    fields = {field.name for field in dataclasses.fields(ESConfig)}
    known = {key: value for key, value in options.items() if key in fields}
    config = ESConfig(
        strategy=name,
        num_pairs=size // 2,
        sigma=sigma,
        kwargs={key: value for key, value in options.items() if key not in known},
        **known,
    )
    match name:
        case "openai-es":
            return openai_es(config, make_noise(config, theta))
        case "guided":
            return guided(config, make_noise(config, theta))
        case "novelty":
            require(
                descriptor_size >= 1,
                "descriptor_size must be at least 1 for novelty, which compares what "
                f"members did, got {descriptor_size}; add descriptor_size=2 where two "
                "numbers describe it.",
            )
            return novelty_search(config, descriptor_size, make_noise(config, theta))
    return held_strategy(config, theta)


def named_strategy(config: ESConfig, mean: PyTree) -> Strategy:
    """Is :func:`strategy` as it was; the next version drops it."""
    warnings.warn(
        "named_strategy(config, mean) is now jax_es.strategy(name, mean, size=…, "
        "sigma=…); call that instead",
        DeprecationWarning,
        stacklevel=2,
    )
    return held_strategy(config, mean)


def held_strategy(config: ESConfig, mean: PyTree) -> Strategy:
    """Builds the strategy of a configuration.

    Args:
        config: its ``strategy`` is one of ours that holds its members.
        mean: gives the shapes of the weights.

    Raises:
        ConfigError: for a hyperparameter that it does not have, or no number.
    """
    name, size = config.strategy, 2 * config.num_pairs
    require(
        name not in ESTIMATING,
        f"es.strategy {name} holds no members; build it with jax_es.strategy.",
    )
    if name == "cem-rl":
        return cem_rl(size, mean, config.sigma, cem_rl_options(config.kwargs))
    given = dict(config.kwargs)
    known = _hyperparameters(name, size, mean)
    for key, value in given.items():
        require(
            key in known,
            f"es.kwargs.{key}: {name} has no hyperparameter {key}; it has (with "
            f"defaults) {', '.join(known[each] for each in sorted(known))}.",
        )
        _, (words, holds) = get_args(RANGES.get(key, NotNegativeFinite))
        require(
            is_of_type(value, float) and holds(value),
            f"es.kwargs.{key} must be a number, {words}, got {value!r}; leave it out "
            "for the algorithm's own.",
        )
    require(
        name == "ars" or given.get("elite_ratio") != 1,
        f"es.kwargs.elite_ratio must be below 1 with es.strategy {name}, got 1: all "
        "members would be elites, and nothing be selected.",
    )
    for key in {"m", "parents", "max_generations"} & {*given}:
        given[key] = int(given[key])
    if name in OURS:
        return OURS[name](size, mean, config.sigma, **given)
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


def _hyperparameters(name: str, population_size: int, mean: PyTree) -> dict[str, str]:
    """Returns the numbers that a strategy takes: by name, name and default."""
    if name in OURS:
        own = list(inspect.signature(OURS[name]).parameters.values())[3:]
        known = {p.name: p.default for p in own}
        known |= {name: text for name, text in _FOLLOWING.items() if name in known}
    else:
        algorithm = ALGORITHMS[name](population_size, mean)
        known = dict(vars(algorithm.default_params))
        del known["std_init"]
        if name in OPTIMIZERS:
            known["learning_rate"] = LEARNING_RATES.get(name, 1.0)
        if name in ("simple-es", "ars"):
            known["elite_ratio"] = algorithm.elite_ratio
        if name == "rm-es":
            known["m"] = 1
    return {
        key: f"{key} {value if isinstance(value, str) else format(float(value), '.3g')}"
        for key, value in known.items()
        if np.ndim(value) == 0
    }
