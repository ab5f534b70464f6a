"""Any Flax module as a policy: what people bring along need not know of noise.

A member may share ``"params"`` with all others and bring a ``"perturbation"`` (see
``models/layers.py``). Linen's own ``Dense`` layers then get it through an interceptor,
in factors, as our layers do. Whatever other weights a module has are added up before it
is applied: exact for every module, but a member then has its own copy of them.
"""

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from jax_es.models import layers
from jax_es.models.config import PolicyConfig
from jax_es.models.policy import ActionSpec, check_sizes
from jax_es.models.stepwise import FeedForwardPolicy, StepwisePolicy

_READ = {
    nn.Dense: ("kernel", "bias"),
    layers.Dense: ("kernel", "bias"),
    layers.Conv: ("kernel", "bias"),
    layers.Embed: ("embedding",),
    layers.LayerNorm: ("scale", "bias"),
}
"""Weights whose perturbation a layer reads, Linen's ``Dense`` by an interceptor."""


def is_flax_module(thing: Any) -> bool:
    """Returns whether something is the class of a Flax Linen module."""
    return isinstance(thing, type) and issubclass(thing, nn.Module)


def wrap(
    config: PolicyConfig,
    module: nn.Module,
    observation_shape: tuple[int, ...],
    actions: ActionSpec,
) -> "ModulePolicy | RecurrentModulePolicy":
    """Makes a policy of a module; one with ``initial_carry`` is recurrent.

    Raises:
        ValueError: if the module does not fit the environment.
    """
    is_recurrent = hasattr(module, "initial_carry")
    kind = RecurrentModulePolicy if is_recurrent else ModulePolicy
    return kind(config, module, observation_shape, actions)


