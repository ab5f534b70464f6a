"""Any registered environment: equal to Gymnasium's, and left alone when ended."""

import multiprocessing
import os
import signal
import warnings

import gymnasium
import numpy as np
import pytest

from jax_es.envs.faults import EnvironmentFailure
from jax_es.envs.gymnasium_env import GymnasiumVectorEnv
from tests.envs.following import follow

NUM_ENVS = 3


@pytest.mark.parametrize(
    ("env_id", "options", "num_steps"),
    [
        ("CartPole-v1", {}, 200),
        ("Pendulum-v1", {"g": 9.81}, 410),
        ("MountainCarContinuous-v0", {}, 100),
    ],
)
def test_equals_gymnasium(env_id, options, num_steps):
    env = GymnasiumVectorEnv(env_id, NUM_ENVS, **options)
    singles = [gymnasium.make(env_id, **options) for _ in range(NUM_ENVS)]
    assert env.single_observation_space == singles[0].observation_space
    assert env.single_action_space == singles[0].action_space
    assert env.max_episode_steps == singles[0].spec.max_episode_steps
    episodes = follow(env, singles, num_steps)
    assert env_id == "MountainCarContinuous-v0" or (episodes > 1).all()


def test_processes_equal_gymnasium():
    env = GymnasiumVectorEnv(
        "CartPole-v1", NUM_ENVS, vectorization_mode="async", num_threads=2
    )
    singles = [gymnasium.make("CartPole-v1") for _ in range(NUM_ENVS)]
    try:
        assert (follow(env, singles, 60) > 1).all()
        # Ctrl-C reaches every process of a terminal; this one decides what to do.
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGINT)
        before = env.step(np.zeros(NUM_ENVS, int))[0].copy()
        env.halt(np.array([True, False, False]))
        after, rewards, _, truncated, _ = env.step(np.zeros(NUM_ENVS, int))
        assert np.array_equal(after[0], before[0])
        assert not np.array_equal(after[1], before[1])
        assert rewards[0] == 0 and truncated[0]
    finally:
        env.close()


