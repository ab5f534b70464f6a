"""Phases: which configuration each has, when it ends, and that a kill loses nothing."""

import dataclasses
import itertools
import math
import re
import shlex
import shutil
from types import SimpleNamespace

import jax
import pytest

from jax_es import train
from jax_es.checks import ConfigError
from jax_es.phases import Phase, in_phase, read_phases, written
from jax_es.presets.robots import ROBOT_PRESETS
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import read_metrics
from jax_es.runs.reproduce import command
from jax_es.train_config import TrainConfig, differences, from_dict, to_dict
from jax_es.training.generation import initial_state
from jax_es.training.parts import build
from jax_es.training.phases import PhaseState, ended, enter_phase, is_slow, noticed
from jax_es.training.seeds import train_seeds
from jax_es.training.train_policy import train_policy
from tests.comparing import assert_equal_bits, numbers
from tests.made_runs import SHORT, TINY

COARSE = {"rollout.num_substeps": 2, "rollout.integrator": "Euler"}
# Other physics, then another optimizer and pairs that follow the episodes, then a
# momentum's optimizer anew, then its steps alone.
PHASED = dataclasses.replace(
    SHORT,
    num_generations=50,
    checkpoint_every=3,
    phases=(
        Phase(changes=COARSE, generations=2),
        Phase(
            changes={
                "es.optimizer": "clipup",
                "es.interactions_per_generation": 60,
                "es.max_num_pairs": 6,
                "rollout.step_cap_factor": 1.5,
                "evaluation.num_episodes": 3,
            },
            env_steps=100,
        ),
        Phase(changes={**COARSE, "es.num_pairs": 3}, return_reached=-1e9),
        Phase(changes={"es.sigma": 0.05}, plateau_generations=2, plateau_gain=1e9),
    ),
)


def test_a_phase_differs_from_the_runs_own_configuration_alone():
    for index, phase in enumerate(PHASED.phases):
        config = in_phase(PHASED, index)
        assert not config.phases
        changed = differences(PHASED, config)
        del changed["phases"]
        assert {name: new for name, (_, new) in changed.items()} == phase.changes
    assert in_phase(PHASED, -1) == in_phase(PHASED, 3) == in_phase(PHASED, 4)
    assert in_phase(SHORT, 7) is SHORT


def test_phases_survive_json_and_the_command_line():
    assert from_dict(to_dict(PHASED)) == PHASED
    assert read_phases([written(PHASED.phases)]) == PHASED.phases
    assert read_phases([written(())]) == ()
    humanoid = ROBOT_PRESETS["humanoid"]["linear"]
    for config in (PHASED, dataclasses.replace(humanoid, phases=())):
        words = shlex.split(command(config, "humanoid"))
        assert "--phases" in words
        assert not differences(train.parse(words[3:]).config, config)


def test_a_phase_may_randomise_the_domain():
    ranges = (("mass", 0.9, 1.1), ("friction", 0.8, 1.2))
    phases = (Phase(changes={"rollout.variation_range": ranges}),)
    config = dataclasses.replace(TINY, phases=phases)
    assert in_phase(config, 0).rollout.variation_range == ranges
    assert from_dict(to_dict(config)) == config
    assert read_phases([written(phases)]) == phases
    words = re.escape('as [["mass", 0.9, 1.1]], got [["mass", 0.9]]')
    with pytest.raises(ConfigError, match=words):
        in_phases = (Phase(changes={"rollout.variation_range": [["mass", 0.9]]}),)
        dataclasses.replace(TINY, phases=in_phases)


@pytest.mark.parametrize("kind", ["linear", "decision-transformer"])
def test_humanoid_ends_in_its_own_physics(kind):
    last = in_phase(ROBOT_PRESETS["humanoid"][kind], -1)
    assert last.rollout.physics == {} and last.evaluation.num_episodes == 40


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ((Phase(changes={"es.sigma": -1.0}),), 'phase 1: "es.sigma" must be positive'),
        ((Phase(generations=1), Phase(changes={"seed": 1})), "phase 2: seed may not"),
        (
            (Phase(changes={"policy.width": 1}),),
            'phase 1: "policy.width" may not change',
        ),
        ((Phase(), Phase()), "phase 1: it has no end"),
        ((Phase(generations=0),), "phase 1: generations must be at least 1, got 0"),
        ((Phase(restart_below=1.0),), "phase 1: restart_below 1.0 and restart_steps N"),
        (
            (
                Phase(generations=1),
                Phase(restart_below=1.0, restart_steps=9),
            ),
            "phase 2: restart_below 1.0 draws another θ",
        ),
    ],
)
def test_a_wrong_phase_is_named(phases, words):
    with pytest.raises(ConfigError, match=words):
        TrainConfig(phases=phases)


