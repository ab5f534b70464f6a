"""What README and docs say is what is there: commands, code, names and numbers."""

import dataclasses
import importlib
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import gymnasium
import jax
import pytest

import jax_es
from jax_es import plot, train
from jax_es.__main__ import PROGRAMS
from jax_es.cli.options import parse_options
from jax_es.config import (
    STRATEGIES,
    EnvConfig,
    ESConfig,
    EvaluationConfig,
    RolloutConfig,
)
from jax_es.es.cem_rl import CEMRLOptions
from jax_es.es.guided import GuidedOptions
from jax_es.es.noise import FullNoise, make_noise
from jax_es.es.novelty import NoveltyOptions
from jax_es.models import DecisionTransformerConfig
from jax_es.presets import PRESETS
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import records_so_far
from jax_es.runs.wording import significant
from jax_es.train_config import differences
from jax_es.training.build import TrainConfig, make_policy
from jax_es.training.train_policy import train_policy

ROOT = Path(__file__).parent.parent
GENERATED = re.compile(r"<!-- results: [\w-]+ -->.*?<!-- end: ", flags=re.DOTALL)
"""Tables, whose commands ``test_tables.py`` tests."""

PAGES = {
    str(path.relative_to(ROOT)): GENERATED.sub("", path.read_text())
    for path in [
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}
README = (ROOT / "README.md").read_text()
OBJECTIVES = "docs/tutorials/own_objective.md"
WITH_CODE = [
    p for p, text in PAGES.items() if "```python\n" in text and p != OBJECTIVES
]

OF_OTHERS = {
    "check",
    "debug",
    "exclude-editable",
    "help",
    "help-all",
    "logdir",
    "lr",
    "policy",
}
OF_OTHERS |= {"strategy", "objective", "fine-tune", "es.objective-kwargs.weight"}
OF_OTHERS |= {"es.objective-kwargs.NAME", "es.kwargs.NAME", "es.kwargs.extra_std"}
OF_OTHERS |= {
    f"es.kwargs.{field.name}"
    for options in (NoveltyOptions, GuidedOptions, CEMRLOptions)
    for field in dataclasses.fields(options)
}
OF_OTHERS |= {
    "strict",
    *("build-arg", "generate", "gpus"),
    *(
        f"env.kwargs.{name}"
        for name in (
            *("NAME", "speed", "features", "backend"),
            *("roughness", "stump_height_high", "hardcore"),
        )
    ),
}
"""Options that are no field: of other programs, or of all of ours."""


def blocks(page, language):
    """The code of a page that is to be executed: that of files has a title."""
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], flags=re.DOTALL)


def files(page):
    """The files that a page tells to write, by name."""
    return dict(
        re.findall(r'```\w+ title="(.*?)"\n(.*?)```', PAGES[page], flags=re.DOTALL)
    )


