"""The learning-curve program: grouping, numbers, picture, bad input."""

import dataclasses

import numpy as np
import pytest

from jax_es import plot
from jax_es.config import EnvConfig
from jax_es.experiment import TrainConfig
from jax_es.metrics import GenerationRecord, MetricsWriter
from jax_es.run_directory import RunDirectory
from models import DecisionTransformerConfig, MLPConfig


def record(generation, steps, evaluation):
    values = {
        field.name: 0
        for field in dataclasses.fields(GenerationRecord)
        if field.default is dataclasses.MISSING
    }
    values |= {
        "generation": generation,
        "total_env_steps": steps,
        "evaluation_return_mean": evaluation,
        "best_evaluation_return": evaluation,
        "seconds_elapsed": 60.0 * (generation + 1),
    }
    return GenerationRecord(**values)


def make_run(folder, policy, evaluations, steps=1000, env=None):
    run = RunDirectory(folder)
    run.create(TrainConfig(env=env or EnvConfig("Hopper-v5"), policy=policy), "test")
    with MetricsWriter(folder) as writer:
        for generation, evaluation in enumerate(evaluations):
            writer.write(record(generation, (generation + 1) * steps, evaluation))
    return folder


@pytest.fixture
def runs(tmp_path):
    return (
        make_run(tmp_path / "a", MLPConfig(), [0.0, 10.0]),
        make_run(tmp_path / "b", MLPConfig(), [4.0, 30.0]),
        make_run(tmp_path / "c", DecisionTransformerConfig(), [1.0, 2.0]),
        make_run(tmp_path / "d", MLPConfig(), [7.0], env=EnvConfig("Hopper-v5", 50)),
    )


def test_runs_are_grouped_by_task_and_policy(runs):
    panels = plot.group(runs)
    counts = {task: {k: len(v) for k, v in p.items()} for task, p in panels.items()}
    assert counts == {
        "Hopper-v5": {"mlp": 2, "decision-transformer": 1},
        "Hopper-v5, 50 steps": {"mlp": 1},
    }


def test_the_table_holds_medians_and_ranges(runs):
    rows = plot.table(plot.group(runs)).splitlines()[2:]
    assert rows[1].split(" | ")[1:] == [
        *("mlp", "2", "2 (0 to 4)", "20 (10 to 30)", "20 (10 to 30)"),
        *("0.00 M", "2.0 |"),
    ]


def test_a_band_spans_the_runs_as_far_as_all_reach():
    short = [record(0, 0, 0.0), record(1, 100, 10.0)]
    long = [record(0, 0, 4.0), record(1, 200, 24.0)]
    x, median, low, high = plot.band(
        [short, long], "total_env_steps", "evaluation_return_mean"
    )
    assert (x[0], x[-1]) == (0, 100)
    np.testing.assert_allclose((low[-1], median[-1], high[-1]), (10, 12, 14))
    assert (low <= median).all() and (median <= high).all()


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("x", ["env-steps", "generations", "seconds"])
def test_the_picture_shows_every_line(runs, tmp_path, capsys, ending, x):
    output = tmp_path / "new" / f"curves.{ending}"
    arguments = [*map(str, runs), "--output", str(output), "--x", x]
    assert plot.main(arguments) == 0
    assert "| Hopper-v5 | mlp | 2 |" in capsys.readouterr().out
    head = output.read_bytes()[:200]
    assert (b"PNG" in head) if ending == "png" else (b"<?xml" in head)
    figure = plot.draw(plot.group(runs), x, "evaluation")
    assert [a.get_title() for a in figure.axes] == ["Hopper-v5", "Hopper-v5, 50 steps"]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["decision-transformer (1 seed)", "mlp (2 seeds)"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "RUN is missing"),
        (["nowhere"], "nowhere is not a run"),
        (["{run}", "--output", "curves"], "--output must end in .png"),
        (["{run}", "--output", "curves.jxl"], "curves.jxl cannot be written"),
        (["{empty}"], "no finished generation"),
    ],
)
def test_bad_input_is_one_line(runs, tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    empty = make_run(tmp_path / "empty", MLPConfig(), [])
    names = {"run": runs[0], "empty": empty}
    assert plot.main([text.format(**names) for text in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and words in line
