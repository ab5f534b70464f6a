"""What is the user's own in a configuration, by name or handed over as it is.

A network, an objective, a strategy and an environment, each ``module:Name``.
"""

import functools
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.config import ESConfig
from jax_es.envs.faults import blamed
from jax_es.es.own_strategy import own_strategy
from jax_es.es.population import Population
from jax_es.es.strategy import Strategy
from jax_es.presets import with_objective, with_strategy
from jax_es.rollout.evaluator import EpisodeResults, Reported
from jax_es.runs.trust import find, give, target_of
from jax_es.train_config import TrainConfig
from jax_es.training.custom_policy import AnyPolicy, with_policy

AnyPart: TypeAlias = str | Callable[..., Any] | None
"""A name, or something of the user's own."""


def with_parts(
    config: TrainConfig,
    policy: AnyPolicy = None,
    objective: AnyPart = None,
    strategy: AnyPart = None,
    env: AnyPart = None,
) -> TrainConfig:
    """Returns the configuration with other parts, those that are given."""
    if policy is not None:
        config = with_policy(config, policy)
    if env is not None:
        env, arguments = _unwrapped("--env.id", env)
        config = replace(config, env=replace(config.env, id=_env_id(env)))
        config = _with_arguments(config, "env.kwargs", arguments)
    if strategy is not None:
        strategy, arguments = _unwrapped("--strategy", strategy)
        config = with_strategy(config, _name("--strategy", strategy))
        config = _with_arguments(config, "es.kwargs", arguments)
    if objective is not None:
        objective, arguments = _unwrapped("--objective", objective)
        config = with_objective(config, _name("--objective", objective))
        config = _with_arguments(config, "es.objective_kwargs", arguments)
    return config


def _unwrapped(
    option: str, part: str | Callable[..., Any]
) -> tuple[str | Callable[..., Any], dict[str, Any]]:
    """Returns a function and the arguments that ``functools.partial`` gave it.

    One that gives more than a configuration can hold (arrays, functions) stays whole.
    """
    if not isinstance(part, functools.partial):
        return part, {}
    require(
        not part.args,
        f"{option} is a functools.partial with the arguments {part.args}; give them by "
        "name.",
    )
    numbers = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in part.keywords.items()
    }
    try:
        json.dumps(numbers)
    except (TypeError, ValueError):
        return part, {}
    return part.func, numbers


def _with_arguments(
    config: TrainConfig, field: str, arguments: dict[str, Any]
) -> TrainConfig:
    """Returns the configuration with arguments of a part, which it records."""
    return config.replace({f"{field}.{name}": v for name, v in arguments.items()})


def _name(option: str, part: AnyPart) -> str | None:
    """Returns the name of a part, which a configuration holds."""
    if part is None or isinstance(part, str):
        return part
    require(callable(part), f"{option} must be a function or a name, got {part!r}.")
    return target_of(option, part)


def _env_id(env: str | Callable[..., Any]) -> str:
    """Returns the id of an environment; Gymnasium knows only some letters in names."""
    target = _name("--env.id", env) or ""
    env_id = re.sub("[<>()]", "", target)
    if env_id != target:
        give({("--env.id", env_id): env})
    return env_id


def make_own_strategy(es: ESConfig, mean: Any, descriptor_size: int) -> Strategy:
    """Builds a strategy of the user's own, for weights of the shapes of ``mean``."""
    build = find("--strategy", es.strategy)
    require(
        callable(build),
        f"--strategy {es.strategy} is no function that returns (init, ask, tell).",
    )
    with blamed(f"--strategy {es.strategy}", "when it was built", (ConfigError,)):
        own = own_strategy(
            *(es.strategy, build, mean, 2 * es.num_pairs, es.sigma),
            *(descriptor_size, es.kwargs),
        )

    def tell(*given: Any) -> Any:
        with blamed(f"--strategy {es.strategy}", "in tell", (ConfigError,)):
            return own.tell(*given)

    def ask(state: Any) -> Population:
        with blamed(f"--strategy {es.strategy}", "in ask", (ConfigError,)):
            return own.ask(state)

    return own._replace(ask=ask, tell=tell)


def make_own_objective(es: ESConfig) -> Callable[[EpisodeResults], np.ndarray]:
    """Returns an objective of the user's own, which is blamed for what it does."""
    who, found = f"--objective {es.objective}", find("--objective", es.objective)
    require(callable(found), f"{who} is no function of episodes.")
    given = es.objective_kwargs
    known = [*inspect.signature(found).parameters.values()][1:]
    own = [each.name for each in known]
    for each in known:
        optional = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        require(
            optional or each.default is not each.empty or each.name in given,
            f"{who} needs {each.name}; give it a default, or train with "
            f"es.objective_kwargs.{each.name} VALUE.",
        )
    for name in given:
        require(
            name in own,
            f"es.objective_kwargs.{name}: {es.objective} has no argument {name}; it "
            f"has {', '.join(own) or 'none'}.",
        )

    @functools.wraps(found)  # what it reads of info comes along
    def counted(episodes: EpisodeResults) -> np.ndarray:
        with blamed(who, "of episodes"):
            values = np.asarray(found(episodes, **given))
        require(
            values.shape == episodes.returns.shape and values.dtype.kind in "biuf",
            f"{who} must return a number for each of {len(episodes.returns)} episodes, "
            f"got {values.dtype}{list(values.shape)}.",
        )
        return values.astype(np.float64)

    return counted


def ask_for(objective: str, env: Any, reported: Reported) -> None:
    """Asks an environment for the numbers that an objective reads."""
    try:
        env.report((*reported.sums, *reported.last))
    except ValueError as error:
        raise ConfigError(f"es.objective {objective}: {error}.") from error


def tried(
    name: str, strategy: Strategy, init: Callable[[jax.Array], Any]
) -> tuple[Any, Population]:
    """Returns the first state and population of a user's strategy, or blames it.

    It need not be written for JAX, hence really begins.
    """
    key = jax.random.key(0, impl="threefry2x32")
    mean = jax.jit(init)(key)
    with blamed(f"--strategy {name}", "in init or ask", (ConfigError,)):
        state = strategy.init(key, mean)
        return state, strategy.ask(state)


__all__ = ["AnyPart", "AnyPolicy", "with_parts"]
