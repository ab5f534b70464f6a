"""What cannot fit into memory is refused, by the argument that asks for too much."""

import pytest

from jax_es.checks import ConfigError
from jax_es.rollout import memory


def test_the_argument_that_breaks_the_limit_is_named():
    memory.check_memory({"a 1": 40, "b 2": 60}, limit=100)
    with pytest.raises(ConfigError, match=r"^b 2 would take about 3\.0 GiB of memory"):
        memory.check_memory({"a 1": 1, "b 2": 3 * 2**30, "c 3": 5}, limit=2**31)
