"""Whatever is typed, or has become of the files, costs one line and nothing else."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import jax_es
from jax_es.runs import trust
from tests.trials import inputs
from tests.trials.conftest import contents, run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("always")]

ROOT = Path(jax_es.__file__).parents[1]


@pytest.fixture(autouse=True)
def nothing_is_trusted(monkeypatch):
    """Other tests of this process may have named what these read from folders."""
    monkeypatch.setattr(trust, "_named", set())


def refused(command: str, world: Path, capsys, words) -> None:
    """Runs a command that cannot be done; checks its one line and what it leaves."""
    before = contents(world)
    capsys.readouterr()
    assert run(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *others, line = err.splitlines()
    assert all(other.startswith("warning: ") for other in others), err
    assert line.startswith("error: ") and len(line) < 1300
    for word in words:
        assert word in line, line
    assert contents(world) == before


@pytest.mark.parametrize("row", inputs.COMMAND_LINES, ids=lambda row: row.name)
def test_a_command_that_cannot_be_done(row, unchanged, capsys):
    refused(row.command, unchanged, capsys, row.words)


def entry(file, **changes):
    """Changes entries of a JSON object in a file, which then holds no digest."""

    def edit():
        values = {**json.loads(Path(file).read_text()), **changes}
        values.pop("digests", None)
        Path(file).write_text(json.dumps(values))

    return edit


def field(name, value, file="runs/es/config.json"):
    """Changes a field of a recorded configuration, as :func:`entry`: ``es.sigma``."""

    def edit():
        record = json.loads(Path(file).read_text())
        *parents, last = name.split(".")
        place = record["config"]
        for parent in parents:
            place = place[parent]
        place[last] = value
        record.pop("digests", None)
        Path(file).write_text(json.dumps(record))

    return edit


def content(file, text):
    """Replaces a file's bytes."""
    return lambda: Path(file).write_bytes(text)


def without(*paths):
    def edit():
        for path in map(Path, paths):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return edit


def replaced(path, by):
    """Puts a copy of one folder in the place of another."""

    def edit():
        shutil.rmtree(path)
        shutil.copytree(by, path)

    return edit


def copied(path, by):
    """Puts a copy of one file in the place of another."""
    return lambda: shutil.copyfile(by, path)


def lines(file, change):
    """Changes the list of a file's lines."""

    def edit():
        found = Path(file).read_bytes().splitlines(keepends=True)
        Path(file).write_bytes(b"".join(change(found)))

    return edit


def pipe(path):
    """Puts a pipe in a file's place, which nobody ever writes into."""

    def edit():
        Path(path).unlink(missing_ok=True)
        os.mkfifo(path)

    return edit


def better(lines):
    """Gives records another best evaluation."""
    name = b'"evaluation/best_return": '
    return [line.replace(name, name + b"9") for line in lines]


def exported_pipe():
    """Exports a run, as an earlier version did, with a pipe for weights."""
    Path("exported").mkdir()
    shutil.copy(RUN, "exported")
    pipe("exported/model.safetensors")()


RUN = "runs/es/config.json"
EXPERIMENT = "runs/many/experiment.json"
EPISODES = "datasets/pole-v0/data/main_data.hdf5"
METADATA = "datasets/pole-v0/data/metadata.json"
METRICS = "runs/es/metrics.jsonl"
LAST = "runs/es/checkpoints/last/2"

RESUME = "train --resume --name es --num-generations 4"
EVALUATE = "evaluate runs/es --episodes 2"
SEEDS = "train --resume --name many --num-generations 3"
PRETRAIN = f"pretrain {inputs.CLONE} --name new"
CONTINUE = "pretrain --resume --name clone --epochs 3"

