"""Evolution of any function: as training does it, whatever the chunks and the types."""

import dataclasses
import shutil
from contextlib import closing
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_es
from jax_es import ConfigError, ESConfig, evolve
from jax_es.es.noise import FullNoise, LowRankNoise
from jax_es.es.openai_es import openai_es
from jax_es.es.population import MEAN
from jax_es.models import layers
from jax_es.rollout.devices import Devices
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.metrics import read_metrics
from jax_es.training.function_fitness import FunctionFitness
from jax_es.training.generation import initial_state, run_generation
from jax_es.training.parts import build
from tests.comparing import assert_equal_bits, numbers
from tests.made_runs import SHORT

ES = ESConfig(num_pairs=6, sigma=0.1, learning_rate=0.3, weight_decay=0.01)
LOW_RANK = dataclasses.replace(ES, perturbation="low-rank", rank=2)
INPUTS = jax.random.normal(jax.random.key(1), (5, 9))


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.tanh(nn.Dense(8, name="first")(x))
        return nn.Dense(7)(nn.LayerNorm()(x))


class Ours(nn.Module):
    @nn.compact
    def __call__(self, x):
        return layers.Dense(7)(nn.tanh(layers.Dense(8)(x)))


class Images(nn.Module):
    """Linen's convolution reads no factors."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(8, (3, 3))(x.reshape(-1, 3, 3, 1))
        return nn.Dense(7)(x.reshape(len(x), -1))


class Scanned(nn.Module):
    """Layers of one ``nn.scan`` are handed no perturbation."""

    @nn.compact
    def __call__(self, x):
        class Block(nn.Module):
            @nn.compact
            def __call__(self, x, _):
                return nn.tanh(nn.Dense(9)(x)), None

        axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
        return nn.scan(Block, **axes, length=3)()(x, None)[0]


class Tied(nn.Module):
    """One matrix of its own, read by no layer, besides one that is."""

    @nn.compact
    def __call__(self, x):
        table = self.param("table", nn.initializers.normal(), (9, 6))
        return nn.Dense(9)(x) @ table


def score(outputs, key):
    """Smooth, and another function for each key."""
    return -jnp.mean((outputs - jax.random.normal(key, outputs.shape)) ** 2)


def of_module(module):
    theta = module.init(jax.random.key(0), INPUTS)
    return theta, lambda variables, key: score(module.apply(variables, INPUTS), key)


def of_jitted_module(module):
    theta, apply = module.init(jax.random.key(0), INPUTS), jax.jit(module.apply)
    return theta, lambda variables, key: score(apply(variables, INPUTS), key)


def of_pytree():
    theta = [jnp.ones((9, 8)), {"b": jnp.zeros(8)}]
    return theta, lambda w, key: score(INPUTS @ w[0] + w[1]["b"][None], key)


CASES = {
    "linen": lambda: of_module(Net()),
    "ours": lambda: of_module(Ours()),
    "images": lambda: of_module(Images()),
    "scanned": lambda: of_module(Scanned()),
    "tied": lambda: of_module(Tied()),
    "jitted": lambda: of_jitted_module(Net()),
    "pytree": of_pytree,
}


def built(fitness, theta, es, chunk_size=256, num_devices=2):
    """The evaluator, a population, and its members' weights, made one by one."""
    is_full = es.perturbation == "full"
    noise = FullNoise() if is_full else LowRankNoise(es.rank)
    devices = Devices(jax.local_devices()[:num_devices])
    function = FunctionFitness(fitness, theta, es, noise, devices, chunk_size)
    strategy = openai_es(es, noise)
    population = strategy.ask(strategy.init(jax.random.key(7), function.mean))
    return function, population


