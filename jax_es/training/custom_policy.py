"""Networks of the user's own: ``--policy module:Name``, or a class from Python.

Three kinds of things can be named:

- a Flax Linen module ``observation → outputs`` with a field ``num_outputs``;
- one with a method ``initial_carry()`` and ``(carry, observation) → (carry, outputs)``;
- a function ``(observation_shape, actions, **options)`` that returns a policy, anything
  with the methods of :class:`jax_es.types.Policy`.

Their further fields, or arguments, with a default are options of the command line.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from jax_es import models
from jax_es.checks import ConfigError, require
from jax_es.envs.faults import failure
from jax_es.models.module_policy import FullWeightsPolicy, is_flax_module, wrap
from jax_es.models.policy import binned
from jax_es.presets import unknown
from jax_es.runs.trust import find, target_of
from jax_es.train_config import (
    POLICY_KINDS,
    CustomPolicyConfig,
    PolicyConfig,
    TrainConfig,
)
from jax_es.types import Policy

AnyPolicy: TypeAlias = PolicyConfig | str | Callable[..., Any] | None
"""Settings of a policy, its kind, or a network as :func:`custom_policy` takes it."""

_GIVEN = ("num_outputs", "parent", "name", "observation_shape", "actions")
"""Arguments that are no options: the code that builds the network gives them."""

_SIMPLE = (bool, int, float, str, tuple)
"""Types of options; fields of other types keep their defaults."""


def custom_policy(network: str | Callable[..., Any], **options: Any):
    """Returns the configuration of a policy of the user's own.

    Args:
        network: a Flax module's class or a function, see this file, or where it is
            (``"module:Name"``). A run can be loaded where that module can be imported.
        **options: the module's fields, or the function's arguments.

    Raises:
        ConfigError: if there is no such thing, or it has no such option.

    Example::

        policy = jax_es.custom_policy("my_networks:Network", width=32)
        config = dataclasses.replace(jax_es.preset("half-cheetah"), policy=policy)
    """
    if isinstance(network, str):
        target = network
    else:
        require(
            callable(network),
            f"network must be a Flax module's class, a function or module:Name, got "
            f"{network!r}.",
        )
        target = target_of("--policy", network)
    known = _options(target)
    for name, value in options.items():
        require(
            name in known,
            f"--policy.{name}: {target} has no such option; it has "
            f"{', '.join(known) or 'none'}.",
        )
        options[name] = tuple(value) if isinstance(value, list) else value
    given = {name: options.get(name, default) for name, default in known.items()}
    missing = [
        name for name, value in given.items() if value is inspect.Parameter.empty
    ]
    example = ", ".join([target.rpartition(":")[2], *(f"{n}=…" for n in missing)])
    require(
        not missing,
        f"policy: {target} needs {', '.join(missing)}; give it a default, or pass "
        f"jax_es.custom_policy({example}) from Python.",
    )
    return CustomPolicyConfig(target=target, options=given)


def with_policy(config: TrainConfig, policy: AnyPolicy) -> TrainConfig:
    """Returns the configuration with another policy, if given.

    That is settings, a network of the user's own, or a kind (``"mlp"``) at its
    defaults.
    """
    if policy is None:
        return config
    if isinstance(policy, str) and ":" not in policy:
        if policy not in POLICY_KINDS:
            raise ConfigError(unknown("policy", policy, POLICY_KINDS))
        policy = POLICY_KINDS[policy]()
    elif isinstance(policy, str) or callable(policy):
        policy = custom_policy(policy)
    return dataclasses.replace(config, policy=policy)


def with_options(config: TrainConfig) -> TrainConfig:
    """Fills in the options of a policy of the user's own by its defaults."""
    policy = config.policy
    if not isinstance(policy, CustomPolicyConfig):
        return config
    complete = custom_policy(policy.target, **policy.options)
    policy = dataclasses.replace(policy, options=complete.options)
    return dataclasses.replace(config, policy=policy)


def make_custom_policy(
    config: CustomPolicyConfig,
    observation_shape: tuple[int, ...],
    actions: models.ActionSpec,
) -> Policy:
    """Builds a policy of the user's own, or raises ``ConfigError``."""
    network = _find(config.target)
    try:
        actions = binned(config, actions)
        if is_flax_module(network):
            module = network(num_outputs=actions.num_outputs, **config.options)
            return wrap(config, module, observation_shape, actions)
        policy = network(observation_shape, actions, **config.options)
        require(
            isinstance(policy, Policy),
            f"it returned {type(policy).__name__}, which lacks init, initial_carry or "
            "apply; see jax_es.types.Policy",
        )
        return FullWeightsPolicy(policy, observation_shape)
    except ValueError as error:
        raise ConfigError(f"--policy {config.target}: {error}") from error
    except (Exception, SystemExit) as error:
        when = f"for observations of the shape {observation_shape} and "
        when += f"{actions.num_outputs} outputs"
        raise failure(f"--policy {config.target}", when, error) from error


def _find(target: str) -> Callable[..., Any]:
    """Imports what ``module:Name`` names."""
    found = find("--policy", target)
    if is_flax_module(found):
        require(
            "num_outputs" in inspect.signature(found).parameters,
            f"--policy {target} has no field num_outputs, how many numbers it shall "
            "return; add num_outputs: int to the module.",
        )
    require(
        is_flax_module(found) or (callable(found) and not isinstance(found, type)),
        f"--policy {target} is neither a Flax Linen module nor a function that returns "
        "a policy.",
    )
    return found


def _options(target: str) -> dict[str, Any]:
    """Returns the options by name with their defaults, where they have one."""
    parameters = inspect.signature(_find(target)).parameters.values()
    return {
        each.name: tuple(each.default)
        if isinstance(each.default, list)
        else each.default
        for each in parameters
        if each.name not in _GIVEN
        and (each.default is each.empty or isinstance(each.default, _SIMPLE))
    }
