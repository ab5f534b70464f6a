"""A generation's arithmetic, what is kept, what survives, and that it learns."""

import dataclasses
import functools
import io
import itertools
import math
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.cli.progress import Progress
from jax_es.cli.signals import Stopped
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.es.noise import FullNoise
from jax_es.es.openai_es import openai_es
from jax_es.es.population import MeanPopulation
from jax_es.models import DecisionTransformerConfig, MLPConfig
from jax_es.rollout.devices import Devices
from jax_es.rollout.engine import Rollout
from jax_es.rollout.observation_statistics import View
from jax_es.rollout.weighted_sum import spread_weighted_sum
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import MetricsWriter, read_metrics
from jax_es.training import build as experiment
from jax_es.training.build import TrainConfig
from jax_es.training.episodes import evaluation_tasks, population_tasks
from jax_es.training.generation import (
    initial_state,
    next_num_pairs,
    next_step_cap,
    run_generation,
    score,
    template_state,
)
from jax_es.training.loop import PolicyTraining, begin, run_training
from jax_es.training.parts import Parts
from jax_es.training.train_policy import train_policy
from tests.comparing import assert_equal_bits, numbers
from tests.made_runs import SHORT
from tests.probe_envs import TargetEnv

# A tighter cap than usual, or none of the probe's episodes would be cut.
ROLLOUT = RolloutConfig(statistics_fraction=0.2, step_cap_factor=1.2)


def make_parts(policy, env, es, num_devices=1, **fields):
    """What ``build`` makes, around an environment without an id."""
    config = TrainConfig(EnvConfig("probe"), policy, es, ROLLOUT, **fields)
    devices = Devices(jax.local_devices()[:num_devices])
    policy = experiment.make_policy(
        policy, env.single_observation_space, env.single_action_space
    )
    rollout = Rollout(policy, [env], devices)
    strategy = openai_es(es, FullNoise(), spread_weighted_sum(FullNoise(), devices))
    return Parts(config, devices, (env,), policy, rollout, strategy=strategy)


@functools.cache
def compiled():
    return make_parts(
        MLPConfig(hidden_sizes=(8,)),
        TargetEnv(2),
        ESConfig(num_pairs=16, sigma=0.1, learning_rate=0.05, weight_decay=0.001),
        evaluation=EvaluationConfig(num_episodes=6),
        num_generations=4,
    )


@pytest.fixture
def parts():
    """Parts that tests share, for compiling takes seconds; the environment is new."""
    compiled().env.__init__(2)
    return compiled()


def with_config(parts, **changes):
    config = dataclasses.replace(parts.config, **changes)
    return dataclasses.replace(parts, config=config)


def train(parts, run, resume=False, check_stop=lambda: None, callbacks=()):
    state = begin(parts, run, resume, "probe")
    progress = Progress(parts.config.num_generations, stream=io.StringIO())
    training = PolicyTraining(parts, state, check_stop)
    return run_training(training, run, progress, check_stop, callbacks)


def es_config(episodes=3, common_seeds="pair", fraction=0.2, **fields):
    return TrainConfig(
        es=ESConfig(
            num_pairs=5, episodes_per_member=episodes, common_seeds=common_seeds
        ),
        rollout=RolloutConfig(statistics_fraction=fraction, **fields),
        seed=3,
    )


@pytest.mark.parametrize("common_seeds", ["pair", "generation"])
def test_both_signs_of_a_pair_meet_the_same_seeds(common_seeds):
    tasks = population_tasks(es_config(common_seeds=common_seeds), 7, 11, 10)
    shape = 5, 3, 2  # [N, episodes, 2]
    members = tasks.member.reshape(shape)
    np.testing.assert_array_equal(
        members // 2, np.arange(5)[:, None, None] + 0 * members
    )
    np.testing.assert_array_equal(members % 2, [0, 1] + 0 * members)
    np.testing.assert_array_equal(tasks.max_steps, 11)
    seeds = tasks.seed.reshape(shape)
    np.testing.assert_array_equal(seeds[..., 0], seeds[..., 1])
    if common_seeds == "generation":
        np.testing.assert_array_equal(seeds, np.broadcast_to(seeds[:1], shape))
        assert len(np.unique(seeds)) == 3
    else:
        assert len(np.unique(seeds)) == 15
    dtypes = [field.dtype for field in tasks[:4]]
    assert dtypes == [np.int32, np.int32, np.int32, bool]


