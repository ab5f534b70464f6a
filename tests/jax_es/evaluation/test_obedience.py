"""The measures of obedience, by hand."""

import numpy as np
import pytest

from jax_es.evaluation.conditions import BASE, Condition, Evaluation
from jax_es.evaluation.obedience import Obedience, obedience, over_runs, rows
from tests.made_runs import results_of

NONE = np.nan


def given(returns):
    return {float(c): np.array(r, float) for c, r in returns.items()}


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        pytest.param(
            {0: [0, 0], 4: [4, 4], 8: [8, 8]},
            Obedience(1, 1, 0, 0, 0, 8, 0, 0, 0),
            id="perfect",
        ),
        pytest.param(
            # Each command has the same episodes, one unit from the lower command.
            {0: [1, 3], 4: [1, 3]},
            Obedience(0, 0, 2, 2, 2, 2, np.inf, 0.5, np.inf),
            id="none",
        ),
        pytest.param(
            {0: [5, 5], 4: [5, 5]},
            Obedience(0, 0, 5, 3, 5, 5, np.inf, 0.75, np.inf),
            id="constant",
        ),
        pytest.param(
            {0: [4, 4], 4: [0, 0]},
            Obedience(-1, -1, 4, 4, 0, 4, 1, 1, 1),
            id="the opposite",
        ),
        pytest.param(
            # 0, 0, 8, 8 off: a wide range that is reached does not excuse it.
            {0: [0, 0], 4: [12, 12]},
            Obedience(1, 3, 0, 4, 0, 12, 1 / 3, 1, 1),
            id="too much",
        ),
        pytest.param(
            # 0, 0, 9, 9 off: nor does a wide range that is asked for.
            {0: [0, 0], 10: [1, 1]},
            Obedience(1, 0.1, 0, 4.5, 0, 1, 4.5, 0.45, 4.5),
            id="too little",
        ),
        pytest.param(
            # Errors of episodes count, also where they cancel in the mean.
            {0: [-1, 1], 4: [3, 5]},
            Obedience(2 / np.sqrt(5), 1, 0, 1, 0, 4, 0.25, 0.25, 0.25),
            id="spread",
        ),
        pytest.param(
            {0: [0, np.nan], 4: [4, np.inf], 9: [np.nan, np.nan]},
            Obedience(1, 1, 0, 0, 0, 4, 0, 0, 0),
            id="some are not finite",
        ),
        pytest.param(
            {0: [1, 2], 4: [np.nan, np.nan]}, Obedience(*[NONE] * 9), id="too few"
        ),
    ],
)
def test_measures_by_hand(returns, expected):
    found = obedience(given(returns))
    assert found._asdict() == pytest.approx(expected._asdict(), nan_ok=True)


def made(path, returns):
    results = {Condition(target_return=c): results_of(r) for c, r in returns.items()}
    return Evaluation(path, None, {BASE: results_of([1.0]), **results})  # type: ignore


def test_several_runs_have_medians_and_ranges():
    perfect = made("x/seed-0", {0.0: [0, 0], 4.0: [4, 4]})
    opposite = made("x/seed-1", {0.0: [4, 4], 4.0: [0, 0]})
    constant = made("x/seed-2", {0.0: [5, 5], 4.0: [5, 5]})
    over = over_runs([perfect, opposite, constant])
    assert [over[k]["spearman"] for k in ("median", "lowest", "highest")] == [0, -1, 1]
    assert [over[k]["error"] for k in ("median", "lowest", "highest")] == [1, 0, None]
    *single, together = rows([perfect, opposite, constant], "x/seed-* (3 runs)")
    assert [row["of the range reached"] for row in single] == ["0 %", "100 %", "∞"]
    assert together["run"] == "x/seed-* (3 runs)"
    assert together["rank correlation"] == "0.00 (-1.00 to 1.00)"
    assert together["mean error"] == "3.00 (0.00 to 4.00)"


def test_one_return_asked_for_says_nothing_of_obedience():
    one = made("x", {0.0: [0, 0]})
    assert rows([one], "x") == [] and over_runs([one, one]) == {}
