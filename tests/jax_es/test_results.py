"""The README's tables: from files to numbers, and that a wrong number is found."""

import dataclasses
import json
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest

from jax_es import result_tables, results, thresholds, train
from jax_es.config import ConfigError, ESConfig
from jax_es.presets import preset
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import GenerationRecord, MetricsWriter
from jax_es.train_config import differences

ROOT = Path(__file__).parents[2]
FOLDERS = [
    folder
    for name in ("tasks", "learning_curves", "perturbation_attention", "atari")
    if (folder := ROOT / "results" / name).is_dir()
]

MADE = [
    name
    for name, table in results.TABLES.items()
    if (ROOT / "results" / table.source).exists()
]


def record(generation, steps, evaluation, best):
    values = {
        field.name: 0
        for field in dataclasses.fields(GenerationRecord)
        if field.default is dataclasses.MISSING
    }
    return GenerationRecord(
        **values
        | {
            "generation": generation,
            "total_env_steps": steps * (generation + 1),
            "evaluation_return_mean": evaluation,
            "best_evaluation_return": best,
            "seconds_elapsed": 30.0 * (generation + 1),
        }
    )


def records(evaluations, steps=100_000):
    return [
        record(index, steps, value, max(evaluations[: index + 1]))
        for index, value in enumerate(evaluations)
    ]


def keep_run(folder, name, evaluations, seed=0, policy="mlp", es=None):
    """Keeps a run of preset ``name`` as results/ does."""
    config = dataclasses.replace(
        preset(name, policy), seed=seed, max_env_steps=300_000, checkpoint_every=7
    )
    if es is not None:
        config = dataclasses.replace(config, es=es)
    run = RunDirectory(folder)
    run.create(config, name)
    processor = "Intel(R) Xeon(R) Processor"
    run.update(
        machine={"processor": processor, "cores": 1}, versions={"mujoco": "4.0.0"}
    )
    with MetricsWriter(folder) as writer:
        for each in records(evaluations):
            writer.write(each)


@pytest.fixture
def kept(tmp_path):
    """Results of two tasks: three seeds of a policy, one of another."""
    for seed, evaluations in enumerate(
        [[-5.0, 900.0, 1800.0], [-4.0, 700.0, 600.0], [0.0, 950.0, 900.0]]
    ):
        folder = tmp_path / "tasks" / "half-cheetah-mlp" / f"seed-{seed}"
        keep_run(folder, "half-cheetah", evaluations, seed)
    folder = tmp_path / "tasks" / "swimmer" / "seed-0"
    keep_run(folder, "swimmer", [10.0, 50.0], policy="decision-transformer")
    shutil.copy(ROOT / "results" / "published.json", tmp_path)
    return tmp_path


def cells(table):
    return [line[2:-2].split(" | ") for line in table.splitlines()[2:]]


def test_the_readme_is_what_the_committed_files_say(capsys):
    paths = ["--readme", str(ROOT / "README.md"), "--results", str(ROOT / "results")]
    assert results.main(["--check", *paths]) == 0, capsys.readouterr().out


@pytest.fixture
def copy(tmp_path):
    """A copy of the README and what it is made from: (options, README, results)."""
    readme, folder = tmp_path / "README.md", tmp_path / "results"
    shutil.copy(ROOT / "README.md", readme)
    shutil.copytree(ROOT / "results", folder)
    return ["--readme", str(readme), "--results", str(folder)], readme, folder


