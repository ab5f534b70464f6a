"""Asking a trained Decision Transformer for another return."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.decision_transformer import DecisionTransformerConfig


def with_target_return(
    config: DecisionTransformerConfig, params: Mapping[str, Any], target_return: float
) -> dict[str, Any]:
    """Returns weights that act as if another return than ``config``'s were asked for.

    The network reads a return-to-go R through a linear layer only, R·w + b, and another
    target moves every R of an episode by the same Δ. Since (R + Δ)·w + b = R·w + (b +
    Δ·w), another bias does the same to rounding, and a program that was compiled for
    ``config`` serves every target.

    Args:
        config: of the network.
        params: its ``"params"``.
        target_return: finite, in the environment's reward unit.
    """
    delta = (target_return - config.target_return) * config.reward_scale
    layer = params["embed_return"]
    kernel, bias = (np.asarray(layer[name], np.float64) for name in ("kernel", "bias"))
    bias = (bias + delta * kernel[0]).astype(np.float32)
    return {**params, "embed_return": {**layer, "bias": bias}}
