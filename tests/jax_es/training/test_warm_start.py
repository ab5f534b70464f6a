"""Runs that begin with another run's θ: what comes along, what is refused."""

import contextlib
import dataclasses
import shutil
from contextlib import closing

import jax
import numpy as np
import pytest

from jax_es import train
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.imitation.gradient_run import GradientRun, build_for_evaluation
from jax_es.models import CNNConfig, DecisionTransformerConfig, MLPConfig
from jax_es.presets import preset
from jax_es.rollout.observation_statistics import initial_statistics, observe
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.find import find_run
from jax_es.runs.method import Method
from jax_es.runs.metrics import read_metrics
from jax_es.train_config import differences
from jax_es.training.build import TrainConfig
from jax_es.training.generation import initial_state, run_generation
from jax_es.training.parts import build
from jax_es.training.seeds import train_seeds
from jax_es.training.train_policy import train_policy
from jax_es.training.trained_mean import load_mean
from jax_es.training.warm_start import find_source, first_state
from tests.comparing import assert_equal_bits, numbers

MLP = MLPConfig(hidden_sizes=(4,))
DT = DecisionTransformerConfig(context_length=3, width=8, num_layers=1)
CLONING = Method("cloning", {"dataset": "hopper-v0", "learning_rate": 1e-4})


def tiny(policy=MLP, statistics=False, **fields):
    values = {
        "env": EnvConfig("Hopper-v5", 8),
        "policy": policy,
        "es": ESConfig(num_pairs=2, sigma=0.1, learning_rate=0.5),
        "rollout": RolloutConfig(
            num_slots=2,
            num_threads=1,
            num_devices=1,
            observation_statistics=statistics,
            statistics_fraction=1.0,
        ),
        "evaluation": EvaluationConfig(num_episodes=2),
        "num_generations": 2,
    }
    return TrainConfig(**(values | fields))


def clone(path, config, seed=11):
    """A run as cloning leaves it: θ drawn from ``seed``, evaluated once."""
    run = RunDirectory(path)
    run.create(config, "hopper", method=CLONING)
    parts, statistics = build_for_evaluation(config), None
    if config.rollout.observation_statistics:
        state = initial_statistics(parts.env.single_observation_space.shape[0])
        seen = np.random.default_rng(seed).normal(3, 2, (50, state.sum.size))
        statistics = observe(state, seen)
    with closing(parts), closing(GradientRun(run, parts, statistics)) as gradient_run:
        mean = parts.policy.init(jax.random.key(seed))
        gradient_run.save(gradient_run.evaluate(mean), mean, 0, 40)
    return path


