"""Niches grow: runs of POET, and their rollouts."""

import dataclasses
import shutil
from pathlib import Path

import imageio.v3 as iio
import jax
import numpy as np
import pytest

from jax_es import (
    evaluate,
    export,
    load_niches,
    load_policy,
    plot,
    poet,
    poet_run,
    poet_seeds,
    train_policy,
)
from jax_es.checks import ConfigError
from jax_es.config import ESConfig
from jax_es.es.noise import FullNoise, LowRankNoise
from jax_es.es.population import AntitheticPopulation, JoinedPopulations
from jax_es.models import MLPConfig
from jax_es.niches.niche import NEVER, foremost
from jax_es.niches.run import build_parts
from jax_es.niches.settings import PoetConfig
from jax_es.niches.trials import Trials
from jax_es.phases import Phase
from jax_es.presets import preset
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import read_metrics
from jax_es.runs.wording import significant
from jax_es.training.parts import build
from tests.comparing import assert_equal_bits, numbers, variables_of
from tests.jax_es.niches.world import CONFIG, SETTINGS

GROW = [
    *("own-vector", "--policy", "linear", "--env.id", "slopes:Slope"),
    *("--env.max-episode-steps", "4", "--mutate", "slope", "0.2", "0", "1"),
    *("--mutate-every", "4", "--transfer-every", "3", "--reproduce-at", "40"),
    *("--criterion-low", "-100", "--criterion-high", "90", "--solved-at", "70"),
    *("--max-niches", "2", "--children", "4", "--es.num-pairs", "4"),
    *("--es.sigma", "0.05", "--es.learning-rate", "0.1"),
    *("--evaluation.num-episodes", "2", "--num-generations", "15"),
    *("--checkpoint-every", "1", "--rollout.num-slots", "8"),
    *("--rollout.num-devices", "1", "--rollout.num-threads", "1"),
]


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
    ("novelty", "kills"),
    [("terrain", [3, 9, 12]), pytest.param("pata-ec", [9], marks=pytest.mark.slow)],
)
def test_a_killed_run_goes_on_to_the_same_niches(
    novelty, kills, run, monkeypatch, capsys
):
    if novelty == "pata-ec":
        run = grown("pata-ec", "--novelty", novelty)
    save = Checkpoints.save
    for step in kills:

        def killed(self, number, state, step=step):
            if number == step:
                raise Killed
            return save(self, number, state)

        resume = [] if step == kills[0] else ["--resume"]
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Checkpoints, "save", killed)
            grown("killed", "--novelty", novelty, *resume)
    assert poet.main(["--resume", "--name", "killed"]) == 0
    killed_run = Path("runs/killed").absolute()
    assert_equal_bits(state_of(run), state_of(killed_run))
    assert numbers(run) == numbers(killed_run)
    last = read_metrics(run)[-1]
    assert last.num_niches == 2 and last.annecs >= 1 and last.num_solved >= 2
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


def test_a_niches_policy_is_a_checkpoint(run, slopes, capsys, refused):
    """Whose θ acts, and in which terrain, is said wherever it is used."""
    seen = np.array([[1.0, 0.3], [1.0, -0.9]], np.float32)
    niches = load_niches(run, trust=True)
    for niche in niches:  # retired ones, too
        policy = load_policy(run, f"niche-{niche.number}", trust=True)
        np.testing.assert_array_equal(policy(seen), niche.policy(seen))
    played = [str(run), "--episodes", "1", "--trust", "--checkpoint"]
    refused(evaluate.main, [*played, "niche-99"], "whose niches are niche-0, niche-1,")

    assert evaluate.main([*played, "niche-1"]) == 0
    slope = niches[1].terrain["slope"]
    said = f"niche 1's policy, at home in --variation slope {slope:g}"
    assert said in capsys.readouterr().err
    of = foremost(niches)
    assert evaluate.main([*played, "last"]) == 0
    assert f"niche {of.number}'s policy" in capsys.readouterr().err

    last = read_metrics(run)[-1]
    options = [str(run), "card", "--trust", "--checkpoint", "last"]
    assert export.main(options) == 0
    card = Path("card/README.md").read_text()
    assert f"**{significant(last.evaluation_return_mean)} ±" in card
    assert f"It is niche {of.number}'s." in card
    home = f"--variation slope {of.terrain['slope']:g}"
    assert f"evaluate DIRECTORY --trust {home}`" in card
    # A folder with one policy alone is filmed as any other.
    options = ["card", "--trust", "--episodes", "1", "--video", "it.gif"]
    assert evaluate.main(options) == 0 and Path("it.gif").exists()


