"""The base class, over an engine that returns anything where nothing lives."""

import gymnasium
import numpy as np

from jax_es.envs.base import EpisodeVectorEnv


class Careless(EpisodeVectorEnv):
    """Pays NaN and ends every episode that does not live."""

    def __init__(self):
        super().__init__(
            3, gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2), 10
        )

    def _start(self, mask, seeds, options):
        return {"seeds": seeds, "options": options}

    def _advance(self, actions, live):
        return np.where(live, 1.0, np.nan), ~live, ~live, {"live": live}


def test_what_an_engine_says_of_the_dead_is_ignored():
    env = Careless()
    env.reset(options={"reset_mask": np.array([True, True, False])})
    env.halt(np.array([True, False, False]))
    for _ in range(2):
        _, rewards, terminated, truncated, info = env.step(np.zeros(3, int))
        assert rewards.tolist() == [0, 1, 0]
        assert not terminated.any()
        assert truncated.tolist() == [True, False, True]
        assert info["live"].tolist() == [False, True, False]


def test_an_engine_gets_the_seeds_of_the_mask_and_the_other_options():
    env = Careless()
    options = {"reset_mask": np.array([True, False, True]), "level": 2}
    info = env.reset(seed=[4, -1, None], options=options)[1]
    assert info == {"seeds": [4, None], "options": {"level": 2}}
    assert env.reset(seed=8, options=options)[1]["seeds"] == [8, 10]


def test_nothing_advances_when_nothing_lives():
    env = Careless()
    env.reset(options={"reset_mask": np.zeros(3, bool)})
    assert env.step(np.zeros(3, int))[4] == {}