def test_seeds_are_new_in_every_generation_and_the_same_in_every_run():
    config = es_config()
    tasks = population_tasks(config, 7, 11, 10)
    assert_equal_bits(tasks, population_tasks(config, 7, 11, 10))
    other_seed = dataclasses.replace(config, seed=4)
    evaluation = evaluation_tasks(config.seed, 7, 20, 50)
    others = [
        population_tasks(config, 8, 11, 10).seed,
        population_tasks(other_seed, 7, 11, 10).seed,
        evaluation.seed,
        evaluation_tasks(config.seed, 8, 20, 50).seed,
        evaluation_tasks(other_seed.seed, 7, 20, 50).seed,
    ]
    for first, second in itertools.combinations([tasks.seed, *others], 2):
        assert not set(first.tolist()) & set(second.tolist())


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.2, 6), (1.0, 30), (0.01, 1), (0.05, 2)]
)
def test_a_share_of_the_episodes_is_observed_but_at_least_one(fraction, expected):
    masks = [
        population_tasks(es_config(fraction=fraction), g, 9, 10).observed
        for g in range(20)
    ]
    assert {mask.sum() for mask in masks} == {expected}
    # Chosen at random: over the generations every episode may have its turn.
    assert fraction == 1 or np.any(masks, axis=0).sum() > expected


@pytest.mark.parametrize(
    ("factor", "most", "lengths", "cap"),
    [
        (2.0, None, [3, 4, 3], 7),  # 6.67, rounded up
        (2.0, None, [3, 3], 6),
        (1.5, None, [1, 1], 2),
        (2.0, None, [90, 30], 100),  # never above the environment's limit
        (None, None, [3, 4, 3], 100),
        (None, 40, [3, 4, 3], 40),
        (None, 400, [3, 4, 3], 100),
        (2.0, 40, [3, 3], 6),
        (2.0, 40, [30, 30], 40),
    ],
)
def test_the_next_cap_is_a_multiple_of_the_mean_length(factor, most, lengths, cap):
    config = es_config(step_cap_factor=factor, step_cap=most)
    parts = SimpleNamespace(config=config, env=SimpleNamespace(max_episode_steps=100))
    assert next_step_cap(parts, np.array(lengths)) == cap


def test_an_odd_population_has_a_last_member_without_a_partner():
    tasks = population_tasks(es_config(episodes=2), 0, 9, 5)
    assert tasks.member.tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4, 4]
    assert len(np.unique(tasks.seed)) == 6
    assert [len(field) for field in tasks[:4]] == [10] * 4


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1000, 1000], 100),  # 200 episodes would take 200 000 steps: too many already
        ([500, 500], 200),  # 150 pairs, rounded up to whole blocks
        ([300, 200], 300),
        ([20, 30], 1600),  # 3000, but no more than the most
    ],
)
def test_pairs_are_added_as_episodes_become_shorter(lengths, expected):
    config = ESConfig(num_pairs=100, interactions_per_generation=150_000)
    assert next_num_pairs(config, np.array(lengths)) == expected
    assert next_num_pairs(ESConfig(num_pairs=100), np.array(lengths)) == ()


def test_a_score_that_is_no_number_is_below_every_other():
    assert score(np.array([1.0, 2.0])) == 1.5
    for bad in (np.nan, np.inf, -np.inf):
        assert score(np.array([1.0, bad])) == -math.inf
    assert score(np.array([np.inf, -np.inf])) == -math.inf


def evaluate_mean(parts, mean, statistics, tasks):
    """Runs episodes of the policy with weights ``mean``, by themselves."""
    return parts.rollout.evaluate(MeanPopulation(mean), tasks, View(statistics))


