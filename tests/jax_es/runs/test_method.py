"""Runs of several methods side by side: named, compared and told how to make anew."""

import dataclasses
import shlex

import pytest

from jax_es import plot, pretrain, report, teacher, train
from jax_es.analysis import curves
from jax_es.config import EnvConfig, ESConfig
from jax_es.models import DecisionTransformerConfig, MLPConfig
from jax_es.presets import preset
from jax_es.runs.directory import RunDirectory
from jax_es.runs.method import OPENAI_ES, Method
from jax_es.runs.metrics import MetricsWriter
from jax_es.runs.records import evaluation_record
from jax_es.runs.reproduce import command
from jax_es.training.build import TrainConfig
from tests.jax_es.test_plot import record
from tests.jax_es.test_report import Reader

HOPPER = EnvConfig("Hopper-v5")
SAC = Method("sac", {"learning_rate": 3e-4, "net": [8, 8]})
TD3 = Method("td3", {"learning_rate": 1e-3})
CLONING = Method("cloning", {"dataset": "hopper-v0", "epochs": 3})


def evolved(path, policy, seed=0, before=None, returns=(1.0, 2.0), **fields):
    run = RunDirectory(path)
    more = {}
    if before is not None:
        more = {"init": {"run": "runs/x", "checkpoint": 4, "method": before}}
        fields = {"init": "runs/x"} | fields
    config = TrainConfig(env=HOPPER, policy=policy, seed=seed, **fields)
    run.create(config, "hopper", **more)
    with MetricsWriter(path) as writer:
        for generation, value in enumerate(returns):
            writer.write(record(generation, 1000 * (generation + 1), value))
    return path


