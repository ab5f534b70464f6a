"""Games by their memory: equal to ale-py's own, whatever was played before."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from jax_es.envs.atari_env import (
    AtariVectorEnv,
    env_id_of,
    make_single_atari_env,
    single_atari_spec,
)
from jax_es.envs.atari_game import AtariOptions, Game
from jax_es.envs.faults import EnvironmentFailure
from jax_es.envs.make import make
from tests.envs.following import follow

STICKY = {"sticky_actions": 0.25}
RAM = {"observation": "ram"}


@pytest.mark.parametrize(
    ("game", "skip"),
    [
        *[("freeway", 4), ("kangaroo", 4), ("hero", 4), ("hero", 15)],
        # Those that begin in another way.
        *[("qbert", 4), ("tetris", 4), ("berzerk", 4), ("double_dunk", 4)],
    ],
)
def test_equals_ale_pys_own_memory(game, skip):
    """With sticky actions, too, which both draw alike."""
    env = AtariVectorEnv(game, 2, 1, **STICKY, **RAM, frame_skip=skip)
    single = gymnasium.make(
        env_id_of(game), obs_type="ram", frameskip=skip, repeat_action_probability=0.25
    )
    assert env.single_observation_space == single.observation_space
    rng = np.random.default_rng(0)
    for seed in (3, 2**31 + 5):
        observations, _ = env.reset(seed=[seed, seed + 1])
        expected, _ = single.reset(seed=seed)
        for action in rng.integers(env.single_action_space.n, size=(200, 2)):
            assert np.array_equal(observations[0], expected)
            observations, rewards, terminated, truncated, info = env.step(action)
            expected, reward, *ends, single_info = single.step(action[0])
            assert (rewards[0], [terminated[0], truncated[0]]) == (reward, ends)
            assert info["lives"][0] == single_info["lives"]
            if any(ends):
                break
    env.close()
    single.close()


@pytest.mark.parametrize("num_threads", [1, 2])
def test_equals_a_single_environment_with_all_options(num_threads):
    options = {
        **STICKY,
        "noop_max": 30,
        "terminate_on_life_loss": True,
        "reward_clipping": True,
        "full_action_space": True,
        "max_episode_steps": 150,
        "observation": "ram-change",
    }
    env = make("ALE/Breakout-v5", 3, num_threads, **options)
    singles = [make_single_atari_env("breakout", **options) for _ in range(3)]
    for i, single in enumerate(singles):
        assert env.single_observation_space == single.observation_space
        observations, _ = env.reset(seed=40)
        expected, _ = single.reset(seed=40 + i)
        rng, end = np.random.default_rng(i), [False, False]
        paid = 0.0
        while not any(end):
            assert np.array_equal(observations[i], expected)
            actions = rng.integers(18, size=3)
            observations, rewards, terminated, truncated, _ = env.step(actions)
            expected, reward, *end, _ = single.step(actions[i])
            assert (rewards[i], [terminated[i], truncated[i]]) == (reward, end)
            paid += reward
        single.close()
    env.close()


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("backgammon", RAM),  # whose actions begin with FIRE
        ("video_checkers", RAM),
        ("qbert", {}),
        ("double_dunk", {}),
    ],
)
def test_games_that_begin_in_another_way_equal_a_single_environment(game, options):
    options = {**STICKY, **options, "noop_max": 30}
    env = AtariVectorEnv(game, 1, 1, **options)
    single = make_single_atari_env(game, **options)
    rng = np.random.default_rng(0)
    for seed in (11, 12):
        observations, _ = env.reset(seed=[seed])
        expected, _ = single.reset(seed=seed)
        for action in rng.integers(env.single_action_space.n, size=60):
            assert np.array_equal(observations[0], expected)
            observations, rewards, *_ = env.step(np.array([action]))
            expected, reward, *_ = single.step(action)
            assert rewards[0] == reward
    env.close()
    single.close()


@pytest.mark.parametrize("options", [RAM, {"frame_size": 42, "frame_stack": 2}])
def test_a_game_depends_on_its_seed_alone(options):
    """Whatever was played before, and in which slot."""
    env = AtariVectorEnv("hero", 3, 1, **STICKY, **options, noop_max=30)
    actions = np.random.default_rng(0).integers(18, size=(150, 3))

    def play(slot, seed, before):
        env.reset(seed=before)
        for step in actions[:before]:
            env.step(step)
        env.reset(seed=[seed if i == slot else before for i in range(3)])
        seen = []
        for step in actions:
            observations, rewards, *_ = env.step(np.roll(step, slot))
            seen.append((observations[slot].tobytes(), rewards[slot]))
        return seen

    first = play(0, 5, 0)
    assert play(0, 5, 70) == first
    assert play(2, 5, 33) == first
    assert play(0, 6, 70) != first, "the seed changes nothing"
    env.close()


def test_without_chance_it_follows_gymnasiums_own():
    env = AtariVectorEnv("space_invaders", 2, 1, **RAM, max_episode_steps=60)
    singles = [
        make_single_atari_env("space_invaders", observation="ram", max_episode_steps=60)
        for _ in range(2)
    ]
    assert (follow(env, singles, 150) > 2).all()
    env.close()


def test_a_description_is_enough_to_make_the_same_game():
    options = {"observation": "ram-change", "max_episode_steps": 20, "noop_max": 9}
    described = single_atari_spec("ms_pacman", **options).to_json()
    remade = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(described))
    single = make_single_atari_env("ms_pacman", **options)
    assert np.array_equal(remade.reset(seed=3)[0], single.reset(seed=3)[0])
    for action in np.random.default_rng(0).integers(9, size=20):
        outcome, expected = remade.step(action), single.step(action)
        assert np.array_equal(outcome[0], expected[0])
        assert outcome[1:4] == expected[1:4]
    assert outcome[3]


def test_change_is_that_of_the_last_step():
    env = AtariVectorEnv("freeway", 1, 1, observation="ram-change")
    plain = AtariVectorEnv("freeway", 1, 1, **RAM)
    observations, before = env.reset(seed=0)[0], plain.reset(seed=0)[0].copy()
    assert (observations[0, 128:] == 0).all()
    for _ in range(5):
        observations, after = env.step(np.array([1]))[0], plain.step(np.array([1]))[0]
        change = (after.astype(int) - before) / 255
        np.testing.assert_allclose(observations[0, :128], after[0] / 255, rtol=1e-6)
        np.testing.assert_allclose(observations[0, 128:], change[0], atol=1e-7)
        before = after.copy()
    assert np.abs(change).max() > 0
    env.close()
    plain.close()


def test_emulators_keep_nothing_of_the_game_before():
    options = AtariOptions(sticky_actions=0.25, observation="ram")
    played, fresh = Game("pong", options), Game("pong", options)
    rams = np.zeros((2, 128), np.uint8)
    played.reset(1, rams[0])
    for _ in range(100):
        played.step(2, rams[0])
    for game, ram in zip((played, fresh), rams, strict=True):
        game.reset(2, ram)
    for action in np.random.default_rng(1).integers(6, size=300):
        first, second = (
            game.step(int(action), ram)
            for game, ram in zip((played, fresh), rams, strict=True)
        )
        assert first == second
        np.testing.assert_array_equal(*rams)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"observation": "sound"}, "observation: got 'sound', expected one of frames"),
        ({"frame_skip": 0}, "frame_skip: got 0, expected an integer"),
        ({"frame_size": 42}, "frame_size: 42 has no meaning with observation ram"),
        ({"descriptor": [128]}, "descriptor: got"),
    ],
)
def test_bad_input_is_named(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        AtariVectorEnv("pong", 1, 1, **{**RAM, **options})


@pytest.mark.parametrize(
    ("size", "stack", "skip"), [(42, 1, 4), (84, 3, 4), (84, 4, 1), (42, 2, 16)]
)
def test_frames_of_other_sizes_stacks_and_skips_are_gymnasiums_own(size, stack, skip):
    """With all that chance does, too."""
    options = {
        **STICKY,
        "frame_skip": skip,
        "noop_max": 30,
        "frame_size": size,
        "frame_stack": stack,
        "max_episode_steps": 60,
    }
    for game in ("kangaroo", "freeway", "hero"):
        env = AtariVectorEnv(game, 1, 1, **options)
        single = make_single_atari_env(game, **options)
        for seed in (1, 2):
            observations, _ = env.reset(seed=seed)
            expected, _ = single.reset(seed=seed)
            assert observations.shape == (1, stack, size, size)
            actions = np.random.default_rng(seed).integers(3, size=(60, 1))
            for action in actions:
                np.testing.assert_array_equal(observations[0], expected)
                observations, rewards, *_ = env.step(action)
                expected, reward, *_ = single.step(action[0])
                assert rewards[0] == reward
        env.close()
        single.close()


def test_a_script_without_a_guard_steps_games_in_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from jax_es.envs.atari_env import AtariVectorEnv\n"
        "env = AtariVectorEnv('pong', 2, 2, observation='ram')\n"
        "print(env.reset(seed=0)[0].shape)\n"
        "env.close()\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(2, 128)\n", "")


def test_what_happens_to_a_process_is_said():
    env = AtariVectorEnv("pong", 2, 2, **RAM)
    env.reset(seed=0)
    with pytest.raises(IndexError):  # by the process, which goes on
        env.step(np.array([0, 99]))
    env.step(np.zeros(2, int))
    _, last = env._shares.values()
    last._process.kill()
    last._process.join()
    for _ in range(2):
        with pytest.raises(EnvironmentFailure, match=r"exit code -9"):
            env.step(np.zeros(2, int))
    env.close()
