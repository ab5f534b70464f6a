"""Interquartile means and their bootstrap, against NumPy and known distributions."""

import re

import numpy as np
import pytest

from jax_es import plot
from jax_es.analysis import aggregate, curves
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig
from jax_es.models import LSTMConfig, MLPConfig
from tests.jax_es.test_plot import make_run


def test_the_bootstrap_is_stratified():
    generator = np.random.default_rng(0)
    tasks = [generator.normal(0, 1, 10), generator.normal(5, 0.1, 10)]
    found = aggregate.interval(tasks)
    resampled = np.sort(
        np.concatenate([generator.choice(t, (20_000, 10)) for t in tasks], axis=1)
    )
    iqms = resampled[:, 5:15].mean(axis=1)
    low, high = np.percentile(iqms, [2.5, 97.5])
    middle = np.sort(np.concatenate(tasks))[5:15]
    np.testing.assert_allclose(found.iqm, middle.mean())
    np.testing.assert_allclose((found.low, found.high), (low, high), atol=0.03)
    # Not stratified, tasks themselves would come and go: several times as wide.
    pooled = np.sort(generator.choice(np.concatenate(tasks), (20_000, 20)))
    iqms = pooled[:, 5:15].mean(axis=1)
    assert np.ptp(np.percentile(iqms, [2.5, 97.5])) > 2 * (found.high - found.low)


def test_each_point_of_a_curve_has_its_own_interval():
    samples = [np.array([[0.0, 1.0], [2.0, 2.0]]), np.array([[0.0, 1.0], [2.0, 2.0]])]
    found = aggregate.interval(samples)
    assert found.iqm.tolist() == [0.5, 2.0]
    assert (found.low[0], found.high[0]) == (0.0, 1.0)
    assert (found.low[1], found.high[1]) == (2.0, 2.0)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Two tasks, two policies, two seeds: the initial networks reach 0 and 100."""
    tmp_path, made = tmp_path_factory.mktemp("runs"), []
    for task, start, gain in (("Hopper-v5", 0.0, 10.0), ("Ant-v5", 100.0, 1000.0)):
        for policy, speed in ((MLPConfig(), 0.5), (LSTMConfig(), 1.0)):
            for seed in (0, 1):
                folder = tmp_path / f"{task}-{speed}-{seed}"
                returns = [start, start + speed * gain]
                env = EnvConfig(task)
                made.append(make_run(folder, policy, returns, env=env, seed=seed))
    return made


def test_scores_are_between_the_initial_network_and_the_best(paths):
    panels = curves.group(paths)
    scale = aggregate.scales(panels)
    assert scale == {"Hopper-v5": (0, 10), "Ant-v5": (100, 1100)}
    for kind, expected in (("mlp", 0.5), ("lstm", 1.0)):
        end = aggregate.final(panels, kind, "evaluation_return_mean", scale)
        assert end == (expected, expected, expected)
        line = aggregate.curve(
            panels, kind, "generation", "evaluation_return_mean", scale
        )
        assert line.x.tolist() == [0, 1]
        np.testing.assert_allclose(line.median, [0, expected])
    scale = aggregate.scales(panels, {"Hopper-v5": 100.0})
    assert scale["Hopper-v5"] == (0, 100)


def test_the_program_draws_and_prints_it(paths, tmp_path, capsys):
    output = tmp_path / "plots"
    arguments = [*map(str, paths), "--figure", "aggregate", "--output", str(output)]
    assert plot.main([*arguments, "--reference", "Hopper-v5=20"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"\| mlp \| 4 \| 0\.3\d \(0\.\d\d to 0\.\d\d\) \|", text)
    assert "| Hopper-v5 | 0 | 20 |" in text and "| Ant-v5 | 100 | 1,100 |" in text
    assert (output / "aggregate.png").exists() and (output / "aggregate.svg").exists()


@pytest.mark.parametrize(
    ("keep", "references", "words"),
    [
        (slice(0, 4), {}, "at least two tasks"),
        (slice(0, 6), {}, "lstm on Ant-v5 has 0"),
        (slice(0, 7), {}, "at least 2 seeds"),
        (slice(None), {"Swimmer-v5": 1.0}, "no run of that task"),
        (slice(None), {"Ant-v5": 100.0}, "Ant-v5 cannot be normalised"),
    ],
)
def test_what_cannot_be_compared_is_one_line(paths, keep, references, words):
    panels = curves.group(paths[keep])
    with pytest.raises(ConfigError, match=words) as error:
        aggregate.check_comparable(panels)
        aggregate.scales(panels, references)
    assert "\n" not in str(error.value)
