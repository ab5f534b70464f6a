"""From gradient estimates to steps: the optax chain of OpenAI-ES, ClipUp, schedules."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jax_es.config import ESConfig
from jax_es.types import PyTree


def make_optimizer(config: ESConfig) -> optax.GradientTransformation:
    """Builds the optax chain that turns g into the step added to θ.

    With momentum β this is exactly the paper's

        m ← β m + (1 − β) g,    θ ← (1 − λ)(θ + lr·m),

    since (1 − λ)(θ + lr·m) − θ = (1 − λ) lr·m − λθ. The chain *ascends*: this is the
    one place where the sign of the step is decided.
    """
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
        optax.scale(1.0 - config.weight_decay),
        optax.add_decayed_weights(-config.weight_decay),
    )


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
