"""The environment that keeps its episodes: what it keeps, and the noise it adds."""

import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.imitation.recording_env import RecordingEnv, is_finite
from tests.probe_envs import TargetEnv


def play(env, seeds, policy):
    """Plays the seeds' episodes one after the other in each environment."""
    queue = list(seeds)
    mask = np.zeros(env.num_envs, bool)
    mask[: len(queue)] = True
    first = [queue.pop(0) if needed else 0 for needed in mask]
    observation, _ = env.reset(seed=first, options={"reset_mask": mask})
    live = mask.copy()
    while live.any():
        observation, _, terminated, truncated, _ = env.step(policy(observation))
        ended = live & (terminated | truncated)
        live &= ~ended
        for i in np.flatnonzero(ended):
            if queue:
                mask = np.arange(env.num_envs) == i
                seed = np.where(mask, queue.pop(0), 0)
                observation, _ = env.reset(seed=seed, options={"reset_mask": mask})
                live[i] = True


def half_way(observation):
    """Acts half the target, so that the executed action can be told from it."""
    return (observation[:, :2] / 2).astype(np.float32)


@pytest.mark.parametrize("what", ["inf", "observation", "failed"])
def test_numbers_that_are_not_finite_are_noticed(what):
    episodes = []
    probe = TargetEnv(1, 3, 3, broken={5: what})
    play(RecordingEnv(probe, 0.0, 0, episodes.append), [4, 5], half_way)
    assert {each.seed: is_finite(each) for each in episodes} == {4: True, 5: False}


class Negative:
    """The same task, of which the negative is seen; one of its rewards may differ."""

    def __init__(self, num_envs, odd_reward=0.0):
        self.env, self.odd_reward = TargetEnv(num_envs), odd_reward

    def reset(self, **arguments):
        observation, info = self.env.reset(**arguments)
        return -observation, info

    def step(self, actions):
        observation, reward, *rest = self.env.step(actions)
        return -observation, reward + self.odd_reward, *rest


def test_another_view_of_the_same_episodes_is_recorded():
    """The policy acts on its own: with what is shown it would act otherwise."""
    views = []
    for shown in (None, Negative(3)):
        episodes = []
        env = RecordingEnv(TargetEnv(3), 0.0, 0, episodes.append, shown=shown)
        play(env, range(7), half_way)
        views.append({each.seed: each for each in episodes})
    own, negative = views
    assert own.keys() == negative.keys()
    for seed, each in negative.items():
        seen = -np.array(each.observations)
        np.testing.assert_array_equal(seen, own[seed].observations)
        np.testing.assert_array_equal(each.actions, own[seed].actions)


def test_a_view_of_other_episodes_is_refused():
    env = RecordingEnv(TargetEnv(3), 0.0, 0, print, shown=Negative(3, 0.5))
    with pytest.raises(ConfigError, match="an episode differs"):
        play(env, range(7), half_way)


def recorded(num_envs, sigma, noise_seed=0, num_episodes=300, which="executed"):
    episodes = []
    env = RecordingEnv(TargetEnv(num_envs), sigma, noise_seed, episodes.append, which)
    play(env, range(num_episodes), lambda o: np.zeros((num_envs, 2), np.float32))
    return {each.seed: each for each in episodes}


def test_noise_stays_inside_the_range():
    actions = np.concatenate([each.actions for each in recorded(4, 2.0).values()])
    assert (actions.min(), actions.max()) == (-1, 1)
    assert 0.3 < (abs(actions) == 1).mean() < 0.9  # P(|2 z| ≥ 1) = 0.62


def test_what_was_chosen_is_recorded_of_what_was_executed():
    """The same episodes, with the policy's actions instead of those that made them."""
    executed = recorded(4, 0.1, num_episodes=6)
    chosen = recorded(4, 0.1, num_episodes=6, which="chosen")
    for seed, each in chosen.items():
        assert not np.any(each.actions)  # what `recorded` plays
        assert np.all(executed[seed].actions)
        np.testing.assert_array_equal(each.observations, executed[seed].observations)
        assert each.rewards == executed[seed].rewards


def test_noise_depends_on_the_episode_alone():
    alone, beside = recorded(1, 0.1, 0, 6), recorded(4, 0.1, 0, 6)
    for seed, each in alone.items():
        np.testing.assert_array_equal(each.actions, beside[seed].actions)
    other = recorded(1, 0.1, 1, 6)
    starts = [x[seed].actions[0][0] for x in (alone, other) for seed in range(6)]
    assert len(set(starts)) == 12
