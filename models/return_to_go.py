"""The return-to-go: what remains of the return that an episode is asked for."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_es.models.config import CommandedConfig, DecisionTransformerConfig


def next_return_to_go(
    config: CommandedConfig | DecisionTransformerConfig,
    variables: Mapping[str, Any],
    previous: jax.Array,
    reward: jax.Array,
    first: jax.Array,
) -> jax.Array:
    """Pays the last reward out of the return-to-go, or starts a new episode.

    R₀ = target_return · reward_scale and R_t = R_{t-1} - reward_{t-1} · reward_scale.

    Args:
        config: has a target return and a reward scale.
        variables: the network's. Their collection ``"command"``, if there is one, holds
            the ``"target_return"`` of the episode instead of the configuration's.
        previous: ``[]`` float32, R_{t-1}.
        reward: ``[]``, of the previous step.
        first: ``[]`` bool, whether this is an episode's first step.

    Returns:
        ``[]`` float32, R_t.
    """
    asked = variables.get("command", {}).get("target_return", config.target_return)
    remaining = previous - reward * config.reward_scale
    return jnp.where(first, asked * config.reward_scale, remaining)
