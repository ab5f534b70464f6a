"""Every strategy fulfils one contract: it finds, trains, resumes and is reloaded."""

import dataclasses
import functools
import io
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jax_es
from jax_es import load_policy, train
from jax_es.checks import ConfigError
from jax_es.cli.progress import Progress
from jax_es.config import STRATEGIES, EnvConfig, ESConfig, RolloutConfig
from jax_es.es.population import MaterializedPopulation
from jax_es.es.strategies import held_strategy, strategy
from jax_es.es.strategy import Behaviour
from jax_es.models import LinearConfig, MLPConfig
from jax_es.presets import preset
from jax_es.runs.directory import RunDirectory
from jax_es.runs.reproduce import command
from jax_es.train_config import TrainConfig, from_dict, to_dict
from jax_es.training.loop import PolicyTraining, begin, run_training
from jax_es.training.parts import build, make_strategy
from tests.comparing import assert_equal_bits, numbers

FAST = ("cma-es", "cem", "ga", "novelty", "cem-rl")
TRAINED = [
    pytest.param(name, marks=[] if name in FAST else pytest.mark.slow)
    for name in STRATEGIES
    if name not in ("openai-es", "guided")  # test_guidance.py has the latter
]
NAMED = [row for row in TRAINED if row.values != ("novelty",)]
"""Those that hold their members."""
OWN = "tests.jax_es.training.test_strategies:one_plus_lambda"
TRAINED.append(OWN)
NAMED.append(OWN)
START = {"x": jnp.array([3.0, -2.0]), "y": jnp.full((2, 2), 0.5)}
STEPS = {
    **{"pgpe": {"learning_rate": 0.05}, "ars": {"learning_rate": 0.2}},
    "novelty": {"fitness_weight": "adaptive", "patience": 1, "parents": 3},
}
"""Where the algorithm's own step is too short for a test."""
TINY = TrainConfig(
    EnvConfig("CartPole-v1", max_episode_steps=20, descriptor=("0", "2")),
    LinearConfig(target_return=20.0),
    ESConfig(
        num_pairs=4, sigma=0.5, episodes_per_member=2, objective="commanded-return"
    ),
    RolloutConfig(num_slots=2, num_devices=1, statistics_fraction=1.0),
    num_generations=4,
)


class Elite(NamedTuple):
    """The state of a (1 + λ) strategy, which remembers the best member ever."""

    mean: Any
    fitness: jax.Array
    sigma: jax.Array
    generation: jax.Array
    key: jax.Array


def one_plus_lambda(mean, descriptor_size, population_size, sigma, growth=1.5):
    """Keeps the best member, and searches further around it after a success."""

    def init(key, mean):
        return Elite(mean, -jnp.inf, jnp.float32(sigma), 0, key)

    def ask(state):
        flat, unravel = ravel_pytree(state.mean)
        key = jax.random.fold_in(state.key, state.generation)
        z = jax.random.normal(key, (population_size, flat.size))
        return jax.vmap(unravel)(flat + state.sigma * z)

    def tell(state, fitness):
        best = jnp.argmax(fitness)
        is_better = fitness[best] > state.fitness
        mean = jax.tree.map(
            lambda old, new: jnp.where(is_better, new[best], old),
            state.mean,
            ask(state),
        )
        state = state._replace(
            mean=mean,
            fitness=jnp.where(is_better, fitness[best], state.fitness),
            sigma=state.sigma * jnp.where(is_better, growth, growth**-0.25),
            generation=state.generation + 1,
        )
        return state, {"gradient_norm": state.sigma}

    return init, ask, tell


def searching(name, pairs=10, start=START, **fields):
    if name == OWN:
        made = strategy(one_plus_lambda, start, size=2 * pairs, **fields)
    else:
        config = ESConfig(
            strategy=name, num_pairs=pairs, kwargs=STEPS.get(name, {}), **fields
        )
        made = held_strategy(config, start)
    return made, made.init(jax.random.key(0), start)


def search(strategy, state, fitness, generations):
    """Returns the state after generations in one compiled program."""

    def generation(state, index):
        members = strategy.ask(state).members
        return strategy.tell(state, fitness(members, index))[0], None

    return jax.jit(
        lambda state: jax.lax.scan(generation, state, jnp.arange(generations))[0]
    )(state)


