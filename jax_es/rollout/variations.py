"""How environments differ from their ordinary selves, by names such as mass.

An environment knows what its names mean (its method ``named_variations``); here they
become part of tasks, so that an episode's result depends on its task alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.rollout.tasks import Tasks, tasks_of_mean
from jax_es.types import VectorEnv

RANGE_OPTION = "--rollout.variation-range"


def varied(
    tasks: Tasks,
    env: VectorEnv,
    values: Mapping[str, Any] | None = None,
    option: str = RANGE_OPTION,
) -> Tasks:
    """Returns tasks in environments that differ by ``values``.

    Args:
        tasks: E of them.
        env: that knows the names.
        values: name → a number or ``[E]`` numbers; absent ones are neutral.
        option: that gives them, as errors say it.

    Raises:
        ConfigError: the environment has no named variations, or not these.
    """
    named: Any = getattr(env, "named_variations", None)
    require(
        named is not None,
        f"{option} has no meaning with this environment, which has no named "
        "variations; leave it out, or choose a task of MuJoCo's without env.kwargs and "
        "env.wrappers, or an environment that has variations, as Walker2dTerrain-v0 "
        "and BipedalWalkerTerrain-v0 have.",
    )
    try:
        return tasks._replace(variation=named(values or {}, len(tasks.member)))
    except ValueError as error:
        raise ConfigError(f"{option} {error}") from error


def corners(ranges: Sequence[tuple[str, float, float]]) -> list[dict[str, float]]:
    """Returns environments that tell whether all of these ranges' can be.

    All numbers lowest, all highest, the ends of a range (X-low, X-high) as far across
    each other as they may be drawn, and a few draws.

    Example:
        >>> ranges = [("gap-low", 0.0, 1.0), ("gap-high", 0.0, 2.0)]
        >>> [tuple(each.values()) for each in corners(ranges)[:3]]
        [(0.0, 0.0), (1.0, 2.0), (1.0, 0.0)]
    """
    found = [
        {name: low for name, low, _ in ranges},
        {name: high for name, _, high in ranges},
        {name: high if name.endswith("-low") else low for name, low, high in ranges},
    ]
    rng = np.random.default_rng(0)
    for _ in range(4):
        found.append({name: rng.uniform(low, high) for name, low, high in ranges})
    return found


def check_begins(
    env: VectorEnv, variations: Iterable[Mapping[str, float]], option: str
) -> None:
    """Begins an episode in each of these environments.

    Args:
        env: that knows the names.
        variations: name → number.
        option: that may lead to them, as errors say it.

    Raises:
        ConfigError: the environment cannot be so.
    """
    tasks = tasks_of_mean(np.arange(env.num_envs), env.max_episode_steps)
    for values in variations:
        options = {"variation": varied(tasks, env, values, option).variation}
        try:
            env.reset(seed=tasks.seed, options=options)
        except Exception as error:  # of the user's own environment any
            named = ", ".join(f"{name} {value:g}" for name, value in values.items())
            raise ConfigError(
                f"{option}: with {named} the environment cannot begin: "
                f"{error.__cause__ or error}; choose other numbers."
            ) from error
