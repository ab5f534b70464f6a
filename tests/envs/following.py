"""Gymnasium's own environments, which those of a vector environment must follow."""

import numpy as np


def follow(
    env, singles, num_steps, draw=None, rtol=0.0, on_step=lambda info: None, **options
):
    """Plays both side by side: equal to the bit, rewards but for ``rtol``.

    An ended episode is followed by the next at once, and two begin again in the middle,
    so that slots are soon out of phase. Observations of ours are Gymnasium's, rounded.

    Args:
        env: ours.
        singles: as many of Gymnasium's.
        num_steps: how long.
        draw: returns the actions of a step; samples of the spaces if not given.
        rtol: tolerance on rewards.
        on_step: called with the info dictionary of each step.
        **options: further ones of our resets.

    Returns:
        How many episodes each slot began.
    """
    env_type = env.single_observation_space.dtype
    due, episodes = np.ones(len(singles), bool), np.zeros(len(singles), int)
    for i, single in enumerate(singles):
        single.action_space.seed(i)
    for step in range(num_steps):
        if step in (7, 20):
            due[step % len(singles)] = True
        if due.any():
            episodes += due
            # Every second episode goes on with the generator of the one before.
            seeds = [
                1000 * i + count if count % 2 else None
                for i, count in enumerate(episodes.tolist())
            ]
            observations, _ = env.reset(
                seed=seeds, options={"reset_mask": due, **options}
            )
            for i in np.flatnonzero(due):
                expected, _ = singles[i].reset(seed=seeds[i])
                assert np.array_equal(observations[i], np.asarray(expected, env_type))
        sampled = [single.action_space.sample() for single in singles]
        actions = draw() if draw else np.stack(sampled)
        outcome = env.step(actions)
        for i, single in enumerate(singles):
            observation, reward, *ends, info = single.step(actions[i])
            assert np.array_equal(outcome[0][i], np.asarray(observation, env_type))
            np.testing.assert_allclose(outcome[1][i], reward, rtol=rtol, atol=0)
            assert [outcome[2][i], outcome[3][i]] == ends
            for name in {*info} & {*outcome[4]}:
                found = outcome[4][name][i]
                np.testing.assert_allclose(found, info[name], rtol=rtol, err_msg=name)
        on_step(outcome[4])
        due = outcome[2] | outcome[3]
    return episodes
