"""A robot of the user's own: on MuJoCo's threads and in Gymnasium the same."""

import re
import sys
from pathlib import Path

import gymnasium
import pytest

import jax_es
from jax_es import evaluate, train
from jax_es.envs.faults import EnvironmentFailure
from jax_es.envs.make import make
from jax_es.envs.mujoco_env import MujocoVectorEnv
from jax_es.runs import trust
from jax_es.training.build import TrainConfig
from jax_es.training.single_env import env_spec
from tests.envs.following import follow

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "own_robot.md"
FILES = re.compile(r'```(?:python|xml) title="(.*?)"\n(.*?)```', re.DOTALL)
OTHERS = """
import numpy as np
from jax_es.envs import mujoco_walkers
from jax_es.envs.robot import register
from my_robot import Worm

class MyCheetah(mujoco_walkers.HalfCheetah): pass
class MyAnt(mujoco_walkers.Ant): pass
class NoModel(Worm): model_file = "none.xml"
class NoRange(Worm): model_file = "no_range.xml"
class OneArray(Worm):
    def observation(self): return self.qpos
class Complex(Worm):
    def observation(self): return (1j * self.qpos,)
class Column(Worm):
    def reward(self, actions, unhealthy): return self.qvel[:, :1]
class Fails(Worm):
    def unhealthy(self): return self.nothing
class FailsLater(Worm):
    def remember(self): return 1 / np.float64(self.nothing)

kinds = (MyCheetah, MyAnt, NoModel, NoRange, OneArray, Complex, Column)
for task in (*kinds, Fails, FailsLater):
    register(f"{task.__name__}-v0", task)
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The documentation's example as files beside the user, and some of ours."""
    written = dict(FILES.findall(PAGE.read_text()))
    assert sum(len(text.splitlines()) for text in written.values()) <= 60
    unlimited = written["worm.xml"].replace('ctrlrange="-1 1"', "")
    for name, text in {
        **written,
        "no_range.xml": unlimited,
        "other_robots.py": OTHERS,
    }.items():
        (tmp_path / name).write_text(text)
    before = set(gymnasium.registry)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for env_id in set(gymnasium.registry) - before:
        del gymnasium.registry[env_id]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("my_robot:Worm-v0", "my_robot:Worm-v0"),
        ("other_robots:MyCheetah-v0", "HalfCheetah-v5"),
        ("HalfCheetah-v5", "other_robots:MyCheetah-v0"),
        ("other_robots:MyAnt-v0", "Ant-v5"),
        ("Ant-v5", "other_robots:MyAnt-v0"),
    ],
)
def test_it_equals_gymnasiums_environment(files, ours, theirs):
    """To the bit, over several episodes out of phase."""
    env = make(ours, 3, num_threads=2, max_episode_steps=40)
    assert type(env) is MujocoVectorEnv
    singles = [gymnasium.make(theirs, max_episode_steps=40) for _ in range(3)]
    assert env.single_action_space == singles[0].action_space
    follow(env, singles, 120)
    env.close()


def test_it_trains_is_evaluated_and_acts(files, capsys):
    options = (
        "half-cheetah --policy mlp --policy.hidden-sizes 4 --es.num-pairs 2 "
        "--num-generations 1 --env.id my_robot:Worm-v0 --env.max-episode-steps 8 "
        "--evaluation.num-episodes 2 --rollout.num-slots 4 --rollout.num-devices 1 "
        "--name worm"
    )
    assert train.main(options.split()) == 0
    del sys.modules["my_robot"], gymnasium.registry["Worm-v0"]  # another program
    trust._named.clear()
    assert evaluate.main(["runs/worm", "--episodes", "2"]) == 2
    assert "add --trust" in capsys.readouterr().err
    assert evaluate.main(["runs/worm", "--episodes", "2", "--trust"]) == 0
    policy = jax_es.load_policy("runs/worm", trust=True)
    env = gymnasium.make(policy.env_id, **policy.env_options)
    observation, _ = env.reset(seed=0)
    assert policy(observation).shape == (2,)
    config = TrainConfig(env=jax_es.EnvConfig("my_robot:Worm-v0"))
    assert '"task": "my_robot:Worm"' in env_spec(config.env).to_json()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("NoModel", ValueError, "has no model: ParseXML: Error opening file .*none"),
        ("NoRange", EnvironmentFailure, "actuator 0 without ctrlrange in no_range.xml"),
        ("OneArray", EnvironmentFailure, r"ndarray \(2, 5\) from observation, expe"),
        ("Complex", EnvironmentFailure, "from observation, expected a tuple of arrays"),
        ("Column", EnvironmentFailure, r"\(2, 1\) from reward, expected \[N\] numb"),
        ("Fails", EnvironmentFailure, "raised AttributeError when it was made: "),
        ("FailsLater", EnvironmentFailure, "raised AttributeError in reset: "),
    ],
)
def test_mistakes_are_one_line(files, name, error, message):
    with pytest.raises(error, match=message) as caught:
        make(f"other_robots:{name}-v0", 2).reset(seed=0)
    assert "\n" not in str(caught.value)