def commands():
    """The commands of our programs: those in blocks, and those within the text."""
    for page, text in PAGES.items():
        code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        inline = [" ".join(c.split()) for c in re.findall(r"`([^`]+)`", code)]
        for line in "\n".join([*blocks(page, "bash"), *inline]).splitlines():
            words = re.split(r"(?:^|/)(?:python -m jax_es\.|jax-es )", line, maxsplit=1)
            program, *options = shlex.split(words[-1], comments=True) or [""]
            if len(words) == 2 and program in PROGRAMS:
                yield program, options


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two generations of a tiny transformer on a real task; its result."""
    path = tmp_path_factory.mktemp("runs") / "NAME"
    config = TrainConfig(
        env=EnvConfig("HalfCheetah-v5", max_episode_steps=5),
        policy=DecisionTransformerConfig(width=4, num_layers=1, context_length=2),
        es=ESConfig(num_pairs=2, sigma=0.1, learning_rate=0.1),
        rollout=RolloutConfig(num_slots=2, num_devices=1),
        evaluation=EvaluationConfig(num_episodes=2),
        num_generations=2,
    )
    return path, train_policy(config, path)


@pytest.fixture(scope="module")
def run(trained):
    return trained[0]


@pytest.fixture
def here(run, tmp_path, monkeypatch):
    """A working folder with the runs and the files that the pages name."""
    for name, text in {n: t for page in PAGES for n, t in files(page).items()}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("NAME", "first"):
        shutil.copytree(run, tmp_path / "runs" / name)
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for page in PAGES:
        for name, text in files(page).items():
            sys.modules.pop(Path(name).stem, None)
            for env_id in re.findall(r'register\("([\w-]+)"', text):
                gymnasium.registry.pop(env_id, None)


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_python_code_runs(page, here, trained, monkeypatch):
    def as_if_trained(*given, **named):
        call = inspect.signature(train_policy).bind(*given, **named).arguments
        assert isinstance(call["config"], TrainConfig)
        shutil.copytree(trained[0], call["path"])
        return trained[1]

    monkeypatch.setattr(jax_es, "train_policy", as_if_trained, raising=False)
    names = {}
    for code in blocks(page, "python"):
        if "RecordVideo" in code:
            pytest.importorskip("moviepy")
        exec(re.sub(r"range\(\d+\)", "range(2)", code), names)
    if "evaluation" in page:
        assert names["done"] and names["action"].shape == (6,)
        env = names["env"]
        assert isinstance(env, gymnasium.wrappers.RecordVideo)
        assert env.spec.id == "HalfCheetah-v5" and env.render_mode == "rgb_array"
        env.unwrapped.close()  # nothing was rendered, which not every machine can
        assert (here / "videos").is_dir()


def test_the_digits_are_evolved(monkeypatch, capsys):
    """As far as two generations go: all five lines, and the network has learned."""
    pytest.importorskip("sklearn")
    monkeypatch.setattr(sys, "argv", ["digits.py", "0"])
    code = files("docs/guides/evolve.md")["digits.py"]
    pretraining = "start = by_gradient(start, upright, seed)"
    assert pretraining in code
    code = code.replace(pretraining, f"{pretraining}\nSTEPS = 2")
    exec(code.replace("num_pairs=256", "num_pairs=8"), {})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    names = ["before", "gradient", "full", "low-rank", "anchored"]
    assert [row[0] for row in rows] == names
    assert float(rows[0][2]) > 0.9 and float(rows[0][1]) < 0.3


@pytest.mark.slow
def test_own_objectives_are_reached(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (classifier, rastrigin, benchmark, steps, cheetah, controllers) = blocks(
        OBJECTIVES, "python"
    )
    exec(classifier, {})
    before, after = map(float, re.findall(r"\d\.\d\d", capsys.readouterr().out))
    assert before < 0.6 and after > 0.85
    names = {}
    exec(rastrigin, names)
    assert abs(names["state"].mean["x"]).max() < 0.5
    exec(benchmark, names)
    assert names["search"]("cma-es", names["rosenbrock"], 10, 500) < 1e-3
    exec(steps, names)
    assert names["loss"](names["x"]) < names["loss"](0.0)
    exec(cheetah, names)
    assert len(names["result"].records) == 3
    exec(controllers, names)
    assert names["scores"].max() > 2 * names["scores"].mean()
    short = [len(code.splitlines()) for code in blocks(OBJECTIVES, "python")]
    assert max(short) <= 40


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_commands_are_understood(program, here):
    (here / "results.json").write_text("{}")
    (here / "episode.mp4").touch()
    for name, text in files("docs/guides/training.md").items():
        (here / name).write_text(text)
    module = importlib.import_module(f"jax_es.{program}")
    found = {tuple(options) for name, options in commands() if name == program}
    assert found
    for options in map(list, sorted(found)):
        if "--help" in options:
            continue
        if "--resume" in options and program != "collect":
            options.remove("--resume")  # the runs are not here
            options += {
                "pretrain": ["--dataset", "some-v0"],
                "teacher": ["--env.id", "Hopper-v5"],
            }.get(program, [])
        if "--env.game" in options or {*options} & {"hero-dt", "hero-dt-fast"}:
            pytest.importorskip("ale_py")
        if hasattr(module, "parse"):
            module.parse(options)
        else:
            parse_options(module.Arguments, options, program)


def options_of(settings, prefix=""):
    """The options that a dataclass of settings makes, as tyro names them."""
    hints = typing.get_type_hints(settings, include_extras=True)
    for field in dataclasses.fields(settings):
        hint, name = hints[field.name], prefix + field.name.replace("_", "-")
        is_nameless = hasattr(hint, "__metadata__")
        hint = typing.get_args(hint)[0] if is_nameless else hint
        nested = [
            kind
            for kind in (hint, *typing.get_args(hint))
            if dataclasses.is_dataclass(kind)
        ]
        if field.name == "phases":  # a file
            nested = []
        if not nested:
            yield name
        for kind in nested:
            yield from options_of(kind, prefix if is_nameless else f"{name}.")


def test_every_option_that_is_named_exists():
    known = {
        option
        for program in PROGRAMS
        for option in options_of(importlib.import_module(f"jax_es.{program}").Arguments)
    }
    assert {"es.sigma", "policy.attention", "policy.hidden-size", "seeds"} <= known
    for page, text in PAGES.items():
        text = "\n".join(re.findall(r"`([^`\n]+)`", text))
        for option in re.findall(r"(?<![\w-])--([a-z][\w.-]*)", text):
            name = re.sub(r"(^|\.)no-", r"\1", option)
            assert {name, option} & (known | OF_OTHERS), (page, option)


def test_the_sample_output_is_the_median_run():
    page = PAGES["docs/start.md"]
    paths = (ROOT / "results" / "learning_curves").glob("quickstart-seed*")
    runs = [
        ([r for r in records_so_far(path) if r.num_episodes][-1], path.name)
        for path in paths
    ]
    runs.sort(key=lambda run: run[0].evaluation_return_mean)
    record, name = runs[len(runs) // 2]
    line, *rest = page[page.index("generation  100/100") :].splitlines()
    assert (
        f"evaluation {record.evaluation_return_mean:9.1f}  "
        f"mean {record.return_mean:9.1f}  max {record.return_max:9.1f}  "
    ) in line
    end = records_so_far(ROOT / "results" / "learning_curves" / name)[-1]
    values = end.evaluation_return_mean, end.best_evaluation_return
    last, best = map(significant, values)
    assert f"{last} at the end, {best} at best. Ended after 100 gen" in rest[0]
    assert f"and {record.total_env_steps:,} environment steps: num_gen" in rest[0]
    assert f"runs/{name}-…/" in rest[1]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_three_figures_are_of_the_tables(page):
    said = " ".join(PAGES[page].split())
    robots = (ROOT / "docs" / "results" / "index.md").read_text()
    robots = robots.replace("\xa0", " ")
    of_three = "| linear | 0, 1, 2 | 4,875 (4,168 to 4,933) | 4.08 M | 6 |"
    assert f"| HalfCheetah-v5 {of_three}" in robots
    assert "a return of 4,875 (4,168 to 4,933, three seeds)" in said
    assert "In 6 minutes on one core" in said
    row = "| HalfCheetah-v5 | CEM-RL, MLP 2×32 | 0, 1, 2 | 9,279 (9,011 to 10,196) |"
    guided = (ROOT / "docs" / "guides" / "guided.md").read_text()
    assert row in guided.replace("\xa0", " ")
    assert "9,279 (9,011 to 10,196" in said
    command = "half-cheetah --policy linear"
    assert f"`python -m jax_es.train {command}`" in said
    trained = RunDirectory(ROOT / "results/robots/half-cheetah-linear/seed-0").config()
    given = train.parse(shlex.split(command)).config
    changed = differences(given, trained).keys()
    # It observes nothing that is constant.
    machine = {"rollout.num_slots", "rollout.num_devices"}
    assert changed == {*machine, "rollout.hide_constants"}
    rows = json.loads((ROOT / "results" / "benchmark.json").read_text())["rows"]
    speed = {row["name"]: f"{row['steps_per_second']:,.0f}" for row in rows}
    for name in ("generation/humanoid-dt-fast", "generation/humanoid-dt", "physics"):
        assert speed[name] in said


def test_thousands_have_a_comma():
    code = r"```.*?```|`[^`]*?`|\]\([^)]*\)|<!--.*?-->|<(?:a|img)\b[^>]*>"
    ports = ("6379", "10002", "19999")
    for page in PAGES:
        text = re.sub(code, "`", (ROOT / page).read_text(), flags=re.DOTALL)
        assert not re.findall(r"\b\d{1,3}[ \xa0\u2009\u202f]\d{3}\b", text), page
        long = re.findall(r"(?<![\d.,\w-])\d{4,}(?!\.?\d|\w)", text)
        years = map(str, range(1990, 2031))
        assert {*long} <= {*ports, *years}, page


def test_all_strategies_and_figures_are_named():
    training, plots = (PAGES[f"docs/guides/{n}.md"] for n in ("training", "evaluation"))
    (named,) = re.findall(r"`--strategy` is one of (.*?)\n\n", training, re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", named)) == {*STRATEGIES}
    figures = typing.get_args(typing.get_type_hints(plot.Arguments)["figure"])
    table = plots[plots.index("| `--figure` | shows |") :].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert {*rows, "all"} == {*figures}


def test_the_readme_is_short():
    assert len(README.encode()) <= 7_000


def test_every_notebook_is_in_the_table():
    named = re.findall(
        r"^\| \[.*?\]\((\w+)\.md\)", PAGES["docs/notebooks/index.md"], re.M
    )
    stems = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert sorted(named) == stems
    in_menu = re.findall(r"notebooks/(\w+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(in_menu) == sorted([*stems, "index"])


def test_a_notebooks_page_shows_its_cells_and_outputs():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    picture = {"data": {"image/png": "UE5H", "text/plain": "<Figure>"}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": ["print(1)"],
            "outputs": [{"text": ["1\n"]}, picture, {"data": {"text/markdown": "|a|"}}],
        },
    ]
    text, pictures = hooks.page({"cells": cells}, "name")
    assert text == (
        "# Title\ntext\n\n```python\nprint(1)\n```\n\n``` {.text .output}\n1\n```\n\n"
        "![What the cell draws](name-1.png)\n\n|a|\n"
    )
    assert pictures == {"name-1.png": b"PNG"}
    html = hooks.on_page_content("<p><code>train --es.sigma 0.1</code> -- </p>")
    option = '<span class="option">--es.sigma</span>'
    assert html == f"<p><code>train {option} 0.1</code> -- </p>"


def test_ci_runs_the_test_command():
    (command,) = [
        line
        for block in blocks("README.md", "bash")
        for line in block.splitlines()
        if line.startswith("python3 -m venv") and line.endswith("pytest -n auto")
    ]
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert command in lines
    assert "export PYTEST_ADDOPTS='-m \"slow or not slow\"'" in lines  # all of them
    assert command in PAGES["docs/start.md"].splitlines()


def test_every_preset_is_in_the_table():
    page = PAGES["docs/guides/training.md"]
    section = page[page.index("| preset | what it is |") :].split("\n\n")[0]
    section = re.sub(r"extra `\w+`", "", section)
    assert set(re.findall(r"`([a-z0-9-]+)`", section)) == set(PRESETS)


def test_the_architecture_names_the_folders_that_there_are():
    found = (path.parent for path in ROOT.glob("jax_es/*/__init__.py"))
    folders = {folder.name for folder in found if not folder.is_symlink()}
    named = re.findall(r"^\| `(\w+)/`", PAGES["docs/architecture.md"], re.MULTILINE)
    assert set(named) == folders


def test_linked_and_named_files_exist():
    for page, text in PAGES.items():
        folder = (ROOT / page).parent
        links = re.findall(r"\]\(((?!https?:)[^)#]+)[^)]*\)", text)
        for link in links:
            notebook = ROOT / "notebooks" / link.rpartition("/")[2]
            is_notebook = notebook.with_suffix(".ipynb").exists()
            assert (folder / link).exists() or is_notebook, (page, link)
        named = re.findall(r"`((?:jax_es|envs|models|results|tests)/[\w./]+)`", text)
        assert all((ROOT / name).exists() for name in named), (page, named)


def test_a_low_rank_member_is_as_small_as_said():
    config = PRESETS["humanoid-dt-fast"]
    space = gymnasium.spaces.Box(-1, 1, (348,))
    policy = make_policy(config.policy, space, gymnasium.spaces.Box(-0.4, 0.4, (17,)))
    mean = jax.eval_shape(policy.init, jax.random.key(0))
    full, low_rank = (
        jax.eval_shape(noise.sample, jax.random.key(0), mean).size
        for noise in (FullNoise(), make_noise(config.es))
    )
    said = f"{low_rank / 1e3:.0f} thousand numbers instead of {full / 1e3:.0f} thousand"
    assert said in " ".join(PAGES["docs/how_it_works.md"].split())
    assert f"of {full / 1e3:.0f} thousand weights" in " ".join(README.split())


def test_no_machine_path_and_no_registry_is_committed():
    files = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "uv.lock" not in files
    hosts = "pypi" + ".org", "python" + "hosted"
    for name in files:
        if not name.endswith(".png") and (ROOT / name).is_file():  # a link is not
            text = (ROOT / name).read_text(errors="ignore")
            assert not any(host in text for host in hosts), name
