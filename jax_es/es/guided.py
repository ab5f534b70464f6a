"""Guided ES: perturbations that lean towards a direction somebody points in.

Whoever knows a surrogate of the gradient (here a critic, ``critic.py``) gives its
direction u, ‖u‖ = 1; it may be wrong. With n weights and a share s of the variance
along u, a pair's perturbation is (Maheswaranathan et al. 2019, arXiv 1806.10230, with
one direction)

    εᵢ = √(1−s) eᵢ + √(s n) zᵢ u,   eᵢ ~ N(0, I), zᵢ ~ N(0, 1),

so E[εεᵀ] = (1−s) I + s n u uᵀ = Σ, whose trace is n for every s. The estimate
g = 1/(2Nσ) Σ wᵢ εᵢ is OpenAI-ES's, and its mean is Σ ∇F: it climbs for any u, and over
u that are drawn uniformly it is ∇F itself. At s = 0 it is OpenAI-ES to the bit.

The eᵢ are the noise family's from their keys, and u is one vector that a generation
shares: nothing of the size N × n exists.

The share follows what is seen: u says that pair i's difference F⁺ − F⁻ grows with zᵢ.
The correlation of both, over the pairs and, as a running mean, over generations, times
``share`` is the next generation's share, at least ``min_share``. Where the critic
misleads it falls to that. A useless u costs the share of the variance that it takes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from jax_es.checks import (
    Count,
    Fraction,
    require,
)
from jax_es.config import ESConfig
from jax_es.es.critic import CriticOptions, Direction
from jax_es.es.noise import FullNoise, Noise
from jax_es.es.openai_es import ESState, WeightedSum, openai_es
from jax_es.es.population import MEAN, AntitheticPopulation
from jax_es.es.strategy import FollowingFunctions, read_options
from jax_es.types import PyTree, Variables

RUNNING = 0.2
"""Share of the latest generation in the running correlation."""

EXPECTED = 0.5
"""The running correlation before anything was seen."""


@dataclasses.dataclass(frozen=True)
class GuidedOptions(CriticOptions):
    """Hyperparameters of guided ES, each as --es.kwargs.NAME VALUE."""

    share: Fraction = 0.2
    """Most of a perturbation's variance that may lie along the critic's direction; 0 is
    OpenAI-ES."""
    min_share: Fraction = 0.02
    """Least of it, so that a critic that was wrong is heard again."""
    direction_batches: Count = 64
    """Batches over which the policy's gradient is averaged for the direction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.min_share <= self.share,
            f"es.kwargs.min_share must be at most es.kwargs.share {self.share:g}, got "
            f"{self.min_share:g}; add --es.kwargs.min_share {self.share:g}.",
        )

    @property
    def way(self) -> Direction:
        """The direction is a mean over batches."""
        return Direction(self.direction_batches)


def guided_options(given: Mapping[str, Any]) -> GuidedOptions:
    """Reads a configuration's ``es.kwargs``.

    Raises:
        ConfigError: for an unknown name, or a value that cannot be.
    """
    return read_options(GuidedOptions, "guided", given)


class GuidedState(NamedTuple):
    """What the next generation needs."""

    mean: PyTree
    """θ."""
    optimizer_state: PyTree
    """optax's."""
    generation: jax.Array
    """``[]`` int32, generations told so far."""
    key: jax.Array
    """The run's key; never consumed, only folded into."""
    direction: PyTree
    """u, like θ; zeros if there is none."""
    share: jax.Array
    """``[]`` float32 s; 0 without a direction."""
    correlation: jax.Array
    """``[]`` float32, the running mean of what was seen."""