def test_a_phase_that_no_environment_can_do_is_found_before_there_is_a_run(folder):
    config = dataclasses.replace(
        TINY,
        env=dataclasses.replace(TINY.env, id="CartPole-v1"),
        phases=(Phase(generations=1), Phase(changes=COARSE)),
    )
    for trains in (train_policy, lambda *given: train_seeds(given[0], 2, given[1])):
        with pytest.raises(ConfigError, match=r"phase 2: .*num_substeps"):
            trains(config, folder / "run")
        assert not (folder / "run").exists()


def lived(phase, population, evaluation=(), steps=10):
    """Generations after which a phase ends, by returns; None if it does not."""
    config = TrainConfig(phases=(phase,))
    state = SimpleNamespace(
        es=SimpleNamespace(generation=7), total_env_steps=1000, phase=None
    )
    state.phase = PhaseState(0, 7, 1000, math.nan, math.nan, 7)
    for count, found in enumerate(population, start=1):
        state.es.generation += 1
        state.total_env_steps += steps
        record = SimpleNamespace(return_mean=found)
        state.phase = noticed(config, SimpleNamespace(state=state, record=record))
        evaluated = evaluation[count - 1] if evaluation else 0.0
        if ended(config, state, evaluated):
            return count
    return None


def test_the_first_end_that_is_met_ends_a_phase():
    rising = [float(value) for value in range(100, 200)]
    assert lived(Phase(generations=4), rising) == 4
    assert lived(Phase(env_steps=41), rising) == 5
    assert lived(Phase(env_steps=41, generations=4), rising) == 4
    assert lived(Phase(return_reached=3.0), rising, rising) == 1
    assert lived(Phase(return_reached=103.0), rising, rising) == 4
    assert lived(Phase(return_reached=103.0), rising) is None


def test_a_plateau_is_a_running_mean_that_does_not_rise_by_its_share():
    plateau = Phase(plateau_generations=5, plateau_gain=0.1)
    flat = [100.0, 101.0, 99.0] * 10
    assert lived(plateau, flat) == 6  # five after the first
    for sign in (1.0, -1.0):  # also where returns are negative
        fast = [sign * 100.0 * 1.3 ** (sign * n) for n in range(30)]
        slow = [sign * 100.0 * 1.01 ** (sign * n) for n in range(30)]
        assert lived(plateau, fast) is None
        assert lived(plateau, slow) == 6
    # One generation that is by far the best, or has no finite return, is no rise.
    assert lived(plateau, [*flat[:3], math.nan, 130.0, *flat]) == 6
    low = dataclasses.replace(plateau, plateau_floor=150.0)
    assert lived(low, flat) is None
    assert lived(low, flat + [200.0] * 30) is not None


def test_a_start_is_slow_below_its_return_once_its_steps_are_over():
    phase = Phase(restart_below=150.0, restart_steps=40)
    config = TrainConfig(phases=(phase,))

    def slow(mean, steps):
        now = PhaseState(0, 7, 1000, mean, mean, 7)
        return is_slow(config, SimpleNamespace(phase=now, total_env_steps=steps))

    assert not slow(149.0, 1039) and slow(149.0, 1040) and not slow(150.0, 1040)
    assert not slow(math.nan, 1040)  # no return was finite yet: nothing is known


def test_a_slow_start_begins_again_with_another_mean(folder, capsys):
    config = dataclasses.replace(
        SHORT,
        num_generations=4,
        checkpoint_every=1,
        phases=(Phase(restart_below=1e9, restart_steps=1),),
    )
    states, whole = [], folder / "whole"

    def on_generation(record, state):
        if len(states) < config.num_generations:  # not the last evaluation
            states.append(state)
            shutil.copytree(whole, folder / f"torn-{len(states)}")

    callback = SimpleNamespace(on_generation=on_generation)
    expected = train_policy(config, whole, callbacks=[callback])
    assert "Phase 1 of 1 begins again with another θ: " in capsys.readouterr().err
    first = initial_state(build(config))
    means = [first.es.mean] + [state.es.mean for state in states]
    for (one, a), (two, b) in itertools.combinations(enumerate(means), 2):
        pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        assert any((x != y).any() for x, y in pairs), (one, two)
    for count, state in enumerate(states, start=1):
        assert int(state.es.generation) == count
        assert state.phase.env_steps == state.total_env_steps
        for leaf in jax.tree.leaves(state.es.optimizer_state):
            assert not leaf.any()  # as new
    counts = [float(state.observation_statistics.count) for state in states]
    assert sorted(counts) == counts and counts[0] < counts[-1]
    result = train_policy(config, folder / "torn-2", resume=True)
    assert numbers(folder / "torn-2") == numbers(whole)
    assert_equal_bits(result.state, expected.state)


