"""The learning-curve program: grouping, numbers, picture, bad input."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from jax_es import plot
from jax_es.analysis import curves, figures
from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, ESConfig
from jax_es.evaluation.conditions import BASE, Condition, Evaluation
from jax_es.models import DecisionTransformerConfig, MLPConfig
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import MetricsWriter
from jax_es.runs.records import GenerationRecord, evaluation_record
from jax_es.training.build import TrainConfig

ROOT = Path(__file__).parents[2]


def record(generation, steps, evaluation, **more):
    values = {"seconds_total": 60.0, "seconds_elapsed": 60.0 * (generation + 1)}
    return GenerationRecord(
        generation=generation,
        total_env_steps=steps,
        evaluation_return_mean=evaluation,
        best_evaluation_return=evaluation,
        **values | more,
    )


def make_run(folder, policy, evaluations, steps=1000, env=None, seed=0, es=None):
    run = RunDirectory(folder)
    env, es = env or EnvConfig("Hopper-v5"), es or ESConfig()
    run.create(TrainConfig(env=env, policy=policy, seed=seed, es=es), "test")
    with MetricsWriter(folder) as writer:
        for generation, evaluation in enumerate(evaluations):
            writer.write(record(generation, (generation + 1) * steps, evaluation))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("runs")
    return (
        make_run(tmp_path / "a", MLPConfig(), [0.0, 10.0]),
        make_run(tmp_path / "b", MLPConfig(), [4.0, 30.0], seed=1),
        make_run(tmp_path / "c", DecisionTransformerConfig(), [1.0, 2.0]),
        make_run(tmp_path / "d", MLPConfig(), [7.0], env=EnvConfig("Hopper-v5", 50)),
    )


def test_runs_are_grouped_by_task_and_policy(runs):
    panels = curves.group(runs)
    counts = {task: {k: len(v) for k, v in p.items()} for task, p in panels.items()}
    assert counts == {
        "Hopper-v5": {"mlp": 2, "decision-transformer": 1},
        "Hopper-v5, 50 steps": {"mlp": 1},
    }


def test_the_table_holds_medians_and_ranges(runs):
    rows = plot.table(curves.group(runs)).splitlines()[2:]
    assert rows[1].split(" | ")[1:] == [
        *("mlp", "2", "2 (0 to 4)", "20 (10 to 30)", "20 (10 to 30)"),
        *("0.00 M", "2.0 |"),
    ]


def test_small_returns_have_significant_digits():
    small = [record(0, 0, 0.00412), record(1, 100, 0.9531)]
    first, last, *_ = curves.summary([small, [record(0, 0, 0.0), record(1, 9, 12.0)]])
    assert (first, last) == ("0.00206 (0 to 0.00412)", "6.48 (0.953 to 12)")


def test_a_band_is_the_quartiles_as_far_as_all_runs_reach():
    short = [record(0, 0, 0.0), record(1, 100, 10.0)]
    long = [record(0, 0, 4.0), record(1, 200, 24.0)]
    x, median, low, high = curves.band(
        [short, long], "total_env_steps", "evaluation_return_mean"
    )
    assert (x[0], x[-1]) == (0, 100)
    # Of 10 and 14, the quartiles lie a quarter of the way in.
    np.testing.assert_allclose((low[-1], median[-1], high[-1]), (11, 12, 13))
    assert (low <= median).all() and (median <= high).all()
    # Shared x's are kept as they are, with nothing made up between them.
    x, *_ = curves.band([short, long], "generation", "evaluation_return_mean")
    assert x.tolist() == [0, 1]


def test_an_evaluation_stands_where_its_generation_begins():
    run = [
        record(0, 100, 0.0, env_steps=100, num_episodes=4),
        record(1, 300, 10.0, env_steps=200, num_episodes=4),
        # The closing evaluation; at the end of its steps, the line would be vertical.
        record(2, 310, 500.0, env_steps=10, seconds_total=np.nan),
    ]
    for x, expected in ("total_env_steps", [0, 100, 300]), ("generation", [0, 1, 2]):
        (found,) = curves.series([run], x, "evaluation_return_mean")
        np.testing.assert_array_equal(found, [expected, [0, 10, 500]])
    (found,) = curves.series([run], "seconds_elapsed", "evaluation_return_mean")
    assert found[0].tolist() == [0, 60, 180]
    run = [
        dataclasses.replace(each, cpu_seconds=30.0 * (each.generation + 1))
        for each in run
    ]
    (found,) = curves.series([run], "cpu_seconds", "evaluation_return_mean")
    assert found[0].tolist() == [0, 30, 60]
    # What a teacher's θ reaches is known at the end of its steps.
    taught = [dataclasses.replace(each, env_steps=0) for each in run]
    (found,) = curves.series([taught], "cpu_seconds", "evaluation_return_mean")
    assert found[0].tolist() == [30, 60, 90]
    # What the members did is known at the end of their steps.
    (found,) = curves.series([run], "total_env_steps", "num_episodes")
    assert found[0].tolist() == [100, 300, 310]


def test_where_seeds_end_apart_dots_show_their_last_evaluations():
    short, long = [record(0, 0, 0.0), record(1, 100, 10.0)], [record(0, 200, 500.0)]
    for others, dots in ((short, []), (long, [(100, 10), (200, 500)])):
        panels = {"Hopper-v5": {"mlp": [short, others]}}
        axis = figures.learning(panels, ("env-steps",)).axes[0]
        found = [line for line in axis.lines if line.get_marker() == "o"]
        assert [tuple(p) for line in found for p in line.get_xydata()] == dots


@pytest.mark.parametrize("seconds", [(0.3, 40.0), (2.0, 7.0), (100.0, 3000.0)])
def test_logarithmic_axes_have_plain_numbers(seconds):
    run = [record(g, g, 0.0, seconds_total=s) for g, s in enumerate(seconds)]
    figure = figures.iteration({"Hopper-v5": {"mlp": [run]}})
    figure.draw_without_rendering()
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels(which="both")]
    assert len([float(label) for label in labels if label]) > 1


def test_runs_that_differ_otherwise_are_no_seeds_of_one_line(tmp_path):
    half = ESConfig(num_pairs=10, sigma=0.5)
    paths = [
        make_run(tmp_path / "a", MLPConfig(), [0.0]),
        make_run(tmp_path / "b", MLPConfig(), [0.0], seed=1),
        make_run(tmp_path / "c", MLPConfig(), [0.0], es=half),
    ]
    (lines,) = curves.group(paths).values()
    assert {kind: len(runs) for kind, runs in lines.items()} == {
        "mlp, num pairs 20,000, sigma 0.02": 2,
        "mlp, num pairs 10, sigma 0.5": 1,
    }


def test_a_seed_counts_once(tmp_path):
    experiment = tmp_path / "many"
    one = make_run(experiment / "seed-0", MLPConfig(), [0.0])
    make_run(experiment / "seed-1", MLPConfig(), [0.0], seed=1)
    make_run(experiment / "seed-2", MLPConfig(), [], seed=2)  # has just begun
    for paths in ([experiment], [experiment, one, "many/seed-0"]):
        assert len(curves.group(paths)["Hopper-v5"]["mlp"]) == 2
    again = make_run(tmp_path / "again", MLPConfig(), [5.0])
    with pytest.raises(ConfigError, match="are the same seed"):
        curves.group([experiment, again])


@pytest.mark.parametrize(("ending", "x"), [("png", "env-steps"), ("svg", "seconds")])
def test_the_picture_shows_every_line(runs, tmp_path, capsys, ending, x):
    output = tmp_path / "new" / f"curves.{ending}"
    arguments = [*map(str, runs), "--output", str(output), "--x", x]
    assert plot.main(arguments) == 0
    assert "| Hopper-v5 | mlp | 2 |" in capsys.readouterr().out
    head = output.read_bytes()[:200]
    assert (b"PNG" in head) if ending == "png" else (b"<?xml" in head)
    figure = figures.learning(curves.group(runs), (x,))
    assert [a.get_title() for a in figure.axes] == ["Hopper-v5", "Hopper-v5, 50 steps"]
    assert legend(figure) == ["decision-transformer (1 seed)", "mlp (1 or 2 seeds)"]
    assert [len(axis.lines) for axis in figure.axes] == [2, 1]


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Two seeds of a task, whose times and populations are known."""
    tmp_path, paths = tmp_path_factory.mktemp("runs"), []
    for seed in (0, 1):
        path = tmp_path / f"timed-{seed}"
        RunDirectory(path).create(TrainConfig(policy=MLPConfig(), seed=seed), "test")
        with MetricsWriter(path) as writer:
            for generation in range(3):
                times = {"seconds_policy": 2, "seconds_environment": 5 + 2 * seed}
                times |= {"seconds_noise": 1, "seconds_update": 1, "seconds_other": 0}
                spread = {"return_mean": 10, "return_p2_5": 4, "return_p97_5": 20}
                times["seconds_total"] = sum(times.values())
                shifted = {k: v + 2 * seed for k, v in spread.items()}
                writer.write(record(generation, 9, 1.0, **times, **shifted))
            # What no generation follows has neither a population nor their times.
            writer.write(evaluation_record(3, 12, [5.0], [3], 5.0, 99.0, env_steps=3))
        paths.append(path)
    return curves.group(paths)


