"""A network of the user's own trains, resumes, evaluates and loads as ours do."""

import json
import re
import sys
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import pytest

import jax_es
from jax_es import evaluate, export, train
from jax_es.checks import ConfigError
from jax_es.runs import trust
from jax_es.runs.directory import RunDirectory
from jax_es.train_config import from_dict, to_dict
from jax_es.training.trained_mean import load_mean
from tests.made_runs import SHORT

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "own_network.md"

PLAIN = """
import jax.numpy as jnp

class Linear:
    def __init__(self, shape, outputs, gain):
        self.shape, self.gain = (*shape, outputs), gain
    def init(self, key):
        return jnp.zeros(self.shape)
    def initial_carry(self):
        return ()
    def apply(self, variables, carry, observation, reward, first, key):
        return carry, jnp.tanh(self.gain * observation @ variables["params"])

def make_policy(observation_shape, actions, gain: float = 1.0):
    return Linear(observation_shape, actions.num_outputs, gain)

def nothing(observation_shape, actions):
    return None

class Leaves(nn.Module):
    num_outputs: int

    def __call__(self, observation):
        raise SystemExit(0)

class Mute(Exception):
    def __str__(self):
        raise RuntimeError

class Raises(nn.Module):
    num_outputs: int

    def __call__(self, observation):
        raise Mute

number = 1
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The documentation's example as a file beside the user, and runs of no one's."""
    code = re.search(r"```python title=.*?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "my_networks.py").write_text(code[1] + PLAIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_networks"


SMALL = (
    *("--es.num-pairs", "2", "--env.max-episode-steps", "8"),
    *("--evaluation.num-episodes", "2", "--rollout.num-slots", "4"),
    *("--rollout.num-devices", "1", "--policy.action-scale", "none"),
)


@pytest.mark.parametrize(
    "network",
    [
        ("Gated", "--policy.width", "3"),
        pytest.param(("Recurrent", "--policy.width", "2"), marks=pytest.mark.slow),
        pytest.param(("make_policy", "--policy.gain", "0.5"), marks=pytest.mark.slow),
    ],
)
def test_it_trains_resumes_and_acts(module, network, capsys):
    name, *options = network
    new = ["half-cheetah-small", "--policy", f"{module}:{name}", *options, *SMALL]
    new += ["--es.perturbation", "low-rank"]
    assert train.main([*new, "--num-generations", "1", "--name", "whole"]) == 0
    assert train.main(["--resume", "--name", "whole", "--num-generations", "2"]) == 0
    loaded = jax_es.load_policy("runs/whole")
    assert loaded(np.zeros(17, np.float32)).shape == (6,)
    assert evaluate.main(["runs/whole", "--episodes", "2", "--json"]) == 0
    capsys.readouterr()
    assert export.main(["runs/whole", "exported"]) == 0
    said = capsys.readouterr().err
    assert "From Python: jax_es.load_policy('exported', trust=True)" in said
    assert "jax_es.evaluate exported --trust" in said
    config = RunDirectory(Path("runs/whole")).config()
    stored = json.loads(json.dumps(to_dict(config)))
    assert stored["policy"]["kind"] == f"{module}:{name}"
    assert from_dict(stored) == config


def test_a_run_of_somebody_elses_module_needs_trust(
    module, capsys, refused, monkeypatch
):
    new = ["half-cheetah-small", "--policy", f"{module}:Gated", *SMALL]
    assert train.main([*new, "--num-generations", "1", "--name", "run"]) == 0
    assert "--trust" in capsys.readouterr().err
    del sys.modules[module]
    monkeypatch.setattr(trust, "_named", set())  # as in another process
    for program, arguments in (
        (evaluate, ["runs/run"]),
        (train, ["--resume", "--name", "run", "--num-generations", "2"]),
    ):
        refused(program.main, arguments, "may run any code; if you trust it")
        assert module not in sys.modules
    named = ["--resume", "--name", "run", "--num-generations", "2"]
    assert train.main([*new[:3], *SMALL, *named]) == 0


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("my_networks:Gatde", "cannot be imported"),
        ("no_such_module:Gated", "cannot be imported"),
        ("flax.linen:Dense", "has no field num_outputs"),
        ("my_networks:number", "neither a Flax Linen module nor a function"),
        ("..my_networks:Gated", "the name at its top level"),
        ("my_networks:nothing", "returned NoneType, which lacks init"),
    ],
)
def test_bad_names_are_one_line(module, network, message, refused):
    arguments = ["half-cheetah-small", "--policy", network, *SMALL]
    refused(train.main, arguments, message, network)