def materialised(population, member):
    """A member's weights as one pytree of full arrays."""
    group = population.group(max(member, 0) // 2)
    own = population.variables(group, jnp.int32(member))
    if "params" in own:
        return own["params"]

    def add(weight, change):
        if isinstance(change, tuple):
            change = (change[0] @ change[1].T).reshape(weight.shape)
        return weight + change

    return jax.tree.map(add, population.mean, own["perturbation"])


def of_member(key, member):
    """The key of a member's evaluation: its pair's, and of its first episode."""
    return jax.random.fold_in(jax.random.fold_in(key, jnp.int32(member // 2)), 0)


@pytest.mark.parametrize("es", [ES, LOW_RANK], ids=["full", "low-rank"])
@pytest.mark.parametrize("case", CASES)
def test_each_member_has_the_fitness_of_its_weights(case, es):
    """Whoever reads them: factors, weights of their own, jitted functions, pytrees."""
    theta, fitness = CASES[case]()
    function, population = built(fitness, theta, es, chunk_size=8)
    key = jax.random.key(3)
    of_mean, found = function.evaluate(population, key)
    is_flax = isinstance(theta, dict)
    for member in (MEAN, *range(12)):
        weights = materialised(population, member)
        expected = fitness(
            {"params": weights} if is_flax else weights, of_member(key, member)
        )
        value = of_mean if member == MEAN else found[member]
        np.testing.assert_allclose(value, expected, rtol=2e-5)
    assert len(set(found.tolist())) == 12


def test_low_rank_noise_reaches_dense_layers_as_factors():
    theta, fitness = CASES["linen"]()
    seen = []

    def noting(variables, key):
        seen.append(jax.tree.map(jnp.shape, variables))
        return fitness(variables, key)

    built(noting, theta, LOW_RANK)
    (shapes,) = seen  # traced once
    factors = {
        "first": {"kernel": ((9, 2), (8, 2))},
        "Dense_0": {"kernel": ((8, 2), (7, 2))},
    }
    assert shapes["perturbation"] == factors
    seen.clear()
    evolve(noting, theta, LOW_RANK, num_generations=3, verbose=False)
    assert len(seen) == 1


def test_chunks_and_devices_change_rounding_alone():
    theta, fitness = CASES["linen"]()
    for es in (ES, LOW_RANK):
        ways = [(256, 1), (2, 1), (6, 4)]
        first, *others = (
            evolve(
                *(fitness, theta, es),
                num_generations=2,
                chunk_size=size,
                num_devices=count,
                verbose=False,
            )
            for size, count in ways
        )
        for other in others:
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
                *(first.theta, other.theta),
            )


def test_an_update_is_trainings_on_the_same_numbers():
    """To the bit: the members of a seed, their fitness, and what follows from it."""
    es = dataclasses.replace(
        SHORT.es, num_pairs=4, optimizer="clipup", weight_decay_anchor="start"
    )
    config = dataclasses.replace(SHORT, es=es, seed=5)
    with closing(build(config)) as parts:
        state = initial_state(parts)
        generation = run_generation(parts, state)
        population = parts.strategy.ask(state.es)
    members = [materialised(population, member) for member in range(8)]
    first = jnp.array([jax.tree.leaves(weights)[0].ravel()[0] for weights in members])
    told = jnp.asarray(generation.fitness, jnp.float32)

    def recorded(theta, key):
        distance = jnp.abs(first - jax.tree.leaves(theta)[0].ravel()[:1])
        return told[jnp.argmin(distance)]

    theta = state.es.mean
    options = {"num_generations": 1, "num_devices": 1, "verbose": False}
    result = evolve(recorded, theta, es, seed=5, **options)
    assert len(set(told.tolist())) == 8
    assert_equal_bits(result.state.es, jax.device_get(generation.state.es))


def test_a_pair_meets_the_same_random_numbers_and_another_does_not():
    def luck(theta, key):
        return jax.random.uniform(key) + 0 * theta["x"]

    theta = {"x": jnp.float32(0)}
    function, population = built(luck, theta, ES)
    _, found = function.evaluate(population, jax.random.key(0))
    pairs = found.reshape(6, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all() and len(set(found.tolist())) == 6
    alike = dataclasses.replace(ES, common_seeds="generation")
    function, population = built(luck, theta, alike)
    assert len({*function.evaluate(population, jax.random.key(0))[1].tolist()}) == 1
    often = dataclasses.replace(ES, episodes_per_member=50)
    function, population = built(luck, theta, often)
    _, means = function.evaluate(population, jax.random.key(0))
    assert np.ptp(means) < 0.5 * np.ptp(found)
    records = evolve(luck, theta, ES, num_generations=4, verbose=False).records
    assert len({record.evaluation_return_mean for record in records}) == 4


def test_a_run_killed_at_any_generation_goes_on_to_the_bit(folder):
    theta, fitness = CASES["linen"]()
    es = dataclasses.replace(LOW_RANK, optimizer="adam", weight_decay_anchor="start")
    options = {"num_generations": 4, "checkpoint_every": 2, "verbose": False}

    def copy(record, state):  # between a record and its checkpoint
        shutil.copytree("runs/whole", f"runs/killed-{record.generation}")

    told = SimpleNamespace(on_generation=copy)
    path = folder / "runs/whole"
    whole = evolve(
        *(fitness, theta, es), path=path, chunk_size=4, callbacks=[told], **options
    )
    for generation in range(5):
        killed = folder / f"runs/killed-{generation}"
        # Only shapes and types are read of θ; chunks are as they were.
        blank = jax.tree.map(jnp.zeros_like, theta)
        again = evolve(fitness, blank, es, path=killed, resume=True, **options)
        assert_equal_bits(again.state, whole.state)
        assert_equal_bits(again.theta, whole.theta)
        assert numbers(killed) == numbers(path)
        assert again.best_fitness == whole.best_fitness
    more = options | {"num_generations": 6}
    longer = evolve(fitness, theta, es, path=path, resume=True, **more)
    alone = evolve(fitness, theta, es, chunk_size=4, **more)
    assert_equal_bits(longer.state, alone.state)
    assert len(read_metrics(path)) == 7


def test_a_stop_signal_leaves_the_last_finished_generation(folder):
    theta, fitness = of_pytree()
    calls = []

    def stop():
        calls.append(None)
        if len(calls) == 12:
            raise KeyboardInterrupt

    options = {"num_generations": 50, "checkpoint_every": 20, "verbose": False}
    with pytest.raises(KeyboardInterrupt):
        evolve(fitness, theta, ES, path="run", check_stop=stop, **options)
    assert Checkpoints(folder / "run/checkpoints").steps()[0] == 0
    step = Checkpoints(folder / "run/checkpoints").steps()[-1]
    assert 0 < step == len(read_metrics("run"))


@pytest.mark.parametrize("es", [ES, LOW_RANK], ids=["full", "low-rank"])
@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16, jnp.int8])
def test_members_are_rounded_weights_and_float32_noise(kind, es):
    scale = 20.0 if kind == jnp.int8 else 1.0
    theta = jax.tree.map(
        lambda w: jnp.round(scale * w, 1).astype(kind),
        Net().init(jax.random.key(0), INPUTS),
    )

    def fitness(variables, key):
        return score(Net().apply(variables, INPUTS), key)

    function, population = built(fitness, theta, es)
    inside = jax.tree.map(lambda w: w + 0.3, population.mean)  # between two of int8
    population = dataclasses.replace(population, mean=inside)
    of_mean, found = function.evaluate(population, jax.random.key(3))
    rounded = function.like_theta(inside)["params"]
    assert {leaf.dtype for leaf in jax.tree.leaves(rounded)} == {jnp.dtype(kind)}
    wide = jax.tree.map(lambda w: w.astype(jnp.float32), rounded)
    exact = dataclasses.replace(population, mean=wide)
    for member in (MEAN, *range(12)):
        weights = {"params": materialised(exact, member)}
        expected = fitness(weights, of_member(jax.random.key(3), member))
        value = of_mean if member == MEAN else found[member]
        np.testing.assert_allclose(value, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.int8])
def test_weights_move_by_less_than_they_can_hold(kind):
    """Steps of 0.002 at 1, where bfloat16 has 1.0078 next and int8 has 2."""
    theta = {"w": jnp.full(3, 1, kind)}
    es = ESConfig(num_pairs=64, sigma=0.001, learning_rate=1e-5, weight_decay=0.0)

    def fitness(theta, key):
        return jnp.sum(theta["w"].astype(jnp.float32))

    result = evolve(fitness, theta, es, num_generations=5, verbose=False)
    moved = result.state.es.mean["w"]
    assert moved.dtype == jnp.float32 and (moved > 1.0005).all() and (moved < 1.1).all()
    assert_equal_bits(result.theta, theta)
    further = evolve(
        *(fitness, theta, dataclasses.replace(es, learning_rate=0.01)),
        num_generations=10,
        verbose=False,
    )
    assert further.theta["w"].dtype == kind and (further.theta["w"] > 1).all()


def test_other_collections_stay_and_numpy_weights_do():
    theta = {
        "params": {"w": np.ones(3, np.float32)},
        "constants": {"c": np.full(3, 2.0)},
    }

    def fitness(variables, key):
        off = variables["params"]["w"] - variables["constants"]["c"]
        return -jnp.sum(jnp.square(off.astype(jnp.float32)))

    es = dataclasses.replace(ES, num_pairs=32, weight_decay=0.0)
    result = evolve(fitness, theta, es, num_generations=40, verbose=False)
    np.testing.assert_allclose(result.best_theta["params"]["w"], 2.0, atol=0.1)
    assert result.best_theta["constants"] is theta["constants"]
    assert result.best_fitness >= result.final_fitness


def test_a_callback_ends_a_run_and_nothing_finite_is_worst(capsys):
    def end(record, state):
        return record.generation == 2

    def fitness(theta, key):
        return jnp.where(theta["x"] > 1.0, theta["x"], jnp.nan)

    told = SimpleNamespace(on_generation=end)
    es = dataclasses.replace(ES, weight_decay=0.0, learning_rate=0.1)
    theta = {"x": jnp.ones(())}
    result = evolve(fitness, theta, es, callbacks=[told])
    assert len(result.records) == 3 and result.state.es.generation == 3
    assert result.records[0].num_nonfinite == 6
    assert result.theta["x"] > 1.0
    shown = capsys.readouterr().err
    assert "generation    3/200  fitness" in shown and "at best" in shown
    assert repr(result).startswith("EvolutionResult(generation 3; fitness 1.")


def refused(words, fitness=lambda theta, key: jnp.sum(theta), theta=None, **options):
    theta = jnp.ones(3) if theta is None else theta
    options = {"es": ES, "verbose": False} | options
    with pytest.raises(ConfigError, match=words):
        evolve(fitness, theta, **options)


def test_bad_input_is_refused_before_any_work(folder):
    refused(r"one real number.* returns float32\[3\]", lambda theta, key: theta)
    refused(r"returns complex64\[\]", lambda theta, key: theta[0] * 1j)
    refused("weights of complex64", theta=jnp.ones(2, jnp.complex64))
    refused("weights of no kind, expected", theta={})
    refused("weights of bool", theta=jnp.ones(2, bool))
    refused("must be an ESConfig.*got 3", es=3)
    refused("es.strategy must be openai-es", es=ESConfig(strategy="cma-es"))
    refused(
        "es.healthy_reward_weight 0.0 has no meaning for evolve",
        es=ESConfig(healthy_reward_weight=0.0),
    )
    refused("chunk_size must be a whole number of at least 1, got -3", chunk_size=-3)
    refused("num_generations must be.*got 1.5", num_generations=1.5)
    refused("num_devices must be from 1 to 4.*got 9", num_devices=9)
    refused("resume=True needs path", resume=True)
    refused("callbacks must be objects with a method", callbacks=[print])
    refused("is not a run", resume=True, path="nothing")
    assert not [*folder.iterdir()]


def test_a_resume_changes_nothing_and_a_run_is_not_begun_twice(folder):
    theta, fitness = of_pytree()
    given = {"path": "run", "num_generations": 1, "chunk_size": 4, "verbose": False}
    evolve(fitness, theta, ES, **given)
    with pytest.raises(ConfigError, match="holds a run already"):
        evolve(fitness, theta, ES, **given)
    again = given | {"resume": True}
    for changed, words in [
        ({"es": dataclasses.replace(ES, sigma=0.3)}, r"es.sigma was 0.1, now 0.3"),
        ({"seed": 4}, "seed was 0, now 4"),
        ({"chunk_size": 12}, "chunk_size was 4, now 12"),
    ]:
        with pytest.raises(ConfigError, match=words):
            evolve(fitness, theta, **({"es": ES} | again | changed))
    with pytest.raises(ValueError, match=r"does not fit: .* is float32\[9, 8\]"):
        evolve(fitness, [jnp.ones((9, 3)), {"b": jnp.ones(3)}], ES, **again)
    with pytest.warns(UserWarning, match=r"fitness was .*, now .*<lambda>"):
        evolve(lambda *given: fitness(*given), theta, ES, **again)
    evolve(fitness, theta, ES, **(again | {"num_generations": 2}))
    with pytest.raises(ConfigError, match="num_generations must be at least 2"):
        evolve(fitness, theta, ES, **again)
    with pytest.raises(ConfigError, match="is not a run"):
        jax_es.load_policy("run")
