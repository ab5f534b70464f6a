"""The fitness of members by a function of their weights, in chunks on all devices.

The function is written for one member and traced once; what it makes is mapped over the
members of a chunk. Their weights exist while their chunk is computed, and no longer.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from jax_es.checks import require
from jax_es.config import ESConfig
from jax_es.es.noise import Noise
from jax_es.es.population import MEAN, AntitheticPopulation
from jax_es.models.module_policy import perturbing, summed
from jax_es.rollout.devices import Devices
from jax_es.rollout.memory import check_memory, num_bytes
from jax_es.types import PyTree

Fitness = Callable[[Any, jax.Array], Any]
"""``(variables, key) → []``, larger is better; see :func:`jax_es.evolve`."""


class FunctionFitness:
    """What evaluates members by a function.

    Args:
        fitness: the function.
        theta: the weights, as the function takes them.
        es: says how often, and with which keys, a member is evaluated.
        noise: the noise family.
        devices: where to compute.
        chunk_size: members at a time, on all devices together.

    Raises:
        ConfigError: the weights are none, the function returns no real number, or a
            chunk does not fit into memory.
    """

    def __init__(
        self,
        fitness: Fitness,
        theta: PyTree,
        es: ESConfig,
        noise: Noise,
        devices: Devices,
        chunk_size: int,
    ) -> None:
        self._fitness, self._theta, self._es = fitness, theta, es
        self._is_flax = isinstance(theta, Mapping) and "params" in theta
        self._devices = devices
        self._weights = theta["params"] if self._is_flax else theta
        _check_weights(self._weights)
        # θ itself comes first; the rows of all chunks are alike, and as few as may be.
        num_rows, most = 1 + es.num_pairs, max(1, chunk_size // (2 * devices.count))
        num_chunks = -(-num_rows // (devices.count * most))
        self._width = -(-num_rows // (devices.count * num_chunks))
        self._check_memory(noise, chunk_size)
        traced = self._trace(noise)
        self._constants = devices.share(traced.consts)
        self._others = devices.share(self._other_collections())
        axes = (None, None, None, None, 0)
        self._evaluate = devices.map(self._chunk(traced.jaxpr), axes)

    @property
    def mean(self) -> PyTree:
        """θ in float32, which is what evolves: a step may be less than ``theta`` holds.

        What ``theta`` has besides the collection ``"params"`` is not among it.
        """
        return jax.tree.map(lambda w: jnp.asarray(w, jnp.float32), self._weights)

    def like_theta(self, mean: PyTree) -> PyTree:
        """Returns weights as ``theta`` holds them: in its types, with all it has."""
        weights = self._rounded(mean)
        if not self._is_flax:
            return weights
        return {**self._theta, "params": weights}

    def evaluate(
        self,
        population: AntitheticPopulation,
        key: jax.Array,
        on_chunk: Callable[[int, int], None] = lambda done, total: None,
        mean_only: bool = False,
    ) -> tuple[float, np.ndarray]:
        """Returns the fitness of θ and, ``[P]``, of the members.

        Args:
            population: who is evaluated.
            key: of this generation's evaluations.
            on_chunk: told after each chunk how many there were, of how many.
            mean_only: leave the members out.
        """
        num_pairs = 0 if mean_only else population.num_pairs
        rows = np.arange(-1, num_pairs, dtype=np.int32)
        size = self._width * self._devices.count
        # What fills up the last chunk is θ again.
        rows = np.pad(rows, (0, -len(rows) % size), constant_values=-1)
        shape = (-1, self._devices.count, self._width)
        found, chunks = [], rows.reshape(shape)
        for done, chunk in enumerate(chunks, 1):
            values = self._evaluate(
                self._constants, population, self._others, key, self._devices.put(chunk)
            )
            # Wait here, so that chunks do not queue up behind a stop signal.
            found.append(np.asarray(values).reshape(-1, 2))
            on_chunk(done, len(chunks))
        fitness = np.concatenate(found)
        return float(fitness[0, 0]), fitness[1 : num_pairs + 1].ravel()

    def _chunk(self, traced: Any) -> Callable[..., jax.Array]:
        """Returns the fitness ``[rows, 2]`` of pairs, and of θ in row −1."""
        es = self._es

        def chunk(constants, population, others, key, rows):
            function = jax.extend.core.jaxpr_as_fun(
                jax.extend.core.ClosedJaxpr(traced, constants)
            )
            weights = self._rounded(population.mean)
            wide = jax.tree.map(lambda w: w.astype(jnp.float32), weights)
            population = dataclasses.replace(population, mean=wide)

            def of_pair(row: jax.Array) -> jax.Array:
                group = population.group(jnp.maximum(row, 0))
                # Both of a pair meet the same random numbers.
                is_own = es.common_seeds == "pair"
                own_key = jax.random.fold_in(key, row if is_own else 0)

                def of_member(column: jax.Array) -> jax.Array:
                    member = jnp.where(row < 0, MEAN, 2 * row + column)
                    own = population.variables(group, member)

                    def episode(index: jax.Array) -> jax.Array:
                        episode_key = jax.random.fold_in(own_key, index)
                        arguments = weights, own, others, episode_key
                        return function(*jax.tree.leaves(arguments))[0]

                    return jax.vmap(episode)(jnp.arange(es.episodes_per_member)).mean()

                return jax.vmap(of_member)(jnp.arange(2))

            return jax.vmap(of_pair)(rows)

        return chunk

    def _trace(self, noise: Noise) -> Any:
        """Traces the function for one member."""
        own = self._shapes_of_one(noise)
        key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
        others = jax.eval_shape(self._other_collections)
        weights = jax.eval_shape(lambda: self._rounded(self.mean))
        arguments = weights, own, others, key
        read = _factored(own) if self._is_flax else frozenset()
        traced = self._traced(read, arguments)
        # What no layer reads in factors is added to the weights instead.
        _, is_used = partial_eval.dce_jaxpr(traced.jaxpr, [True])
        _, own_used, *_ = jax.tree.structure(arguments).unflatten(is_used)
        used = own_used.get("perturbation", {})
        unread = {
            path
            for path in read
            if not all(functools.reduce(operator.getitem, path, used))
        }
        return self._traced(read - unread, arguments) if unread else traced

    def _traced(self, read: frozenset[tuple[str, ...]], arguments: Any) -> Any:
        def call(weights, own, others, key):
            variables = {"params": weights, **own}
            if "perturbation" in own:
                variables = summed(variables, read)
            if not self._is_flax:
                variables = variables["params"]
            else:
                variables = {**others, **variables}
            with perturbing():
                value = self._fitness(variables, key)
            is_real = jnp.issubdtype(jnp.result_type(value), jnp.floating)
            is_real |= jnp.issubdtype(jnp.result_type(value), jnp.integer)
            require(
                is_real and jnp.shape(value) == (),
                "fitness must return one real number, larger for better members; it "
                f"returns {jnp.result_type(value)}{list(jnp.shape(value))}: take a "
                "mean or a sum.",
            )
            return jnp.asarray(value, jnp.float32)

        return jax.make_jaxpr(call)(*arguments)

    def _rounded(self, mean: PyTree) -> PyTree:
        """Returns weights in the types of ``theta``'s."""

        def rounded(weight: jax.Array, like: Any) -> jax.Array:
            kind = jnp.result_type(like)
            if jnp.issubdtype(kind, jnp.integer):
                info = jnp.iinfo(kind)
                # float32 may have no number at the end of the range.
                weight = jnp.clip(jnp.round(weight), float(info.min), float(info.max))
            return jnp.asarray(weight).astype(kind)

        return jax.tree.map(rounded, mean, self._weights)

    def _other_collections(self) -> dict[str, Any]:
        """Returns what ``theta`` has besides its weights; it does not evolve."""
        if not self._is_flax:
            return {}
        return {name: self._theta[name] for name in self._theta if name != "params"}

    def _shapes_of_one(self, noise: Noise) -> Any:
        """Returns the shapes of what one member has of its own."""

        def draw(mean: PyTree) -> Any:
            epsilon = noise.sample(jax.random.key(0, impl="threefry2x32"), mean)
            return noise.member(mean, epsilon, jnp.float32(1.0))

        return jax.eval_shape(draw, self.mean)

    def _check_memory(self, noise: Noise, chunk_size: int) -> None:
        """Rejects chunks and weights that cannot fit."""
        mean = jax.eval_shape(lambda: self.mean)
        count = sum(leaf.size for leaf in jax.tree.leaves(mean))
        rows = self._width * self._devices.count
        own = num_bytes(self._shapes_of_one(noise))
        needs = {
            f"theta of {count:,} weights": 6 * self._devices.count * num_bytes(mean),
            f"chunk_size {chunk_size}, each member with {own:,} bytes of its own,": (
                2 * rows * own
            ),
        }
        remedy = 'choose a smaller chunk_size, or es.perturbation "low-rank"'
        check_memory(needs, self._devices.memory, remedy)


def _check_weights(weights: PyTree) -> None:
    leaves = jax.tree.leaves(weights)
    kinds = [jnp.result_type(leaf) for leaf in leaves]
    fit = [
        jnp.issubdtype(each, jnp.floating) or jnp.issubdtype(each, jnp.integer)
        for each in kinds
    ]
    names = ", ".join(dict.fromkeys(map(str, kinds)))
    require(
        bool(leaves) and all(fit) and all(jnp.size(leaf) for leaf in leaves),
        f"theta has weights of {names or 'no kind'}, expected at least one array, with "
        "real numbers in all; keep what is no weight outside of it.",
    )


def _factored(own: Any) -> frozenset[tuple[str, ...]]:
    """Returns the paths of weights whose perturbation is in factors."""
    found, _ = jax.tree_util.tree_flatten_with_path(
        own.get("perturbation", {}), is_leaf=lambda node: isinstance(node, tuple)
    )
    return frozenset(
        tuple(key.key for key in path)
        for path, change in found
        if isinstance(change, tuple)
    )
