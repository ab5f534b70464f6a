"""What cannot fit into memory is refused, by the argument that asks for too much."""

import os

import pytest

from jax_es.checks import ConfigError
from jax_es.rollout import memory


def test_the_argument_that_breaks_the_limit_is_named():
    memory.check_memory({"a 1": 40, "b 2": 60}, limit=100)
    with pytest.raises(ConfigError, match=r"^b 2 would take about 3\.0 GiB of memory"):
        memory.check_memory({"a 1": 1, "b 2": 3 * 2**30, "c 3": 5}, limit=2**31)


@pytest.mark.parametrize(("text", "limit"), [("max", None), ("4096\n", 4096)])
def test_a_containers_limit_is_below_the_machines(tmp_path, monkeypatch, text, limit):
    file = tmp_path / "memory.max"
    file.write_text(text)
    monkeypatch.setattr(memory, "_CGROUP_LIMITS", (str(file), str(tmp_path / "gone")))
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory.memory_limit() == (limit or machine)
