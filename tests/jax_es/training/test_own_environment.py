"""An environment of the user's own: its arguments, its wrappers, its faults."""

import json
import re
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

import jax_es
from jax_es import collect, evaluate, report, train
from jax_es.config import EnvConfig
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import read_metrics
from jax_es.training.build import make_env
from jax_es.training.load_policy import load_policy
from jax_es.training.single_env import make_learning_env, make_single_env
from jax_es.training.train_policy import train_policy

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "own_environment.md"
FLAT = "gymnasium.wrappers:FlattenObservation"
SMALL = (
    *("half-cheetah", "--policy", "linear", "--env.id", "my_envs:Point-v0"),
    *("--es.num-pairs", "2", "--env.max-episode-steps", "8"),
    *("--evaluation.num-episodes", "2", "--rollout.num-slots", "4"),
    *("--rollout.num-devices", "1"),
)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The documentation's example as a file beside the user."""
    code = re.search(r"```python title=.*?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None and len(code[1].splitlines()) <= 40
    (tmp_path / "my_envs.py").write_text(code[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    gymnasium.registry.pop("Point-v0", None)


def test_it_trains_resumes_and_is_evaluated(module, refused):
    new = [*SMALL, "--env.wrappers", FLAT, "--env.kwargs.speed", "0.25"]
    assert train.main([*new, "--num-generations", "1", "--name", "whole"]) == 0
    assert train.main(["--resume", "--name", "whole", "--num-generations", "2"]) == 0
    env = RunDirectory(Path("runs/whole")).config().env
    assert env.kwargs == {"speed": 0.25} and env.wrappers == (FLAT,)
    assert evaluate.main(["runs/whole", "--episodes", "2"]) == 0
    # Its episodes say how others make it, though it was registered by its class.
    minari = pytest.importorskip("minari")
    assert collect.main(["runs/whole", "--dataset", "p-v0", "--episodes", "2"]) == 0
    gymnasium.registry.pop("Point-v0", None)
    dataset = minari.MinariDataset(Path("datasets/p-v0/data"))
    again = dataset.recover_environment()
    assert again.spec.entry_point == "my_envs:Point" and again.unwrapped.speed == 0.25
    # A wrapper that a run names is a module, too.
    run = RunDirectory(Path("runs/whole"))
    record = run.record()
    run.write(json.loads(json.dumps(record).replace(FLAT, "this:Wrapper")))
    words = "names this:Wrapper, for which the module this would be used"
    refused(train.main, ["--resume", "--name", "whole"], words)
    run.write(record)
    assert report.main(["runs/whole"]) == 0
    page = Path("runs/whole/report.html").read_text()
    assert f"--env.wrappers {FLAT}" in page and "--env.kwargs.speed 0.25" in page


class Console(gymnasium.Env):
    """Pays for each dial and switch that shows what the observation asks for."""

    observation_space = gymnasium.spaces.Dict(
        {"dial": gymnasium.spaces.Discrete(3), "lamp": gymnasium.spaces.MultiBinary(2)}
    )

    def __init__(self, switches=False):
        spaces = gymnasium.spaces
        dials = spaces.MultiDiscrete([3, 2, 2])
        self.action_space = spaces.MultiBinary(2) if switches else dials

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action):
        assert self.action_space.contains(action), repr(action)
        wanted = [self._now["dial"], *self._now["lamp"]][-len(action) :]
        reward = float(np.mean(np.equal(action, wanted)))
        return self._draw(), reward, False, False, {}

    def _draw(self):
        lamp = self.np_random.integers(2, size=2).astype(np.int8)
        self._now = {"dial": np.int64(self.np_random.integers(3)), "lamp": lamp}
        return self._now


@pytest.mark.parametrize("switches", [False, True], ids=["dials", "switches"])
def test_spaces_of_many_parts_are_learned_evaluated_and_acted_in(switches, folder):
    """Flattened on the way in, several choices on the way out, in every program."""
    gymnasium.register("Console-v0", Console, max_episode_steps=10)
    try:
        typed = [*SMALL[:4], "Console-v0", "--env.kwargs.switches", str(switches)]
        typed += ["--env.max-episode-steps", "10"]
        typed += ["--es.num-pairs", "64", "--es.sigma", "0.3"]
        typed += ["--es.learning-rate", "0.5"]
        typed += ["--es.common-seeds", "generation", "--evaluation.num-episodes", "8"]
        typed += ["--num-generations", "25", "--name", "console", *SMALL[9:]]
        assert train.main(typed) == 0
        last = read_metrics("runs/console")[-1]
        assert last.evaluation_return_mean > 9.0  # of 10; 4.4 or 5 by chance
        assert evaluate.main(["runs/console", "--episodes", "4"]) == 0
        policy = load_policy("runs/console")
        env = gymnasium.make(policy.env_id, **policy.env_options)
        observation, _ = env.reset(seed=0)
        total = 0.0
        for _ in range(10):
            action = policy(observation)
            flat = gymnasium.spaces.flatten(env.observation_space, observation)
            np.testing.assert_array_equal(policy(flat), action)
            observation, reward, *_ = env.step(action.astype(env.action_space.dtype))
            total += float(reward)
        assert total > 8.0
        with pytest.raises(ValueError, match="observation is none of Dict"):
            policy({"lamp": 3})
        lamps = np.zeros((2, 2), np.int8)
        for several in (
            {"dial": np.array([0, 1]), "lamp": lamps},
            {"dial": 3, "lamp": lamps[0]},  # there are three
            {"dial": 0, "lamp": lamps},
        ):
            with pytest.raises(ValueError, match=r"it is a batch, or|none of Dict"):
                policy(several)
    finally:
        del gymnasium.registry["Console-v0"]


class Pole(gymnasium.Env):
    """Pays for pushing to the right."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(action[0]), False, False, {}


def make_pole():
    return Pole()


TINY = {
    "num_generations": 2,
    "es.num_pairs": 2,
    "env.max_episode_steps": 5,
    "rollout.num_slots": 4,
    "rollout.num_devices": 1,
    "evaluation.num_episodes": 2,
}


@pytest.mark.parametrize("kind", ["class", "function", "lambda", "id"])
def test_train_policy_takes_an_environment(kind, folder):
    env = {"class": Pole, "function": make_pole, "lambda": lambda: Pole()}.get(kind)
    config = jax_es.preset("half-cheetah", "linear").replace(TINY)
    before = {*gymnasium.registry}
    try:
        given = env or "InvertedPendulum-v5"
        train_policy(config.replace({"num_generations": 1}), "runs/one", env=given)
        result = train_policy(config, "runs/one", env=given, resume=True)
        whole = train_policy(config, "runs/whole", env=given)
        assert result.final_evaluation == whole.final_evaluation
        policy = result.policy
        made = gymnasium.make(policy.env_id, **policy.env_options)
        assert isinstance(made.unwrapped, Pole if env else gymnasium.Env)
        assert policy(made.reset(seed=0)[0]).shape == (1,)
        if kind == "class":  # by its name, too
            assert evaluate.main(["runs/one", "--episodes", "2", "--trust"]) == 0
    finally:
        for name in {*gymnasium.registry} - before:
            del gymnasium.registry[name]


def test_a_class_does_not_take_the_place_of_another_environment(folder):
    config = jax_es.preset("half-cheetah", "linear").replace(TINY)
    gymnasium.register("Pole-v1", Console)
    try:
        with pytest.raises(ValueError, match=r"Pole would be Pole-v1.* another name"):
            train_policy(config, "runs/pole", env=Pole)
    finally:
        del gymnasium.registry["Pole-v1"]


def test_both_forms_of_it_are_the_same_task(module):
    """The vector environment and the single one get the arguments and wrappers."""
    env = EnvConfig("my_envs:Point-v0", kwargs={"speed": 0.5}, wrappers=(FLAT,))
    vector, single = make_env(env, 1, 1), make_single_env(env)
    observations, _ = vector.reset(seed=3)
    observation, _ = single.reset(seed=3)
    np.testing.assert_array_equal(observations[0], observation)
    action = np.array([1.0, -1.0], np.float32)
    moved = single.step(action)[0] - observation
    np.testing.assert_array_equal(vector.step(action[None])[0][0] - observation, moved)
    assert np.abs(moved).max() == np.float32(0.5)
    vector.close()
    single.close()


def test_mujocos_tasks_take_arguments_on_gymnasiums_environment():
    env = EnvConfig("Ant-v5", kwargs={"include_cfrc_ext_in_observation": False})
    vector = make_env(env, 1, 1)
    assert vector.single_observation_space.shape == (27,)
    vector.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--env.wrappers", FLAT, "--env.kwargs.sped", "2"), "env.kwargs.sped 2 ("),
        (("--env.wrappers", "gymnasium.wrappers:Flat"), "gymnasium.wrappers:Flat cann"),
        (("--env.wrappers", FLAT, "--env.kwargs.speed"), "needs a value"),
    ],
)
def test_mistakes_are_one_line(module, options, message, refused):
    refused(train.main, [*SMALL, *options], message)


class Grid(gymnasium.Env):
    """As MiniGrid and highway-env: no limit on an episode, and no vector to observe."""

    SPACES: ClassVar = {
        "image": gymnasium.spaces.Box(0, 255, (3, 3, 3), np.uint8),
        "mission": gymnasium.spaces.Text(9),
    }
    observation_space = gymnasium.spaces.Dict(SPACES)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(action), False, False, {}


class Table(Grid):
    observation_space = gymnasium.spaces.Box(-1, 1, (5, 5), np.float32)


class OwnSpace(Grid):
    class Mission(gymnasium.spaces.Space):
        """A space that Gymnasium does not know, as MiniGrid's."""

    observation_space = gymnasium.spaces.Dict({**Grid.SPACES, "mission": Mission()})


@pytest.fixture
def grids():
    names = [kind.__name__ for kind in (Grid, Table, OwnSpace)]
    for name in names:
        gymnasium.register(f"{name}-v0", globals()[name], disable_env_checker=True)
    yield
    for name in names:
        del gymnasium.registry[f"{name}-v0"]


COUNTING = "gymnasium.wrappers:RecordEpisodeStatistics"
TIME_AWARE = "gymnasium.wrappers:TimeAwareObservation"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "pasted"),
    [
        ("--env.id Grid-v0", "--env.max-episode-steps 1000"),
        ("--env.id Table-v0", f"--env.max-episode-steps 1000 --env.wrappers {FLAT}"),
        (
            f"--env.id Table-v0 --env.wrappers {COUNTING}",
            f"--env.max-episode-steps 1000 --env.wrappers {COUNTING} {FLAT}",
        ),
        ("--es.interactions-per-generation None", "--es.max-num-pairs None"),
        (f"--env.wrappers {TIME_AWARE}", "--es.healthy-reward-weight 1"),
    ],
)
def test_a_remedy_works_when_it_is_pasted(grids, arguments, pasted, capsys):
    task = ["half-cheetah-small"] if "--env.id" in arguments else ["hopper"]
    small = ["--policy", "mlp", "--num-generations", "1", *SMALL[5:7], *SMALL[9:]]
    typed, found = [*task, *small, *arguments.split()], []
    while train.main(typed) == 2:
        error = capsys.readouterr().err
        remedy = re.search("(?:; |: )(?:add|choose one, such as) (--[^;,()]*)", error)
        assert remedy is not None and len(found) < 3, error
        found.append(remedy[1].strip().rstrip("."))
        typed += found[-1].split()
    assert " ".join(found) == pasted


def test_a_space_of_the_environments_own_needs_a_wrapper_of_its_own(grids, refused):
    words = "add --env.wrappers module:Name, a wrapper whose observations are numbers"
    refused(train.main, ["half-cheetah-small", "--env.id", "OwnSpace-v0"], words)


def test_a_hidden_number_is_hidden_from_whoever_acts(refused):
    tiny = ["pendulum-hidden-velocity", *SMALL[5:], "--num-generations", "1"]
    assert train.main([*tiny, "--name", "hidden"]) == 0
    policy = load_policy("runs/hidden")

    def action(*observation):
        policy.reset()
        return policy(np.float32(observation))

    assert action(0.6, 0.8, 5.0) == action(0.6, 0.8, -1.0)
    assert action(0.6, 0.8, 5.0) != action(0.8, 0.6, 5.0)
    config = RunDirectory(Path("runs/hidden")).config()
    observation, _ = make_learning_env(config).reset(seed=0)
    assert observation[2] == 0 and observation[:2].all()
    words = (
        "--env.hide-observation 3 names nothing in observations of the shape (3,); "
        "choose indices from 0 to 2"
    )
    refused(train.main, [*tiny, "--env.hide-observation", "0", "3"], words)
