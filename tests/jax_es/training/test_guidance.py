"""A run that a critic guides: its steps, resume to the bit, and what it refuses."""

import contextlib
import dataclasses
import functools
import io
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jax_es import load_policy
from jax_es.checks import ConfigError
from jax_es.cli.progress import Progress
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.models import LinearConfig, LSTMConfig, MLPConfig
from jax_es.rollout.tasks import Tasks
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.train_config import TrainConfig
from jax_es.training.generation import initial_state, run_generation
from jax_es.training.guidance import make_guidance
from jax_es.training.loop import PolicyTraining, begin, run_training
from jax_es.training.parts import build
from tests.comparing import assert_equal_bits, numbers

SMALL = {
    **{"replay_size": 100, "replay_ratio": 0.2, "batch_size": 16, "width": 8},
    "direction_batches": 2,
}
TINY = TrainConfig(
    EnvConfig("Hopper-v5", max_episode_steps=20),
    MLPConfig(hidden_sizes=(4,)),
    ESConfig(
        strategy="guided",
        num_pairs=4,
        sigma=0.3,
        kwargs=SMALL,
        healthy_reward_weight=0.0,
        shaping="centered_rank",
    ),
    RolloutConfig(num_slots=4, num_devices=1, statistics_fraction=1.0),
    EvaluationConfig(num_episodes=1),
    num_generations=4,
)


CLIMBING = dataclasses.replace(
    TINY,
    es=ESConfig(
        strategy="cem-rl",
        num_pairs=4,
        sigma=0.3,
        kwargs={name: SMALL[name] for name in SMALL if name != "direction_batches"},
        healthy_reward_weight=0.0,
    ),
)


@functools.cache
def tiny_parts(strategy="guided"):
    return build(TINY if strategy == "guided" else CLIMBING)


def trained(path, resume=False, strategy="guided", **fields):
    parts = tiny_parts(strategy)
    parts = dataclasses.replace(
        parts, config=dataclasses.replace(parts.config, **fields)
    )
    run = RunDirectory(path)
    state = begin(parts, run, resume, "python")
    progress = Progress(parts.config.num_generations, stream=io.StringIO())
    return run_training(PolicyTraining(parts, state), run, progress)


def test_it_trains_resumes_to_the_bit_with_its_replay_buffer_and_is_reloaded(folder):
    whole = trained(folder / "whole")
    trained(folder / "torn", num_generations=2)
    resumed = trained(folder / "torn", resume=True)
    assert_equal_bits(resumed.state, whole.state)
    assert str(numbers(folder / "torn")) == str(numbers(folder / "whole"))
    critic, records = whole.state.critic, whole.records
    steps = sum(record.env_steps for record in records[:4])
    # A fifth of what was remembered, which is not all: see most_episodes.
    remembered = round((critic.num_updates + critic.owed) / 0.2)
    assert 100 < remembered < steps and 0 <= critic.owed < 1
    assert critic.replay.size == 100 and critic.replay.position == remembered % 100
    # The first generation has no direction, the others a share of the running mean.
    shares = [record.strategy["share"] for record in records[:4]]
    before = [0.5, *(r.strategy["mean_correlation"] for r in records[:3])]
    assert shares[0] == 0
    expected = [max(0.02, 0.2 * each) for each in before[1:]]
    np.testing.assert_allclose(shares[1:], expected, rtol=1e-5)
    assert all(np.isfinite(r.strategy["critic_loss"]) for r in records[:4])
    # The buffer is what resumes, and nobody resumes from the best.
    checkpoints = Checkpoints(folder / "whole" / "checkpoints")
    assert "replay" in checkpoints.restore("last").state["critic"]
    assert "critic" not in checkpoints.restore("best").state
    policy = load_policy(folder / "whole", "last")
    assert "guided ES" in repr(policy)
    assert policy(np.zeros(11, np.float32)).shape == (3,)


def test_members_climb_and_it_resumes_to_the_bit_with_its_replay_buffer(folder):
    whole = trained(folder / "whole", strategy="cem-rl")
    trained(folder / "torn", strategy="cem-rl", num_generations=2)
    resumed = trained(folder / "torn", strategy="cem-rl", resume=True)
    assert_equal_bits(resumed.state, whole.state)
    assert str(numbers(folder / "torn")) == str(numbers(folder / "whole"))
    # The first generation has no critic; the others as many as the running share says.
    told = [record.strategy for record in whole.records[:4]]
    climbed = [each["num_climbed"] for each in told]
    shares = [each["mean_elite_share"] for each in told]
    assert climbed[0] == 0 and np.isnan(told[0]["elite_share"]) and shares[0] == 0.5
    assert climbed[1:] == [np.clip(np.round(8 * each), 1, 4) for each in shares[:3]]
    assert all(np.isfinite(each["critic_loss"]) for each in told)
    state = whole.state
    count = int(state.es.num_climbed)
    drawn = tiny_parts("cem-rl").strategy.judged(state.es)
    moved = jax.tree.map(
        lambda new, old: np.abs(new[:count] - old).max(), state.es.climbed, drawn
    )
    assert all(0 < each < 0.1 for each in jax.tree.leaves(moved))
    checkpoints = Checkpoints(folder / "whole" / "checkpoints")
    assert "replay" in checkpoints.restore("last").state["critic"]
    assert "critic" not in checkpoints.restore("best").state
    assert "CEM-RL" in repr(load_policy(folder / "whole", "last"))