@pytest.mark.parametrize("name", MADE)
def test_a_number_changed_in_the_readme_is_found_and_repaired(name, copy, capsys):
    options, readme, _ = copy
    good = readme.read_text()
    ends = good.index(f"<!-- results: {name} -->"), good.index(f"<!-- end: {name} -->")
    numbers = list(re.compile(r"\d+").finditer(good, *ends))
    number = numbers[len(numbers) // 2]
    readme.write_text(good[: number.start()] + "777" + good[number.end() :])
    assert results.main(["--check", *options]) == 1
    shown = capsys.readouterr()
    assert "777" in shown.out and "python -m jax_es.results" in shown.err
    assert "777" in readme.read_text()
    assert results.main(options) == 0
    assert readme.read_text() == good


def test_a_number_changed_in_the_metrics_is_found(copy, capsys):
    options, readme, folder = copy
    before = readme.read_text()
    file = folder / "learning_curves" / "hopper-mlp-seed0" / "metrics.jsonl"
    *lines, last = file.read_text().splitlines()
    changed = json.loads(last) | {"evaluation_return_mean": 4321.0}
    file.write_text("\n".join([*lines, json.dumps(changed)]) + "\n")
    assert results.main(["--check", *options]) == 1
    assert "4321" in capsys.readouterr().out
    assert readme.read_text() == before


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_rows_command_configures_its_runs(folder):
    told = [row[-1].strip("`") for row in cells(_only_table(folder))]
    rows = result_tables.read_rows(folder)
    assert len(told) == len(rows)
    for command, row in zip(told, rows, strict=True):
        for run in row.runs:
            words = shlex.split(
                command.replace("--seed S", f"--seed {run.config.seed}")
            )
            assert words[:3] == ["python", "-m", "jax_es.train"]
            config = train.parse(words[3:]).config
            changed = set(differences(config, run.config))
            assert changed <= set(result_tables.UNTOLD) - {"seed"}


def _only_table(folder):
    return result_tables.learning(folder).split("\n\n")[0]


def test_a_line_holds_medians_ranges_seeds_and_the_command(kept):
    cheetah, swimmer = cells(_only_table(kept / "tasks"))
    assert cheetah == [
        *("HalfCheetah-v5", "MLP 2×64", "0, 1, 2"),
        *("−4 (−5 to 0)", "900 (600 to 1800)", "950 (700 to 1800)", "0.30 M", "1.5"),
        "`python -m jax_es.train half-cheetah --policy mlp --max-env-steps 300000 "
        "--seed S`",
    ]
    assert swimmer[1:3] == ["Decision Transformer", "0"]
    caption = " ".join(result_tables.learning(kept / "tasks").split("\n\n")[1].split())
    assert "over 10 episodes" in caption
    assert "A run had 1 core of an Intel Xeon, MuJoCo 4.0.0." in caption


def test_other_noise_is_another_line(kept):
    es = ESConfig(num_pairs=32, sigma=0.05, learning_rate=0.05, perturbation="low-rank")
    keep_run(kept / "tasks" / "low" / "seed-0", "half-cheetah", [1.0], es=es)
    names = [row[1] for row in cells(_only_table(kept / "tasks"))]
    assert names == ["MLP 2×64", "MLP 2×64, rank 1", "Decision Transformer"]


def test_random_actions_are_a_column_where_an_evaluation_has_them(kept):
    run = {"env_id": "HalfCheetah-v5", "conditions": [{"random_actions": None}]}
    run["conditions"].append({"random_actions": True, "return_mean": -283.6})
    for report in (run, {"experiments": [{"runs": [run, run]}]}):
        (kept / "tasks" / "evaluation.json").write_text(json.dumps(report))
        head = _only_table(kept / "tasks").splitlines()[0].split(" | ")
        cheetah, swimmer = cells(_only_table(kept / "tasks"))
        column = head.index("random actions")
        assert cheetah[column] == "−284" and swimmer[column] == ""


def test_the_best_policies_returns_are_those_of_their_own_evaluations(kept):
    kept = kept / "tasks"
    with pytest.raises(ConfigError, match=r"evaluation.json cannot be read"):
        result_tables.robots(kept)
    for index, run in enumerate(sorted(kept.glob("*/seed-*"))):
        report = {"return_mean": 1000.0 + index, "episodes": 100}
        (run / "evaluation.json").write_text(json.dumps(report))
    table, caption = result_tables.robots(kept).split("\n\n")
    cheetah, swimmer = cells(table)
    assert cheetah[:6] == [
        *("HalfCheetah-v5", "MLP 2×64", "0, 1, 2", "1001 (1000 to 1002)"),
        *("300 k", "2"),
    ]
    assert swimmer[3] == "1003"
    assert "in 100 other episodes" in " ".join(caption.split())


def test_steps_to_reach_a_return_are_those_of_the_first_generation_at_it():
    run = records([0.0, 10.0, math.nan, 30.0, 5.0], steps=1000)
    assert thresholds.steps_to_reach(run, 10.0) == 2000
    assert thresholds.steps_to_reach(run, 10.1) == 4000
    assert thresholds.steps_to_reach(run, -1.0) == 1000
    assert thresholds.steps_to_reach(run, 30.1) is None


def test_steps_are_told_beside_the_published_ones(kept):
    table, caption = result_tables.thresholds(kept).split("\n\n")
    rows = cells(table)
    assert table.splitlines()[0] == (
        "| task | return | MLP 2×64 | Decision Transformer | ES, Salimans et al. "
        "| TRPO, there |"
    )
    quarter, half, three, _ = rows[:4]
    # At −1.35 all three arrive: after 200 k, 200 k, and at once with a return of 0.
    assert quarter == [
        *("HalfCheetah-v5", "−1.35 (25 %)", "3/3: 200 k (100 k to 200 k)", "not run"),
        *("136 k", "905 k"),
    ]
    assert half[1:3] == ["793.55 (50 %)", "2/3: 200 k, 200 k"]
    assert three[2] == "1/3: 300 k"
    swimmer = rows[4:]
    assert [row[3] for row in swimmer] == ["1/1: 200 k", *["0/1: not reached"] * 3]
    assert "over 10 episodes" in " ".join(caption.split())
    assert "after 300 k steps" in " ".join(caption.split())


def test_the_published_figures_are_whole():
    published = thresholds.read_thresholds(ROOT / "results" / "published.json")
    assert len(published) == 6
    for of_task in published.values():
        assert [t.percent for t in of_task] == [25, 50, 75, 100]
        for column in zip(*of_task, strict=True):
            assert list(column) == sorted(column)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "<!-- results: tasks -->"),
        ("<!-- end: tasks -->\n<!-- results: tasks -->", "in this order"),
        ("<!-- results: tasks --><!-- end: tasks -->" * 2, "once each"),
        ("<!-- results: taks -->", "'taks'"),
        ("<!-- results: speed -->\n<!-- end: speed -->", "'speed'"),
    ],
)
def test_missing_and_unknown_markers_are_said(kept, text, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        results.rebuilt(text, kept)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("published.json", "{"),
        ("published.json", '{"thresholds": {"Hopper-v5": [{}]}}'),
        ("tasks/evaluation.json", "no JSON"),
        ("tasks/swimmer/seed-0/metrics.jsonl", "no record\n"),
        ("tasks/swimmer/seed-0/config.json", "{}"),
    ],
)
def test_a_damaged_file_is_one_line(kept, file, text, capsys):
    (kept / file).write_text(text)
    readme = kept / "README.md"
    names = "tasks", "thresholds"
    readme.write_text(
        "".join(f"<!-- results: {n} -->\n<!-- end: {n} -->" for n in names)
    )
    code = results.main(["--readme", str(readme), "--results", str(kept)])
    error = capsys.readouterr().err
    assert code == 2
    assert error.count("\n") == 1 and file in error


def test_a_readme_or_a_folder_that_is_not_there_is_said(tmp_path, capsys):
    assert results.main(["--readme", str(tmp_path / "R")]) == 2
    assert "--readme" in capsys.readouterr().err
    readme = tmp_path / "README.md"
    readme.write_text("")
    missing = str(tmp_path / "none")
    assert results.main(["--readme", str(readme), "--results", missing]) == 2
    assert "--results" in capsys.readouterr().err


def test_an_empty_folder_is_said(tmp_path):
    (tmp_path / "tasks").mkdir()
    with pytest.raises(ConfigError, match="holds no run"):
        result_tables.learning(tmp_path / "tasks")