def evaluated(path, config, mean, statistics):
    run = RunDirectory(path)
    with (
        closing(build_for_evaluation(config)) as parts,
        closing(GradientRun(run, parts, statistics)) as gradient_run,
    ):
        return gradient_run.evaluate(mean)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Runs to begin with: a clone, one with statistics, an ES run, and two seeds."""
    path = tmp_path_factory.mktemp("sources")
    clone(path / "clone", tiny())
    clone(path / "transformer", tiny(DT))
    clone(path / "normalised", tiny(statistics=True))
    for seed in (0, 1):
        clone(path / "seeds" / f"seed-{seed}", tiny(seed=seed), seed=20 + seed)
    train_policy(tiny(statistics=True), path / "es")
    RunDirectory(path / "empty").create(tiny(), "hopper")
    return path


def starting(config):
    """The state before the first generation, and where its θ is from."""
    parts = build(config)
    source = find_source(config.init, parts)
    state = first_state(parts, source)
    parts.close()
    return state, source


def test_a_run_begins_with_the_other_ones_weights(sources, folder):
    config = tiny(init=f"{sources / 'clone'}/", init_checkpoint="last")
    assert config.init == str(sources / "clone")  # as if typed without the slash
    result = train_policy(config, folder / "new")
    theirs = load_mean(sources / "clone", "last")
    at_start = Checkpoints(folder / "new" / "checkpoints").restore(0).state
    assert_equal_bits(at_start["es"]["mean"], theirs.mean)
    assert int(at_start["es"]["generation"]) == 0
    # The same θ on the same seeds has the same returns, whoever evaluates it.
    (evaluated,) = read_metrics(sources / "clone")
    expected = pytest.approx(evaluated.evaluation_return_mean, rel=1e-6)
    assert result.first_evaluation == expected
    # The run remembers where it is from.
    run = find_run(folder / "new")
    assert run.config() == config
    assert run.record()["init"] == {
        "run": str(sources / "clone"),
        "checkpoint": 40,
        "method": ["cloning", CLONING.settings],
    }
    assert run.method_before() == CLONING
    assert find_run(sources / "es").method_before() is None


def test_a_decay_is_anchored_to_the_weights_that_the_run_began_with(sources, folder):
    es = ESConfig(num_pairs=2, sigma=0.1, weight_decay_anchor="start")
    config = tiny(init=str(sources / "clone"), init_checkpoint="last", es=es)
    train_policy(config, folder / "whole")
    train_policy(dataclasses.replace(config, num_generations=1), folder / "cut")
    train_policy(config, folder / "cut", resume=True)
    states = [
        Checkpoints(folder / name / "checkpoints").restore("last").state
        for name in ("whole", "cut")
    ]
    assert_equal_bits(*states)
    anchor = states[0]["es"]["optimizer_state"]["3"]["anchor"]
    assert_equal_bits(anchor, load_mean(sources / "clone", "last").mean)


def test_es_goes_on_from_its_own_last_weights(sources, folder):
    """All that θ needs comes along: generation 0 evaluates what generation 2 left."""
    old = tiny(statistics=True)
    config = dataclasses.replace(old, init=str(sources / "es"), init_checkpoint="last")
    state, source = starting(config)
    assert source.generation == 2
    theirs = Checkpoints(sources / "es" / "checkpoints").restore("last").state
    assert_equal_bits(state.es.mean, theirs["es"]["mean"])
    assert_equal_bits(
        state.observation_statistics._asdict(), theirs["observation_statistics"]
    )
    assert state.observation_statistics.count > 0
    # Everything else begins anew.
    anew = initial_state(build(old))
    assert_equal_bits(state.es.optimizer_state, anew.es.optimizer_state)
    assert state.es.generation == 0
    assert state[2:] == anew[2:]
    assert_equal_bits(
        jax.random.key_data(state.es.key), jax.random.key_data(anew.es.key)
    )
    # What generation 0 evaluates is what the other run ended with, on the same seeds.
    first = run_generation(build(config), state).evaluation
    expected, unseen = (
        evaluated(folder, old, source.mean, statistics)
        for statistics in (source.statistics, None)
    )
    # Except for rounding: an evaluation alone is another compiled program.
    np.testing.assert_allclose(first.returns, expected.returns, rtol=1e-6)
    assert not np.isclose(unseen.returns, expected.returns, rtol=1e-6).any()


@pytest.mark.parametrize(
    ("name", "here", "expected"),
    [("normalised", True, "theirs"), ("clone", True, "none"), ("clone", False, "none")],
)
def test_statistics_begin_where_the_other_run_ended(sources, name, here, expected):
    is_told = here and expected == "none"
    with pytest.warns(match="as they are") if is_told else contextlib.nullcontext():
        state, _ = starting(tiny(statistics=here, init=str(sources / name)))
    theirs = load_mean(sources / name).statistics
    if expected == "theirs":
        assert theirs is not None and theirs.count == 50
        assert_equal_bits(state.observation_statistics, theirs)
    else:
        assert theirs is None and state.observation_statistics.count == 0
        assert not state.observation_statistics.sum.any()


@pytest.mark.slow
def test_a_reference_batch_comes_along(folder):
    pytest.importorskip("ale_py")
    config = tiny(
        CNNConfig(hidden_size=4, reference_size=3),
        env=EnvConfig("ALE/Freeway-v5", max_episode_steps=3),
        num_generations=1,
        seed=5,
    )
    train_policy(config, folder / "game")
    theirs = load_mean(folder / "game", "last")
    new = dataclasses.replace(config, seed=6, init="game", init_checkpoint="last")
    state, _ = starting(new)
    np.testing.assert_array_equal(state.reference, theirs.reference)
    assert np.shape(state.reference)[0] == 3
    assert_equal_bits(state.es.mean, theirs.mean)


def test_a_resume_does_not_need_the_other_run(sources, folder):
    """Not even one of a run that was killed before its first checkpoint."""
    shutil.copytree(sources / "clone", folder / "clone")
    config = tiny(init="clone", num_generations=3)
    train_policy(config, folder / "whole")
    train_policy(dataclasses.replace(config, num_generations=1), folder / "torn")
    shutil.rmtree(folder / "torn" / "checkpoints" / "last" / "1")
    shutil.rmtree(folder / "clone")
    assert Checkpoints("torn/checkpoints").steps() == [0]
    train_policy(config, folder / "torn", resume=True)
    assert numbers("torn") == numbers("whole")
    assert_equal_bits(load_mean("torn", "last").mean, load_mean("whole", "last").mean)


@pytest.mark.slow
def test_each_seed_begins_with_its_own(sources, folder):
    """Seeds without a run of theirs are rejected before any work."""
    config = tiny(init=str(sources / "seeds"), num_generations=1)
    words = "has no seed-2, .* but seed-0, seed-1; choose other seeds"
    with pytest.raises(ConfigError, match=words):
        train_seeds(config, 3, folder / "new")
    assert list(folder.iterdir()) == []
    train_seeds(config, 2, folder / "new")
    for seed in (0, 1):
        own = load_mean(sources / "seeds" / f"seed-{seed}").mean
        assert_equal_bits(load_mean(folder / "new" / f"seed-{seed}", 0).mean, own)
        record = RunDirectory(folder / "new" / f"seed-{seed}").record()
        assert record["init"]["run"] == str(sources / "seeds" / f"seed-{seed}")
        assert record["config"]["init"] == str(sources / "seeds")
    before = (folder / "new" / "experiment.json").read_bytes()
    with pytest.raises(ConfigError, match=words):
        train_seeds(config, 3, folder / "new", resume=True)
    assert (folder / "new" / "experiment.json").read_bytes() == before


BASE = [
    *("hopper-small", "--env.max-episode-steps", "8", "--es.num-pairs", "2"),
    *("--rollout.num-slots", "2", "--rollout.num-devices", "1"),
    *("--evaluation.num-episodes", "2", "--num-generations", "1"),
]
AS_MLP = ["--policy", "mlp", "--policy.hidden-sizes", "4"]


def test_what_leaves_the_weights_alone_may_differ(sources):
    policy = dataclasses.replace(DT, attention="cache", target_return=-5.0)
    state, _ = starting(tiny(policy, init=str(sources / "transformer")))
    assert_equal_bits(state.es.mean, load_mean(sources / "transformer").mean)


def test_statistics_of_no_observation_are_none_to_lose(sources, folder):
    """The best checkpoint may be the first generation's, which saw them as they are."""
    shutil.copytree(sources / "es", folder / "es")
    config = tiny(init="es", init_checkpoint="9")
    state = Checkpoints("es/checkpoints").restore("last").state
    none = {k: np.zeros_like(v) for k, v in state["observation_statistics"].items()}
    Checkpoints("es/checkpoints").save(9, state | {"observation_statistics": none})
    starting(config)