class Counter(gymnasium.Env):
    """Counts its own steps and resets; its episodes last as long as its seed says."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.num_steps = self.num_resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.num_resets += 1
        self.left = seed if seed is not None else 1
        return np.array([self.left], float), {"options": str(options)}

    def step(self, action):
        self.num_steps += 1
        self.left -= 1
        observation = np.array([self.left], float)
        return observation, 1.0, self.left <= 0, False, {"count": self.num_steps}


@pytest.fixture
def counter_id(register):
    return register("Counter-v0", Counter)


def test_ended_environments_are_neither_stepped_nor_restarted(counter_id):
    env = GymnasiumVectorEnv(counter_id, 3, max_episode_steps=100)
    env.reset(seed=[2, 5, 9])
    for _ in range(6):
        env.step(np.zeros(3, int))
    env.halt(np.array([False, False, True]))
    for _ in range(3):
        _, _, terminated, truncated, _ = env.step(np.zeros(3, int))
    assert terminated.tolist() == [True, True, False]
    assert truncated.tolist() == [False, False, True]
    counters = env._vector_env.envs
    assert [one.unwrapped.num_steps for one in counters] == [2, 5, 6]
    assert [one.unwrapped.num_resets for one in counters] == [1, 1, 1]


def test_no_limit_is_an_error(counter_id):
    with pytest.raises(ValueError, match=r"max_episode_steps: Counter-v0 has no limit"):
        GymnasiumVectorEnv(counter_id, 1)


def choose_twice(env):
    both = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)] * 2)
    return gymnasium.wrappers.TransformAction(env, lambda action: action[0], both)


def observe_a_list(env):
    space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))
    return gymnasium.wrappers.TransformObservation(env, lambda _: (0,), space)


@pytest.mark.parametrize(
    ("env_id", "options", "words"),
    [
        (
            "CartPole-v1",
            {"wrappers": [observe_a_list]},
            r"observes Sequence.*cannot flatten.*add --env.wrappers module:",
        ),
        (
            "CartPole-v1",
            {"wrappers": [choose_twice]},
            r"acts in Tuple\(.*, expected a Box, Discrete.*add a wrapper",
        ),
        ("CartPole-v1", {"vectorization_mode": "threads"}, "mode: got 'threads', exp"),
    ],
)
def test_what_does_not_fit_is_named(env_id, options, words):
    with pytest.raises(ValueError, match=words):
        GymnasiumVectorEnv(env_id, 1, max_episode_steps=10, **options)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("env_id", ["Taxi-v4", "Blackjack-v1"])
def test_observations_are_flattened_as_gymnasium_does(env_id, wrapped):
    """Whether it is told to or not: both are the same task."""
    native = gymnasium.make(env_id)
    space = native.observation_space
    wrappers = [gymnasium.wrappers.FlattenObservation] * wrapped
    env = GymnasiumVectorEnv(env_id, 2, max_episode_steps=10, wrappers=wrappers)
    assert env.single_observation_space == gymnasium.spaces.flatten_space(space)
    observations, _ = env.reset(seed=0)
    expected = gymnasium.spaces.flatten(space, native.reset(seed=1)[0])
    np.testing.assert_array_equal(observations[1], expected)
    if not wrapped:
        assert env.native_observation_space == space
    env.close()


class Panel(gymnasium.Env):
    """Tells what it was asked to do: dials (several choices) and switches."""

    observation_space = gymnasium.spaces.Dict(
        {
            "z": gymnasium.spaces.Box(-1, 1, (2, 2)),
            "a": gymnasium.spaces.Discrete(3, start=5),
        }
    )

    def __init__(self, kind="dials"):
        self.action_space = {
            "dials": gymnasium.spaces.MultiDiscrete([2, 4], start=[0, 3]),
            "table": gymnasium.spaces.MultiDiscrete([[2, 3], [4, 2]]),
            "switches": gymnasium.spaces.MultiBinary(3),
        }[kind]

    def reset(self, *, seed=None, options=None):
        return self._observe(), {}

    def _observe(self):
        return {"a": 6, "z": np.float32([[0.1, 0.2], [0.3, 0.4]])}

    def step(self, action):
        assert self.action_space.contains(action), action
        digits = "".join(map(str, np.ravel(action)))
        return self._observe(), float(digits), False, False, {}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_several_choices_reach_the_environment_as_its_space_has_them(mode):
    gymnasium.register("Panel-v0", Panel, max_episode_steps=5)
    actions = {
        "dials": ([[1, 6], [0, 3]], [16, 3]),
        "table": ([[[1, 2], [3, 1]], [[0, 0], [0, 1]]], [1231, 1]),
        "switches": ([[1, 0, 1], [0, 1, 1]], [101, 11]),
    }
    try:
        for kind, (taken, rewards) in actions.items():
            if (kind == "dials") or mode == "sync":
                env = GymnasiumVectorEnv("Panel-v0", 2, mode, kind=kind)
                space = env.single_action_space
                observations, _ = env.reset(seed=0)
                # By name: a, of which 6 is the second value, then z row by row.
                row = np.float32([0, 1, 0, 0.1, 0.2, 0.3, 0.4])
                np.testing.assert_array_equal(observations, [row, row])
                _, found, *_ = env.step(np.array(taken, space.dtype))
                assert found.tolist() == rewards
                env.close()
    finally:
        del gymnasium.registry["Panel-v0"]


class Faulty(gymnasium.Env):
    """Does one thing wrong, in its second step if it is about stepping."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault):
        self.fault = fault
        self.act("constructor")

    def act(self, where):
        match self.fault.split():
            case [place, "raise"] if place == where:
                raise ZeroDivisionError("a\nlong story")
            case [place, "exit"] if place == where:
                raise SystemExit(3)
            case [place, "mute"] if place == where:
                raise Mute

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.act("reset")
        self.num_steps = 0
        return self.observe("reset"), {}

    def observe(self, where):
        match self.fault.split():
            case [place, "shape"] if place == where:
                return np.zeros(3, np.float32)
            case [place, "none"] if place == where:
                return None
            case [place, "complex"] if place == where:
                return np.zeros(2, np.complex64)
        return np.zeros(2, np.float32)

    def step(self, action):
        self.num_steps += 1
        if self.num_steps < 2:
            return np.zeros(2, np.float32), 1, False, False, {}
        self.act("step")
        reward = {"reward none": None, "reward array": np.ones(1)}.get(self.fault, 0)
        flag = {"flag text": "False", "flag array": np.zeros(2)}.get(self.fault, False)
        return self.observe("step"), reward, flag, np.False_, {}

    def close(self):
        self.act("close")


