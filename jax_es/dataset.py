"""Episodes on disk, as Minari datasets, and in memory."""

from typing import NamedTuple

import numpy as np


class Episodes(NamedTuple):
    """Recorded episodes, one after the other in arrays of ``S`` steps altogether.

    Attributes:
        observations: ``[S, O]``, what was seen before each action; float32, or uint8 of
            images.
        actions: ``[S, A]`` float32 in the environment's own unit, or ``[S]`` integers.
        rewards: ``[S]`` float32, paid for each action.
        lengths: ``[E]`` int64, steps of each episode; they add up to ``S``.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    lengths: np.ndarray
