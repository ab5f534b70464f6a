"""How environments differ from their ordinary selves, by names such as mass.

An environment knows what its names mean (its method ``named_variations``); here they
become part of tasks, so that an episode's result depends on its task alone.
"""

from collections.abc import Mapping
from typing import Any

from jax_es.checks import ConfigError, require
from jax_es.rollout.tasks import Tasks
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
        "env.wrappers, or an environment that has variations.",
    )
    try:
        return tasks._replace(variation=named(values or {}, len(tasks.member)))
    except ValueError as error:
        raise ConfigError(f"{option} {error}") from error