def test_a_generation_is_ask_rollout_tell(parts):
    state = initial_state(parts)
    for _ in range(2):
        generation = run_generation(parts, state)
        config, index = parts.config, int(state.es.generation)
        statistics = state.observation_statistics
        # The mean before the update is what was evaluated, uncut.
        tasks = evaluation_tasks(config.seed, index, 6, 9)
        alone = evaluate_mean(parts, state.es.mean, statistics, tasks)
        np.testing.assert_allclose(
            generation.evaluation.returns, alone.returns, rtol=1e-5
        )
        np.testing.assert_array_equal(generation.evaluation.lengths, alone.lengths)
        # The population's returns, and nothing else, make the update.
        told, _ = parts.strategy.tell(state.es, generation.population.returns)
        assert_equal_bits(told, generation.state.es)
        # Statistics are those of before, until the generation is over.
        tasks = population_tasks(config, index, state.step_cap, 32)
        result = parts.rollout.evaluate(
            parts.strategy.ask(state.es), tasks, View(statistics)
        )
        np.testing.assert_allclose(
            generation.population.returns, result.returns, rtol=1e-5
        )
        np.testing.assert_array_equal(
            generation.state.observation_statistics.sum,
            statistics.sum + result.observations.sum,
        )
        observed = result.lengths[tasks.observed].sum()
        before, after = (
            s.observation_statistics.count for s in (state, generation.state)
        )
        assert after - before == observed > 0
        state = generation.state


def test_the_cap_cuts_members_alone_and_follows_their_lengths(parts):
    parts = with_config(parts, evaluation=EvaluationConfig(num_episodes=40))
    state = initial_state(parts)._replace(step_cap=2)
    generation = run_generation(parts, state)
    np.testing.assert_array_equal(generation.population.lengths, 2)
    assert generation.evaluation.lengths.max() > 2
    assert generation.record.step_cap == 2
    assert generation.state.step_cap == 3  # 1.2 · 2, rounded up


def test_records_add_up(parts, tmp_path):
    run = RunDirectory(tmp_path)
    result = train(parts, run)
    *records, closing = read_metrics(run.path)
    assert [r.generation for r in records] == [0, 1, 2, 3]
    assert records == result.records
    total, best, cap, elapsed = 0, -math.inf, 9, 0.0
    for record in records:
        assert record.num_episodes == 32
        steps = 32 * record.episode_length_mean + 6 * record.evaluation_length_mean
        assert record.env_steps == round(steps)
        total += record.env_steps
        assert record.total_env_steps == total
        best = max(best, record.evaluation_return_mean)
        assert record.best_evaluation_return == best
        assert record.step_cap == cap
        assert record.episode_length_max <= cap
        cap = min(9, math.ceil(1.2 * record.episode_length_mean))
        parts_of_total = [
            record.seconds_policy,
            record.seconds_environment,
            record.seconds_noise,
            record.seconds_update,
            record.seconds_other,
        ]
        assert min(parts_of_total) >= 0
        assert sum(parts_of_total) == pytest.approx(record.seconds_total)
        speed = record.env_steps / record.seconds_total
        assert record.env_steps_per_second == pytest.approx(speed)
        elapsed += record.seconds_total
        assert record.seconds_elapsed >= elapsed
        assert 0 < record.slot_utilization <= 1
        assert record.num_nonfinite == record.num_failed == 0
    assert records[-1].step_cap < 9
    assert result.first_evaluation == records[0].evaluation_return_mean
    assert result.best_evaluation == max(best, result.final_evaluation)
    # The last update's mean has a record as well.
    assert closing.generation == 4
    assert closing.evaluation_return_mean == result.final_evaluation
    assert closing.best_evaluation_return == result.best_evaluation
    assert closing.env_steps == round(6 * closing.evaluation_length_mean) > 0
    assert closing.total_env_steps == total + closing.env_steps
    assert closing.seconds_elapsed >= records[-1].seconds_elapsed
    assert closing.num_episodes == 0 and math.isnan(closing.return_mean)
    assert int(result.state.es.generation) == 4


@pytest.mark.slow
def test_the_best_mean_is_kept(parts, tmp_path):
    """Also when it is neither the first nor the last one.

    Steps far too long make the mean wander, so the best generation is any of them.
    """
    es = openai_es(
        dataclasses.replace(parts.config.es, learning_rate=1.0),
        FullNoise(),
        spread_weighted_sum(FullNoise(), parts.devices),
    )
    parts = with_config(dataclasses.replace(parts, strategy=es), num_generations=6)
    run = RunDirectory(tmp_path)
    result = train(parts, run)
    evaluations = [r.evaluation_return_mean for r in read_metrics(run.path)]
    assert evaluations[-1] == result.final_evaluation
    best = Checkpoints(run.checkpoints).restore("best", initial_state(parts))
    assert best.step == int(np.argmax(evaluations))
    assert best.state.best_evaluation_return == max(evaluations)
    tasks = evaluation_tasks(parts.config.seed, best.step, 6, 9)
    again = evaluate_mean(
        parts, best.state.es.mean, best.state.observation_statistics, tasks
    )
    assert again.returns.mean() == pytest.approx(max(evaluations), rel=1e-5)