@pytest.mark.slow
def test_the_command_line_resumes_it(sources, folder, capsys, refused):
    shutil.copytree(sources / "clone", folder / "clone")
    options = [*BASE, *AS_MLP, "--rollout.no-observation-statistics"]
    options += ["--init", "clone/"]
    assert train.main([*options, "--name", "new"]) == 0
    opening = capsys.readouterr().err.splitlines()[0]
    assert "on Hopper-v5 from clone (cloning, checkpoint 40): 2 pairs" in opening
    shutil.rmtree(folder / "clone")
    for arguments, words in (
        (["--init", "other"], "init was 'clone', now 'other'"),
        (["--init-checkpoint", "last"], "--init-checkpoint was 'best', now 'last'"),
        (options[:-2], "init was 'clone', now None"),
    ):
        refused(train.main, [*arguments, "--resume", "--name", "new"], words)
    more = ["--resume", "--name", "new", "--num-generations", "2"]
    assert train.main(more) == 0
    assert train.main([*options, *more, "--num-generations", "3"]) == 0
    assert len(read_metrics("runs/new")) == 4


def test_a_run_of_another_method_is_not_resumed_by_es(sources, folder, refused):
    run = shutil.copytree(sources / "clone", folder / "runs" / "clone")
    before = numbers(run)
    resume = [*BASE, "--resume", "--name", "clone"]
    words = "was trained by cloning, not by OpenAI-ES", "with python -m jax_es.pretrain"
    refused(train.main, resume, *words)
    with pytest.raises(ConfigError, match="was trained by cloning"):
        train_policy(tiny(num_generations=9), run, resume=True)
    assert numbers(run) == before


@pytest.mark.parametrize("task", ["humanoid-dt", "hopper-small", "walker2d"])
def test_fine_tuning_has_the_papers_settings(task):
    base = preset(task)
    assert differences(base, preset(task, fine_tune=True)) == {
        "es.sigma": (base.es.sigma, 0.01),
        "es.learning_rate": (base.es.learning_rate, 0.01),
        "rollout.observation_statistics": (True, False),
    }
    # A strategy that estimates no gradient has no learning rate.
    assert preset(task, "linear", "cma-es", fine_tune=True).es.sigma == 0.01


def test_fine_tuning_needs_a_run(refused):
    words = "--fine-tune goes on from a pretrained policy; add --init RUN"
    refused(train.main, ["walker2d-small", "--fine-tune"], words)
    request = train.parse(["walker2d-small", "--fine-tune", "--init", "runs/clone"])
    config = preset("walker2d-small", fine_tune=True)
    assert request.config == dataclasses.replace(config, init="runs/clone")