@pytest.fixture
def faulty_id(register):
    options = {"max_episode_steps": 9, "disable_env_checker": True}
    return register("Faulty-v0", Faulty, **options)


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def play(env):
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("constructor raise", "raised ZeroDivisionError when it was made: a"),
        ("reset raise", "raised ZeroDivisionError in reset: a long story"),
        ("step raise", "raised ZeroDivisionError in step: a long story"),
        ("step exit", "called sys.exit(3) in step"),
        ("step shape", "from step, expected float32[2]"),
        ("step none", "returned an observation object[] from step"),
        ("step mute", "raised Mute in step"),
        ("step complex", "returned an observation complex64[2] from step"),
        ("flag text", "returned terminated 'False' from step, expected True or False"),
        ("flag array", "returned terminated array([0., 0.]) from step, expected"),
        ("reward array", "returned the reward array([1.]) from step"),
    ],
)
def test_a_faulty_environment_is_named_with_what_it_did(faulty_id, fault, words):
    with pytest.raises(EnvironmentFailure) as caught:
        play(GymnasiumVectorEnv(faulty_id, 2, fault=fault))
    (line,) = str(caught.value).splitlines()
    assert line.startswith("environment Faulty-v0 ")
    assert words in line
    kinds = {"raise": ZeroDivisionError, "exit": SystemExit, "mute": Mute}
    raised = kinds.get(fault.split()[1])
    assert type(caught.value.__cause__) is (raised or type(None))


def test_a_fault_in_another_process_is_named_too(faulty_id):
    env = GymnasiumVectorEnv(faulty_id, 2, "async", fault="step exit")
    try:
        with pytest.raises(EnvironmentFailure, match=r"Faulty-v0 called sys.exit\(3\)"):
            play(env)
    finally:
        env.close()


def test_a_fault_on_closing_is_a_warning(faulty_id):
    env = GymnasiumVectorEnv(faulty_id, 2, fault="close exit")
    play(env)
    with pytest.warns(UserWarning, match=r"Faulty-v0 called sys.exit\(3\) in close"):
        env.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del env


class VariedEnv(gymnasium.Env):
    """Observes the variation of its episode; 0 without one."""

    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.seen = np.float32((options or {}).get("variation", [0.0]))
        return self.seen, {}

    def step(self, action):
        return self.seen, 1.0, False, False, {}


def test_a_variation_lasts_for_its_episode_alone(register):
    env = GymnasiumVectorEnv(register("Varied-v0", VariedEnv, max_episode_steps=3), 2)
    first, rows = np.array([True, False]), np.array([[5.0], [0.5]])
    seen, _ = env.reset(seed=0, options={"reset_mask": first, "variation": rows})
    assert seen.tolist() == [[5], [0]]
    seen, _ = env.reset(seed=0, options={"reset_mask": ~first, "variation": rows})
    assert seen.tolist() == [[5], [0.5]]
    assert env.reset(seed=0)[0].tolist() == [[0], [0]]
    env.close()