def test_the_best_checkpoints_card_has_the_record_that_made_it_best(run, slopes):
    """Not the highest return of all, which flat ground pays a policy that stands."""
    assert export.main([str(run), "best", "--trust"]) == 0
    step = load_policy(run, trust=True).generation
    record = read_metrics(run)[step - 1]
    assert record.evaluation_return_mean < 99
    said = f"**{significant(record.evaluation_return_mean)} ±"
    assert said in Path("best/README.md").read_text()


def test_the_best_policy_is_played_whatever_the_last_checkpoint_knows(
    run, slopes, tmp_path, capsys
):
    """A killed run's last checkpoint is older than its best."""
    torn = shutil.copytree(run, tmp_path / "torn")
    shutil.rmtree(torn / "checkpoints" / "last")
    assert evaluate.main([str(torn), "--episodes", "1", "--trust"]) == 0
    assert "'s policy, at home in --variation slope" in capsys.readouterr().err
    assert export.main([str(torn), "torn-best", "--trust"]) == 0
    assert "It is niche " in Path("torn-best/README.md").read_text()


def test_niches_are_drawn(run, slopes):
    assert plot.main([str(run), "--figure", "all", "--output", "pictures"]) == 0
    tree = Path("pictures", "niches.svg").read_text()
    niches = load_niches(run, trust=True)
    for niche in niches:
        assert f"{niche.number}: slope {niche.terrain['slope']:.4g}" in tree
    assert Path("pictures", "annecs.svg").exists()
    # The latest three that were solved, side by side, each in its own terrain.
    options = [str(run), "--trust", "--episodes", "1", "--video", "hardest.gif"]
    assert evaluate.main(options) == 0
    frame = iio.imread("hardest.gif", index=0)
    solved = [n.terrain["slope"] for n in niches if n.solved != NEVER][-3:]
    assert frame.shape[:2] == (64, 64 * len(solved))
    np.testing.assert_allclose(frame[50, 32::64, 0], 250 * np.array(solved), atol=4)


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


@pytest.fixture(scope="module")
def walked(stay_as_configured, slopes, tmp_path_factory):
    """Runs whose policies saw observations normalised and as they are."""
    runs = tmp_path_factory.mktemp("walked")
    for name, is_normalized in (("normalized", True), ("raw", False)):
        changes = {"rollout.observation_statistics": is_normalized}
        train_policy(CONFIG.replace(changes), runs / name, verbose=False)
    return runs


def from_normalized(runs, **changes):
    changes |= {"init": f"{runs}/normalized", "init_checkpoint": "last"}
    changes |= {"rollout.observation_statistics": True, "rollout.hide_constants": False}
    return CONFIG.replace(changes)


def test_the_first_niche_begins_with_another_runs_policy(walked, monkeypatch):
    """And all see through its statistics, which stay."""
    shutil.copytree(walked / "normalized", "others/normalized")
    config = from_normalized("others", num_generations=6, checkpoint_every=1)
    poet_run(config, SETTINGS, "whole", verbose=False)
    whole, source = state_of(Path("whole")), state_of(walked / "normalized")
    statistics = "observation_statistics"
    assert source[statistics]["count"] > 0
    assert_equal_bits(whole[statistics], source[statistics])

    def gone_after_two(self, number, state, save=Checkpoints.save):
        if number == 2:
            raise Killed
        return save(self, number, state)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Checkpoints, "save", gone_after_two)
        poet_run(config, SETTINGS, "killed", verbose=False)
    restore = Checkpoints(Path("killed/checkpoints")).restore
    assert_equal_bits(restore(0).state["es"]["mean"], source["es"]["mean"])
    # θ is kept as it was evaluated: before the generation's update.
    assert_equal_bits(restore(1).state["es"]["mean"], source["es"]["mean"])
    begun = load_policy("killed", 1, trust=True)
    shutil.rmtree("others")
    poet_run(config, SETTINGS, "killed", resume=True, verbose=False)
    assert_equal_bits(state_of(Path("killed")), whole)

    observations = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    of_source = load_policy(walked / "normalized", "last", trust=True)
    np.testing.assert_array_equal(begun(observations), of_source(observations))
    still = config.replace({"num_generations": 1, "es.learning_rate": 1e-30})
    still = still.replace({"init": f"{walked}/normalized"})
    poet_run(still, SETTINGS, "still", verbose=False)
    (niche,) = load_niches("still", trust=True)
    np.testing.assert_array_equal(niche.policy(observations), of_source(observations))


