"""The programs of the slots write in place, as compiled for real: mapped over devices.

XLA's CPU code is read, for a copy costs no correctness and no error, only time: at one
point half of a cached transformer's step went into copying its cache twice.
"""

import re

import jax
import numpy as np
import pytest

from jax_es.config import ESConfig
from jax_es.devices import Devices
from jax_es.noise import FullNoise, LowRankNoise
from jax_es.openai_es import openai_es
from jax_es.slots import Refill, Shared, SlotPrograms
from models import BoxActions, DecisionTransformerConfig, make_policy

OBSERVATION_SIZE, WIDTH = 5, 6


def make_programs(num_heads, attention, noise):
    """Programs of a transformer on two devices, and what they are called with."""
    config = DecisionTransformerConfig(
        context_length=9,
        width=16,
        num_layers=2,
        num_heads=num_heads,
        max_timestep=40,
        attention=attention,
    )
    policy = make_policy(config, OBSERVATION_SIZE, BoxActions((-1.0,), (1.0,)))
    devices = Devices(jax.devices("cpu")[:2])
    observation = jax.ShapeDtypeStruct((OBSERVATION_SIZE,), np.float32)
    programs = SlotPrograms(policy, noise, devices, WIDTH, observation)
    es = openai_es(ESConfig(num_pairs=2), noise)
    population = es.ask(es.init(jax.random.key(0), policy.init(jax.random.key(1))))
    normalizer = np.zeros(OBSERVATION_SIZE, "f4"), np.ones(OBSERVATION_SIZE, "f4")
    shared = devices.share(Shared(population, *normalizer, ()))
    return programs, devices, shared, *programs.empty(shared, WIDTH)


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


CASES = [
    pytest.param(heads, noise, id=f"{heads}-heads-{name}")
    for heads in (1, 2)
    for name, noise in {
        "full": FullNoise(),
        "rank-1": LowRankNoise(1),
        "rank-2": LowRankNoise(2),
    }.items()
]


@pytest.mark.parametrize(("num_heads", "noise"), CASES)
def test_acting_copies_no_cache(num_heads, noise):
    programs, devices, shared, slots, carry = make_programs(num_heads, "cache", noise)
    inputs = (
        np.zeros((2, WIDTH, OBSERVATION_SIZE), "f4"),
        np.zeros((2, WIDTH), "f4"),
        np.zeros((2, WIDTH), "i4"),
    )
    lowered = programs._act.lower(shared, slots, carry, *devices.put(inputs))
    compiled = lowered.compile()
    caches = sizes(carry)
    assert len(caches) == 1, "all caches are as large as each other"
    assert not copies(compiled.as_text(), caches)
    on_device = sum(leaf.nbytes for leaf in jax.tree.leaves(carry)) // 2
    assert compiled.memory_analysis().alias_size_in_bytes == on_device


@pytest.mark.parametrize(("num_heads", "noise"), CASES)
def test_refilling_copies_no_members(num_heads, noise):
    programs, devices, shared, slots, _ = make_programs(num_heads, "cache", noise)
    refill = devices.put(Refill.empty(2, WIDTH))
    compiled = programs._refill.lower(shared, slots, refill).compile()
    assert not copies(compiled.as_text(), sizes(slots.variables))
    on_device = sum(leaf.nbytes for leaf in jax.tree.leaves(slots)) // 2
    assert compiled.memory_analysis().alias_size_in_bytes == on_device


def test_the_reading_would_notice():
    program = "  %copy.3 = f32[1,6,2]{2,1,0} copy(%p)\n  %transpose = f32[7]{0} x(%q)\n"
    assert copies(program, {12, 7}) == ["copy.3[1,6,2]", "transpose[7]"]
    assert not copies(program, {6})
