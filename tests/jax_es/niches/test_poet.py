"""Niches grow: runs of POET, and each of its steps with scores that are known."""

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_es import (
    evaluate,
    load_niches,
    load_policy,
    plot,
    poet,
    poet_run,
    train_policy,
)
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.es.noise import FullNoise, LowRankNoise
from jax_es.es.population import AntitheticPopulation, JoinedPopulations
from jax_es.models import LinearConfig, MLPConfig
from jax_es.niches.generations import Poet
from jax_es.niches.niche import NEVER, Niche
from jax_es.niches.run import build_parts
from jax_es.niches.settings import PoetConfig
from jax_es.niches.trials import Trials
from jax_es.presets import preset
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import read_metrics
from jax_es.train_config import TrainConfig
from jax_es.training.parts import build
from tests.comparing import assert_equal_bits, numbers, variables_of

SLOPES = """
import gymnasium
import numpy as np


class Slope(gymnasium.Env):
    \"\"\"Push as hard as the slope asks; the return is at most 100.\"\"\"

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    variations = {"slope": 0.0}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        (self.slope,) = (options or {}).get("variation", [0.0])
        self.steps = 0
        return self.observed(), {}

    def step(self, action):
        self.steps += 1
        reward = 25 - 100 * float(abs(action[0] - self.slope))
        return self.observed(), reward, self.steps == 4, False, {}

    def observed(self):
        return np.array([1, self.np_random.uniform(-1, 1)], np.float32)
"""
"""A world of the user's own, whose slopes evolve."""

GROW = [
    *("own-vector", "--policy", "linear", "--env.id", "slopes:Slope"),
    *("--env.max-episode-steps", "4", "--mutate", "slope", "0.2", "0", "1"),
    *("--mutate-every", "2", "--transfer-every", "3", "--reproduce-at", "40"),
    *("--criterion-low", "-100", "--criterion-high", "90", "--solved-at", "70"),
    *("--max-niches", "2", "--children", "4", "--es.num-pairs", "4"),
    *("--es.sigma", "0.05", "--es.learning-rate", "0.1"),
    *("--evaluation.num-episodes", "2", "--num-generations", "8"),
    *("--checkpoint-every", "1", "--rollout.num-slots", "8"),
    *("--rollout.num-devices", "1", "--rollout.num-threads", "1"),
]


@pytest.fixture(scope="module")
def slopes(tmp_path_factory):
    """The user's module, which can be imported."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "slopes.py").write_text(SLOPES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


def grown(name, *more):
    assert poet.main([*GROW, "--name", name, *more]) == 0
    return Path("runs", name).absolute()


@pytest.fixture(scope="module")
def run(stay_as_configured, slopes, tmp_path_factory):
    """A finished run; its folder is not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("grown"))
        return grown("whole")


class Killed(BaseException):
    """As sudden as ``kill -9``: nothing is written any more."""


def state_of(run):
    return Checkpoints(run / "checkpoints").restore("last").state


@pytest.mark.parametrize(
    "novelty", ["terrain", pytest.param("pata-ec", marks=pytest.mark.slow)]
)
def test_a_killed_run_goes_on_to_the_same_niches(novelty, run, monkeypatch, capsys):
    if novelty == "pata-ec":
        run = grown("pata-ec", "--novelty", novelty)
    save = Checkpoints.save
    for step in (3, 5, 6):

        def killed(self, number, state, step=step):
            if number == step:
                raise Killed
            return save(self, number, state)

        resume = [] if step == 3 else ["--resume"]
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Checkpoints, "save", killed)
            grown("killed", "--novelty", novelty, *resume)
    assert poet.main(["--resume", "--name", "killed"]) == 0
    killed_run = Path("runs/killed").absolute()
    assert_equal_bits(state_of(run), state_of(killed_run))
    assert numbers(run) == numbers(killed_run)
    last = read_metrics(run)[-1]
    assert last.num_niches == 2 and last.annecs >= 2 and last.num_solved >= 3
    assert "ended" in capsys.readouterr().err.lower()


