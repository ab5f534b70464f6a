"""The programs of the slots write in place, as compiled for real: mapped over devices.

XLA's CPU code is read, for a copy costs no correctness and no error, only time: at one
point half of a cached transformer's step went into copying its cache twice.
"""

import re

import jax
import numpy as np
import pytest

from jax_es.config import ESConfig
from jax_es.es.noise import FullNoise, LowRankNoise
from jax_es.es.openai_es import openai_es
from jax_es.es.population import MEAN
from jax_es.models import (
    BoxActions,
    CNNConfig,
    DecisionTransformerConfig,
    DiscreteActions,
    make_policy,
)
from jax_es.rollout.devices import Devices
from jax_es.rollout.slots import Refill, Shared, SlotPrograms
from tests.comparing import variables_of

OBSERVATION_SIZE, WIDTH = 5, 6


def make_programs(num_heads, noise):
    """Programs of a transformer on two devices, and what they are called with."""
    config = DecisionTransformerConfig(
        context_length=9,
        width=16,
        num_layers=2,
        num_heads=num_heads,
        max_timestep=40,
        attention="cache",
    )
    policy = make_policy(config, OBSERVATION_SIZE, BoxActions((-1.0,), (1.0,)))
    devices = Devices(jax.devices("cpu")[:2])
    observation = jax.ShapeDtypeStruct((OBSERVATION_SIZE,), np.float32)
    programs = SlotPrograms(policy, devices, WIDTH, observation)
    es = openai_es(ESConfig(num_pairs=2), noise)
    population = es.ask(es.init(jax.random.key(0), policy.init(jax.random.key(1))))
    normalizer = np.zeros(OBSERVATION_SIZE, "f4"), np.ones(OBSERVATION_SIZE, "f4")
    shared = devices.share(Shared(population, *normalizer, np.float32(np.inf)))
    return programs, devices, shared, *programs.empty(shared)


def copies(program: str, shapes: set[int]) -> list[str]:
    """Names of the instructions that copy or transpose an array of one of the sizes."""
    found = []
    pattern = r"%(\S*(?:copy|transpose)\S*) = \w+\[([\d,]+)\]"
    for name, shape in re.findall(pattern, program):
        if np.prod([int(n) for n in shape.split(",")]) in shapes:
            found.append(f"{name}[{shape}]")
    return found


def sizes(tree) -> set[int]:
    """Sizes of a tree's arrays on one device, other than a few numbers a slot."""
    leaves = jax.tree.leaves(tree)
    return {leaf.size // 2 for leaf in leaves if leaf.size > 2 * 4 * WIDTH}


@pytest.mark.compiled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_heads", "noise"), [(1, LowRankNoise(1)), (2, FullNoise())]
)
def test_acting_copies_no_cache_and_refilling_no_members(num_heads, noise):
    programs, devices, shared, slots, carry = make_programs(num_heads, noise)
    inputs = (
        np.zeros((2, WIDTH, OBSERVATION_SIZE), "f4"),
        np.zeros((2, WIDTH), "f4"),
        np.zeros((2, WIDTH), "i4"),
    )
    act = programs._act.lower(shared, slots, carry, *devices.put(inputs))
    refill = devices.put(Refill.empty(2, WIDTH))
    assert len(sizes(carry)) == 1, "all caches are as large as each other"
    for lowered, kept, donated in (
        (act, carry, carry),
        (programs._refill.lower(shared, slots, refill), slots.variables, slots),
    ):
        compiled = lowered.compile()
        assert not copies(compiled.as_text(), sizes(kept))
        on_device = sum(leaf.nbytes for leaf in jax.tree.leaves(donated)) // 2
        assert compiled.memory_analysis().alias_size_in_bytes == on_device


def test_the_reading_would_notice():
    program = "  %copy.3 = f32[1,6,2]{2,1,0} copy(%p)\n  %transpose = f32[7]{0} x(%q)\n"
    assert copies(program, {12, 7}) == ["copy.3[1,6,2]", "transpose[7]"]
    assert not copies(program, {6})


@pytest.mark.slow
def test_a_slot_holds_the_statistics_of_its_members_weights():
    """Virtual batch normalisation: the mean policy's among them, and both signs."""
    shape, width, noise = (1, 20, 20), 4, LowRankNoise(1)
    policy = make_policy(CNNConfig(hidden_size=3), shape, DiscreteActions(2))
    devices = Devices(jax.devices("cpu")[:1])
    observation = jax.ShapeDtypeStruct(shape, np.uint8)
    programs = SlotPrograms(policy, devices, width, observation)
    es = openai_es(ESConfig(num_pairs=2, sigma=0.3), noise)
    population = es.ask(es.init(jax.random.key(0), policy.init(jax.random.key(1))))
    random = np.random.default_rng(0)
    reference = random.integers(256, size=(5, *shape), dtype=np.uint8)
    mean = np.float32(random.uniform(size=shape))
    std = np.float32(random.uniform(0.1, 1.0, size=shape))
    shared = devices.share(Shared(population, mean, std, np.float32(np.inf), reference))
    slots, _ = programs.empty(shared)
    refill = Refill.empty(1, width)
    refill.count[0] = 3
    refill.position[0, :3] = 3, 0, 1
    refill.member[0, :3] = 2, 3, MEAN
    slots = programs.refill(shared, slots, refill)
    members = variables_of(population)
    seen = (np.float32(reference) / 255 - mean) / std

    def statistics_of(variables):
        return policy.prepare({**noise.shared(population.mean), **variables}, seen)

    plus, minus = (
        jax.tree.map(lambda leaf, side=side: leaf[1, side], members) for side in (0, 1)
    )
    mean_policy = {"params": population.mean}
    for position, variables in ((3, plus), (0, minus), (1, mean_policy)):
        expected = statistics_of(variables)["batch_stats"]
        held = jax.tree.map(
            lambda leaf, p=position: np.asarray(leaf)[0, p],
            slots.variables["batch_stats"],
        )
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
            held,
            expected,
        )
    one, other = (statistics_of(v)["batch_stats"]["norms_2"] for v in (plus, minus))
    assert np.abs(one["mean"] - other["mean"]).max() > 0.01
