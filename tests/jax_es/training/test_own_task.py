"""A task without a preset is trained with settings that its spaces choose."""

import dataclasses

import gymnasium
import numpy as np
import pytest

import jax_es
from jax_es import train
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig
from jax_es.presets import preset
from jax_es.runs.metrics import read_metrics
from jax_es.train_config import FLATTEN
from jax_es.training.own_task import MOST_STEPS, own_task, preset_for


class Grid(gymnasium.Env):
    """Shows a table of numbers, and never ends an episode."""

    observation_space = gymnasium.spaces.Box(0, 9, (3, 4), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(0), {}

    def step(self, action):
        return self._seen(action), float(action), False, False, {}

    def _seen(self, value):
        space = self.observation_space
        return np.full(space.shape, value, space.dtype)


def test_a_strategys_own_options_need_no_preset():
    typed = ["--env.id", "CartPole-v1", "--strategy", "rm-es", "--es.kwargs.m", "2"]
    config = train.parse(typed).config
    assert config.es.kwargs == {"m": 2} and config.env.id == "CartPole-v1"


class Frames(Grid):
    observation_space = gymnasium.spaces.Box(0, 255, (3, 48, 48), np.uint8)


@pytest.fixture(autouse=True)
def registered():
    gymnasium.register("Grid-v0", lambda **_: Grid())
    gymnasium.register("Frames-v0", lambda **_: Frames(), max_episode_steps=7)
    yield
    for name in ("Grid-v0", "Frames-v0"):
        del gymnasium.registry[name]


@pytest.mark.parametrize(
    ("task", "name", "changes"),
    [
        (EnvConfig("CartPole-v1"), "own-discrete", {}),
        (EnvConfig("Pendulum-v1"), "own-vector", {}),
        (EnvConfig("Reacher-v5"), "own-vector", {}),
        (EnvConfig("Frames-v0"), "own-image", {}),
        (EnvConfig("brax:ant", kwargs={"backend": "spring"}), "brax-ant", {}),
        (EnvConfig("gymnax:Breakout-MinAtar"), "own-grid", {"wrappers": (FLATTEN,)}),
        (
            EnvConfig("Grid-v0"),
            "own-discrete",
            {
                "max_episode_steps": MOST_STEPS,
                "wrappers": (FLATTEN,),
            },
        ),
    ],
)
def test_the_spaces_choose(task, name, changes):
    assert own_task(task) == (name, dataclasses.replace(task, **changes))


@pytest.mark.parametrize("policy", ["cnn", "my_networks:Grid"])
def test_a_grid_stays_one_for_those_who_read_it(policy):
    task = EnvConfig("gymnax:Breakout-MinAtar")
    assert own_task(task, policy) == ("own-grid", task)


def test_the_name_of_the_preset_can_be_typed():
    line = "own-grid --env.id gymnax:Breakout-MinAtar"
    config = train.parse(line.split()).config
    assert config.env == EnvConfig("gymnax:Breakout-MinAtar", wrappers=(FLATTEN,))
    assert config == train.parse(line.split()[1:]).config


def test_from_python_it_takes_what_preset_takes():
    config = preset_for("CartPole-v1", "linear", "cma-es")
    assert config == dataclasses.replace(
        preset("own-discrete", "linear", "cma-es"), env=EnvConfig("CartPole-v1")
    )
    assert jax_es.preset_for("CartPole-v1") == preset_for(EnvConfig("CartPole-v1"))
    with pytest.raises(ConfigError, match="no environment 'Nowhere-v0'"):
        preset_for("Nowhere-v0")


def test_an_id_alone_is_trained(stay_as_configured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = "--env.id Grid-v0 --env.max-episode-steps 5 --max-env-steps 100 --name x"
    assert train.main(options.split()) == 0
    assert read_metrics("runs/x")[-1].total_env_steps >= 100
    # The command of its report, and the run's resume, say the same.
    request = train.parse(["--resume", "--name", "x", "--max-env-steps", "200"])
    assert request.config.env.wrappers == (FLATTEN,)


@pytest.mark.slow
def test_images_are_trained(stay_as_configured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = "--env.id Frames-v0 --es.num-pairs 2 --max-env-steps 50 --name x"
    assert train.main(options.split()) == 0
    assert read_metrics("runs/x")[-1].total_env_steps >= 50


def test_a_preset_that_is_named_keeps_its_settings():
    request = train.parse(["cartpole", "--env.id", "Acrobot-v1"])
    env = EnvConfig("Acrobot-v1")
    assert request.config == dataclasses.replace(preset("cartpole"), env=env)