def test_the_closing_evaluation_ends_the_learning_curve(timed):
    (axis,) = figures.learning(timed, ("generations",)).axes
    assert axis.get_lines()[0].get_ydata().tolist() == [1, 1, 1, 5]
    _, last, best, *_ = curves.summary(timed["Humanoid-v5"]["mlp"])
    assert (last, best) == ("5 (5 to 5)", "5 (5 to 5)")


def test_time_goes_where_it_went(timed):
    (axis,) = figures.time(timed).axes
    widths = {bars.get_label(): bars[0].get_width() for bars in axis.containers}
    expected = {"policy": 20, "environment": 60, "noise": 10, "update": 10}
    expected["other (bookkeeping on the host)"] = 0
    assert widths == pytest.approx(expected)
    assert len({bar[0].get_hatch() for bar in axis.containers}) >= 4
    assert axis.get_xlabel() == "wall-clock time (%)"


def test_the_population_is_its_mean_and_its_percentiles(timed):
    (axis,) = figures.population(timed).axes
    mean, evaluation = axis.get_lines()
    assert mean.get_ydata().tolist() == [11, 11, 11]  # median of 10 and 12
    assert evaluation.get_ydata().tolist() == [1, 1, 1, 5]  # θ's last, without members
    (area,) = axis.collections
    assert set(area.get_paths()[0].vertices[:, 1]) == {5, 21}


