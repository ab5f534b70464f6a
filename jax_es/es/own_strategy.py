"""A strategy of the user's own under the contract of ours.

``mine(mean, descriptor_size) → (init, ask, tell)`` says how it searches; see
:class:`~jax_es.es.strategy.Strategy`. What is checked and added here lets every run do
with it what runs do with ours: resume to the bit, and record its numbers.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from jax_es.checks import ConfigError, require
from jax_es.es.fitness import check_shape, replace_nonfinite
from jax_es.es.population import MaterializedPopulation, Population
from jax_es.es.strategy import StrategyFunctions
from jax_es.types import PyTree


class OwnInfo(NamedTuple):
    """What a human looks at after ``tell``."""

    update_norm: jax.Array
    """``[]``, ‖θ' − θ‖₂."""
    mean_norm: jax.Array
    """``[]``, ‖θ'‖₂."""
    num_nonfinite: jax.Array
    """``[]`` int32, members whose fitness was NaN or ±∞."""
    own: Mapping[str, Any]
    """What the strategy itself reports, numbers by name."""


def own_strategy(
    name: str,
    build: Callable[..., Any],
    mean: PyTree,
    population_size: int,
    sigma: float,
    descriptor_size: int = 0,
    options: Mapping[str, Any] | None = None,
) -> StrategyFunctions:
    """Builds a user's strategy.

    Args:
        name: what errors call it.
        build: ``(mean, descriptor_size) → (init, ask, tell)``; it may also take
            ``population_size``, ``sigma`` and options of its own by these names.
        mean: gives the shapes of the weights.
        population_size: P, members a generation.
        sigma: of the run, for one that has a use for it.
        descriptor_size: B, numbers in a descriptor; 0 where there is none.
        options: its own arguments.

    Raises:
        ConfigError: for an option that it does not take, or a result that is no
            strategy.
    """
    given = _arguments(name, build, options or {})
    offered = {"population_size": population_size, "sigma": sigma}
    known = inspect.signature(build).parameters
    offered = {key: value for key, value in offered.items() if key in known}
    functions: Any = build(mean, descriptor_size, **offered, **given)
    if not isinstance(functions, tuple):
        functions = tuple(getattr(functions, f, None) for f in ("init", "ask", "tell"))
    require(
        len(functions) == 3 and all(map(callable, functions)),
        f"es.strategy {name} must return three functions, (init, ask, tell), got "
        f"{functions!r}.",
    )
    begin, draw, follow = functions
    reads_descriptors = len(_positional(follow)) > 2
    require(
        not reads_descriptors or descriptor_size > 0,
        f"es.strategy {name} is told of descriptors, and nothing describes episodes; "
        "add --env.descriptor position for a walker, or the indices of numbers in an "
        "observation, such as --env.descriptor 0 1.",
    )

    def init(key: jax.Array, mean: PyTree) -> Any:
        state = jax.tree.map(_array, begin(key, mean))
        for field in ("mean", "generation"):
            require(
                hasattr(state, field),
                f"es.strategy {name}: init must return a named tuple with the field "
                f"{field}, got {type(state).__name__}.",
            )
        _require_alike(name, "init: state.mean", mean, state.mean)
        return state

    def ask(state: Any) -> Population:
        population = draw(state)
        if not hasattr(population, "members_per_group"):  # the members as they are
            members = jax.tree.map(_array, population)
            like = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(
                    (population_size, *leaf.shape), leaf.dtype
                ),
                state.mean,
            )
            _require_alike(name, "ask: members", like, members)
            population = MaterializedPopulation(state.mean, members)
        require(
            population.size == population_size,
            f"es.strategy {name} asks for {population.size} members, where es.num_pairs"
            f" {population_size // 2} makes {population_size}; let it take the argument"
            " population_size, or change es.num_pairs.",
        )
        return population

    def tell(state: Any, fitness: Any, *behaviour: Any) -> tuple[Any, OwnInfo]:
        fitness = jnp.asarray(fitness, jnp.float32)
        check_shape(fitness, population_size)
        result = follow(state, replace_nonfinite(fitness), *behaviour)
        require(
            type(result) in (tuple, list) and len(result) == 2,
            f"es.strategy {name}: tell must return the next state and a dictionary of "
            f"numbers, got {type(result).__name__}.",
        )
        told, info = result
        told = jax.tree.map(_array, told)
        _require_alike(name, "tell: state", state, told)
        if not isinstance(told.generation, Tracer):
            require(
                int(told.generation) == int(state.generation) + 1,
                f"es.strategy {name}: tell must return a state whose generation is one "
                f"more than {int(state.generation)}, got {int(told.generation)}.",
            )
        reported = info._asdict() if hasattr(info, "_asdict") else dict(info or {})
        for key, value in reported.items():
            require(
                isinstance(key, str) and _is_number(value),
                f"es.strategy {name}: tell must report single numbers by name, got "
                f"{key!r}: {value!r}.",
            )
        return told, OwnInfo(
            update_norm=optax.tree.norm(optax.tree.sub(told.mean, state.mean)),
            mean_norm=optax.tree.norm(told.mean),
            num_nonfinite=jnp.sum(~jnp.isfinite(fitness), dtype=jnp.int32),
            own=reported,
        )

    size = descriptor_size if reads_descriptors else 0
    return StrategyFunctions(init, ask, tell, size)


def _arguments(
    name: str, build: Callable[..., Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Checks a strategy's own arguments."""
    parameters = list(inspect.signature(build).parameters.values())[2:]
    own = {p.name: p for p in parameters if p.name not in ("population_size", "sigma")}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for option in options:
        require(
            option in own or takes_any,
            f"es.kwargs.{option}: {name} has no argument {option}; it has "
            f"{', '.join(own) or 'none'}.",
        )
    for option, parameter in own.items():
        is_needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        require(
            not is_needed or option in options,
            f"es.strategy {name} needs {option}; add --es.kwargs.{option} VALUE.",
        )
    return dict(options)


def _positional(function: Callable[..., Any]) -> list[str]:
    """Returns the positional parameters of a function that have no default."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


def _array(leaf: Any) -> Any:
    """Returns a leaf as a checkpoint gives it back: an array of a definite type."""
    array = jnp.asarray(leaf)
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return array if is_key else array.astype(array.dtype)


def _is_number(value: Any) -> bool:
    """Returns whether a value is one real number or truth value."""
    if isinstance(value, bool | int | float):
        return True
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    is_single = getattr(value, "shape", None) == ()
    return is_single and any(jnp.issubdtype(value.dtype, kind) for kind in kinds)


def _require_alike(name: str, what: str, expected: PyTree, found: PyTree) -> None:
    """Raises ``ConfigError`` unless two pytrees have equal structure and leaves."""
    same = jax.tree.structure(expected) == jax.tree.structure(found)
    if not same:
        raise ConfigError(
            f"es.strategy {name}: {what} must be {jax.tree.structure(expected)}, got "
            f"{jax.tree.structure(found)}."
        )
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(expected),
        jax.tree.leaves(found),
        strict=True,
    )
    for (path, before), now in pairs:
        require(
            (before.shape, before.dtype) == (now.shape, now.dtype),
            f"es.strategy {name}: {what}{jax.tree_util.keystr(path)} must be "
            f"{before.dtype}{list(before.shape)}, got {now.dtype}{list(now.shape)}.",
        )
