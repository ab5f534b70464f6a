"""An environment in JAX of the user's own: trained, resumed, read; what it cannot."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from jax_es import evaluate, export, train
from jax_es.checks import ConfigError
from jax_es.presets import preset
from jax_es.rollout.jax_engine import JaxRollout
from jax_es.runs.checkpoint import Checkpoints
from jax_es.training.build import with_machine
from jax_es.training.load_policy import load_policy
from jax_es.training.parts import build
from jax_es.training.train_policy import train_policy
from tests.comparing import assert_equal_bits

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "jax_environments.md"


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """The documentation's example as a file beside the user."""
    code = re.search(r"```python title=.*?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None and len(code[1].splitlines()) <= 40
    (tmp_path / "my_jax_envs.py").write_text(code[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


def config(**fields):
    changes = {
        "env.id": "my_jax_envs:Point",
        "env.kwargs": {"speed": 0.2},
        "es.num_pairs": 4,
        "evaluation.num_episodes": 2,
        "rollout.num_slots": 4,
        "rollout.num_devices": 2,
        "num_generations": 3,
        "max_env_steps": None,
        "checkpoint_every": 1,
    }
    return preset("cartpole").replace({**changes, **fields})


def test_it_trains_resumes_to_the_bit_and_is_read(tmp_path, stay_as_configured, capsys):
    whole = train_policy(config(), tmp_path / "whole")
    lengths = [record.episode_length_mean for record in whole.records]
    assert 0 < max(lengths) <= 50
    train_policy(config(num_generations=1), tmp_path / "torn")
    resumed = train_policy(config(), tmp_path / "torn", resume=True)
    assert_equal_bits(resumed.state, whole.state)
    states = [
        Checkpoints(tmp_path / name / "checkpoints").restore("last").state
        for name in ("torn", "whole")
    ]
    assert_equal_bits(*states)
    policy = load_policy(tmp_path / "whole")
    assert policy(np.zeros(4, np.float32)).shape == (2,)
    evaluate.main([str(tmp_path / "whole"), "--episodes", "3", "--json"])
    told = json.loads(capsys.readouterr().out)
    told = told[0] if isinstance(told, list) else told
    assert told["episodes"] == 3
    assert export.main([str(tmp_path / "whole"), str(tmp_path / "copy")]) in (None, 0)


def test_it_runs_on_the_devices_and_without_workers():
    parts = build(with_machine(config()))
    assert isinstance(parts.rollout, JaxRollout)
    parts.close()
    alone = config().replace({"rollout.num_devices": None, "rollout.num_slots": None})
    with pytest.raises(ConfigError, match="written in JAX"):
        train_policy(alone, "runs/no", workers=1)
    assert not Path("runs/no").exists()


def test_a_class_without_the_methods_is_no_environment(tmp_path):
    (tmp_path / "not_env.py").write_text("class Point:\n    pass\n")
    changed = dataclasses.replace(config().env, id="not_env:Point", kwargs={})
    with pytest.raises(ConfigError, match="not_env:Point"):
        build(with_machine(dataclasses.replace(config(), env=changed)))


def test_the_command_line_takes_it(tmp_path, stay_as_configured):
    words = ["own-vector", "--env.id", "my_jax_envs:Point", "--name", "a"]
    words += ["--num-generations", "1", "--es.num-pairs", "2"]
    words += ["--runs-dir", str(tmp_path), "--rollout.num-slots", "2"]
    train.main([*words, "--rollout.num-devices", "1"])
    assert (tmp_path / "a" / "metrics.jsonl").exists()
