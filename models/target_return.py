"""Asking a trained network for another return, by its weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.config import (
    CommandedConfig,
    DecisionTransformerConfig,
    LSTMConfig,
    MLPConfig,
)


def with_target_return(
    config: DecisionTransformerConfig | CommandedConfig,
    params: Mapping[str, Any],
    target_return: float,
) -> dict[str, Any]:
    """Returns weights that act as if another return than ``config``'s were asked for.

    The network reads a return-to-go R through linear layers only, R·w + b, and another
    target moves every R of an episode by the same Δ. Since (R + Δ)·w + b = R·w + (b +
    Δ·w), another bias does the same to rounding, and a program that was compiled for
    ``config`` serves every target.

    Args:
        config: of the network; it has a target return.
        params: its ``"params"``.
        target_return: finite, in the environment's reward unit.
    """
    delta = (target_return - float(config.target_return or 0.0)) * config.reward_scale
    shifted = dict(params)
    for name in _readers(config):
        layer = params[name]
        kernel, bias = (np.asarray(layer[part], np.float64) for part in _PARTS)
        # The return-to-go is a transformer's only input, and others' last.
        bias = (bias + delta * kernel[-1]).astype(np.float32)
        shifted[name] = {**layer, "bias": bias}
    return shifted


_PARTS = ("kernel", "bias")


def _readers(config: DecisionTransformerConfig | CommandedConfig) -> tuple[str, ...]:
    """Names the layers that read the return-to-go."""
    match config:
        case DecisionTransformerConfig():
            return ("embed_return", "film") if config.film else ("embed_return",)
        case LSTMConfig():
            return ("input_gates",)
        case MLPConfig():
            return ("hidden_0" if config.hidden_sizes else "head",)
    raise ValueError(f"{type(config).__name__} reads no return")
