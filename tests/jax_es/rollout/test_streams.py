"""Random streams: no two of a seed are the same."""

import itertools
from typing import get_args

import numpy as np
import pytest

from jax_es.rollout.streams import Purpose, stream

PURPOSES = get_args(Purpose)


def drawn(*args):
    return stream(*args).integers(2**62, size=4).tolist()


def test_streams_of_a_seed_differ():
    """Whatever the purpose and the index: with padded seeds ``[2]`` was ``[2, 0]``."""
    keys = list(itertools.product((0, 1, 2**31 - 1), PURPOSES, (0, 1, 2, 10**9)))
    assert len({tuple(drawn(*key)) for key in keys}) == len(keys)
    plain = [[], [0], [0, 0], [0, 1], [0, 2], [0, 2, 0]]
    for entropy, purpose in itertools.product(plain, PURPOSES):
        other = np.random.default_rng([1, *entropy]).integers(2**62, size=4).tolist()
        assert drawn(1, purpose) != other


@pytest.mark.parametrize("integer", [int, np.int32, np.int64])
def test_a_stream_repeats(integer):
    assert drawn(integer(3), "dropout", integer(7)) == drawn(3, "dropout", 7)