def test_axes_begin_at_zero_where_nothing_lies_below():
    def limits(*returns):
        records = [record(i, 1000 * i + 500, r) for i, r in enumerate(returns)]
        (axis,) = figures.learning({"T": {"mlp": [records]}}, ("env-steps",)).axes
        return axis.get_xlim()[0], *axis.get_ylim()

    left, low, high = limits(900.0, 1000.0)
    assert (left, low) == (0, 0) and high > 1000
    _, low, high = limits(-900.0, -800.0)
    assert low < -900 and high == 0
    _, low, high = limits(-900.0, 800.0)
    assert low < -900 and high > 800


def test_legends_hide_no_data(runs):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    panels = curves.group(runs)
    for figure in (figures.learning(panels, ("env-steps",)), figures.iteration(panels)):
        FigureCanvasAgg(figure).draw()
        (found,) = figure.legends
        below = found.get_window_extent().y0
        assert all(below >= axis.get_window_extent().y1 for axis in figure.axes)


def test_names_are_no_formulas(tmp_path):
    env = EnvConfig(r"$\frac$ & x$_y$")
    path = make_run(tmp_path / r"a$\bad$", MLPConfig(), [0.0, 1.0], env=env)
    assert plot.main([str(path), "--figure", "time"]) == 0
    assert len(list((path / "plots").iterdir())) == 2


def test_conditions_are_the_quartiles_of_each_runs_episodes():
    asked = [Condition(target_return=0.0), Condition(target_return=1e6)]
    rounded = Condition(weights="int8")
    returns = np.array([[0.0, 2.0, 4.0, 6.0, np.nan], [1.0, 1.0, 1.0, 1.0, 1.0]])
    evaluations = []
    for seed, values in enumerate(returns):
        results = {
            condition: EpisodeResults(10 * i + values, *[None] * 8)  # type: ignore
            for i, condition in enumerate([BASE, *asked, rounded])
        }
        evaluations.append(Evaluation(Path(f"a/seed-{seed}"), None, results))  # type: ignore
    figure = figures.conditions(evaluations)
    targets, weights = figure.axes
    first, second = targets.containers
    assert first.lines[0].get_ydata().tolist() == [3, 13, 23]  # without the NaN
    assert second.lines[0].get_ydata().tolist() == [1, 11, 21]
    bars = first.lines[2][0].get_segments()
    assert [bar[:, 1].tolist() for bar in bars] == [
        [1.5, 4.5],
        [11.5, 14.5],
        [21.5, 24.5],
    ]
    labels = [text.get_text() for text in targets.get_xticklabels()]
    assert labels == ["as trained", "0", "1e+06"]
    assert [t.get_text() for t in weights.get_xticklabels()] == ["as trained", "int8"]
    assert weights.containers[0].lines[0].get_ydata().tolist() == [3, 33]
    assert (targets.get_xlabel(), weights.get_xlabel()) == ("target return", "weights")
    assert legend(figure) == ["seed-0", "seed-1"]
    alike = [
        e._replace(path=Path(f"a/{n}/seed-0"))
        for e, n in zip(evaluations, "xy", strict=True)
    ]
    assert legend(figures.conditions(alike)) == ["x/seed-0", "y/seed-0"]


