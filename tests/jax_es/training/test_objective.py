"""Commanded returns: what is drawn, what counts, what is kept."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from jax_es.config import ESConfig
from jax_es.distributed.sharded import ShardedEvaluator
from jax_es.models import MLPConfig
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.train_config import TrainConfig
from jax_es.training.episodes import population_tasks
from jax_es.training.generation import initial_state, run_generation
from jax_es.training.objective import (
    Asked,
    CommandState,
    asked,
    fitness,
    initial_commands,
    make_objective,
    next_commands,
    population_commands,
    reported_for,
)
from jax_es.training.parts import WorkerEngine
from tests.comparing import assert_equal_bits
from tests.jax_es.training.test_loop import make_parts
from tests.probe_envs import TargetEnv

COMMANDED = ESConfig(
    num_pairs=5, episodes_per_member=3, objective="commanded-return", command_high=30.0
)


def test_fitness_by_hand():
    # Members 0 and 1, two episodes each: returns 1 and 7, asked for 4 and 4; 10 and −2.
    returns, errors = np.array([1.0, 7, 10, -2]), np.array([-3.0, 3, 6, -6])
    played = EpisodeResults.empty(4)._replace(
        returns=returns, healthy_rewards=np.ones(4), commands=returns - errors
    )
    member = np.array([0, 0, 1, 1])
    config = ESConfig(num_pairs=1, episodes_per_member=2, shaping="centered_rank")
    for weight, expected in ((1.0, [-3, -6]), (0.0, [4, 4]), (0.5, [0.5, -1])):
        got = fitness(played, member, make_objective(config, Asked(0, 9, weight)))
        np.testing.assert_array_equal(got, expected)
    # The healthy reward is left out of the return, not of what was asked for.
    config = dataclasses.replace(config, healthy_reward_weight=0.0)
    half = make_objective(config, Asked(0, 9, 0.5))
    got = fitness(played, member, half)
    np.testing.assert_array_equal(got, [0.0, -1.5])
    # So is what acting cost, of which a quarter counts here.
    config = dataclasses.replace(config, control_cost_weight=0.25)
    assert reported_for(config).sums == ("reward_ctrl",)
    cost = played._replace(sums={"reward_ctrl": np.full(4, -4.0)})
    got = fitness(cost, member, make_objective(config))
    np.testing.assert_array_equal(got, [4 - 1 + 3, 4 - 1 + 3])
    broken = played._replace(returns=returns * np.nan)
    assert np.isnan(fitness(broken, member, half)).all()


@pytest.mark.parametrize("common_seeds", ["pair", "generation"])
def test_commands_are_common_to_a_pair_and_cover_the_range(common_seeds):
    es = dataclasses.replace(COMMANDED, common_seeds=common_seeds)
    config = TrainConfig(es=es, seed=3)
    asks = asked(es, initial_commands(es), 7)
    tasks = population_tasks(config, 7, 11, 10, asks)
    commands = tasks.command.reshape(5, 3, 2)  # [N, episodes, 2]
    assert tasks.command.dtype == np.float32
    np.testing.assert_array_equal(commands[..., 0], commands[..., 1])
    drawn = commands[..., 0]
    # A member's episodes have a third of [0, 30] each, and ...
    assert np.all(drawn // 10 == [0, 1, 2])
    if common_seeds == "generation":
        assert len(np.unique(drawn)) == 3
    else:  # ... each pair has a fifth of each of these.
        np.testing.assert_array_equal(np.sort(drawn.ravel() // 2), np.arange(15))
    # Nothing else is drawn otherwise than without commands.
    plain = population_tasks(config, 7, 11, 10)
    assert_equal_bits(tasks._replace(command=None), plain)
    again = population_tasks(config, 8, 11, 10, asks).command
    assert not np.any(again == tasks.command)


def test_commands_and_errors_are_on_the_range():
    asks = Asked(-10.0, 30.0, 1.0)
    assert asks.on_range(np.linspace(0, 1, 5)).tolist() == [-10, 0, 10, 20, 30]
    # |R − c| of 4 and 8 in a range of 40.
    assert asks.error(np.array([4.0, -8.0])) == 0.15
    assert asks.error(np.array([np.nan, 0.0])) == math.inf


def test_a_range_that_is_not_given_follows_the_best_episodes():
    es = dataclasses.replace(COMMANDED, command_high=None, command_low=2.0)
    commands = initial_commands(es)
    unknown = asked(es, commands, 0)
    # Until returns are above the low end, they alone count, and all ask for it.
    assert unknown.weight == 0 and not unknown.is_range
    assert (population_commands(unknown, 0, 0, 4, 2) == 2.0).all()
    assert unknown.error(np.zeros(3)) == math.inf
    returns = np.array([*range(18), 30.0, 50.0, np.nan])  # the best tenth: 30 and 50
    commands = next_commands(es, commands, returns)
    assert commands.high == 40.0 + 10.0
    assert asked(es, commands, 1) == Asked(2.0, 50.0, 1.0)
    judged = commands._replace(least_error=0.25)
    assert next_commands(es, judged, np.full(4, np.nan)) == judged
    # Who obeys returns less than the end: the range stays. Once it grows, θ is judged
    # anew.
    assert next_commands(es, judged, np.linspace(2.0, 49.0, 20)) == judged
    grown = next_commands(es, judged, np.full(4, 60.0))
    assert grown.high == 60.0 and math.isnan(grown.least_error)
    # A range that is given stays.
    given = initial_commands(COMMANDED)
    assert next_commands(COMMANDED, given, returns) == given


def test_the_weight_follows_its_schedule():
    es = dataclasses.replace(
        COMMANDED,
        obedience_weight=0.0,
        obedience_weight_end=1.0,
        schedule="linear",
        schedule_generations=4,
    )
    state = initial_commands(es)
    weights = [asked(es, state, generation).weight for generation in range(6)]
    assert weights == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


def commanded_parts(num_devices=1, **es):
    policy = MLPConfig(hidden_sizes=(), target_return=-2.0, reward_scale=0.5)
    es = ESConfig(num_pairs=8, sigma=0.3, episodes_per_member=2, **es)
    return make_parts(policy, TargetEnv(2 * num_devices), es, num_devices)


@functools.cache
def obedient():
    """Parts that tests share, for compiling takes seconds."""
    return commanded_parts(
        objective="commanded-return", command_low=-9.0, command_high=-1.0
    )


def trained(parts, generations):
    state, records = initial_state(parts), []
    for _ in range(generations):
        generation = run_generation(parts, state)
        state = generation.state
        records.append(generation.record)
    return state, records


def test_without_a_weight_and_with_equal_commands_it_is_openai_es():
    """All ask, as the plain run does, for −2: a number in a range of one rounding."""
    plain, records = trained(commanded_parts(), 2)
    state, commanded = trained(
        commanded_parts(
            objective="commanded-return",
            command_low=-2.0,
            command_high=float(np.nextafter(-2.0, 0.0)),
            obedience_weight=0.0,
        ),
        2,
    )
    assert_equal_bits(state.es, plain.es)
    assert_equal_bits(state.observation_statistics, plain.observation_statistics)
    assert [r.evaluation_return_mean for r in commanded] == [
        r.evaluation_return_mean for r in records
    ]
    assert plain.commands == () and math.isnan(records[0].command_high)


class Workers:
    """Workers who run the jobs of an engine in order, or from the last to the first."""

    def __init__(self, order):
        self.order = order

    def use(self, recipe):
        self.engine = recipe()

    def run(self, method, shared, jobs, take, on_wait):
        work = getattr(self.engine, method)
        done = [work(shared, *job) for job in jobs[:: self.order]]
        for result in done[:: self.order]:
            take(result)

    def status(self):
        return SimpleNamespace(workers=2)


def test_the_order_in_which_workers_play_does_not_change_it():
    parts = obedient()
    engine = SimpleNamespace(parts=parts)
    engine.evaluate = WorkerEngine.evaluate.__get__(engine)
    (first, records), (last, others) = (
        trained(
            dataclasses.replace(
                parts, rollout=ShardedEvaluator(Workers(order), lambda: engine, 5)
            ),
            2,
        )
        for order in (1, -1)
    )
    assert_equal_bits(first, last)
    # One process adds the observations up in another order.
    _, alone = trained(parts, 2)
    for one, two, three in zip(alone, records, others, strict=True):
        assert two.command_error_std == three.command_error_std > 0.1
        assert one.command_error_std == pytest.approx(two.command_error_std, rel=1e-5)


def test_devices_do_not_change_it_and_its_record_says_what_was_asked():
    options = {"objective": "commanded-return", "command_low": -6.0}
    options |= {"command_high": -0.5, "obedience_weight": 0.75}
    (one, records), (two, others) = (
        trained(commanded_parts(count, **options), 2) for count in (1, 2)
    )
    for first, second in zip(records, others, strict=True):
        assert first.command_error_std == pytest.approx(
            second.command_error_std, rel=1e-4
        )
        assert first.command_error_std > 0.1
        assert (first.command_low, first.command_high) == (-6.0, -0.5)
        assert first.obedience_weight == 0.75
        assert first.evaluation_command_error > 0
    np.testing.assert_allclose(
        one.es.mean["head"]["kernel"], two.es.mean["head"]["kernel"], rtol=1e-3
    )
    least = min(record.evaluation_command_error for record in records)
    assert records[-1].least_command_error == one.commands.least_error == least


def test_the_best_is_who_obeys():
    parts = obedient()
    state = initial_state(parts)
    first = run_generation(parts, state)
    assert first.best is not None
    error = first.state.commands.least_error
    # Whose error was least, whatever it earned.
    for least, is_best in ((error / 2, False), (error * 2, True)):
        known = state._replace(
            best_evaluation_return=1e6, commands=CommandState(-1.0, least)
        )
        again = run_generation(parts, known)
        assert (again.best is not None) == is_best
        assert again.state.best_evaluation_return == 1e6
        assert again.state.commands.least_error == min(error, least)