@pytest.mark.parametrize("option", ["--policy", "--env.wrappers"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = (", "raised SyntaxError when it was imported: '(' was never closed"),
        ("x = 1 / 0", "raised ZeroDivisionError when it was imported: division by"),
        ("raise SystemExit(0)", "called sys.exit(0) when it was imported"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(
    option, content, words, folder, monkeypatch, capsys
):
    (folder / "broken_module.py").write_text(content)
    monkeypatch.syspath_prepend(str(folder))
    arguments = ["half-cheetah-small", option, "broken_module:X", *SMALL[:-2]]
    assert train.main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {option} broken_module:X {words}")
    assert line.endswith("; --debug shows its traceback")
    assert train.main([*arguments, "--debug"]) == 1
    *traceback, _ = capsys.readouterr().err.splitlines()
    assert any("broken_module.py" in each for each in traceback)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("network", "did"),
    [("Leaves", "called sys.exit(0)"), ("Raises", "raised Mute")],
)
def test_a_network_that_ends_the_program_is_one_line(module, network, did, capsys):
    assert (
        train.main(["half-cheetah-small", "--policy", f"{module}:{network}", *SMALL])
        == 1
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --policy {module}:{network} {did} for observations")
    assert not Path("runs").exists()


def test_a_mistyped_option_is_answered_by_one_that_works(module, refused):
    arguments = ["half-cheetah", "--policy", f"{module}:make_policy"]
    wrong = [*arguments, "--policy.gian", "2"]
    refused(train.main, wrong, "perhaps you meant --policy.gain")
    assert train.parse([*arguments, "--policy.gain", "2"]).config.policy.options


def test_options_are_checked(module):

    assert jax_es.custom_policy("my_networks:Gated").options == {"width": 32}
    with pytest.raises(ConfigError, match=r"policy\.depth.*it has width"):
        jax_es.custom_policy("my_networks:Gated", depth=3)


@pytest.mark.parametrize("network", [5, None, [1]])
def test_what_is_no_network_is_rejected(network):
    with pytest.raises(ConfigError, match=r"^network must be a Flax module's class"):
        jax_es.custom_policy(network)


class InThisFile(nn.Module):
    """A class that is not named but passed."""

    num_outputs: int

    @nn.compact
    def __call__(self, observation):
        return nn.Dense(self.num_outputs)(observation)


def test_a_class_can_be_passed(tmp_path):
    jax_es.train_policy(SHORT, tmp_path / "run", policy=InThisFile)
    weights = load_mean(tmp_path / "run").mean
    assert jax.tree.map(np.shape, weights) == {
        "Dense_0": {"kernel": (17, 6), "bias": (6,)}
    }


GAIN = [1.0]


class ReadsAList(nn.Module):
    """A network that is more than its fields, as those of a notebook are."""

    num_outputs: int

    @nn.compact
    def __call__(self, observation):
        return GAIN[0] * nn.Dense(self.num_outputs)(observation)


def test_what_a_network_reads_may_change_between_runs(folder, monkeypatch):
    first, again = (
        jax_es.train_policy(SHORT, folder / name, policy=ReadsAList)
        for name in ("first", "again")
    )
    assert again.final_evaluation == first.final_evaluation
    monkeypatch.setattr(sys.modules[__name__], "GAIN", [0.0])
    changed = jax_es.train_policy(SHORT, folder / "changed", policy=ReadsAList)
    assert changed.final_evaluation != first.final_evaluation