def test_obedience_is_drawn_beside_the_diagonal():
    rows = [(None, 9.0, 1.0), (8.0, 6.0, 2.0), (0.0, 1.0, 0.5)]
    rows = [{"target_return": c, "return_mean": m, "return_std": s} for c, m, s in rows]
    failed = {"target_return": 4.0, "episodes": 2}  # no return is finite
    reports = [
        {"run": f"x/seed-{seed}", "env_id": "Hopper-v5", "conditions": [*rows, failed]}
        for seed in (0, 1)
    ]
    figure = figures.obedience(reports)
    (axis,) = figure.axes
    line, _, (bars,) = axis.containers[0]
    assert line.get_xydata().tolist() == [[0, 1], [8, 6]]
    assert [b[:, 1].tolist() for b in bars.get_segments()] == [[0.5, 1.5], [4, 8]]
    assert axis.lines[-1].get_xydata().tolist() == [[0, 0], [8, 8]]
    assert legend(figure) == ["obedience", "seed-0", "seed-1"]


def legend(figure):
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_a_reading_tells_apart_what_does_not_overlap(tmp_path):
    def panels(**last):
        return {
            "T": {
                kind: [[record(0, 1, 99.0), record(1, 2, value)] for value in values]
                for kind, values in last.items()
            }
        }

    overlapping = curves.describe_separation(
        panels(a=(1.0, 2.0, 3.0), b=(3.0, 4.0, 9.0))
    )
    assert overlapping == (
        "T, last evaluation, median and range: b: 4 (3 to 9); a: 2 (1 to 3). "
        "All overlap: no difference is shown."
    )
    # Of the 20 ways to choose 3 of 6 runs, 2 put all of one kind above the other.
    apart = curves.describe_separation(panels(a=(1.0, 2.0, 3.0), b=(4.0, 5.0, 9.0)))
    assert apart.endswith(
        "b and a do not overlap (equal ones would not in 10% of such experiments)."
    )
    single = curves.describe_separation(panels(a=(1.0,), b=(3.0, 4.0)))
    assert single.endswith("A single seed shows no difference.")
    assert curves.describe_separation(panels(a=(1.0, 2.0))) == ""


def test_lines_are_told_apart_without_colour(tmp_path):
    paths = [
        make_run(tmp_path / str(rank), MLPConfig(), [0.0, 1.0], es=es)
        for rank, es in enumerate(
            [ESConfig(), *(ESConfig(perturbation="low-rank", rank=r) for r in (1, 2))]
        )
    ]
    lines = figures.learning(curves.group(paths), ("generations",)).axes[0].lines
    assert len({line.get_linestyle() for line in lines}) == 3
    # A marker would be a generation that means something.
    assert {line.get_marker() for line in lines} == {""}
    # The style's colours, wherever the figure is drawn: notebooks know no style.
    assert [line.get_color() for line in lines] == ["#0072b2", "#d55e00", "#000000"]


def test_a_folder_gets_a_png_and_an_svg_of_each_figure(runs, tmp_path, capsys):
    experiment = tmp_path / "many"
    make_run(experiment / "seed-0", MLPConfig(), [0.0, 1.0])
    make_run(experiment / "seed-1", MLPConfig(), [0.0, 2.0], seed=1)
    assert plot.main([str(experiment), "--figure", "all"]) == 0
    names = {"learning", "population", "time", "iteration"}
    written = {path.name for path in (experiment / "plots").iterdir()}
    assert written == {f"{name}.{end}" for name in names for end in ("png", "svg")}
    assert {Path(line).name for line in capsys.readouterr().err.split()} == written
    panels = curves.group([experiment])
    labels = [a.get_xlabel() for a in figures.learning(panels, tuple(curves.AXES)).axes]
    times = [
        f"{time} (h:mm:ss)" for time in ("wall-clock time", "CPU time of all threads")
    ]
    assert labels == ["environment steps", "generation", *times]


def test_cpu_time_that_an_older_version_did_not_count_is_no_axis(tmp_path, refused):
    path = make_run(tmp_path / "a", MLPConfig(), [0.0, 10.0])
    arguments = [path, "--x", "cpu-seconds", "--output", tmp_path / "a.png"]
    assert plot.main([*map(str, arguments)]) == 0
    file = path / "metrics.jsonl"
    file.write_text(file.read_text().replace("time/cpu_seconds", "older"))
    (tmp_path / "a.png").unlink()
    refused(plot.main, arguments, "--x cpu-seconds:", "choose --x seconds")


def test_one_panel_a_task_unless_more_are_asked_for(runs, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        plot.drawing, "save", lambda figure, file, _: drawn.update({file: figure}) or []
    )
    for x, panels in ((), 2), (("--x", "all"), 6):
        arguments = [*map(str, runs), "--output", str(tmp_path / "a.png"), *x]
        assert plot.main(arguments) == 0
        assert len(drawn[tmp_path / "a.png"].axes) == panels
