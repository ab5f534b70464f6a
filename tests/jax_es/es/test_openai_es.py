"""The update against NumPy, against its own past, and as a contract."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_es.config import ESConfig
from jax_es.es.noise import FullNoise, LowRankNoise, Noise
from jax_es.es.openai_es import openai_es
from jax_es.rollout.devices import Devices
from jax_es.rollout.weighted_sum import spread_weighted_sum
from tests.comparing import assert_equal_bits
from tests.jax_es.es.drawn import drawn, flat
from tests.jax_es.es.test_fitness import numpy_weights

pytestmark = pytest.mark.usefixtures("strict_jax")

GOLDEN = Path(__file__).parents[2] / "golden" / "openai_es.json"
KEY = jax.random.key(11)
MEAN = {
    "bias": jnp.array([0.3, -0.2]),
    "kernel": jnp.array([[0.5, -1.0, 0.25], [2.0, 0.0, -0.75]]),
}


def fitness_of(members: np.ndarray) -> np.ndarray:
    """Not symmetric, not separable; weights ``[…, |θ|]``."""
    target = np.linspace(-1, 1, members.shape[-1])
    error = members - target
    return -(error**2).sum(-1) + 0.5 * np.sin(3 * members.sum(-1)) + 100


class NumpyES:
    """One OpenAI-ES in float64 that shares only ε with ours."""

    def __init__(self, config: ESConfig, mean: np.ndarray, noise: Noise) -> None:
        self.config = config
        self.noise = noise
        self.mean = mean
        self.momentum = np.zeros_like(mean)
        self.second = np.zeros_like(mean)
        self.generation = 0

    def step(self) -> np.ndarray:
        config = self.config
        key, pairs = jax.random.fold_in(KEY, self.generation), range(config.num_pairs)
        parts = jax.tree.leaves(drawn(self.noise, key, pairs, MEAN))
        rows = [part.reshape(config.num_pairs, -1) for part in parts]
        epsilons = np.concatenate(rows, axis=1)  # [N, |θ|]
        plus = fitness_of(self.mean + config.sigma * epsilons)
        minus = fitness_of(self.mean - config.sigma * epsilons)
        fitness = np.stack([plus, minus], axis=1)
        weights = numpy_weights(config.shaping, fitness)
        g = weights @ epsilons / (2 * config.num_pairs * config.sigma)
        self.generation += 1
        if config.optimizer == "momentum":
            beta = config.momentum
            self.momentum = beta * self.momentum + (1 - beta) * g
            direction = self.momentum
        elif config.optimizer == "adam":
            self.momentum = 0.9 * self.momentum + 0.1 * g
            self.second = 0.999 * self.second + 0.001 * g**2
            first = self.momentum / (1 - 0.9**self.generation)
            second = self.second / (1 - 0.999**self.generation)
            direction = first / (np.sqrt(second) + 1e-8)
        else:
            direction = g
        self.gradient = g
        moved = self.mean + config.learning_rate * direction
        self.mean = (1 - config.weight_decay) * moved
        return fitness


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("optimizer", "shaping", "noise"),
    [
        ("momentum", "pair_rank", FullNoise()),
        ("sgd", "standardize", FullNoise()),
        ("adam", "centered_rank", FullNoise()),
        ("momentum", "pair_rank", LowRankNoise(1)),
    ],
)
def test_update_equals_numpy(optimizer, shaping, noise):
    config = ESConfig(
        num_pairs=10,
        sigma=0.1,
        learning_rate=0.02,
        momentum=0.7,
        weight_decay=0.05,
        optimizer=optimizer,
        shaping=shaping,
    )
    es = openai_es(config, noise)
    reference = NumpyES(config, flat(MEAN), noise)
    state = es.init(KEY, MEAN)
    for generation in range(4):
        before = reference.mean
        fitness = reference.step()
        state, info = es.tell(state, fitness)
        np.testing.assert_allclose(flat(state.mean), reference.mean, atol=3e-6)
        norm = np.linalg.norm
        assert info.gradient_norm == pytest.approx(norm(reference.gradient), rel=1e-5)
        assert info.update_norm == pytest.approx(norm(reference.mean - before), 1e-4)
        assert info.mean_norm == pytest.approx(norm(reference.mean), rel=1e-5)
        assert state.generation == generation + 1
    # The weights moved by far more than the tolerance, or nothing was tested.
    assert norm(flat(state.mean) - flat(MEAN)) > 0.05


def test_generations_and_keys_give_other_members():
    es = openai_es(ESConfig(num_pairs=2))
    state = es.init(KEY, MEAN)
    later = state._replace(generation=state.generation + 1)
    other = es.init(jax.random.key(12), MEAN)
    drawn = [flat(es.ask(s).members) for s in (state, later, other, state)]
    assert (drawn[0] == drawn[3]).all()
    assert (drawn[0] != drawn[1]).mean() > 0.9
    assert (drawn[0] != drawn[2]).mean() > 0.9


def test_ask_and_tell_are_pure():
    es = openai_es(ESConfig(num_pairs=12))
    state = es.init(KEY, MEAN)
    fitness = jnp.arange(24.0).reshape(12, 2) ** 2
    first = es.tell(state, fitness)
    assert es.ask(state).members["kernel"].shape[0] == 24
    assert_equal_bits(es.tell(state, fitness), first)


@pytest.mark.parametrize(
    ("num_devices", "noise", "optimizer"),
    [
        (None, FullNoise(), "momentum"),
        (None, FullNoise(), "sgd"),
        (2, LowRankNoise(1), "adam"),
    ],
)
def test_second_tell_compiles_nothing(compilations, num_devices, noise, optimizer):
    """So the state keeps its structure, shapes and types, weak ones among them."""
    devices = None if num_devices is None else Devices(jax.devices()[:num_devices])
    spread = None if devices is None else spread_weighted_sum(noise, devices)
    config = ESConfig(num_pairs=12, optimizer=optimizer)
    es = openai_es(config, noise, weighted_sum=spread)
    # As a run does: the state lives on all devices, returns are NumPy's.
    state = es.init(KEY, MEAN)
    state = state if devices is None else devices.share(state)
    fitness = np.arange(24.0).reshape(12, 2) ** 2
    state, _ = jax.block_until_ready(es.tell(state, fitness))
    assert compilations
    compilations.clear()
    for _ in range(2):
        state, _ = jax.block_until_ready(es.tell(state, fitness))
    assert not compilations


def test_nonfinite_returns_are_counted_and_harmless():
    es = openai_es(ESConfig(num_pairs=4))
    fitness = jnp.array([[jnp.nan, 1.0], [2.0, jnp.inf], [3.0, 0.0], [-jnp.inf, 5.0]])
    state, info = es.tell(es.init(KEY, MEAN), fitness)
    assert info.num_nonfinite == 3
    assert np.isfinite(flat(state.mean)).all()


@pytest.mark.parametrize("shape", [(7,), (2, 4), (4, 2, 1)])
def test_wrong_fitness_shape_says_what_is_expected(shape):
    es = openai_es(ESConfig(num_pairs=4))
    with pytest.raises(ValueError, match=r"\[P\] = \(8,\), or \(4, 2\)") as caught:
        es.tell(es.init(KEY, MEAN), jnp.zeros(shape))
    assert str(shape) in str(caught.value)


def test_more_pairs_than_the_smallest_number_are_told_alike():
    """N pairs make the same step whether they are always N or N by now."""
    fitness = np.random.default_rng(0).normal(size=(12, 2))
    mean = {"x": jnp.arange(5.0)}
    fixed = openai_es(ESConfig(num_pairs=12))
    grown = openai_es(ESConfig(num_pairs=4, interactions_per_generation=1))
    told = [
        es.tell(es.init(jax.random.key(0), mean), fitness)[0].mean["x"]
        for es in (fixed, grown)
    ]
    np.testing.assert_array_equal(*told)
    with pytest.raises(ValueError, match="fitness must have shape"):
        grown.tell(grown.init(jax.random.key(0), mean), fitness[:6])


def test_another_number_of_pairs_compiles_no_second_step(caplog):
    """A step has as many operations as θ has leaves: seconds for a transformer."""
    es = openai_es(
        ESConfig(num_pairs=4, interactions_per_generation=1, learning_rate=0.017)
    )
    state = es.init(jax.random.key(0), {"x": jnp.arange(5.0)})
    fitness = np.random.default_rng(0).normal(size=(12, 2))
    compiled = []
    for told in (fitness[:4], fitness):
        caplog.clear()
        with jax.log_compiles():
            state, _ = es.tell(state, told)
        compiled.append("ascend" in caplog.text)
    assert compiled == [True, False]


def golden_run(config: ESConfig, generations: int, mean: list, target: list) -> list:
    """θ after each generation on −‖θ − target‖², rounded to float32."""
    es = openai_es(config)
    state = es.init(jax.random.key(0), {"x": jnp.array(mean)})
    centre = jnp.array(target)
    ask = jax.jit(lambda state: es.ask(state).members["x"])
    path = []
    for _ in range(generations):
        members = ask(state)
        fitness = -jnp.sum((members - centre[None]) ** 2, axis=-1)
        state, _ = es.tell(state, fitness)
        path.append(np.asarray(state.mean["x"]).tolist())
    return path


def write_golden() -> None:
    """Stores today's numbers: only when a change of the algorithm is intended.

    From the repository root, with the settings of ``tests.conftest`` imported first:
    ``import tests.conftest, tests.jax_es.es.test_openai_es as t; t.write_golden()``
    """
    config = {"num_pairs": 16, "sigma": 0.1, "learning_rate": 0.2, "weight_decay": 0.01}
    run = {"generations": 8, "mean": [3.0, -2.0, 0.5], "target": [1.0, 1.0, 1.0]}
    path = golden_run(ESConfig(**config), **run)
    record = {"config": config, "run": run, "path": path}
    GOLDEN.write_text(json.dumps(record, indent=1) + "\n")


@pytest.mark.compiled
def test_run_equals_the_golden_one():
    golden = json.loads(GOLDEN.read_text())
    path = golden_run(ESConfig(**golden["config"]), **golden["run"])
    np.testing.assert_allclose(path, golden["path"], rtol=0, atol=1e-6)
    # It is a run that gets somewhere.
    target = np.array(golden["run"]["target"])
    distances = np.linalg.norm(np.array(path) - target, axis=1)
    assert distances[-1] < 0.7 * distances[0]