@pytest.mark.parametrize("kind", ["inf", "failed", "observation"])
def test_a_broken_return_ranks_worst_and_the_run_goes_on(parts, kind):
    state = initial_state(parts)
    healthy = run_generation(parts, state)
    # Seeds are shared by the signs of a pair, hence two members break.
    seeds = population_tasks(parts.config, 0, 9, 32).seed[::2].tolist()
    pair = next(i for i, seed in enumerate(seeds) if parts.env.length(seed) > 4)
    members = [2 * pair, 2 * pair + 1]
    parts.env.broken = {seeds[pair]: kind}
    generation = run_generation(parts, state)
    returns = generation.population.returns
    assert np.flatnonzero(~np.isfinite(returns)).tolist() == members
    record = generation.record
    assert record.num_nonfinite == int(generation.info.num_nonfinite) == 2
    assert record.num_failed == (2 if kind == "failed" else 0)
    finite = np.delete(healthy.population.returns, members)
    np.testing.assert_array_equal(np.delete(returns, members), finite)
    assert record.return_mean == pytest.approx(finite.mean())
    # As if both had returned something far below everybody else.
    replaced = returns.copy()
    replaced[members] = finite.min() - 100.0
    expected, _ = parts.strategy.tell(state.es, replaced)
    assert_equal_bits(expected.mean, generation.state.es.mean)
    # The next generation knows nothing of it.
    parts.env.broken = {}
    later = run_generation(parts, generation.state)
    assert np.isfinite(later.population.returns).all()
    assert np.isfinite(float(later.info.mean_norm))


def test_only_the_first_generation_compiles(compilations, tmp_path):
    parts = make_parts(
        MLPConfig(hidden_sizes=()),
        TargetEnv(2),
        ESConfig(num_pairs=4),
        num_devices=2,
        num_generations=2,
    )
    generations = [run_generation(parts, initial_state(parts))]
    assert compilations
    compilations.clear()
    for _ in range(3):
        generations.append(run_generation(parts, generations[-1].state))
    assert not compilations
    # Nor does a generation of a restored state.
    run = RunDirectory(tmp_path)
    run.create(parts.config, "probe")
    with MetricsWriter(run.path) as writer:
        for generation in generations:
            writer.write(generation.record)
    Checkpoints(run.checkpoints).save(4, generations[-1].state)
    state = begin(with_config(parts, num_generations=9), run, True, "probe")
    compilations.clear()
    run_generation(parts, state)
    assert not compilations


def stop_after(steps):
    """Raises ``Stopped`` at the given number of steps of the run."""
    calls = itertools.count()

    def check():
        if next(calls) == steps:
            raise Stopped(15)

    return check


def following_parts():
    """Whose pairs follow the lengths of episodes, 4, 8 or 12, and commands the best."""
    es = ESConfig(
        objective="commanded-return",
        command_low=-12.0,
        obedience_weight_end=0.6,
        num_pairs=4,
        interactions_per_generation=100,
        max_num_pairs=12,
        learning_rate=0.1,
        optimizer="clipup",
        elite_fraction=0.5,
        sigma_end=0.01,
    )
    policy = MLPConfig(hidden_sizes=(), target_return=-2.0)
    parts = make_parts(policy, TargetEnv(2), es, num_devices=2)
    return with_config(parts, num_generations=6, checkpoint_every=3)