def by_gradients(path, policy, method, seed=0, steps=500, **fields):
    config = TrainConfig(env=HOPPER, policy=policy, seed=seed, **fields)
    RunDirectory(path).create(config, "hopper", method=method)
    with MetricsWriter(path) as writer:
        for index, value in enumerate((10.0, 20.0, 30.0)):
            done, minutes = index * steps, 60.0 * (index + 1)
            writer.write(evaluation_record(index, done, [value], [9], value, minutes))
    return path


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Eight ways to learn Hopper, two of them with a second seed."""
    tmp_path = tmp_path_factory.mktemp("runs")
    dt, mlp = DecisionTransformerConfig(), MLPConfig()
    return [
        evolved(tmp_path / "es", dt),
        evolved(tmp_path / "es-1", dt, seed=1),
        evolved(tmp_path / "cloned", dt, before=CLONING),
        evolved(tmp_path / "taught", mlp, before=SAC),
        evolved(tmp_path / "again", dt, before=OPENAI_ES),
        by_gradients(tmp_path / "sac", mlp, SAC),
        by_gradients(tmp_path / "sac-1", mlp, SAC, seed=1),
        by_gradients(tmp_path / "td3", mlp, TD3),
        by_gradients(tmp_path / "td3-dt", dt, TD3),
        by_gradients(tmp_path / "clone", dt, CLONING, steps=0),
    ]


NAMES = {
    "decision-transformer": 2,
    "decision-transformer, after cloning": 1,
    "mlp, after SAC": 1,
    "decision-transformer, after OpenAI-ES": 1,
    "SAC, mlp": 2,
    "TD3, mlp": 1,
    "TD3, decision-transformer": 1,
    "cloning, decision-transformer": 1,
}


def test_each_method_is_a_line_of_its_own(everything):
    (lines,) = curves.group(everything).values()
    assert {kind: len(runs) for kind, runs in lines.items()} == NAMES


def test_settings_of_a_method_are_told_apart_like_fields(tmp_path):
    other = Method("sac", {**SAC.settings, "learning_rate": 1e-3})
    longer = Method("sac", {**SAC.settings, "steps": 9000})
    paths = [
        by_gradients(tmp_path / "a", MLPConfig(), SAC),
        by_gradients(tmp_path / "b", MLPConfig(), other),
        # What only OpenAI-ES reads makes no other run of it.
        by_gradients(tmp_path / "c", MLPConfig(), SAC, seed=1, es=ESConfig(sigma=9.0)),
        by_gradients(
            tmp_path / "d",
            MLPConfig(),
            longer,
            seed=2,
            num_generations=3,
            checkpoint_every=9,
        ),
    ]
    (lines,) = curves.group(paths).values()
    assert {kind: len(runs) for kind, runs in lines.items()} == {
        "SAC, mlp, learning rate 0.0003": 3,
        "SAC, mlp, learning rate 0.001": 1,
    }


def test_beginnings_from_other_runs_are_told_apart(tmp_path):
    dt = DecisionTransformerConfig()
    paths = [
        evolved(tmp_path / "a", dt, before=CLONING),
        evolved(tmp_path / "b", dt, before=CLONING, init="runs/y"),
    ]
    (lines,) = curves.group(paths).values()
    assert set(lines) == {
        "decision-transformer, after cloning, init runs/x",
        "decision-transformer, after cloning, init runs/y",
    }


def test_learning_is_drawn_along_what_all_have(everything, tmp_path, capsys):
    output = tmp_path / "learning.svg"
    assert plot.main([*map(str, everything), "--output", str(output)]) == 0
    assert output.exists()
    table = capsys.readouterr().out
    assert "| SAC, mlp | 2 | 10 (10 to 10) | 30 (30 to 30) |" in table
    assert (
        "| cloning, decision-transformer | 1 | 10 | 30 | 30 | 0.00 M | 3.0 |" in table
    )


def test_only_gradients_leave_no_figure_of_populations(everything, tmp_path):
    output = tmp_path / "plots"
    arguments = [str(everything[5]), "--output", str(output), "--figure", "all"]
    assert plot.main(arguments) == 0
    assert {path.stem for path in output.iterdir()} == {"learning"}


def asked_for(program, arguments, folder):
    """Returns the configuration and the method of a command, and its preset."""
    request = program.parse([*arguments, "--runs-dir", str(folder)])
    if program is teacher:
        method = request.arguments.settings.method()
        return request.config, method, request.preset
    given = request.arguments
    settings = {
        **dataclasses.asdict(given.cloning),
        "dataset": given.dataset,
        "target_returns": given.target_returns,
    }
    return request.config, Method("cloning", settings), request.preset


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (teacher, "hopper"),
        (teacher, "hopper-small --algo td3 --policy decision-transformer"),
        (teacher, "hopper-small --policy.hidden-sizes 64 64 --policy.activation tanh"),
        (teacher, "--env.id Pendulum-v1 --evaluation.num-episodes 3 --seed 2"),
        (pretrain, "hopper-small --dataset a-v0"),
        (
            pretrain,
            "hopper-small --dataset a-v0 --rollout.observation-statistics "
            "--evaluation.num-episodes 10 --target-returns 5 6",
        ),
        (pretrain, "walker2d --policy mlp --dataset a-v0"),
    ],
)
def test_the_command_asks_for_the_same_again(program, arguments, tmp_path):
    config, method, name = asked_for(program, arguments.split(), tmp_path)
    told = shlex.split(command(config, name, method=method))
    assert told[:3] == ["python", "-m", program.__name__]
    again, method_again, _ = asked_for(program, told[3:], tmp_path)
    assert method_again == method
    assert method.values(again) == method.values(config)


@pytest.mark.parametrize("recorded", ["hopper", "hopper-pretrained", "python"])
def test_the_command_of_a_run_that_goes_on_names_the_other(recorded):
    config = preset("hopper-small", fine_tune=True)
    told = command(dataclasses.replace(config, init="runs/clone"), recorded)
    assert told == "python -m jax_es.train hopper-small --fine-tune --init runs/clone"
    # --fine-tune takes a run to begin with.
    told = command(config, recorded)
    assert told.startswith("python -m jax_es.train hopper-small --es.sigma 0.01")
    again = dataclasses.replace(config, init="runs/clone", init_checkpoint="last")
    assert command(again, recorded, num_seeds=2) == (
        "python -m jax_es.train hopper-small --fine-tune --init runs/clone "
        "--init-checkpoint last --seeds 2"
    )


@pytest.mark.parametrize(
    ("recorded", "today", "changed"),
    [
        # Up to version 0.2 a plain name meant the small settings.
        ("hopper", "hopper-small", "--es.num-pairs 8"),
        ("hopper", "hopper", "--es.num-pairs 8"),
        ("hopper-clipup", "hopper", "--es.num-pairs 8"),
        ("walker2d-clipup", "walker2d", ""),
        ("ant", "ant-small", ""),
    ],
)
def test_a_run_that_recorded_an_old_name_has_its_own_command(recorded, today, changed):
    config = preset(today, "mlp")
    if changed:
        config = dataclasses.replace(
            config, es=dataclasses.replace(config.es, num_pairs=8)
        )
    told = command(config, recorded)
    assert told == f"python -m jax_es.train {today} --policy mlp {changed}".strip()
    assert train.parse(shlex.split(told)[3:]).config == config


def test_a_report_shows_the_method_and_its_settings(everything):
    page = report.report((everything[2], everything[5], everything[6]))
    text = " ".join(Reader(page).text.split())
    assert "Trained by SAC: learning_rate 0.0003, net 8, 8." in text
    assert "python -m jax_es.teacher hopper --policy mlp" in text
    # Teachers have no --seeds: a command each.
    assert text.count("--algo sac") == 2 and "--seeds" not in text
    assert "Began with θ of runs/x, checkpoint 4, trained by cloning." in text
    assert "SAC, mlp" in text[text.index("What differs between them") :]
    assert "--init runs/x" in text
    assert "population of decision-transformer, after cloning on Hopper-v5" in page
    assert "population of SAC" not in page
