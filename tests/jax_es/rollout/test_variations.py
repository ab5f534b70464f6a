"""Named variations in training: drawn, common to a pair, and a part of the task."""

import dataclasses
import io
import json

import jax
import numpy as np
import pytest

from jax_es import train
from jax_es.checks import ConfigError
from jax_es.cli.progress import Progress
from jax_es.config import EnvConfig, ESConfig, RolloutConfig
from jax_es.envs.make import make
from jax_es.es.population import MeanPopulation
from jax_es.models import BoxActions, MLPConfig, make_policy
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import Rollout
from jax_es.rollout.tasks import tasks_of_mean
from jax_es.rollout.variations import varied
from jax_es.runs.directory import RunDirectory
from jax_es.runs.reproduce import command
from jax_es.train_config import from_dict, to_dict
from jax_es.training.episodes import population_tasks
from jax_es.training.generation import initial_state, mean_tasks
from jax_es.training.loop import PolicyTraining, begin, run_training
from jax_es.training.parts import build
from tests.comparing import assert_equal_bits, numbers
from tests.made_runs import TINY

RANGES = (("mass", 0.9, 1.1), ("motors", 0.5, 1.0), ("observation-noise", 0.0, 0.1))
VARIED = dataclasses.replace(
    TINY,
    env=EnvConfig("Hopper-v5", max_episode_steps=9),
    es=ESConfig(num_pairs=3, sigma=0.1),
    rollout=dataclasses.replace(
        TINY.rollout, variation_range=RANGES, statistics_fraction=1.0
    ),
    num_generations=3,
)


@pytest.fixture(scope="module")
def parts():
    built = build(VARIED)
    yield built
    built.close()


@pytest.mark.parametrize("common_seeds", ["pair", "generation"])
def test_both_of_a_pair_share_their_draw(parts, common_seeds):
    es = ESConfig(num_pairs=5, episodes_per_member=3, common_seeds=common_seeds)
    config = dataclasses.replace(VARIED, es=es)
    tasks = population_tasks(config, 7, 9, 10, env=parts.env)
    plain = population_tasks(config, 7, 9, 10)
    assert_equal_bits(tasks._replace(variation=None), plain)
    rows = tasks.variation.reshape(5, 3, 2, -1)
    np.testing.assert_array_equal(rows[:, :, 0], rows[:, :, 1])
    # Three motors, then mass, friction, gravity, noise and delay.
    motors, (mass, *rest) = rows[..., 0], np.moveaxis(rows[..., 3:], -1, 0)
    np.testing.assert_array_equal(rows[..., :3], motors[..., None] + np.zeros(3))
    for values, low, high in ((mass, 0.9, 1.1), (motors, 0.5, 1), (rest[2], 0, 0.1)):
        assert low <= values.min() < values.max() <= high
        assert len(np.unique(values)) == {"pair": 15, "generation": 3}[common_seeds]
    for values, neutral in zip(rest, (1, 1, None, 0), strict=True):
        assert neutral is None or (values == neutral).all()
    again = population_tasks(config, 8, 9, 10, env=parts.env).variation
    assert not np.intersect1d(again[:, 3], tasks.variation[:, 3]).size


def test_the_mean_is_evaluated_in_the_plain_task(parts):
    tasks = mean_tasks(parts, initial_state(parts))
    assert (tasks.variation == [[1, 1, 1, 1, 1, 1, 0, 0]]).all()


@pytest.mark.compiled
def test_a_result_does_not_depend_on_the_slot():
    actions = BoxActions((-1.0,) * 3, (1.0,) * 3)
    policy = make_policy(MLPConfig(hidden_sizes=()), 11, actions)
    mean, rng = policy.init(jax.random.key(0)), np.random.default_rng(0)
    values = {name: rng.uniform(low, high, 9) for name, low, high in RANGES}
    values |= {"gravity": np.linspace(0.8, 1.2, 9), "delay": np.arange(9) % 2}
    played = []
    for num_slots, order in ((1, slice(None)), (4, slice(None, None, -1))):
        env = make("Hopper-v5", num_slots, num_threads=1)
        tasks = varied(tasks_of_mean(np.arange(9), 30), env, values)
        tasks = jax.tree.map(lambda column, order=order: column[order], tasks)
        rollout = Rollout(policy, [env], Devices(jax.local_devices()[:1]))
        result = rollout.evaluate(MeanPopulation(mean), tasks)
        played.append((result.returns[order], result.lengths[order]))
        env.close()
    (returns, lengths), (others, other_lengths) = played
    np.testing.assert_allclose(returns, others, rtol=1e-4)
    np.testing.assert_array_equal(lengths, other_lengths)
    assert len(np.unique(returns.round(3))) == 9


@pytest.mark.compiled
def test_it_resumes_to_the_bit(parts, folder):
    def trained(name, count, resume=False):
        config = dataclasses.replace(VARIED, num_generations=count)
        some, run = dataclasses.replace(parts, config=config), RunDirectory(name)
        state = begin(some, run, resume, "python")
        progress = Progress(count, stream=io.StringIO())
        return run_training(PolicyTraining(some, state), run, progress)

    whole = trained(folder / "whole", 3)
    trained(folder / "torn", 2)
    assert_equal_bits(trained(folder / "torn", 3, resume=True).state, whole.state)
    assert numbers(folder / "torn") == numbers(folder / "whole")
    plain = RolloutConfig(num_slots=1, num_devices=1, num_threads=1)
    plain = dataclasses.replace(VARIED, rollout=plain)
    assert RunDirectory(folder / "torn").config().rollout.variation_range == RANGES
    # Runs from before there were ranges have none.
    values = json.loads(json.dumps(to_dict(plain)))
    del values["rollout"]["variation_range"]
    assert from_dict(values) == plain


def test_the_command_line_takes_and_tells_them():
    options = "hopper --rollout.variation-range mass 0.9 1.1 "
    options += "--rollout.variation-range delay 0.0 1.0"
    config = train.parse(options.split()).config
    ranges = (("mass", 0.9, 1.1), ("delay", 0.0, 1.0))
    assert config.rollout.variation_range == ranges
    assert command(config, "hopper").endswith(options)
    again = [*options.split(), "--rollout.variation-range", "mass", "1", "2"]
    changed = train.parse(again).config.rollout.variation_range
    assert changed == (("mass", 1.0, 2.0), ranges[1])
    preset = ["inverted-double-pendulum", "--policy", "linear"]
    assert train.parse(preset).config.rollout.variation_range == ranges[1:]
    none = [*preset, "--rollout.variation-range", "--seed", "1"]
    assert train.parse(none).config.rollout.variation_range == ()


@pytest.mark.parametrize(
    ("ranges", "env_id", "words"),
    [
        ((("weight", 1.0, 2.0),), "Hopper-v5", "rollout.variation_range weight: exp"),
        ((("delay", 0.0, 2.0),), "Hopper-v5", "rollout.variation_range delay 2: exp"),
        (RANGES, "CartPole-v1", "has no named variations; leave it out"),
        (
            (("pit-gap-low", 0.0, 1.0), ("pit-gap-high", 0.5, 1.5)),
            "Walker2dTerrain-v0",
            "with pit-gap-low 1, pit-gap-high 0.5 the environment cannot begin: pit-",
        ),
    ],
)
def test_ranges_that_an_environment_lacks_are_refused(ranges, env_id, words):
    rollout = dataclasses.replace(VARIED.rollout, variation_range=ranges)
    env = dataclasses.replace(VARIED.env, id=env_id)
    with pytest.raises(ConfigError, match=words):
        build(dataclasses.replace(VARIED, rollout=rollout, env=env))