# What a crash, a full disk, another version or a deleted folder leaves.
RECORDS = [
    # A run's record.
    (content(RUN, b""), RESUME, RUN),
    (content(RUN, b"{"), EVALUATE, RUN),
    (entry(RUN, config={}), EVALUATE, RUN),
    (field("env.id", "Gone-v0"), EVALUATE, "Gone-v0"),
    (field("env.id", "gone_module:Env-v0"), RESUME, "--trust"),
    (field("policy.kind", "subprocess:call"), RESUME, "--trust"),
    (field("env.wrappers", ["os:abort"]), EVALUATE, "--trust"),
    (field("env.kwargs", {"task": "builtins:exec"}), RESUME, "--trust"),
    (field("env.id", "a\n\x1b[2J:B-v0"), EVALUATE, r"names a\n\x1b[2J:B-v0, for"),
    (field("policy.kind", "gru"), EVALUATE, RUN),
    (field("policy.hidden_sizes", [3]), EVALUATE, "another network"),
    (field("policy.hidden_sizes", [10**9, 10**9]), EVALUATE, "weights would take"),
    (field("es.sigma", "much"), RESUME, RUN),
    (field("rollout.num_devices", 99), RESUME, "num-devices"),
    (field("speed", 1), RESUME, "speed"),
    (entry(RUN, method=["sac"]), EVALUATE, "method must be one of"),
    (entry(RUN, machine=5), "report runs/es", "machine must be dict"),
    (entry(RUN, versions=[1]), RESUME, "versions must be dict"),
    (entry(RUN, git_commit=5), "plot runs/es", "git_commit must be str"),
    (without(RUN), RESUME, "config.json"),
    (without(RUN), f"train {inputs.TINY} --name es", "holds a run"),
    (field("env.kwargs", {"frame_skip": 10**9}), EVALUATE, "env.kwargs.frame_skip"),
    (pipe("runs/es/.lock"), RESUME, "runs/es/.lock is no file"),
    (exported_pipe, "evaluate exported", "exported/model.safetensors"),
    # An experiment's.
    (content(EXPERIMENT, b"{}"), SEEDS, EXPERIMENT),
    (entry(EXPERIMENT, num_seeds="2"), SEEDS, "num_seeds must be int"),
    (field("es.sigm", 1, EXPERIMENT), SEEDS, EXPERIMENT),
    (content("runs/many/seed-1/config.json", b"{"), SEEDS, "seed-1/config.json"),
    (field("seed", 7, "runs/many/seed-1/config.json"), SEEDS, "seed"),
    # Metrics.
    (without(METRICS), "plot runs/es", "no finished generation"),
    (content(METRICS, b"{}\n{}\n"), "report runs/es", METRICS),
    (content(METRICS, b"{}\n{}\n"), RESUME, METRICS),
    (copied(METRICS, "runs/cart/metrics.jsonl"), RESUME, "another run's"),
    (lines("runs/clone/metrics.jsonl", better), CONTINUE, "another run's"),
    # Checkpoints.
    (without("runs/es/checkpoints"), EVALUATE, "no checkpoint"),
    (
        without(f"{LAST}/state/_METADATA"),
        f"{EVALUATE} --checkpoint 2",
        f"{LAST} cannot be read",
    ),
    (
        pipe(f"{LAST}/state/_METADATA"),
        f"{EVALUATE} --checkpoint 2",
        f"{LAST} cannot be read",
    ),
    (replaced("runs/es/checkpoints", "runs/cart/checkpoints"), RESUME, "does not fit"),
    # Datasets.
    (without(EPISODES), PRETRAIN, "pole-v0"),
    (content(EPISODES, b"HDF?" * 99), PRETRAIN, "pole-v0"),
    (without("datasets/pole-v0"), CONTINUE, "pole-v0"),
    (pipe(EPISODES), PRETRAIN, "main_data.hdf5 is"),
    (content(METADATA, b"[]"), PRETRAIN, "pole-v0"),
    *(
        (entry(METADATA, **values), command, "pole-v0")
        for values in (
            {"data_format": "arrow"},
            {"data_format": "parchment"},
            {"observation_space": None},
            {"action_space": '{"type": "Sphere"}'},
            {"total_steps": 10**12},
            {"total_steps": "many"},
            {"total_steps": [1]},
            {"total_episodes": 10**9},
            {"total_episodes": None},
        )
        for command in (PRETRAIN, CONTINUE)
    ),
]


