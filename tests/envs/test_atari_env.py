"""Atari on ale-py's threads: equal to Gymnasium's own, and a function of the task."""

import ale_py.roms
import gymnasium
import numpy as np
import pytest

from jax_es.envs.atari_env import (
    AtariVectorEnv,
    env_id_of,
    make_single_atari_env,
    rom_name,
    single_atari_spec,
)
from jax_es.envs.atari_game import OBSERVATION_SHAPE
from jax_es.envs.make import make
from tests.envs.following import follow


def actions_of(env, num_steps, num_envs, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(env.single_action_space.n, size=(num_steps, num_envs))


@pytest.mark.parametrize(
    ("game", "num_steps", "options"),
    [
        ("hero", 700, {}),
        ("ms_pacman", 300, {"full_action_space": True}),
        ("ms_pacman", 100, {"reward_clipping": True}),
        ("breakout", 150, {"max_episode_steps": 40}),
    ],
)
def test_equals_gymnasiums_own_environment(game, num_steps, options):
    env = AtariVectorEnv(game, 2, 1, **options)
    singles = [make_single_atari_env(game, **options) for _ in range(2)]
    episodes = follow(env, singles, num_steps)
    assert (episodes > 2).all() or game == "ms_pacman"
    env.close()


def test_a_description_is_enough_to_make_the_same_game():
    limit = 100
    options = {"reward_clipping": True, "max_episode_steps": limit}
    described = single_atari_spec("ms_pacman", **options).to_json()
    remade = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(described))
    single = make_single_atari_env("ms_pacman", **options)
    np.testing.assert_array_equal(remade.reset(seed=3)[0], single.reset(seed=3)[0])
    rewards = []
    for step, action in enumerate(np.random.default_rng(0).integers(9, size=limit)):
        outcome, expected = remade.step(action), single.step(action)
        assert outcome[1:4] == expected[1:4]
        if step + 1 < limit:
            np.testing.assert_array_equal(outcome[0], expected[0])
        rewards.append(outcome[1])
    assert outcome[3]
    assert max(rewards) == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"sticky_actions": 0.25}, {"noop_max": 30}])
def test_an_episode_depends_on_its_seed_and_actions_alone(options):
    num_envs, num_steps = 11, 60  # two batches, one of them smaller
    env = AtariVectorEnv("hero", num_envs, 2, **options)
    actions = actions_of(env, num_steps, num_envs)

    def play(slot, seed, neighbours):
        env.reset(seed=[seed if i == slot else neighbours + i for i in range(num_envs)])
        total, frames = 0.0, []
        for step in range(num_steps):
            chosen = np.roll(actions[step], neighbours)
            chosen[slot] = actions[step, 0]
            observations, rewards, *_ = env.step(chosen)
            total += rewards[slot]
            frames.append(observations[slot, -1].copy())
        return total, np.array(frames)

    first, second = play(0, 5, 1), play(9, 5, 4)
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])
    other = play(0, 6, 1)
    assert np.array_equal(first[1], other[1]) == (not options), "seeds change nothing"
    env.close()


def test_frames_are_bytes_and_a_new_episode_begins_in_the_dark():
    env = make("ALE/Hero-v5", 3, num_threads=1)
    assert isinstance(env, AtariVectorEnv)
    assert env.max_episode_steps == 27_000  # half an hour
    assert make("ALE/Hero-v5", 1, frame_skip=16).max_episode_steps == 6_750
    assert env.single_observation_space.shape == OBSERVATION_SHAPE
    assert env.single_action_space == gymnasium.spaces.Discrete(18)
    observations, _ = env.reset(seed=0)
    assert observations.dtype == np.uint8
    assert (observations[:, :3] == 0).all()
    assert observations[:, 3].any()
    env.close()


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: rom_name("heroo"), r"env.game: ale-py has no game 'heroo'; .* Hero"),
        (
            lambda: rom_name("ALE/Pong-v4"),
            r"env.id: .*no game 'ALE/Pong-v4'.*Pong",
        ),
        (lambda: make("ALE/Heroo-v5", 1), r"no game 'ALE/Heroo-v5'; .* Hero"),
        (lambda: AtariVectorEnv("hero", 0), "num_envs: got 0"),
    ],
)
def test_bad_input_is_named(build, complaint):
    with pytest.raises(ValueError, match=complaint):
        build()


def test_every_game_has_its_emulator_and_its_id():
    """What ale-py cannot play would end the process, not raise."""
    ids = [i for i in gymnasium.registry if i.startswith("ALE/") and i.endswith("-v5")]
    assert len(ids) > 100
    roms = {rom_name(env_id): env_id for env_id in ids}
    assert roms.keys() <= set(ale_py.roms.get_all_rom_ids())
    for rom, env_id in roms.items():
        assert env_id_of(rom) == env_id_of(env_id.lower()) == env_id
    for unplayable in set(ale_py.roms.get_all_rom_ids()) - roms.keys():
        with pytest.raises(ValueError, match="ale-py has no game"):
            rom_name(unplayable)
    assert env_id_of("tic_tac_toe_3d") == "ALE/TicTacToe3D-v5"


def test_a_lost_life_may_end_the_episode():
    """As with Gymnasium's wrapper, which leaves out the last step's later frames."""
    env = AtariVectorEnv("breakout", 1, 1, terminate_on_life_loss=True)
    single = make_single_atari_env("breakout", terminate_on_life_loss=True)
    observations, _ = env.reset(seed=0)
    expected, _ = single.reset(seed=0)
    for actions in actions_of(env, 1000, 1):
        np.testing.assert_array_equal(observations[0], expected)
        observations, rewards, terminated, _, info = env.step(actions)
        expected, reward, ended, _, _ = single.step(actions[0])
        assert (rewards[0], terminated[0]) == (reward, ended)
        if ended:
            break
    assert ended and info["lives"][0] > 0
    env.close()
    single.close()