def test_what_never_varied_is_hidden_from_all_niches(walked):
    config = from_normalized(walked, num_generations=1)
    config = config.replace({"rollout.hide_constants": True})
    with pytest.warns(UserWarning, match="1 numbers of the observation never varied"):
        poet_run(config, SETTINGS, "hidden", verbose=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"rollout.observation_statistics": False},
            "is True there and False here; add",
        ),
        ({"init": "raw"}, "saw observations as they are, and POET keeps"),
        ({"init": "none"}, "none is not a run"),
    ],
)
def test_another_runs_policy_that_would_act_otherwise(changes, words, walked, tmp_path):
    config = from_normalized(walked)
    if "init" in changes:
        changes = {"init": f"{walked}/{changes['init']}"}
    with pytest.raises(ConfigError, match=words):
        poet_run(config.replace(changes), SETTINGS, tmp_path / "run")
    with pytest.raises(ConfigError, match=words):
        poet_seeds(config.replace(changes), SETTINGS, 2, tmp_path / "run")
    assert not (tmp_path / "run").exists()


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


class TestBadInput:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"es.strategy": "snes"}, "es.strategy snes has no meaning with POET"),
            ({"rollout.observation_statistics": True}, "must be off for POET"),
            ({"phases": (Phase(generations=1),)}, "phases have no meaning for POET"),
            (
                {"rollout.variation_range": (("slope", 0.0, 1.0),)},
                "rollout.variation_range has no meaning with POET",
            ),
            ({"stop_at_return": 50.0}, "stop_at_return 50.0 has no meaning with POET"),
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

    @pytest.mark.parametrize(
        ("mutation", "words"),
        [
            (("roughness", 0.3, -5.0, 5.0), "roughness -5: expected a number at least"),
            (("stump-height", 0.2, 0.0, 5.0), "expected whole numbers"),
        ],
    )
    def test_what_the_world_cannot_be_is_refused_first(self, mutation, words, tmp_path):
        config = preset("bipedal-terrain").replace({"env.kwargs": {"hardcore": True}})
        settings = dataclasses.replace(SETTINGS, mutate=(mutation,))
        with pytest.raises(ConfigError, match=f"mutate.*{words}"):
            poet_run(config, settings, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_task_without_a_preset_is_trained_as_train_would(self, slopes):
        task = ["--env.id", "slopes:Slope", "--env.max-episode-steps", "4"]
        request = poet.parse([*task, "--mutate", "slope", "0.2", "0", "1"])
        assert request.config == preset("own-vector").replace(
            {
                "env.id": "slopes:Slope",
                "env.max_episode_steps": 4,
                "rollout.observation_statistics": False,
                "es.interactions_per_generation": None,
                "es.max_num_pairs": None,
            }
        )
        assert request.arguments.poet.mutate == (("slope", 0.2, 0.0, 1.0),)
        # A limit on episodes that the task lacks is there, whatever is typed besides.
        counted = ["--env.wrappers", "gymnasium.wrappers:RecordEpisodeStatistics"]
        request = poet.parse(
            [*task[:2], *counted, "--mutate", "slope", "0.2", "0", "1"]
        )
        assert request.config.env.max_episode_steps == 1000

    def test_nothing_to_mutate(self, slopes, tmp_path):
        with pytest.raises(ConfigError, match="mutate is needed"):
            poet_run(CONFIG, PoetConfig(), tmp_path / "run")


def test_a_fall_can_be_left_out_of_the_fitness():
    """BipedalWalker's −100, which makes standing still an optimum."""
    config = preset("bipedal-terrain").replace(
        {
            "es.healthy_reward_weight": 0.0,
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