class GuidedInfo(NamedTuple):
    """What a human looks at after ``tell``; see :class:`~jax_es.es.openai_es.ESInfo`.

    Attributes:
        own: ``correlation`` of this generation (NaN without a direction), its running
            mean ``mean_correlation``, and the ``share`` that this generation had.
    """

    gradient_norm: jax.Array
    update_norm: jax.Array
    mean_norm: jax.Array
    num_nonfinite: jax.Array
    own: Mapping[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GuidedPopulation(AntitheticPopulation):
    """Antithetic pairs of which a share of the variance lies along one direction."""

    direction: PyTree
    """u, like θ."""
    share: jax.Array
    """``[]`` float32 s."""

    def group(self, index: jax.Array) -> PyTree:
        """Draws a pair's e and z."""
        return super().group(index), draw_along(self.key, index)

    def variables(self, group: PyTree, member: jax.Array) -> Variables:
        """Returns θ ± σε, as the noise family holds it; θ + 0·ε for the mean."""
        epsilon, along = group
        sign = jnp.where(member % 2 == 0, 1.0, -1.0)
        scale = jnp.where(member == MEAN, 0.0, sign) * self.sigma
        around, ahead = factors(self.share, self.direction)
        # Without a share the first sum is exact, and the second OpenAI-ES's own.
        shifted = jax.tree.map(
            lambda mean, part: mean + scale * ahead * along * part,
            self.mean,
            self.direction,
        )
        return self.noise.member(shifted, epsilon, around * scale)

    @property
    def members(self) -> PyTree:
        """θ ± σεᵢ of every member, ``[P, …]`` per leaf of θ; for small populations."""
        index = jnp.arange(self.size)
        return jax.vmap(lambda i: self.variables(self.group(i // 2), i)["params"])(
            index
        )


def guided(
    config: ESConfig,
    noise: Noise | None = None,
    weighted_sum: WeightedSum | None = None,
) -> FollowingFunctions:
    """Builds guided ES; its states are :class:`GuidedState`.

    After ``tell`` a state has no direction, and is as OpenAI-ES's; ``guide`` gives it
    one, of any length, or none if that is 0 or not finite.

    Args:
        config: the hyperparameters; its ``kwargs`` are :class:`GuidedOptions`.
        noise: as of :func:`~jax_es.es.openai_es.openai_es`, whose update this takes.
        weighted_sum: as well.

    Raises:
        ConfigError: for a hyperparameter that it does not have, a wrong value, or noise
            in factors, which a direction is not.
    """
    options = guided_options(config.kwargs)
    require(
        config.perturbation == "full",
        f"es.perturbation {config.perturbation} has no meaning with es.strategy guided:"
        " a direction has no factors; leave it out (full).",
    )
    es = openai_es(config, FullNoise() if noise is None else noise, weighted_sum)

    def init(key: jax.Array, mean: PyTree) -> GuidedState:
        own = es.init(key, mean)
        return _unguided(own, jnp.float32(EXPECTED))

    def ask(state: GuidedState) -> GuidedPopulation:
        plain = vars(es.ask(_own(state)))
        return GuidedPopulation(**plain, direction=state.direction, share=state.share)

    def tell(state: GuidedState, fitness: ArrayLike) -> tuple[GuidedState, GuidedInfo]:
        weights = es.weigh(fitness)
        key = es.ask(_own(state)).key
        z, seen, running = look(key, weights, state.share, state.correlation)
        own, info = es.follow(
            _own(state),
            weights,
            fitness,
            lambda total: lean(total, weights, z, state.direction, state.share),
        )
        own_numbers = {
            "correlation": seen,
            "mean_correlation": running,
            "share": state.share,
        }
        return _unguided(own, running), GuidedInfo(*info, own=own_numbers)

    @jax.jit
    def look(
        key: jax.Array, weights: jax.Array, share: jax.Array, before: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        z = jax.vmap(draw_along, in_axes=(None, 0))(key, jnp.arange(len(weights)))
        lengths = jnp.linalg.norm(z) * jnp.linalg.norm(weights)
        is_seen = (share > 0) & (lengths > 0)
        seen = z @ weights / jnp.where(is_seen, lengths, 1.0)
        running = before + RUNNING * (seen - before)
        return (
            z,
            jnp.where(is_seen, seen, jnp.nan),
            jnp.where(is_seen, running, before),
        )

    @jax.jit
    def lean(
        total: PyTree,
        weights: jax.Array,
        z: jax.Array,
        direction: PyTree,
        share: jax.Array,
    ) -> PyTree:
        around, ahead = factors(share, direction)
        along = ahead * (weights @ z)
        return jax.tree.map(
            lambda plain, part: around * plain + along * part, total, direction
        )

    @jax.jit
    def guide(state: GuidedState, direction: PyTree) -> GuidedState:
        length = optax.tree.norm(direction)
        is_one = jnp.isfinite(length) & (length > 0) & (options.share > 0)
        unit = jax.tree.map(
            lambda part: jnp.where(is_one, part / length, 0.0), direction
        )
        share = jnp.clip(
            options.share * state.correlation, options.min_share, options.share
        )
        return state._replace(direction=unit, share=jnp.where(is_one, share, 0.0))

    def judged(state: GuidedState) -> PyTree:
        return state.mean

    return FollowingFunctions(init, ask, tell, judged, guide, options)


def draw_along(generation_key: jax.Array, pair: ArrayLike) -> jax.Array:
    """Draws z of a pair, ``[]`` float32, from a key that no other draw has."""
    own = jax.random.fold_in(generation_key, 2**32 - 1)
    return jax.random.normal(jax.random.fold_in(own, pair), (), jnp.float32)


def factors(share: jax.Array, direction: PyTree) -> tuple[jax.Array, jax.Array]:
    """Returns √(1−s) and √(s n): 1 and 0 where s is 0."""
    count = sum(leaf.size for leaf in jax.tree.leaves(direction))
    return jnp.sqrt(1.0 - share), jnp.sqrt(share * count)


def _own(state: GuidedState) -> ESState:
    """Returns the state of OpenAI-ES."""
    return ESState(*state[:4])


def _unguided(own: ESState, correlation: jax.Array) -> GuidedState:
    """Returns a state without a direction."""
    nothing = jax.tree.map(jnp.zeros_like, own.mean)
    return GuidedState(*own, nothing, jnp.float32(0.0), correlation)