def test_niches_are_read_from_a_run(run, slopes, capsys):
    niches = load_niches(run, trust=True)
    assert [niche.number for niche in niches] == list(range(len(niches)))
    assert niches[0].parent == NEVER and niches[0].terrain == {"slope": 0.0}
    active = [niche for niche in niches if niche.retired == NEVER]
    assert len(active) == 2 < len(niches)
    assert "0 of -1: slope 0; retired at" in repr(niches[0])
    # Each policy pushes about as hard as its own slope asks.
    for niche in active:
        push = float(niche.policy(np.array([1.0, 0.0], np.float32))[0])
        assert abs(push - niche.terrain["slope"]) < 0.25
    assert "POET" in repr(load_policy(run, "last", trust=True))
    slope = f"{active[-1].terrain['slope']}"
    options = [str(run), "--episodes", "1", "--trust", "--variation", "slope", slope]
    assert evaluate.main(options) == 0
    assert "slope" in capsys.readouterr().out
    assert plot.main([str(run), "--output", "pictures"]) == 0


def test_each_seed_grows_the_niches_that_it_would_alone(run, capsys):
    many = grown("many", "--seeds", "2")
    assert "Over 2 seeds, median and range: niches " in capsys.readouterr().err
    assert_equal_bits(state_of(run), state_of(many / "seed-0"))
    assert numbers(many / "seed-1") != numbers(run)


def test_a_resume_that_would_change_the_niches(run, refused):
    resume = [*GROW, "--resume", "--name", run.name, "--runs-dir", run.parent]
    refused(poet.main, [*resume, "--solved-at", "71"], "solved-at was 70.0, now 71.0")
    more = ["--mutate", "slope", "0.1", "0", "1"]
    refused(poet.main, [*resume, *more], "mutate was [['slope', 0.2")


CONFIG = TrainConfig(
    env=EnvConfig("slopes:Slope", max_episode_steps=4),
    policy=LinearConfig(),
    es=ESConfig(
        num_pairs=3, sigma=0.1, optimizer="adam", learning_rate=0.1, weight_decay=0.0
    ),
    rollout=RolloutConfig(
        num_slots=8, num_devices=1, observation_statistics=False, step_cap_factor=None
    ),
    evaluation=EvaluationConfig(num_episodes=2),
    num_generations=3,
)
SETTINGS = PoetConfig(
    mutate=(("slope", 0.2, 0.0, 1.0),),
    mutate_every=1,
    transfer_every=1,
    reproduce_at=40.0,
    criterion_low=20.0,
    criterion_high=90.0,
    solved_at=70.0,
    max_niches=2,
)


def test_a_niche_alone_trains_as_the_strategy_does(slopes, tmp_path):
    settings = dataclasses.replace(SETTINGS, mutate=(), mutate_every=0)
    (niche,) = poet_run(CONFIG, settings, tmp_path / "niche", verbose=False)
    result = train_policy(CONFIG, tmp_path / "alone", verbose=False)
    assert_equal_bits(jax.device_get(niche.mean), jax.device_get(result.state.es.mean))
    for one, other in zip(
        read_metrics(tmp_path / "niche"), read_metrics(tmp_path / "alone"), strict=False
    ):
        assert one.return_mean == other.return_mean
        assert one.evaluation_return_mean == other.evaluation_return_mean
        assert one.env_steps == other.env_steps


