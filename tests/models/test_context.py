"""Masks and positions against the sentences that define them, token by token."""

import jax
import numpy as np
import pytest

from models.context import (
    Window,
    banded_causal_mask,
    block_position,
    cache_mask,
    window_tokens,
)

CONTEXTS = [1, 5]


def attends(query: int, key: int, context_length: int) -> bool:
    """Token 3t + p of step t reads what came before it in the last K steps."""
    query_step, _ = divmod(query, 3)
    key_step, _ = divmod(key, 3)
    return key <= query and key_step > query_step - context_length


@pytest.mark.parametrize("context_length", CONTEXTS)
def test_banded_causal_mask(context_length):
    tokens = np.arange(3 * 7)
    mask = banded_causal_mask(tokens, tokens, context_length)
    expected = [[attends(q, k, context_length) for k in tokens] for q in tokens]
    np.testing.assert_array_equal(mask, expected)


def test_banded_causal_mask_by_hand():
    # K = 2, the state token of step 2: its return and itself, and all of step 1.
    mask = banded_causal_mask(np.array([7]), np.arange(9), 2)
    assert mask.astype(int).tolist() == [[0, 0, 0, 1, 1, 1, 1, 1, 0]]
    # The return token of step 3: all of step 2, nothing of step 1.
    mask = banded_causal_mask(np.array([9]), np.arange(12), 2)
    assert mask.astype(int).tolist() == [[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize("context_length", CONTEXTS)
def test_cache_mask_reads_what_was_written(context_length):
    """Plays an episode on a ring of token numbers; −1 stands for another episode's."""
    ring = np.full((context_length + 1, 3), -1)
    mask_of = jax.jit(cache_mask, static_argnums=1)
    for timestep in range(4 * context_length + 3):
        block = 3 * timestep + np.array([-1, 0, 1])
        ring[block_position(timestep, context_length)] = block
        mask = np.asarray(mask_of(np.int32(timestep), context_length))
        cached = ring.ravel()
        for query, row in zip(block, mask, strict=True):
            if query < 0:  # no action before the first step: nobody reads this row
                continue
            expected = [
                key
                for key in cached
                if key >= 0 and attends(query, key, context_length)
            ]
            assert cached[row].tolist() == expected
            # The ring still holds all that the band allows.
            steps = range(max(0, query // 3 - context_length + 1), query // 3 + 1)
            allowed = {3 * step + p for step in steps for p in range(3)}
            assert set(expected) == {key for key in allowed if key <= query}


@pytest.mark.parametrize("context_length", CONTEXTS)
def test_window_mask_reads_this_episode_only(context_length):
    width, num_past = 2, context_length - 1
    tokens = np.arange(num_past * 3.0 * width).reshape(num_past, 3, width) + 100
    given = np.full((2, width), 7.0)
    window = Window(np.float32(tokens))
    tokens_of = jax.jit(window_tokens)
    for timestep in range(context_length + 3):
        kept, mask = tokens_of(window, np.float32(given), np.int32(timestep))
        numbers = 3 * (timestep - num_past) + np.arange(3 * context_length - 1)
        for query, row in zip(numbers, np.asarray(mask), strict=True):
            if query >= 0:
                expected = [k for k in numbers if k >= 0 and k <= query]
                assert numbers[row].tolist() == expected
        real = numbers >= 0
        written = np.concatenate([tokens.reshape(-1, width), given])
        np.testing.assert_array_equal(np.asarray(kept)[real], written[real])
        assert not np.asarray(kept)[~real].any()