def test_a_run_stopped_anywhere_continues_to_the_same_numbers(tmp_path):
    parts = following_parts()
    whole, torn = (RunDirectory(tmp_path / name) for name in ("whole", "torn"))
    steps = itertools.count()
    expected = train(parts, whole, check_stop=lambda: next(steps))
    num_steps = next(steps)
    assert num_steps > 100
    # Before the first step, amid generations, and in the final evaluation.
    moments = [0, num_steps // 3, num_steps // 4, num_steps // 5]
    checks = [*map(stop_after, moments), stop_in_final_evaluation(torn)]
    seen = []
    callback = SimpleNamespace(
        on_generation=lambda record, state: seen.append(
            (record.generation, int(state.es.generation))
        )
    )
    for count, check in enumerate(checks):
        with pytest.raises(Stopped):
            train(parts, torn, count > 0, check, [callback])
    assert len(read_metrics(torn.path)) == 6
    result = train(parts, torn, resume=True, callbacks=[callback])
    # Each generation once, then the closing evaluation.
    assert seen == [*((g, g + 1) for g in range(6)), (6, 6)]
    # As texts: the error of the first generation, which knows no range, is NaN.
    assert str(numbers(torn.path)) == str(numbers(whole.path))
    assert_equal_bits(result.state, expected.state)
    assert result.final_evaluation == expected.final_evaluation
    template = template_state(parts)
    for which in ("last", "best"):
        restored = [
            Checkpoints(run.checkpoints).restore(which, template)
            for run in (whole, torn)
        ]
        assert_equal_bits(*restored)
    # The population followed the episodes, and the commands the population.
    *records, _ = read_metrics(whole.path)
    highs = [record.command_high for record in records]
    assert highs == sorted(highs) and len({*highs}) > 1
    episodes = [record.num_episodes for record in records]
    assert episodes[0] == 8 and len(set(episodes[1:])) > 1
    for record, count in zip(records, episodes[1:], strict=False):
        length = record.episode_length_mean
        assert count == min(24, 8 * math.ceil(100 / (8 * length)))


def test_a_run_has_a_checkpoint_from_its_first_generation_on(tmp_path):
    run, saved = RunDirectory(tmp_path / "run"), []
    callback = SimpleNamespace(
        on_generation=lambda *_: saved.append(Checkpoints(run.checkpoints).steps())
    )
    train(following_parts(), run, callbacks=[callback])
    # It is told before the checkpoint is written; after three generations the next is.
    assert saved[:4] == [[], [1], [1], [1, 3]]


def stop_in_final_evaluation(run):
    """Raises ``Stopped`` once the last generation is recorded."""

    def check():
        if len(read_metrics(run.path)) == 6:
            raise Stopped(15)

    return check


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": 5}, r"config must be a TrainConfig.* got 5"),
        ({"policy": "mpl"}, "policy 'mpl' is unknown; did you mean mlp"),
        ({"policy": "cnn"}, "policy cnn takes images"),
        ({"policy": 5}, "policy must be MLPConfig or .* got 5"),
        ({"path": 10_000 * "x"}, "x… of 10000 characters is too long for a folder"),
        ({"path": 5_000 * "x/"}, "… of 9999 characters is too long for a folder"),
    ],
)
def test_arguments_that_cannot_be_are_one_line(arguments, message, folder):
    with pytest.raises(ConfigError, match=message) as caught:
        train_policy(**{"config": SHORT, "path": folder / "run", **arguments})
    assert len(str(caught.value)) < 400 and not list(folder.iterdir())


def test_from_python_errors_name_arguments_and_a_run_can_be_quiet(folder, capsys):
    result = train_policy(SHORT, "runs/x", verbose=False)
    assert capsys.readouterr() == ("", "")
    assert re.fullmatch(
        r"TrainingResult\(runs/x: generation 1, \d+ environment steps; evaluation "
        r"return \S+ at the start, \S+ at the end, \S+ at best\)",
        repr(result),
    )
    assert "nan" not in repr(result.records[0])
    again = r"continue it with resume=True or choose another path\.$"
    with pytest.raises(ConfigError, match=again):
        train_policy(SHORT, "runs/x")
    changed = dataclasses.replace(SHORT, seed=3)
    words = r"^resume=True would change .*: seed was 0, now 3.* with another path\.$"
    with pytest.raises(ConfigError, match=words):
        train_policy(changed, "runs/x", resume=True)


def test_environment_steps_may_end_a_run(parts, tmp_path):
    whole, short = (RunDirectory(tmp_path / name) for name in ("whole", "short"))
    train(parts, whole)
    totals = [record.total_env_steps for record in read_metrics(whole.path)]
    # The generation that reaches the limit is the last one, to the step.
    for limit, count in ((totals[1], 2), (totals[1] + 1, 3), (totals[-1] * 9, 4)):
        limited = with_config(parts, max_env_steps=limit)
        train(limited, short, resume=short.exists())
        *before, closing = numbers(short.path)
        assert before == numbers(whole.path)[:count]
        assert closing["generation"] == count