@pytest.mark.parametrize("noise", [FullNoise(), LowRankNoise(1)])
def test_joined_members_are_those_of_each_population(noise):
    means = [{"w": np.full((5, 4), 0.5 + i, np.float32)} for i in range(2)]
    alone = [
        AntitheticPopulation(m, jax.random.key(i), np.float32(0.1 + i), 3, noise)
        for i, m in enumerate(means)
    ]
    joined = JoinedPopulations(
        jax.tree.map(lambda *leaves: np.stack(leaves), *means),
        jax.random.split(jax.random.key(9), 2)
        .at[:]
        .set(
            jax.random.wrap_key_data(
                np.stack([jax.random.key_data(p.key) for p in alone])
            )
        ),
        np.array([0.1, 1.1], np.float32),
        3,
        noise,
    )
    assert joined.size == 16

    def read(number):
        member = np.int32(number)
        return joined.variables(joined.group(member // 2), member)

    for index, population in enumerate(alone):
        expected = {**population.shared(), **variables_of(population)}
        for member in range(6):
            found = read(joined.member_of(index, member))
            for name, leaf in found.items():
                want = expected[name]
                if name in variables_of(population):
                    want = jax.tree.map(lambda x, m=member: x[m // 2, m % 2], want)
                assert_equal_bits(
                    jax.tree.map(np.asarray, leaf), jax.tree.map(np.asarray, want)
                )
        itself = read(joined.member_of(index, 6))
        np.testing.assert_array_equal(itself["params"]["w"], means[index]["w"])
        for leaf in jax.tree.leaves(itself.get("perturbation", {}))[:1]:
            np.testing.assert_array_equal(leaf, 0)


@pytest.fixture
def parts(slopes):
    built = build_parts(CONFIG, SETTINGS)
    yield built
    built.close()


def test_niches_share_a_rollout_and_change_nothing(parts):
    trials = Trials(parts, ["slope"], width=4)
    init = parts.strategy.init
    mean = parts.policy.init(jax.random.key(0))
    states = [init(jax.random.key(i), mean) for i in range(3)]
    terrains = [np.array([0.25 * i]) for i in range(3)]
    together = trials.improve(states, terrains, 5, num_evaluations=2)
    for index in range(3):
        one = slice(index, index + 1)
        alone = trials.improve(states[one], terrains[one], 5, num_evaluations=2)
        assert alone.scores[0] == together.scores[index]
        assert_equal_bits(alone.states[0], together.states[index])
    # θ alone, as candidates are evaluated.
    which = [(i, i) for i in range(3)]
    again = trials.scores([s.mean for s in states], terrains, which, 5)
    np.testing.assert_array_equal(again, together.scores)
    flat, steep = trials.scores([mean], terrains[:2], [(0, 0), (0, 1)], 5)
    assert (flat, steep) == (100.0, 0.0)  # it does not push: 100 · 0.25 · 4 are missing


def test_a_step_cap_cuts_members_alone(slopes):
    parts = build_parts(CONFIG.replace({"rollout.step_cap": 2}), SETTINGS)
    mean = parts.policy.init(jax.random.key(0))
    states = [parts.strategy.init(jax.random.key(0), mean)]
    flat = [np.zeros(1)]
    found = Trials(parts, ["slope"], 1).improve(states, flat, 0, num_evaluations=1)
    parts.close()
    assert {*found.population.lengths} == {2} and {*found.evaluation.lengths} == {4}


class Scripted:
    """Instead of episodes: a policy of weights b scores 100 − 100 |b − slope|.

    A step moves it by 0.1.
    """

    def __init__(self):
        self.evaluated = []

    def scores(self, means, terrains, which, generation):
        self.evaluated.append(len(which))
        return np.array(
            [100 - 100 * abs(value(means[m]) - terrains[t][0]) for m, t in which]
        )

    def improve(self, states, terrains, generation, num_evaluations=0):
        def step(state):
            return state._replace(mean=jax.tree.map(lambda x: x + 0.1, state.mean))

        class Improved:
            states = ()

        improved = Improved()
        improved.states = [step(state) for state in states]
        return improved


def value(mean):
    return float(jax.tree.leaves(mean)[0].ravel()[0])


@pytest.fixture
def scripted(parts):
    """A POET without episodes, and a function that gives it niches."""
    poet = Poet(parts, SETTINGS)
    poet._trials = Scripted()
    poet.generation = 7

    def given(*niches):
        """Each is its slope, its policy's weights, and its last scores."""
        mean = poet.niches[0].mean
        poet.niches = []
        for number, (slope, weight, scores) in enumerate(niches):
            filled = jax.tree.map(lambda x, w=weight: np.full_like(x, w), mean)
            es = parts.strategy.init(jax.random.key(number), filled)
            poet.niches.append(
                Niche(number, 0 if number else NEVER, 0, np.array([slope]), es, scores)
            )
        return poet

    return given


class TestSteps:
    def test_transfers(self, scripted):
        poet = scripted(
            (0.0, 0.0, (100.0,)),  # nobody is better here
            (0.5, 0.1, (60.0, 70.0, 65.0)),
            (0.6, 0.35, (75.0,)),
        )
        poet._transfer()
        # In niche 1, niche 2's policy scores 85 > 70, takes a step and scores 95. In
        # niche 2 nobody's is above 75: that of niche 1 scores 50, that of niche 0 40.
        assert poet.transfers == [(7, 2, 1)]
        np.testing.assert_allclose(
            [value(n.mean) for n in poet.niches], [0.0, 0.45, 0.35], atol=1e-6
        )
        assert poet.niches[1].scores == pytest.approx((60.0, 70.0, 65.0, 95.0))
        assert poet.niches[1].solved == 7  # 70 are enough
        assert int(poet.niches[1].es.generation) == 0  # with a new optimizer
        assert poet._trials.evaluated == [6, 1]

    def test_a_step_that_makes_it_worse_is_no_transfer(self, scripted):
        poet = scripted((0.5, 0.2, (92.0,)), (0.9, 0.55, (65.0,)))
        poet._transfer()
        # 0.55 scores 95 in niche 0, and 85 after a step.
        assert poet.transfers == [] and poet._trials.evaluated == [2, 1]
        assert poet.niches[0].scores == (92.0,)

    def test_children(self, scripted, monkeypatch):
        poet = scripted((0.0, 0.0, (100.0,)), (0.5, 0.25, (39.0,)))
        poet._settings = dataclasses.replace(
            SETTINGS, criterion_high=96.0, neighbours=1
        )
        drawn = iter([0.15, 0.27, 0.15, 0.24, 0.9, 0.0, 0.45, 0.03])
        monkeypatch.setattr(
            poet.mutator, "mutated", lambda rng, parent: np.array([next(drawn)])
        )
        poet._reproduce()
        # Only niche 0 may have children. 0.9 is too hard for its policy (10 < 20), 0.03
        # too easy (97 > 96), 0.0 is there already, as is the second 0.15. By their
        # distance to 0 or 0.5 the others are tried as 0.24, 0.27, 0.15, 0.45. In the
        # first two niche 1's policy scores 99 and 98, too much. In 0.15 it scores 90;
        # the best, with 95, is niche 0's after a step.
        added = poet.niches[-1]
        assert (added.number, added.parent, added.created) == (2, 0, 7)
        assert added.terrain.tolist() == [0.15] and added.scores == ()
        assert value(added.mean) == pytest.approx(0.1)
        assert added.is_novel and len(poet.niches) == 3
        # There is room for two: the oldest retires, with the θ that it had.
        assert [n.retired for n in poet.niches] == [7, NEVER, NEVER]
        assert value(poet.niches[0].mean) == 0.0

    def test_one_that_is_easy_for_a_retired_policy_is_not_novel(self, scripted):
        poet = scripted((0.0, 0.25, (75.0,)), (0.5, 0.9, (60.0,)))
        poet.niches[0] = poet.niches[0].left(5)
        child = poet.niches[1]._replace(terrain=np.array([0.3]), scores=(40.0,))
        begun = poet._begun(child)
        # The best of the active: niche 1's, 40. That of the retired one: 95.
        assert value(begun.mean) == pytest.approx(0.9) and not begun.is_novel
        assert poet._begun(child._replace(terrain=np.array([0.0]))) is None

    def test_without_transfers_a_child_has_its_parents_policy(self, scripted):
        poet = scripted((0.0, 0.25, (75.0,)), (0.5, 0.5, (60.0,)))
        poet._settings = dataclasses.replace(SETTINGS, transfer_every=0)
        child = poet.niches[0]._replace(terrain=np.array([0.5]), scores=(75.0,))
        assert value(poet._begun(child).mean) == pytest.approx(0.25)

    def test_novelty(self, scripted):
        poet = scripted((0.0, 0.0, (100.0,)), (0.5, 0.5, (100.0,)))
        poet._settings = dataclasses.replace(SETTINGS, neighbours=1)
        terrains = [np.array([slope]) for slope in (0.1, 0.3, 0.9)]
        np.testing.assert_allclose(poet._novelty(terrains), [0.1, 0.2, 0.4], rtol=1e-6)
        poet._settings = dataclasses.replace(poet._settings, novelty="pata-ec")
        # Scores of both: 90 60 (flat first), 70 80, 20 (10) 60; as in niches 0 and 1
        # either the one or the other is better, so that nothing is novel.
        np.testing.assert_allclose(poet._novelty(terrains), 0.0, atol=1e-7)
        assert poet._trials.evaluated == [10]
        # Equal ranks are: both are too good (0.25 with a bound of 70).
        poet._settings = dataclasses.replace(poet._settings, criterion_high=70.0)
        found = poet._novelty([np.array([0.25])])
        np.testing.assert_allclose(found, [np.sqrt(0.5)], rtol=1e-6)


class TestBadInput:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"es.strategy": "snes"}, "es.strategy snes has no meaning with POET"),
            ({"rollout.observation_statistics": True}, "must be off for POET"),
            ({"init": "runs/other"}, "init runs/other has no meaning for POET"),
            (
                {"rollout.variation_range": (("slope", 0.0, 1.0),)},
                "rollout.variation_range has no meaning with POET",
            ),
            ({"env.id": "CartPole-v1"}, "choose an environment that has variations"),
        ],
    )
    def test_configurations(self, changes, words, slopes, tmp_path):
        config = CONFIG
        if "es.strategy" in changes:
            config = dataclasses.replace(CONFIG, es=ESConfig(num_pairs=3))
        with pytest.raises(ConfigError, match=words.replace("_", "[-_]")):
            poet_run(config.replace(changes), SETTINGS, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_nothing_to_mutate(self, slopes, tmp_path):
        with pytest.raises(ConfigError, match="mutate is needed"):
            poet_run(CONFIG, PoetConfig(), tmp_path / "run")


def test_a_fall_can_be_left_out_of_the_fitness():
    """BipedalWalker's −100, which makes standing still an optimum."""
    config = preset("bipedal-terrain")
    assert config.es.healthy_reward_weight == 0.0
    config = config.replace(
        {
            "policy": MLPConfig(hidden_sizes=(4,)),
            "env.max_episode_steps": 150,
            "es.num_pairs": 4,
            "rollout.num_slots": 4,
            "rollout.num_devices": 1,
        }
    )
    parts = build(config)
    mean = parts.policy.init(jax.random.key(3))
    states = [parts.strategy.init(jax.random.key(0), mean)]
    found = Trials(parts, ["roughness"], 1).improve(states, [np.array([1.0])], 0)
    parts.close()
    falls, lengths = found.population.healthy_rewards, found.population.lengths
    assert set(falls) <= {0.0, -100.0} and -100.0 in falls
    np.testing.assert_array_equal(falls == -100.0, lengths < 150)
    returns = found.population.returns
    assert (returns[falls == -100.0] < -80).all()


def test_the_run_is_recorded_as_poets(run):
    directory = RunDirectory(run)
    assert directory.method().title == "POET"
    copied = Path("copied")
    shutil.copytree(run, copied)
    assert poet.main(["--resume", "--name", "copied", "--runs-dir", "."]) == 0