def distance(weights):
    """‖θ − 1‖ of members ``[P, …]`` or of a mean ``[…]``."""
    x, y = weights["x"] - 1.0, weights["y"] - 1.0
    return jnp.sqrt(jnp.sum(x**2, axis=-1) + jnp.sum(y**2, axis=(-2, -1)))


@pytest.mark.parametrize("name", NAMED)
def test_it_finds_an_optimum_with_failed_members(name):
    strategy, state = searching(name, sigma=0.3)
    first = strategy.ask(state).members
    spread = np.concatenate(
        [np.ravel(first[k] - START[k]) for k in START]
    )  # 120 draws: a standard error of 6 %
    assert spread.std() == pytest.approx(0.3, rel=0.2)

    def with_a_failure(members, generation):
        return (-distance(members)).at[generation % 20].set(jnp.nan)

    state = search(strategy, state, with_a_failure, 100)
    assert distance(state.mean) < 0.1 * distance(START)
    # Nothing to tell members apart, and nothing but failures.
    for fitness in (jnp.zeros(20), jnp.full(20, jnp.nan), jnp.full(20, -jnp.inf)):
        for _ in range(5):
            state, info = strategy.tell(state, fitness)
    assert info.num_nonfinite == 20 and int(state.generation) == 115
    assert np.isfinite(distance(state.mean))
    assert np.isfinite(distance(strategy.ask(state).members)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cma-es", "ma-es", "xnes"])
def test_correlations_are_learnt(name):
    """A long narrow valley across the axes, of condition 10⁴."""
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    scales = jnp.asarray(np.logspace(0, 2, 5))
    start = jnp.ones(5)
    strategy, state = searching(name, start=start, sigma=0.5)

    def fitness(members):
        return -jnp.sum((members @ rotation * scales) ** 2, axis=-1)

    state = search(strategy, state, lambda members, _: fitness(members), 400)
    assert fitness(state.mean) > -1e-6


def test_noise_keeps_the_cross_entropy_method_searching():
    """Without it the elites' variance vanishes on the way to a distant optimum."""
    ends = {}
    for extra in (0.0, 0.3):
        config = ESConfig(
            strategy="cem",
            num_pairs=20,
            sigma=0.3,
            kwargs={"extra_std": extra, "extra_generations": 60},
        )
        far = {"x": jnp.array([9.0, -9.0]), "y": jnp.full((2, 2), 9.0)}
        strategy = held_strategy(config, far)
        state = strategy.init(jax.random.key(0), far)
        state = search(strategy, state, lambda m, _: -distance(m), 100)
        ends[extra] = float(distance(state.mean))
    assert ends[0.3] < 0.5 < 5 < ends[0.0]


@functools.cache
def tiny_parts():
    return build(TINY)


def parts_of(name, **fields):
    """Parts that share the rollout, which compiles but once for all of these."""
    es = dataclasses.replace(TINY.es, strategy=name, kwargs=STEPS.get(name, {}))
    config = dataclasses.replace(TINY, es=es, **fields)
    parts = dataclasses.replace(tiny_parts(), config=config)
    return dataclasses.replace(parts, strategy=make_strategy(parts))


def trained(parts, path, resume=False):
    run = RunDirectory(path)
    state = begin(parts, run, resume, "python")
    progress = Progress(parts.config.num_generations, stream=io.StringIO())
    return run_training(PolicyTraining(parts, state), run, progress)


@pytest.mark.parametrize("name", TRAINED)
def test_it_trains_resumes_to_the_bit_and_is_reloaded(name, folder):
    whole = trained(parts_of(name), folder / "whole")
    trained(parts_of(name, num_generations=2), folder / "torn")
    resumed = trained(parts_of(name), folder / "torn", resume=True)
    assert_equal_bits(resumed.state, whole.state)
    # As texts: there is no gradient, so its norm is NaN.
    assert str(numbers(folder / "torn")) == str(numbers(folder / "whole"))
    moved = [record.update_norm > 0 for record in whole.records]
    keeps_the_best = name in (OWN, "ga")
    assert any(moved) if keeps_the_best else all(moved)
    assert RunDirectory(folder / "torn").config().es.strategy == name
    policy = load_policy(folder / "whole", "last", trust=name == OWN)
    assert RunDirectory(folder / "whole").method().title in repr(policy)
    assert policy(np.zeros(4, np.float32)).shape == ()


def test_pairs_meet_the_same_seeds_where_there_are_pairs():
    for name in ("pgpe", "ars", "cr-fm-nes"):
        strategy, state = searching(name, sigma=0.3)
        x = strategy.ask(state).members["x"] - START["x"]
        np.testing.assert_allclose(x[0::2], -x[1::2], atol=1e-6)


def test_a_preset_with_another_strategy_keeps_what_all_read():
    base, config = preset("hopper"), preset("hopper", strategy="cma-es")
    assert config.es == ESConfig(
        strategy="cma-es",
        num_pairs=base.es.num_pairs,
        sigma=base.es.sigma,
        healthy_reward_weight=0.0,
    )
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    # A run from before there were strategies.
    values = to_dict(base)
    del values["es"]["strategy"], values["es"]["kwargs"]
    assert from_dict(values) == base


def test_the_command_of_a_run_asks_for_its_strategy():
    options = ["hopper-small", "--policy", "mlp", "--strategy", "rm-es"]
    options += ["--es.kwargs.q_star", "0.2", "--es.num-pairs", "7"]
    config = train.parse(options).config
    assert config.es.kwargs == {"q_star": 0.2} and config.es.strategy == "rm-es"
    told = command(config, "hopper")
    assert "--policy mlp --strategy rm-es" in told
    assert train.parse(told.split()[3:]).config == config


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("snes", {"std_ini": 1}, "snes has no hyperparameter std_ini; it.*lr_std_init"),
        ("cem", {"c_std": 1}, "elite_ratio 0.1, extra_generations 50, extra_s"),
        ("cma-es", {"c_std": "x"}, r"c_std must be a number, in \[0, 1\], got 'x'"),
        ("cma-es", {"std_min": -1}, "std_min must be a number, at least 0 and finite"),
        ("cem", {"elite_ratio": 1}, "elite_ratio must be below 1 .* cem, got 1: all"),
        ("pgpe", {"learning_rate": 0}, "learning_rate must be a number, positive"),
        (
            "ga",
            {"parents": 8},
            "parents must be below the number of members 8 .* got 8",
        ),
        ("ga", {"x": 1}, "first_sigma sigma, max_generations 1e.05, parents 20"),
        ("rm-es", {"m": 1.5}, "m must be a number, whole, from 1 to 10,000, got 1.5"),
    ],
)
def test_a_hyperparameter_that_cannot_be_is_named(name, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        held_strategy(ESConfig(strategy=name, kwargs=kwargs, num_pairs=4), START)


def test_what_only_openai_es_reads_is_no_other_strategys():
    for name in ("novelty", "guided"):
        with pytest.raises(ConfigError, match=rf"es.strategy {name} holds no members;"):
            held_strategy(ESConfig(strategy=name), START)
    with pytest.raises(ConfigError, match=r"es.optimizer adam has no meaning with es"):
        ESConfig(strategy="snes", optimizer="adam")
    with pytest.raises(ConfigError, match=r"es.shaping standardize has no meaning"):
        ESConfig(strategy="cma-es", shaping="standardize")
    with pytest.raises(ConfigError, match=r"es.kwargs.m has no meaning with .*openai"):
        ESConfig(kwargs={"m": 2})
    assert ESConfig(strategy="ars", shaping="centered_rank").shaping == "centered_rank"


def test_matrices_that_do_not_fit_into_memory_are_refused():
    policy = MLPConfig(hidden_sizes=(800, 800))  # 646,402 weights

    def config(name):
        return TrainConfig(TINY.env, policy, ESConfig(strategy=name, num_pairs=4))

    message = r"cma-es, es.num_pairs 4 with policy mlp of 646,402 weights would take"
    with pytest.raises(ConfigError, match=message):
        build(config("cma-es"))
    build(config("sep-cma-es")).close()


def test_parents_that_do_not_fit_into_memory_are_refused():
    policy = MLPConfig(hidden_sizes=(8000, 8000))  # 0.25 GiB
    es = ESConfig(strategy="ga", num_pairs=6000, kwargs={"parents": 9999})
    message = r"ga, .* es.kwargs.parents 9999 with policy mlp of 64,0.* would take"
    with pytest.raises(ConfigError, match=message):
        build(TrainConfig(TINY.env, policy, es))


EVERY = [*STRATEGIES, one_plus_lambda]


@pytest.mark.parametrize(
    "name",
    EVERY,
    ids=lambda each: getattr(each, "__name__", each),
)
def test_every_strategy_is_built_by_its_name_and_has_members(name, compilations):
    """Of shapes alone: what they find is tested above."""
    theta = {"x": jnp.zeros(3), "y": jnp.zeros((2, 2))}
    es = strategy(name, theta, size=8, sigma=0.5, descriptor_size=2)
    state = es.init(jax.random.key(0), theta)
    told = [jnp.arange(8.0)]
    if name == "novelty":
        told.append(Behaviour(np.ones((8, 2)), np.zeros(2), 0.0))
    for _ in range(3):
        compilations.clear()
        members = es.ask(state).members
        state, _ = es.tell(state, *told)
    assert not compilations  # where nobody compiles what surrounds them, either
    assert jax.tree.map(jnp.shape, members) == {"x": (8, 3), "y": (8, 2, 2)}
    assert int(state.generation) == 3
    assert jax.tree.map(jnp.shape, state.mean) == jax.tree.map(jnp.shape, theta)


@pytest.mark.parametrize("options", [{}, {"perturbation": "low-rank"}])
def test_pair_i_is_members_2i_and_2i_plus_1(options):
    theta = {"x": jnp.ones(3), "y": jnp.ones((5, 6))}
    es = strategy("openai-es", theta, size=6, sigma=0.5, **options)
    population = es.ask(es.init(jax.random.key(0), theta))
    members = jax.tree.map(np.asarray, population.members)
    for leaf in members.values():
        np.testing.assert_allclose(leaf[::2] - 1.0, 1.0 - leaf[1::2], atol=1e-6)
        assert np.abs(leaf[0] - leaf[2]).max() > 0.1
    # What a slot of a run would hold.
    for i in range(6):
        held = population.variables(population.group(jnp.int32(i // 2)), jnp.int32(i))
        if not options:
            np.testing.assert_allclose(held["params"]["y"], members["y"][i], rtol=1e-6)
        else:
            a, b = held["perturbation"]["y"]
            np.testing.assert_allclose(1.0 + a @ b.T, members["y"][i], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 7}, "size must be an even number of at least 2, got 7"),
        ({"name": "cmaes"}, "es.strategy must be one of .*cma-es.*got 'cmaes'"),
        ({"nonsense": 1.0}, "cma-es has no hyperparameter nonsense; it has"),
        ({"name": "novelty"}, "descriptor_size must be at least 1 for novelty"),
        ({"name": one_plus_lambda, "shrink": 1}, "no argument shrink; it has growth"),
    ],
)
def test_what_no_strategy_takes_is_one_line(change, words):
    with pytest.raises(ConfigError, match=words):
        strategy(**{"name": "cma-es", "theta": START, "sigma": 0.5, **change})


def broken(init=None, ask=None, tell=None):
    """Returns a strategy of which one function is another."""

    def build(mean, descriptor_size):
        fine = one_plus_lambda(mean, descriptor_size, 4, 0.1)
        given = (init, ask, tell)
        return tuple(a or b for a, b in zip(given, fine, strict=True))

    return build


def no_more_generations(state, fitness):
    return state, None


def grows(state, fitness):
    return state._replace(fitness=fitness, generation=state.generation + 1), {}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda mean, size: None, r"must return three functions, \(init, ask, tell\)"),
        (broken(init=lambda key, mean: mean), "a named tuple with the field mean"),
        (
            broken(
                ask=lambda state: {"x": jnp.zeros((3, 2)), "y": np.zeros((4, 2, 2))}
            ),
            r"ask: members\['x'\] must be float32\[4, 2\], got float32\[3, 2\]",
        ),
        (
            broken(ask=lambda state: MaterializedPopulation(START, {"x": np.ones(6)})),
            "asks for 6 members, where es.num_pairs 2 makes 4",
        ),
        (broken(tell=no_more_generations), "generation is one more than 0, got 0"),
        (
            broken(tell=grows),
            r"tell: state.fitness must be float32\[\], got float32\[4\]",
        ),
    ],
)
def test_a_strategy_that_breaks_the_contract_is_told_so(build, words):
    with pytest.raises(ConfigError, match=words):
        es = strategy(build, START, size=4)
        state = es.init(jax.random.key(0), START)
        es.ask(state)
        es.tell(state, np.zeros(4))


def test_the_former_name_says_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"is now jax_es.strategy"):
        jax_es.named_strategy(ESConfig(strategy="cem", num_pairs=4), START)