def test_the_optimizer_goes_on_if_it_is_of_the_same_kind():
    def entered(before, after):
        config = dataclasses.replace(
            TINY,
            phases=(
                Phase(changes={"es.optimizer": before}, generations=1),
                Phase(changes={"es.optimizer": after, "es.learning_rate": 0.5}),
            ),
        )
        state = enter_phase(config, initial_state(build(config)), 0)
        moved = jax.tree.map(lambda x: x + 1, state.es.optimizer_state)
        state = state._replace(es=state.es._replace(optimizer_state=moved))
        return moved, enter_phase(config, state, 1).es.optimizer_state

    assert_equal_bits(*entered("momentum", "momentum"))
    moved, anew = entered("clipup", "adam")
    assert jax.tree.structure(moved) != jax.tree.structure(anew)
    assert not any(leaf.any() for leaf in jax.tree.leaves(anew))


@pytest.mark.parametrize(
    ("changes", "is_anew"),
    [
        ({}, False),
        ({"rollout.step_cap": 9}, False),
        ({"evaluation.num_episodes": 7}, True),  # fewer are luckier
        (COARSE, True),
    ],
)
def test_where_evaluations_cannot_be_compared_the_best_is_chosen_anew(changes, is_anew):
    phases = (Phase(generations=1), Phase(changes=changes))
    config = dataclasses.replace(TINY, phases=phases)
    state = enter_phase(config, initial_state(build(config)), 0)
    state = enter_phase(config, state._replace(best_evaluation_return=3.0), 1)
    assert state.best_evaluation_return == (-math.inf if is_anew else 3.0)


@pytest.mark.slow
def test_a_run_killed_in_each_phase_and_at_each_border_goes_on_to_the_bit(folder):
    """A copy of the folder is what a kill at that instant would leave."""
    whole, copies = folder / "whole", []

    def copy(*_):
        copies.append(folder / f"torn-{len(copies)}")
        shutil.copytree(whole, copies[-1])

    seen = []

    def check():  # amid the first episodes of a phase
        if len(copies) < 2 * len(seen):
            copy()

    def on_generation(record, state):  # at a border, between record and checkpoint
        if state.phase.index != len(seen):
            seen.append(state.phase.index)
            copy()

    callback = SimpleNamespace(on_generation=on_generation)
    expected = train_policy(PHASED, whole, check_stop=check, callbacks=[callback])
    records = read_metrics(whole)
    phases = [record.phase for record in records]
    assert {*phases} == {1, 2, 3, 4} and phases == sorted(phases)
    assert phases.count(1) == 2 and phases.count(3) == 1 and phases[-2:] == [4, 4]
    assert expected.state.phase.index == 4
    first = dataclasses.replace(in_phase(PHASED, 0), num_generations=2)
    coarse = train_policy(first, folder / "coarse").records
    assert [r.return_mean for r in records[:2]] == [r.return_mean for r in coarse]
    # Neither returns of other physics nor means over more episodes are compared.
    for a, b in itertools.pairwise(records):
        best = [b.evaluation_return_mean]
        if a.phase == b.phase:
            best.append(a.best_evaluation_return)
        assert b.best_evaluation_return == max(best)
    assert len(copies) == 8
    for torn in copies:
        result = train_policy(PHASED, torn, resume=True)
        assert numbers(torn) == numbers(whole)
        assert_equal_bits(result.state, expected.state)
        for which in ("last", "best"):
            one, two = (
                Checkpoints(RunDirectory(path).checkpoints).restore(which)
                for path in (torn, whole)
            )
            assert one.step == two.step
            assert_equal_bits(one.state, two.state)
    # A seed of an experiment is the run that it would be alone.
    train_seeds(PHASED, 1, folder / "seeds")
    assert numbers(folder / "seeds" / "seed-0") == numbers(whole)