@pytest.fixture
def in_time():
    """Fails what does not end, as to read from a pipe."""
    previous = signal.signal(
        signal.SIGALRM, lambda *_: pytest.fail("it does not end within five minutes")
    )
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(("edit", "command", "word"), RECORDS)
def test_a_file_that_became_something_else(edit, command, word, world, capsys):
    edit()
    refused(command, world, capsys, [word])


@pytest.mark.parametrize(
    ("command", "file"), [(RESUME, METRICS), (CONTINUE, "runs/clone/metrics.jsonl")]
)
def test_a_resume_that_lacks_records(command, file, world):
    lines(file, lambda found: found[1:])()
    with pytest.warns(UserWarning, match=f"{file} lacks 1 of 2 records, the first 0"):
        assert run(command) == 0


INTERRUPTED = [
    *("evaluate runs/es --episodes 200 --csv x.csv", "plot runs/es --output x.png"),
    *("report runs/many --output x.html", "plot runs/es runs/cart --output y.svg"),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", INTERRUPTED)
def test_a_signal_at_a_random_instant(command, signum, seed, world, capsys):
    before = contents(world)
    previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signum))
    # A background job starts with SIGINT ignored; this is about one that does not.
    handlers = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signum)}
    try:
        signal.setitimer(signal.ITIMER_REAL, random.Random(seed).uniform(0.01, 0.8))
        code = run(command)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in {signal.SIGALRM: previous, **handlers}.items():
            signal.signal(number, handler)
    out, err = capsys.readouterr()
    if code:  # else it was faster
        assert code == 128 + signum and out == ""
        assert err.splitlines()[-1].startswith(
            f"{signal.Signals(signum).name}: stopped"
        )
        # What was written whole before the signal came may stay.
        if (written := world / "y.svg").exists():
            assert written.read_text().rstrip().endswith("</svg>")
            written.unlink()
        assert contents(world) == before


SURROUNDINGS = [
    ("JAX_PLATFORMS=nonsense", "TINY", "JAX does not start on JAX_PLATFORMS=nonsense"),
    ("JAX_NUMPY_DTYPE_PROMOTION=strict", "TINY", "PROMOTION must be standard, got st"),
    ("JAX_THREEFRY_PARTITIONABLE=0", "RESUME", "was True, now False. Leave these as"),
    ("JAX_ENABLE_X64=1", "RESUME", "JAX_ENABLE_X64 was False, now True"),
    ("ulimit -n 12;", "TINY", "may open 12 files, and saving a run takes 64; ulimit"),
    ("ulimit -n 12;", "evaluate runs/es", "may open 12 files"),
]


@pytest.mark.parametrize(("variable", "command", "words"), SURROUNDINGS)
def test_surroundings_in_which_nothing_works(variable, command, words, world):
    known = {"TINY": f"train {inputs.TINY} --name new", "RESUME": RESUME}
    line = f"{variable} {sys.executable} -m jax_es.{known.get(command, command)}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    before = contents(world)
    ended = subprocess.run(
        ["bash", "-c", line], cwd=world, capture_output=True, text=True, env=environment
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    (said,) = ended.stderr.splitlines()
    assert said.startswith("error: ") and words in said
    assert contents(world) == before


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
        {"COLUMNS": "1"},
        {"PYTHONIOENCODING": "ascii"},
    ],
    ids=lambda variables: " ".join(variables),
)
def test_terminals_of_another_kind_get_the_same_line(variables, tmp_path):
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **variables}
    ended = subprocess.run(
        [sys.executable, "-m", "jax_es.train", "--es.rank", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, **own},
    )
    assert (ended.stdout, ended.stderr) == (
        "",
        "error: --es.rank must be at least 1, got 0; the default is 1. (--help lists "
        "all options)\n",
    )
