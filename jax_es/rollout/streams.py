"""Random numbers by the name of what they are for.

NumPy pads short seeds with zeros, so ``default_rng([seed, 2])`` and
``default_rng([seed, 2, 0])`` are the same generator. A name keeps streams apart.
"""

import zlib
from typing import Literal

import numpy as np

Purpose = Literal[
    "population tasks",
    "commands",
    "variations",
    "evaluation tasks",
    "test tasks",
    "weight noise",
    "reference batch",
    "random actions",
    "dataset episodes",
    "action noise",
    "online episodes",
    "online noise",
    "held-out episodes",
    "cloning batches",
    "dropout",
    "gradient teacher",
    "tuning",
    "variation operators",
    "adaptation",
    "mutations",
]
"""Everything that draws from NumPy's generators by a run's seed."""


def stream(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """Returns the random numbers of one purpose.

    Args:
        seed: of the run, or of the episode.
        purpose: what they are for.
        index: the generation, epoch or step, where a purpose has several streams.

    Example:
        >>> stream(0, "population tasks", 7).integers(10, size=3).tolist()
        [4, 8, 3]
    """
    key = (zlib.crc32(purpose.encode()), int(index))
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=key))