def test_a_return_may_end_a_run(parts, tmp_path):
    parts = with_config(parts, seed=3)  # with which it improves
    whole, short = (RunDirectory(tmp_path / name) for name in ("whole", "short"))
    train(parts, whole)
    *records, _ = numbers(whole.path)
    best = [record["best_evaluation_return"] for record in records]
    assert best[0] < best[-1]
    for enough in (*dict.fromkeys(best), best[-1] + 1.0):
        limited = with_config(parts, stop_at_return=enough)
        train(limited, short, resume=short.exists())
        *before, _ = numbers(short.path)
        assert before == records[: best.index(enough) + 1 if enough in best else 4]
        assert short.config().stop_at_return == enough


def test_a_callback_that_raises_ends_the_run_after_a_checkpoint(parts, tmp_path):
    def stop(record, state):
        raise KeyError(record.generation)

    run = RunDirectory(tmp_path / "run")
    with pytest.raises(KeyError):
        train(parts, run, callbacks=[SimpleNamespace(on_generation=stop)])
    assert Checkpoints(run.checkpoints).steps() == [1]


def test_a_callback_that_returns_true_ends_the_run(parts, tmp_path):
    whole, short = (RunDirectory(tmp_path / name) for name in ("whole", "short"))
    train(parts, whole)
    told = []

    def is_enough(record, state):
        told.append(record.num_episodes)
        return record.generation == 0

    train(parts, short, callbacks=[SimpleNamespace(on_generation=is_enough)])
    assert len(told) == 2 and told[1] == 0  # the generation, and the last θ
    assert Checkpoints(short.checkpoints).steps() == [1]
    train(parts, short, resume=True)
    assert numbers(short.path) == numbers(whole.path)


class BonusEnv(TargetEnv):
    """Pays 3 more for every step, and says so."""

    pays_healthy_reward = True

    def step(self, actions):
        live = ~self._ended
        observation, reward, terminated, truncated, info = super().step(actions)
        bonus = 3.0 * live
        return (
            *(observation, reward + bonus, terminated, truncated),
            {**info, "reward_survive": bonus},
        )


def test_without_the_healthy_reward_the_update_is_that_of_a_task_without_it():
    """Returns, the evaluation and the best are still those of the task."""
    es = ESConfig(num_pairs=8, weight_decay=0.0)
    generations = []
    for env, weight in ((TargetEnv(2), 1.0), (BonusEnv(4), 0.0)):
        parts = make_parts(
            MLPConfig(hidden_sizes=()),
            env,
            dataclasses.replace(es, healthy_reward_weight=weight),
        )
        generations.append(run_generation(parts, initial_state(parts)))
    plain, paid = generations
    np.testing.assert_allclose(paid.fitness, plain.fitness, rtol=1e-12)
    np.testing.assert_allclose(
        paid.population.returns,
        plain.population.returns + 3.0 * plain.population.lengths,
    )
    assert_equal_bits(paid.state.es.mean, plain.state.es.mean)
    record = paid.record
    assert record.return_mean > 0 > record.fitness_mean
    assert record.best_evaluation_return == score(paid.evaluation.returns) > 0


def learn(parts, num_generations):
    """The mean's returns before and after training, on the same 40 episodes."""
    state = initial_state(parts)
    tasks = evaluation_tasks(1, 0, 40, parts.env.max_episode_steps)
    means = []
    for _ in range(2):
        result = evaluate_mean(
            parts, state.es.mean, state.observation_statistics, tasks
        )
        means.append(result.returns.mean())
        if len(means) == 1:
            for _ in range(num_generations):
                state = run_generation(parts, state).state
    return means


# The optimum is 0. The best policy that ignores its observation does nothing, and gets
# −Σ‖target‖² = −2.4 on average.
def test_a_feed_forward_network_learns(parts):
    before, after = learn(parts, 40)
    assert before < -2.0
    assert after > -0.4


@pytest.mark.slow
def test_a_decision_transformer_learns():
    parts = make_parts(
        DecisionTransformerConfig(
            context_length=2, width=8, num_layers=1, target_return=0.0, max_timestep=9
        ),
        TargetEnv(2),
        ESConfig(num_pairs=24, sigma=0.05, learning_rate=0.05, weight_decay=0.0),
        num_devices=2,
    )
    before, after = learn(parts, 40)
    assert before < -2.4
    assert after > -1.2
