"""Two runs, or two trees of arrays, are the same."""

import dataclasses

import jax
import numpy as np

from jax_es.runs.metrics import read_metrics
from jax_es.runs.records import WALL_CLOCK_FIELDS


def numbers(path):
    """A run's records without their wall-clock fields."""
    records = [dataclasses.asdict(record) for record in read_metrics(path)]
    return [
        {name: v for name, v in record.items() if name not in WALL_CLOCK_FIELDS}
        for record in records
    ]


def variables_of(population):
    """What policies read of every member of antithetic pairs, ``[N, 2, …]``."""

    def pair(index):
        epsilon = population.group(index)
        both = 2 * index + jax.numpy.arange(2)
        return jax.vmap(lambda member: population.variables(epsilon, member))(both)

    return jax.vmap(pair)(jax.numpy.arange(population.num_pairs))


def assert_equal_bits(first, second):
    """Asserts that structures, dtypes and values are equal; keys by their data."""
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        if jax.dtypes.issubdtype(getattr(a, "dtype", float), jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
