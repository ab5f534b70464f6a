"""Returns-to-go, padding, held-out episodes, sampling: against values by hand."""

import numpy as np
import pytest

from jax_es.imitation.datasets import Episodes
from jax_es.imitation.windows import (
    PADDING_START,
    covering,
    hold_out,
    random_starts,
    statistics_of,
    steps_of,
    windows_at,
)
from jax_es.rollout.observation_statistics import mean_and_std

# Three episodes of 3, 1 and 4 steps.
REWARDS = [1.0, 2.0, 4.0, 8.0, 0.5, -1.0, 0.0, 2.0]
EPISODES = Episodes(
    observations=np.arange(16, dtype=np.float32).reshape(8, 2),
    actions=np.arange(8, dtype=np.float32)[:, None] / 10,
    rewards=np.float32(REWARDS),
    lengths=np.array([3, 1, 4]),
)


def test_returns_to_go_and_timesteps():
    steps = steps_of(EPISODES)
    assert steps.returns_to_go.tolist() == [7.0, 6.0, 4.0, 8.0, 1.5, 1.0, 2.0, 2.0]
    assert steps.returns_to_go.dtype == np.float32
    assert steps.timesteps.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert steps.last.tolist() == [2, 2, 2, 3, 7, 7, 7, 7]


def test_returns_to_go_of_many_episodes_keep_their_digits():
    rng = np.random.default_rng(0)
    lengths = np.full(2000, 500)
    rewards = rng.normal(5.0, 1.0, lengths.sum()).astype(np.float32)
    blank = np.zeros((len(rewards), 1), np.float32)
    actual = steps_of(Episodes(blank, blank, rewards, lengths)).returns_to_go
    last = np.cumsum(np.float64(rewards[-500:])[::-1])[::-1]
    np.testing.assert_allclose(actual[-500:], last, rtol=1e-6)


def test_windows_are_padded_on_the_right():
    windows = windows_at(steps_of(EPISODES), np.array([[1, 3], [4, PADDING_START]]), 3)
    assert windows.is_real.tolist() == [
        [[True, True, False], [True, False, False]],
        [[True, True, True], [False, False, False]],
    ]
    # The last step over and over: timesteps too, which tell a window's place.
    assert windows.timesteps[0].tolist() == [[1, 2, 2], [0, 0, 0]]
    assert windows.returns_to_go[0].tolist() == [[6.0, 4.0, 4.0], [8.0, 8.0, 8.0]]
    np.testing.assert_array_equal(
        windows.observations[1, 0], EPISODES.observations[4:7]
    )
    np.testing.assert_array_equal(windows.actions[1, 0], EPISODES.actions[4:7])
    assert np.isfinite(windows.observations).all()


def test_whole_episodes_are_held_out():
    steps = steps_of(EPISODES)
    seen = set()
    for seed in range(20):
        learnt, held_out = hold_out(steps, 0.05, seed)
        assert sorted([*learnt, *held_out]) == list(range(8))
        seen.add(tuple(held_out.tolist()))
    assert seen == {(0, 1, 2), (3,), (4, 5, 6, 7)}
    assert [len(part) for part in hold_out(steps, 0.0, 0)] == [8, 0]
    # Something is always left to learn from.
    assert len(hold_out(steps, 0.99, 0)[0]) > 0
    alone = steps_of(Episodes(*(part[:3] for part in EPISODES[:3]), np.array([3])))
    assert [len(part) for part in hold_out(alone, 0.5, 0)] == [3, 0]


def test_covering_windows_hold_each_step_once():
    steps = steps_of(EPISODES)
    starts = covering(steps, np.arange(8), 3)
    assert starts.tolist() == [0, 3, 4, 7]
    windows = windows_at(steps, starts, 3)
    seen = windows.observations[windows.is_real][:, 0] / 2
    assert sorted(seen.tolist()) == list(range(8))


def test_an_epochs_batches_are_drawn_from_the_steps_and_depend_on_nothing_else():
    steps = np.array([0, 1, 2, 4, 5, 6, 7])

    def of(seed, epoch, count=700):
        return np.array(list(random_starts(steps, count, 100, seed, epoch)))

    counts = np.bincount(of(0, 1).ravel(), minlength=8)
    assert counts[3] == 0
    # Five standard deviations of a count of expectation 10 000.
    assert np.abs(counts[steps] - 10_000).max() < 5 * np.sqrt(10_000 * 6 / 7)
    np.testing.assert_array_equal(of(0, 1)[:3], of(0, 1, 3))
    assert (of(0, 1) != of(0, 2)).any()
    assert (of(0, 1) != of(1, 1)).any()


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_statistics_of_all_observations(dtype):
    random = np.random.default_rng(0)
    observations = random.uniform(0, 255, (5000, 1, 2)).astype(dtype)
    blank = np.zeros(5000, np.float32)
    episodes = Episodes(observations, blank, blank, np.array([5000]))
    mean, std = mean_and_std(statistics_of(episodes))
    seen = observations.reshape(5000, 2) / (255.0 if dtype == np.uint8 else 1.0)
    np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, seen.std(axis=0), rtol=1e-4)
