"""An archive is read in the order of time, and drawn where it lies."""

import numpy as np
import pytest

from jax_es.analysis.positions import archive, area, positions
from jax_es.checks import ConfigError
from jax_es.runs.checkpoint import Checkpoints
from tests.made_runs import TINY, save_run


def test_an_archive_is_read_oldest_first(tmp_path):
    path = save_run(tmp_path / "run", TINY)
    with pytest.raises(ConfigError, match="run is no run of novelty search"):
        archive(path)
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    for archived, order in ((3, [0, 1, 2]), (4, [0, 1, 2, 3]), (6, [2, 3, 0, 1])):
        state = {"es": {"archive": rows, "archived": np.int32(archived)}}
        Checkpoints(path / "checkpoints").save(90 + archived, state)
        np.testing.assert_array_equal(archive(path), rows[order])


def test_panels_are_alike_and_hold_all_points_and_walls():
    points = {"a": np.array([[0.0, 0.0], [3.0, -7.0]]), "b": np.array([[1.0, 1.0]])}
    figure = positions(points, [(5.0, 0.0, 0.5, 2.0)])
    for axis in figure.axes:
        assert axis.get_xlim() == (-1.0, 6.5) and axis.get_ylim() == (-8.0, 3.0)
        assert len(axis.patches) == 1
    assert area(points["a"], side=2.0) == 8.0
