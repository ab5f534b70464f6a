"""The user's own parts in one call: strategy, objective, network, environment."""

import collections
import functools
import re
from pathlib import Path

import flax.linen as nn
import gymnasium
import jax
import numpy as np
import pytest

import jax_es
from jax_es import evaluate, export, plot, report, train
from jax_es.presets import PRESETS, with_objective
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import how_to_use
from jax_es.runs.metrics import read_metrics
from jax_es.runs.wording import significant
from jax_es.training.load_policy import load_policy
from tests.comparing import assert_equal_bits, numbers

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "own_strategy.md"
TINY = {
    "num_generations": 2,
    "es.num_pairs": 2,
    "es.sigma": 0.05,
    "env.max_episode_steps": 5,
    "rollout.num_slots": 4,
    "rollout.num_devices": 1,
    "evaluation.num_episodes": 2,
}
PARTS = """
import flax.linen as nn

import jax_es


@jax_es.objective(sums=["reward_ctrl"], last=["x_position"])
def distance_less_energy(episodes, weight=1.0):
    return episodes.last["x_position"] + weight * episodes.sums["reward_ctrl"]


class Net(nn.Module):
    num_outputs: int

    @nn.compact
    def __call__(self, observation):
        return nn.Dense(self.num_outputs)(nn.tanh(nn.Dense(4)(observation)))
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """The page's strategy, an objective and a network, as files beside the user."""
    code = re.search(r"```python title=.*?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "my_strategies.py").write_text(code[1])
    (tmp_path / "my_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))


TYPED = [
    *("half-cheetah", "--policy", "my_parts:Net"),
    *("--strategy", "my_strategies:one_plus_lambda", "--es.kwargs.memory", "0.3"),
    *("--objective", "my_parts:distance_less_energy"),
    *("--es.objective-kwargs.weight", "0.5", "--es.num-pairs", "2"),
    *("--env.max-episode-steps", "5", "--evaluation.num-episodes", "2"),
    *("--rollout.num-slots", "4", "--rollout.num-devices", "1"),
]


def test_all_of_ones_own_resumes_to_the_bit_and_is_read(parts, folder, capsys, refused):
    for name in ("whole", "torn"):
        for count in ("3",) if name == "whole" else ("1", "3"):
            resumes = ["--resume"] if (folder / "runs" / name).exists() else []
            typed = [*TYPED, *resumes, "--num-generations", count, "--name", name]
            assert train.main(typed) == 0
    assert numbers("runs/torn") == numbers("runs/whole")
    whole, torn = (load_policy(f"runs/{n}", "last") for n in ("whole", "torn"))
    observation = np.ones(17)
    assert_equal_bits(whole(observation), torn(observation))
    records = read_metrics("runs/whole")
    assert [r.strategy["is_better"] in (0, 1) for r in records[:-1]] == [True] * 3
    # What the checkpoint best is of is what the last line and the table call best.
    best = max(records, key=lambda record: record.evaluation_fitness)
    assert load_policy("runs/whole").generation == best.generation
    said = capsys.readouterr().err
    fitness = significant(best.evaluation_fitness)
    assert f"Evaluation fitness: {significant(records[0].evaluation_fitness)}" in said
    assert f"{fitness} at best." in said
    assert said.splitlines()[2].split()[4] == "fitness"
    assert evaluate.main(["runs/whole", "--episodes", "2"]) == 0
    assert plot.main(["runs/whole"]) == 0
    cells = capsys.readouterr().out.splitlines()[-1].split(" | ")
    assert cells[5] == significant(best.evaluation_return_mean)
    assert cells[8] == fitness
    assert plot.main(["runs/whole", "--y", "strategy/is_better"]) == 0
    refused(plot.main, ["runs/whole", "--y", "strategy/x"], "has strategy/is_better")
    assert report.main(["runs/whole"]) == 0
    assert export.main(["runs/whole", "out"]) == 0


def test_help_lists_the_arguments_of_ones_own(parts, folder, capsys):
    with pytest.raises(SystemExit):
        train.main([*TYPED, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "one_plus_lambda: --es.kwargs.memory (default: 0.3)." in text
    assert "less_energy: --es.objective-kwargs.weight (default: 0.5)." in text


@pytest.mark.parametrize("value", ["high", np.ones(2), 1j, None])
def test_a_strategy_reports_single_numbers(value):
    def mine(mean, descriptor_size):
        state = collections.namedtuple("State", ["mean", "generation"])
        return (
            lambda key, mean: state(mean, 0),
            lambda state: np.zeros((4, 2), np.float32),
            lambda s, fitness: (s._replace(generation=s.generation + 1), {"a": value}),
        )

    theta = np.zeros(2, np.float32)
    es = jax_es.strategy(mine, theta, size=4)
    state = es.init(jax.random.key(0), theta)
    with pytest.raises(jax_es.ConfigError, match="must report single numbers by name"):
        es.tell(state, np.zeros(4))


def test_a_misspelt_argument_of_an_objective_starts_nothing(parts, folder, refused):
    index = TYPED.index("--es.objective-kwargs.weight")
    typed = [*TYPED[:index], "--es.objective-kwargs.wait", *TYPED[index + 1 :]]
    refused(train.main, [*typed, "--name", "none"], "has no argument wait; it has weig")
    assert not (folder / "runs" / "none").exists()


class Linear(nn.Module):
    num_outputs: int

    @nn.compact
    def __call__(self, observation):
        return nn.Dense(self.num_outputs)(observation)


def test_one_call_takes_each_part(parts, folder):
    from my_strategies import one_plus_lambda as mine

    config = jax_es.preset("half-cheetah", "linear").replace(TINY)
    result = jax_es.train_policy(config)
    assert result.policy(np.zeros(17), 0.0).shape == (6,)
    assert len(repr(result)) < 200
    assert "Linear" in repr(jax_es.train_policy(config, policy=Linear).policy)
    shorter = jax_es.train_policy(config, objective=lambda e: e.returns - 9 * e.lengths)
    last = shorter.records[-1]
    assert np.isclose(last.fitness_mean, last.return_mean - 9 * 5)
    assert int(jax_es.train_policy(config, strategy=mine).state.es.generation) == 2


def less(episodes, weight=1.0):
    return episodes.returns - weight * episodes.lengths


class Paid(gymnasium.Env):
    """Each step is paid ``pay``."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, pay=1.0):
        self.pay = pay

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.pay, False, False, {}


def test_arguments_that_a_partial_gives_are_recorded(parts, folder):
    from my_strategies import one_plus_lambda as mine

    config = jax_es.preset("own-vector", "linear").replace(TINY)
    given = {
        "env": functools.partial(Paid, pay=3.0),
        "strategy": functools.partial(functools.partial(mine, memory=0.1), memory=0.3),
        "objective": functools.partial(less, weight=2.0),
    }
    result = jax_es.train_policy(config, "run", **given)
    assert result.records[-1].return_mean == 15.0
    assert result.records[-1].fitness_mean == 5.0
    recorded = RunDirectory(Path("run")).config()
    assert recorded.env.kwargs == {"pay": 3.0}
    assert recorded.es.kwargs == {"memory": 0.3}
    assert recorded.es.objective_kwargs == {"weight": 2.0}
    given["strategy"] = functools.partial(mine, memory=0.9)
    with pytest.raises(jax_es.ConfigError, match=r"es.kwargs.memory was 0.3, now 0.9"):
        jax_es.train_policy(config, "run", resume=True, **given)
    with pytest.raises(jax_es.ConfigError, match="give them by name"):
        jax_es.train_policy(config, objective=functools.partial(less, 2.0))
    # What no configuration can hold, this process keeps.
    whole = functools.partial(less, weight=np.full(1, 2.0))
    given |= {"strategy": None, "objective": whole}
    result = jax_es.train_policy(config, "whole", **given)
    assert result.records[-1].fitness_mean == 5.0


def test_parts_of_one_name_stay_apart(folder, capsys):
    def network(act):
        class Net(nn.Module):
            num_outputs: int

            @nn.compact
            def __call__(self, observation):
                return act(nn.Dense(self.num_outputs)(observation))

        return Net

    config = jax_es.preset("half-cheetah", "linear").replace(TINY)
    runs = [
        jax_es.train_policy(config, name, policy=network(act))
        for name, act in (("tanh", nn.tanh), ("large", lambda x: 100 * x))
    ]
    observation = np.linspace(-1, 1, 17)
    for name, trained in zip(("tanh", "large"), runs, strict=True):
        action = load_policy(name, "best")(observation)
        np.testing.assert_array_equal(action, trained.policy(observation, 0.0))
    assert "made anew" not in capsys.readouterr().err
    longer = config.replace({"num_generations": 3})
    jax_es.train_policy(longer, "tanh", policy=network(nn.relu), resume=True)
    assert "was made anew since" in capsys.readouterr().err


def test_a_run_of_which_nothing_came_does_not_hold_its_name(folder):
    config = jax_es.preset("half-cheetah", "linear").replace(TINY)
    with pytest.raises(jax_es.ConfigError, match="a number for each of"):
        jax_es.train_policy(config, "run", objective=lambda e: e.returns.mean())
    jax_es.train_policy(config, "run", objective=less)
    with pytest.raises(jax_es.ConfigError, match="holds a run already"):
        jax_es.train_policy(config, "run", objective=less)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"callbacks": [print]}, r"callbacks must be .* on_generation"),
        ({"workers": 2.0}, r"workers must be a number.* got 2.0"),
        ({"path": ""}, "path must be the folder of a run"),
    ],
)
def test_what_cannot_be_used_starts_nothing(given, words, folder):
    config = jax_es.preset("half-cheetah", "linear").replace(TINY)
    with pytest.raises(jax_es.ConfigError, match=words):
        jax_es.train_policy(config, **given)
    assert not [*folder.iterdir()]


def test_a_sweeps_numbers_are_numpys():
    config = jax_es.preset("half-cheetah").replace({"es.num_pairs": np.int32(4)})
    assert type(config.es.num_pairs) is int and config.es.num_pairs == 4


@pytest.mark.parametrize("name", ["cma-es", "openai-es", "novelty"])
def test_every_strategy_has_members_of_one_form(name):
    theta = {"a": np.zeros((3, 2), np.float32), "b": np.ones(4, np.float32)}
    more = {"descriptor_size": 2} if name == "novelty" else {}
    es = jax_es.strategy(name, theta, size=8, sigma=0.5, **more)
    state = es.init(jax.random.key(0), theta)
    members = es.ask(state).members
    assert jax.tree.map(np.shape, members) == {"a": (8, 3, 2), "b": (8, 4)}
    if name != "cma-es":  # pair i is members 2i and 2i + 1
        middle = (members["b"][0::2] + members["b"][1::2]) / 2
        np.testing.assert_allclose(middle, 1.0, atol=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_any_strategy_and_objective_fit_a_presets_phases(name):
    """Phases change what OpenAI-ES reads, and others do not."""
    config = jax_es.preset(name)
    with_strategy = jax_es.preset(name, strategy="sep-cma-es")
    assert len(with_strategy.phases) == len(config.phases)
    assert with_objective(config, "own_parts:mine").es.objective == "own_parts:mine"
    changed = {field for each in with_strategy.phases for field in each.changes}
    assert not {field for field in changed if field.startswith("es.")}


def test_names_of_ones_own_are_answered_by_what_works(parts, folder, refused):
    small = ["half-cheetah", "--num-generations", "1", "--name", "none"]
    for option, name in (("--policy", "Net"), ("--objective", "distance_less_energy")):
        words = f"of a module's, write my_parts:{name}"
        refused(train.main, [*small, option, f"my_parts.{name}"], words)
    wide = PARTS.replace("num_outputs: int", "num_outputs: int\n    width: int")
    Path("nets.py").write_text(wide)
    words = "give it a default, or pass jax_es.custom_policy(Net, width=…)"
    refused(train.main, [*small, "--policy", "nets:Net"], words)
    with pytest.raises(jax_es.ConfigError, match="from my_parts import Net"):
        jax_es.strategy("my_parts:Net", np.zeros(2, np.float32))
    with pytest.raises(jax_es.ConfigError, match="weights of int32, expected floats"):
        jax_es.strategy("ga", np.zeros(2, int))
    assert not (folder / "runs").exists()


def broken(tell):
    """Returns a strategy with this ``tell``."""

    def mine(mean, descriptor_size, population_size, sigma):
        state = collections.namedtuple("State", ["mean", "generation"])

        def ask(state):
            return jax.tree.map(lambda w: np.stack([w] * population_size), state.mean)

        return lambda key, mean: state(mean, np.int32(0)), ask, tell

    return mine


@pytest.mark.parametrize(
    ("tell", "words"),
    [
        (lambda state, fitness: state, "tell must return the next state and a dict"),
        (lambda state, fitness: 1 / 0, "raised ZeroDivisionError in tell"),
    ],
)
def test_a_strategy_is_blamed_for_what_its_tell_does(tell, words, folder):
    config = jax_es.preset("half-cheetah", "linear").replace(TINY)
    with pytest.raises(Exception, match=words):
        jax_es.train_policy(config, "run", strategy=broken(tell), verbose=False)


def test_what_an_objective_cannot_say_is_told(folder, capsys):
    config = jax_es.preset("half-cheetah", "linear").replace(TINY)

    def some(episodes):
        return np.where(np.arange(len(episodes.returns)) % 2, np.nan, 1.0)

    jax_es.train_policy(config, "run", objective=some)
    said = " ".join(capsys.readouterr().err.split())
    assert "generation 1: 2 of 4 fitnesses by" in said
    # Nor was an evaluation finite, so that there is no best θ to be named at the end.
    assert not Path("run/checkpoints/best").exists()
    assert "--checkpoint last" in how_to_use(RunDirectory(Path("run")))