@dataclasses.dataclass(frozen=True)
class _Wrapped(abc.ABC):
    """A module and what it must fit; what is read of it by a trial run."""

    config: PolicyConfig
    module: nn.Module
    observation_shape: tuple[int, ...]
    actions: ActionSpec

    @abc.abstractmethod
    def first_inputs(self) -> tuple[Any, ...]:
        """Returns what the module is called with in an episode's first step."""

    @abc.abstractmethod
    def check_returned(self, returned: Any) -> None:
        """Checks shapes and types of what the module returns."""

    def __post_init__(self):
        """Checks that the module fits the environment."""
        check_sizes(self.config, 1, self.actions)

        def call(key: jax.Array) -> Any:
            return self.outputs({"params": self.init(key)}, *self.first_inputs())

        self.check_returned(jax.eval_shape(call, jax.random.key(0)))

    def init(self, key: jax.Array) -> Any:
        """Draws the initial ``"params"`` collection; ``key`` is consumed."""
        variables = self.module.init(key, *self.first_inputs())
        others = sorted(set(variables) - {"params"})
        if others:
            raise ValueError(
                f"policy: {type(self.module).__name__} keeps {', '.join(others)}, "
                "beside its weights, which nothing would update; leave such layers "
                "out (LayerNorm instead of BatchNorm)"
            )
        return check_weights(type(self.module).__name__, variables.get("params", {}))

    def outputs(self, variables: Mapping[str, Any], *inputs: Any) -> Any:
        """Applies the module to one member's variables."""
        if "perturbation" not in variables:
            return self.module.apply(variables, *inputs)
        with perturbing():
            return self.module.apply(summed(variables, self.read_by_layers), *inputs)

    @functools.cached_property
    def read_by_layers(self) -> frozenset[tuple[str, ...]]:
        """Paths of the weights whose perturbation some layer reads.

        Inside ``nn.scan`` and the like a layer finds no perturbation unless the module
        maps that collection: its weights are then not among them.
        """
        found: set[tuple[str, ...]] = set()

        def note(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            layer = context.module
            if context.method_name == "__call__":
                for name in _READ.get(type(layer), ()):
                    if layer.has_variable("perturbation", name):
                        found.add((*layer.path, name))
            return call(*args, **kwargs)

        def run(key: jax.Array) -> Any:
            params = self.init(key)
            variables = {"params": params, "perturbation": params}
            with nn.intercept_methods(note):
                return self.module.apply(variables, *self.first_inputs())

        jax.eval_shape(run, jax.random.key(0))
        return frozenset(found)

    def check_outputs(self, outputs: Any) -> None:
        """Checks that there is one number for each action or choice."""
        needed = (self.actions.num_outputs,)
        name = type(self.module).__name__
        if getattr(outputs, "shape", None) != needed:
            raise ValueError(
                f"policy: {name} must return outputs of the shape {needed}, one for "
                "each action number or choice, for an observation of "
                f"{self.observation_shape}; it returns {_shapes(outputs)}"
            )
        check_real(name, outputs)


@dataclasses.dataclass(frozen=True)
class ModulePolicy(_Wrapped, FeedForwardPolicy):
    """A module ``observation → outputs`` as a policy (``jax_es.types``).

    The outputs are the action before its tanh, ``[A]``, or ``[num_actions]`` logits.
    """

    @property
    def network(self) -> nn.Module:
        """The module itself."""
        return self.module

    def first_inputs(self) -> tuple[jax.Array]:
        """Returns an observation."""
        return (jnp.zeros(self.observation_shape),)

    def check_returned(self, returned: Any) -> None:
        """Checks the outputs."""
        self.check_outputs(returned)


@dataclasses.dataclass(frozen=True)
class RecurrentModulePolicy(_Wrapped, StepwisePolicy):
    """A module ``(carry, observation) → (carry, outputs)`` as a policy.

    Its method ``initial_carry()`` returns the carry before an episode's first step.
    """

    def blank(self) -> Any:
        """Returns the module's first carry."""
        module: Any = self.module
        return jax.tree.map(jnp.asarray, module.initial_carry())

    def first_inputs(self) -> tuple[Any, jax.Array]:
        """Returns the first carry and an observation."""
        return self.blank(), jnp.zeros(self.observation_shape)

    def check_returned(self, returned: Any) -> None:
        """Checks that there is another carry, alike, and the outputs."""
        name = type(self.module).__name__
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise ValueError(
                f"policy: {name} has initial_carry, so it must return (carry, "
                f"outputs), not {_shapes(returned)}"
            )
        carry = jax.eval_shape(self.blank)
        if _shapes(carry) != _shapes(returned[0]):
            raise ValueError(
                f"policy: {name} begins with a carry {_shapes(carry)} and returns one "
                f"of {_shapes(returned[0])}; both must have the same shapes and types"
            )
        self.check_outputs(returned[1])

    def advance(
        self, variables: Mapping[str, Any], carry: Any, observation: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Applies the module to one member's variables."""
        return self.outputs(variables, carry, observation)


@dataclasses.dataclass(frozen=True)
class FullWeightsPolicy:
    """A policy that knows of ``"params"`` alone: each member gets weights of its own.

    Args:
        policy: any of the protocol in ``jax_es.types``.
        observation_shape: what it observes.
    """

    policy: Any
    observation_shape: tuple[int, ...]

    def __post_init__(self):
        """Checks weights and actions by a trial run."""

        def call(key: jax.Array) -> Any:
            inputs = jnp.zeros(self.observation_shape), jnp.zeros(()), jnp.array(True)
            variables: dict[str, Any] = {"params": self.init(key)}
            if self.reads_command:
                variables["command"] = {"target_return": jnp.zeros(())}
            return self.apply(variables, self.initial_carry(), *inputs, key)

        _, action = jax.eval_shape(call, jax.random.key(0))
        check_real(type(self.policy).__name__, action)

    @property
    def reads_command(self) -> bool:
        """Whether the policy says that it reads the collection ``"command"``."""
        return getattr(self.policy, "reads_command", False)

    def init(self, key: jax.Array) -> Any:
        """Draws the initial weights; ``key`` is consumed."""
        return check_weights(type(self.policy).__name__, self.policy.init(key))

    def initial_carry(self) -> Any:
        """Returns the carry before the first step of an episode."""
        return self.policy.initial_carry()

    def apply(
        self,
        variables: Mapping[str, Any],
        carry: Any,
        observation: jax.Array,
        reward: jax.Array,
        first: jax.Array,
        key: jax.Array,
    ) -> tuple[Any, jax.Array]:
        """Chooses the action of one step."""
        own = {**variables, "params": _add(variables, frozenset())}
        own.pop("perturbation", None)
        return self.policy.apply(own, carry, observation, reward, first, key)


def check_weights(name: str, weights: Any) -> Any:
    """Returns weights that noise can be added to; ``ValueError`` for others."""
    leaves = jax.tree.leaves(weights)
    types = [jnp.result_type(leaf) for leaf in leaves]
    if not leaves or not all(jnp.issubdtype(each, jnp.floating) for each in types):
        raise ValueError(
            f"policy: {name} has weights of {', '.join(map(str, types)) or 'no kind'}, "
            "expected at least one array, and floats in all; keep what is no weight "
            "elsewhere"
        )
    return weights


def check_real(name: str, outputs: Any) -> None:
    """Raises ``ValueError`` for outputs, or actions, that are complex."""
    if jnp.issubdtype(outputs.dtype, jnp.complexfloating):
        raise ValueError(
            f"policy: {name} returns {outputs.dtype}, expected real numbers; take "
            "their .real or abs"
        )


def _shapes(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree))


def summed(
    variables: Mapping[str, Any], read: Collection[tuple[str, ...]]
) -> dict[str, Any]:
    """Adds what layers do not read of a perturbation to the weights.

    Args:
        variables: with the collections ``"params"`` and ``"perturbation"``.
        read: paths of the weights whose perturbation some layer reads.
    """
    # Where nothing is read, weights may be another pytree than Flax's dictionaries.
    changes = flatten_dict(variables["perturbation"]) if read else {}
    kept = {path: change for path, change in changes.items() if path in read}
    params = _add(variables, read)
    return {**variables, "params": params, "perturbation": unflatten_dict(kept)}


def _add(variables: Mapping[str, Any], read: Collection[tuple[str, ...]]) -> Any:
    """Adds up the weights whose perturbation no layer reads."""
    if "perturbation" not in variables:
        return variables["params"]

    def add(path: Any, weight: jax.Array, change: Any) -> jax.Array:
        if tuple(getattr(key, "key", None) for key in path) in read:
            return weight
        if isinstance(change, tuple):
            a, b = change
            change = (a @ b.T).reshape(weight.shape)
        return weight + change

    return jax.tree_util.tree_map_with_path(
        add, variables["params"], variables["perturbation"]
    )


def perturbing() -> contextlib.AbstractContextManager[None]:
    """Lets Linen's own ``Dense`` read perturbations, in all that is applied inside."""
    return nn.intercept_methods(_perturb)


def _perturb(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
    """Adds what a perturbation changes of a ``Dense``'s outputs."""
    outputs, layer = call(*args, **kwargs), context.module
    if type(layer) is not nn.Dense or context.method_name != "__call__":
        return outputs
    (inputs,) = (*args, *kwargs.values())
    kernel, bias = (layers.perturbation(layer, name) for name in ("kernel", "bias"))
    if kernel is not None:
        outputs += layers.times(inputs, kernel)
    if bias is not None:
        outputs = layers.shift(outputs, bias)
    return outputs if layer.dtype is None else outputs.astype(layer.dtype)
