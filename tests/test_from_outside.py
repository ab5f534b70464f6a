"""Runs read by programs that know nothing of this package, and policies in theirs."""

import inspect
import subprocess
import sys
from dataclasses import replace

import gymnasium
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from gymnasium import wrappers

import jax_es
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.envs.make import make
from jax_es.models import DecisionTransformerConfig, MLPConfig
from jax_es.runs import checkpoint
from tests.made_runs import SHORT, save_run

LIMIT = 6


def tiny(policy):
    env = EnvConfig("HalfCheetah-v5", max_episode_steps=LIMIT)
    rollout = RolloutConfig(num_slots=2, num_devices=1, statistics_fraction=1.0)
    return replace(SHORT, env=env, policy=policy, rollout=rollout, num_generations=2)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "mlp"
    jax_es.train_policy(tiny(MLPConfig(hidden_sizes=(8, 4))), path)
    return path


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    policy = DecisionTransformerConfig(context_length=3, width=4, num_layers=1)
    return save_run(tmp_path_factory.mktemp("runs") / "transformer", tiny(policy))


ORBAX_ALONE = """
import sys
import numpy as np
import orbax.checkpoint as ocp

folder, observations, actions = sys.argv[1:]
state = ocp.PyTreeCheckpointer().restore(folder)
seen = state["observation_statistics"]
mean = seen["sum"] / seen["count"]
variance = np.maximum(seen["sum_of_squares"] / seen["count"] - mean**2, 0.0)
x = (np.load(observations) - mean) / np.maximum(np.sqrt(variance), 0.1)
for name in ("hidden_0", "hidden_1", "head"):
    layer = state["es"]["mean"][name]
    x = np.tanh(x @ layer["kernel"] + layer["bias"])
np.save(actions, x)
assert "jax_es" not in sys.modules
"""


def test_orbax_and_numpy_act_as_the_documentation_of_checkpoints_says(mlp, tmp_path):
    observations = np.random.default_rng(0).normal(size=(5, 17)).astype(np.float32)
    np.save(tmp_path / "observations.npy", observations)
    files = tmp_path / "observations.npy", tmp_path / "actions.npy"
    folder = mlp / "checkpoints" / "last" / "2" / "state"
    subprocess.run(
        [sys.executable, "-c", ORBAX_ALONE, folder, *files], check=True, cwd=tmp_path
    )
    actions = jax_es.load_policy(mlp, "last")(observations)
    np.testing.assert_allclose(np.load(files[1]), actions, atol=1e-5)


def test_every_array_of_a_checkpoint_has_its_documented_shape_and_type(mlp):
    folder = mlp / "checkpoints" / "last" / "2" / "state"
    state = ocp.PyTreeCheckpointer().restore(folder)
    found = {
        jax.tree_util.keystr(path, simple=True, separator="/"): (
            np.shape(leaf),
            str(leaf.dtype),
        )
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
    }
    layers = {"hidden_0": (17, 8), "hidden_1": (8, 4), "head": (4, 6)}
    like_mean = {f"{layer}/kernel": shape for layer, shape in layers.items()}
    like_mean |= {f"{layer}/bias": shape[1:] for layer, shape in layers.items()}
    assert found == {
        **{f"es/mean/{k}": (v, "float32") for k, v in like_mean.items()},
        **{
            f"es/optimizer_state/0/ema/{k}": (v, "float32")
            for k, v in like_mean.items()
        },
        "es/optimizer_state/0/count": ((), "int32"),
        "es/generation": ((), "int32"),
        "es/key": ((2,), "uint32"),
        "observation_statistics/count": ((), "float64"),
        "observation_statistics/sum": ((17,), "float64"),
        "observation_statistics/sum_of_squares": ((17,), "float64"),
        "step_cap": ((), "int64"),
        "total_env_steps": ((), "int64"),
        "best_evaluation_return": ((), "float64"),
    }
    assert state["es"]["generation"] == 2
    documentation = inspect.getdoc(checkpoint) or ""
    for name in found:
        parts = name.split("/")
        assert any(f"``{'/'.join(parts[:n])}``" in documentation for n in (1, 2)), name


def test_a_policy_prints_what_it_is(mlp):
    assert repr(jax_es.load_policy(mlp, "last")) == (
        "LoadedPolicy(mlp for HalfCheetah-v5: 210 parameters, checkpoint 2 of "
        "OpenAI-ES)"
    )


def test_a_policy_reads_real_numbers_alone(mlp):
    with pytest.raises(jax_es.ConfigError, match="observation is complex64, expected"):
        jax_es.load_policy(mlp, "last")(np.zeros(17, np.complex64))


def play(env, policy, seed=0):
    """The plain loop; returns the sum of rewards and the last info."""
    observation, _ = env.reset(seed=seed)
    policy.reset()
    total, reward, done = 0.0, 0.0, False
    while not done:
        action = policy(observation, reward)
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        done = terminated or truncated
    return total, info


def test_the_usual_wrappers_change_nothing_that_a_policy_does(transformer):
    policy = jax_es.load_policy(transformer)
    env = gymnasium.make(policy.env_id, **policy.env_options)
    plain, _ = play(env, policy)
    wrapped = wrappers.RecordEpisodeStatistics(wrappers.ClipAction(env))
    wrapped = wrappers.TransformReward(wrapped, lambda reward: reward)
    wrapped = wrappers.TransformObservation(
        wrapped, lambda observation: observation.astype(np.float32), None
    )
    total, info = play(wrapped, policy)
    assert total == pytest.approx(plain, rel=1e-5)
    assert info["episode"]["r"] == pytest.approx(total, abs=1e-5)
    assert info["episode"]["l"] == LIMIT


def test_wrappers_of_vectors_take_policies_and_our_environments(transformer):
    policy = jax_es.load_policy(transformer)
    returns = []
    for env in (
        gymnasium.make_vec(policy.env_id, 3, **policy.env_options),
        make(policy.env_id, 3, num_threads=1, **policy.env_options),
    ):
        recorded = wrappers.vector.RecordEpisodeStatistics(env)
        observations, _ = recorded.reset(seed=7)
        policy.reset()
        rewards, done = np.zeros(3), np.zeros(3, bool)
        while not done.any():
            actions = policy(observations, rewards)
            observations, rewards, terminated, truncated, info = recorded.step(actions)
            done = terminated | truncated
        assert info["episode"]["l"].tolist() == [LIMIT] * 3
        returns.append(info["episode"]["r"])
        recorded.close()
    np.testing.assert_allclose(*returns, rtol=1e-5)
    assert len(set(np.round(returns[0], 6))) == 3