def test_without_a_share_a_run_is_one_of_openai_es():
    ends = []
    for strategy, kwargs in (
        ("guided", {**SMALL, "share": 0.0, "min_share": 0.0}),
        ("openai-es", {}),
    ):
        es = dataclasses.replace(TINY.es, strategy=strategy, kwargs=kwargs)
        with contextlib.closing(build(dataclasses.replace(TINY, es=es))) as parts:
            state = initial_state(parts)
            for _ in range(2):
                state = run_generation(parts, state).state
        ends.append((tuple(state.es)[:4], state[1:5]))
    assert_equal_bits(*ends)


def test_the_critic_learns_from_the_steps_that_were_taken():
    parts = tiny_parts()
    generation = run_generation(parts, initial_state(parts))
    replay = generation.state.critic.replay
    lengths = [generation.evaluation.lengths, generation.population.lengths]
    lengths = np.concatenate(lengths)[: parts.guidance.most_episodes]
    # Of 100 rows each of 20 steps at most, five episodes are kept.
    assert parts.guidance.most_episodes == 5 and replay.size == lengths.sum()
    returns = np.concatenate(
        [generation.evaluation.returns, generation.population.returns]
    )
    ends = np.cumsum(lengths)
    steps = jax.tree.map(lambda field: field[: replay.size], replay.steps)
    by_episode = np.split(steps.rewards, ends[:-1])
    found = [rewards.sum() for rewards in by_episode]
    np.testing.assert_allclose(found, returns[:5], rtol=1e-4)
    np.testing.assert_array_equal(
        np.delete(steps.observations[1:], ends[:-1] - 1, axis=0),
        np.delete(steps.next_observations[:-1], ends[:-1] - 1, axis=0),
    )
    # Who was cut has not ended, and 1 a step is paid for standing.
    assert (steps.terminated[ends - 1] >= (lengths < 20)).all()
    assert steps.terminated.sum() == steps.terminated[ends - 1].sum() > 0
    assert set(steps.healthy_rewards) <= {0.0, 1.0} and steps.healthy_rewards[0] == 1
    assert np.abs(steps.actions).max() <= 1 and steps.actions.std() > 0


def test_what_is_recorded_does_not_depend_on_the_slots():
    parts, kept = tiny_parts(), []
    tasks = parts.guidance.recording(four_tasks())
    for slots in (1, 3):
        rollout = dataclasses.replace(TINY.rollout, num_slots=slots)
        config = dataclasses.replace(TINY, rollout=rollout)
        with contextlib.closing(build(config, num_tasks=4)) as others:
            state = initial_state(others)
            population = others.strategy.ask(state.es)
            kept.append(others.rollout.evaluate(population, tasks).transitions)
    for first, second in zip(*kept, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4)
    assert len(kept[0].rewards) > 20


def four_tasks():
    return Tasks(
        member=np.arange(4, dtype=np.int32),
        seed=np.arange(4, dtype=np.int32),
        max_steps=np.full(4, 20, np.int32),
        observed=np.zeros(4, bool),
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"env": EnvConfig("CartPole-v1")},
            r"of real-valued actions, .* \(Discrete\(2\)\)",
        ),
        ({"policy": LinearConfig(action_bins=3)}, r"are choices \(3 bins\); choose"),
        ({"policy": LSTMConfig(width=4)}, "policy lstm remembers an episode's past"),
        ({"es": CLIMBING.es, "env": EnvConfig("CartPole-v1")}, "es.strategy cem-rl fo"),
        ({"es": CLIMBING.es, "replay_size": 2**30}, "replay_size 1073741824 would ta"),
        ({"policy": LinearConfig(target_return=1.0)}, "linear .* reads a return to go"),
        ({"replay_size": 2**30}, r"replay_size 1073741824 would take about .* GiB"),
        ({"width": 10**6}, "es.kwargs.width 1000000 would take about .* of memory"),
    ],
)
def test_what_a_critic_cannot_judge_is_one_line(changes, words):
    es = changes.pop("es", TINY.es)
    fields = {k: v for k, v in changes.items() if k in ("env", "policy")}
    kwargs = {k: v for k, v in changes.items() if k not in fields}
    es = dataclasses.replace(
        es, kwargs={**es.kwargs, **kwargs}, healthy_reward_weight=1.0
    )
    config = dataclasses.replace(TINY, es=es, **fields)
    with pytest.raises(ConfigError, match=words) as caught:
        build(config)
    assert "\n" not in str(caught.value)


def test_a_fitness_without_costs_is_refused():
    parts = tiny_parts()
    es = dataclasses.replace(TINY.es, control_cost_weight=0.5)
    with pytest.raises(ConfigError, match=r"es.control_cost_weight must be 1 with es"):
        make_guidance(
            *(dataclasses.replace(TINY, es=es), parts.policy, parts.env),
            parts.strategy.options,
        )


def test_workers_are_refused():
    parts = tiny_parts()
    with pytest.raises(ConfigError, match=r"workers: es.strategy guided learns from"):
        make_guidance(
            *(TINY, parts.policy, parts.env, parts.strategy.options), has_workers=True
        )


def test_an_environment_in_jax_is_refused():
    parts = tiny_parts()
    known = ("num_envs", "single_observation_space", "single_action_space")
    env = SimpleNamespace(**{name: getattr(parts.env, name) for name in known})
    env.descriptor, env.start, env.advance = (), abs, abs
    with pytest.raises(ConfigError, match="is written in JAX, which keeps none"):
        make_guidance(TINY, parts.policy, env, parts.strategy.options)
