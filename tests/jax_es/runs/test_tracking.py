"""Weights & Biases: what it gets, offline, and what is said where it is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jax_es
from jax_es import train
from jax_es.runs.tracking import scalars
from tests.trials import inputs

OPTIONS = [
    *inputs.TINY.split(),
    *("--track", "wandb", "--seeds", "2", "--name", "tracked"),
]

READ = """
import json, sys
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

for file in sys.argv[1:]:
    store = DataStore()
    store.open_for_scan(file)
    while (data := store.scan_data()) is not None:
        record = Record.FromString(data)
        if record.HasField("history"):
            items = [(i.key or i.nested_key[0], i) for i in record.history.item]
            values = {key: json.loads(i.value_json) for key, i in items}
            print(json.dumps([file, values]))
        if record.HasField("run"):
            print(json.dumps([file, record.run.run_id]))
"""


@pytest.mark.slow
def test_offline_it_gets_every_record_of_each_seed(tmp_path):
    pytest.importorskip("wandb")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(Path(jax_es.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        ),
        "WANDB_MODE": "offline",
    }

    def python(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    python("-m", "jax_es.train", *OPTIONS, "--num-generations", "1")
    resume = ["--resume", "--name", "tracked", "--track", "wandb"]
    python("-m", "jax_es.train", *resume, "--num-generations", "2")
    tracked, ids = tmp_path / "runs" / "tracked", set()
    files = sorted(tracked.glob("seed-*/wandb/offline-run-*/run-*.wandb"))
    told = list(map(json.loads, python("-c", READ, *map(str, files))))
    for run in (tracked / "seed-0", tracked / "seed-1"):
        own = [x for file, x in told if file.startswith(f"{run}/")]
        values = [x for x in own if isinstance(x, dict)]
        (name,) = {x for x in own if isinstance(x, str)}
        ids.add(name)
        records = jax_es.read_metrics(run)
        # The first closing evaluation is that with which the resume begins.
        assert [v["generation"] for v in values] == [0, 1, 1, 2]
        assert scalars(records[1]).items() <= values[2].items()
    assert len(ids) == 2


def test_without_it_one_line_names_the_extra(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "wandb", None)
    refused(train.main, OPTIONS, "--track wandb needs Weights & Biases", "'.[track]'")
