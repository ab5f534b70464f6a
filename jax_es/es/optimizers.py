"""From gradient estimates to steps: the optax chain of OpenAI-ES, ClipUp, schedules."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jax_es.config import ESConfig
from jax_es.es.noise import leaf_factors
from jax_es.types import PyTree


def make_optimizer(config: ESConfig) -> optax.GradientTransformation:
    """Builds the optax chain that turns g into the step added to θ.

    With momentum β this is exactly the paper's

        m ← β m + (1 − β) g,    θ ← (1 − λ)(θ + lr·m),

    since (1 − λ)(θ + lr·m) − θ = (1 − λ) lr·m − λθ. The chain *ascends*: this is the
    one place where the sign of the step is decided. With ``weight_decay_anchor`` start
    the decay is towards θ₀ instead of 0 (:func:`add_anchored_decay`). Weights with a
    ``sigma_factor`` of 0 do not move.
    """
    decay = config.weight_decay
    decays = {
        "zero": optax.add_decayed_weights(-decay),
        "start": add_anchored_decay(decay),
    }
    directions = {
        "momentum": optax.ema(config.momentum, debias=False),
        "sgd": optax.identity(),
        "adam": optax.scale_by_adam(),
        # Its velocity is in units of the learning rate, which scales it below.
        "clipup": clipup(
            config.momentum,
            (config.max_speed or 2 * config.learning_rate) / config.learning_rate,
        ),
    }
    rate = schedule(config, config.learning_rate, config.learning_rate_end)
    return optax.chain(
        directions[config.optimizer],
        optax.scale_by_schedule(rate) if rate else optax.scale(config.learning_rate),
        optax.scale(1.0 - decay),
        _moving(config, decays[config.weight_decay_anchor]),
    )


def _moving(
    config: ESConfig, last: optax.GradientTransformation
) -> optax.GradientTransformation:
    """Returns a chain's last part, after which weights that have no σ do not move.

    Its state is the same with and without such, so that phases may change them.
    """

    def update(updates: PyTree, state: PyTree, params: PyTree = None):
        updates, state = last.update(updates, state, params)
        leaves, structure = jax.tree.flatten(updates)
        factors = leaf_factors(config.sigma_factor, updates)
        leaves = [
            leaf if factor else jnp.zeros_like(leaf)
            for leaf, factor in zip(leaves, factors, strict=True)
        ]
        return structure.unflatten(leaves), state

    return optax.GradientTransformation(last.init, update)


def change_optimizer(config: ESConfig, state: Any, mean: PyTree) -> Any:
    """Returns a state for another configuration's optimizer.

    The state stays as it is if that optimizer is of the same kind; else it begins again
    from θ, with the anchor of before if there was one.
    """
    fresh: Any = make_optimizer(config).init(mean)
    if jax.tree.structure(fresh) == jax.tree.structure(state):
        return state
    before, after = state[-1], fresh[-1]
    both = isinstance(before, AnchorState) and isinstance(after, AnchorState)
    return (*fresh[:-1], before) if both else fresh


class AnchorState(NamedTuple):
    """What anchored weight decay pulls to.

    Attributes:
        anchor: θ₀, the weights that training began with.
    """

    anchor: PyTree


def add_anchored_decay(decay: float) -> optax.GradientTransformation:
    """Adds −λ(θ − θ₀) to the updates: weight decay towards the starting weights.

    After a step u that was scaled by 1 − λ this is θ − θ₀ ← (1 − λ)(θ − θ₀ + u), so
    that weights that do not change the fitness stay where they are. Source: *anchored
    weight decay*, Schweighofer et al. 2026, arXiv 2605.30148, as decoupled decay; the
    same pull as a penalty is L2-SP, Li et al. 2018, arXiv 1802.01483.

    Args:
        decay: λ, in [0, 1).

    Example:
        >>> pull = add_anchored_decay(0.1)
        >>> state = pull.init(jnp.array([1.0]))
        >>> update, state = pull.update(jnp.zeros(1), state, jnp.array([3.0]))
        >>> update.tolist()
        [-0.20000000298023224]
    """

    def init(params: PyTree) -> AnchorState:
        return AnchorState(params)

    def update(updates: PyTree, state: PyTree, params: PyTree = None):
        updates = jax.tree.map(
            lambda u, p, a: u - decay * (p - a), updates, params, state.anchor
        )
        return updates, state

    return optax.GradientTransformation(init, update)


class ClipUpState(NamedTuple):
    """What ClipUp's next step needs.

    Attributes:
        velocity: shaped like θ.
    """

    velocity: PyTree


def clipup(momentum: float, max_speed: float) -> optax.GradientTransformation:
    """ClipUp, of steps whose length does not depend on the gradient's.

        v ← β v + g/‖g‖₂,    v ← v · min(1, s/‖v‖₂)

    Source: Toklu, Liskowski & Srivastava 2020, arXiv 2008.02387, with the velocity in
    units of the step size: scale the result by it.

    Args:
        momentum: β.
        max_speed: s, the bound of ‖v‖₂, in units of the step size; 2 in the paper.

    Example:
        >>> optimizer = clipup(momentum=0.9, max_speed=2.0)
        >>> state = optimizer.init(jnp.zeros(2))
        >>> for _ in range(3):
        ...     velocity, state = optimizer.update(jnp.array([0.0, 40.0]), state)
        >>> velocity.tolist()
        [0.0, 2.0]
    """

    def init(params: PyTree) -> ClipUpState:
        return ClipUpState(jax.tree.map(jnp.zeros_like, params))

    def update(updates: PyTree, state: PyTree, params: PyTree = None):
        norm = optax.tree.norm(updates)
        # No direction: no push, instead of 0/0.
        push = jnp.where(norm > 0, 1.0 / jnp.where(norm > 0, norm, 1.0), 0.0)
        velocity = jax.tree.map(
            lambda v, g: momentum * v + push * g, state.velocity, updates
        )
        speed = optax.tree.norm(velocity)
        brake = jnp.minimum(1.0, max_speed / jnp.maximum(speed, max_speed))
        velocity = jax.tree.map(lambda v: brake * v, velocity)
        return velocity, ClipUpState(velocity)

    return optax.GradientTransformation(init, update)


def schedule(
    config: ESConfig, begin: float, end: float | None
) -> optax.Schedule | None:
    """Returns what leads from ``begin`` to ``end`` by generations; ``None`` without."""
    if end is None:
        return None
    generations = config.schedule_generations
    match config.schedule:
        case "linear":
            return optax.linear_schedule(begin, end, generations)
        case "cosine":
            return optax.cosine_decay_schedule(begin, generations, end / begin)
        case "exponential":
            return optax.exponential_decay(
                begin, generations, end / begin, end_value=end
            )
