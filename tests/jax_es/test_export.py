"""An exported policy acts as before, wherever it is, and says what it is."""

import json
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy

from jax_es import evaluate
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.export import Arguments, export, main
from jax_es.models import DecisionTransformerConfig, LSTMConfig
from jax_es.runs.digests import write_digests
from jax_es.runs.directory import RunDirectory
from jax_es.runs.exported import restore, write_weights
from jax_es.runs.metrics import MetricsWriter
from jax_es.runs.records import evaluation_record
from jax_es.training.build import TrainConfig
from jax_es.training.load_policy import load_policy
from tests.made_runs import TINY, save_run

POLICIES = {
    "transformer": DecisionTransformerConfig(context_length=3, width=8, num_layers=1),
    "lstm": LSTMConfig(width=4),
}


@pytest.fixture(params=POLICIES)
def run(request, tmp_path):
    """A run with observation statistics, whose policy remembers."""
    config = TrainConfig(
        env=EnvConfig("HalfCheetah-v5", 10),
        policy=POLICIES[request.param],
        rollout=RolloutConfig(num_slots=1, num_devices=1, num_substeps=3),
    )
    path = save_run(tmp_path / "runs" / request.param, config, steps=(1, 2))
    with MetricsWriter(path) as writer:
        for generation, value in enumerate((0.0, 1.0, 4.0)):
            returns, best = [value - 1, value + 1], value
            writer.write(evaluation_record(generation, 0, returns, [10, 10], best, 1.0))
    return path


def actions(policy):
    rng = np.random.default_rng(0)
    return [policy(rng.normal(size=17), rng.normal()) for _ in range(6)]


def test_it_acts_to_the_bit_as_before_and_says_what_it_is(run, monkeypatch, capsys):
    (run.parent / "episode.gif").write_bytes(b"GIF")
    video = ["--video", str(run.parent / "episode.gif")]
    assert main([str(run), "exported", *video]) == 0
    assert "jax_es.load_policy('exported')" in capsys.readouterr().err
    expected = actions(load_policy(run))
    shutil.rmtree(run)
    elsewhere = shutil.move("exported", run.parent / "elsewhere")
    names = {"README.md", "config.json", "model.safetensors", "replay.gif"}
    names |= {"digests.json"}
    assert {path.name for path in elsewhere.iterdir()} == names
    np.testing.assert_array_equal(actions(load_policy(elsewhere)), expected)
    text = (elsewhere / "README.md").read_text()
    assert "in coarse physics (num_substeps 3): **4 ± 1**" in text
    again = re.search(r"^python -m jax_es.train .*$", text, re.M)
    assert again is not None and "--rollout.num-substeps 3" in again[0]
    assert "![An episode](replay.gif)" in text
    heading = dict(re.findall(r"^([\w-]+): (.*)$", text.split("---\n")[1], re.M))
    ((index,),) = [json.loads(heading["model-index"])]
    assert index["results"][0]["metrics"][0]["value"] == "4.00 +/- 1.00"
    # As the hub's client would have it.
    hub = SimpleNamespace(snapshot_download=lambda name, **_: {"a/b": elsewhere}[name])
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    np.testing.assert_array_equal(actions(load_policy("hf://a/b")), expected)
    # What is in it alone, and only if its modules are trusted.
    with pytest.raises(ValueError, match="holds checkpoint 2 alone, got 1"):
        load_policy(elsewhere, 1)
    theirs = f"{run.name}_of_nobody:Env-v0"  # trust lasts as long as the process
    text = json.dumps(RunDirectory(elsewhere).record())
    edited = json.loads(text.replace("HalfCheetah-v5", theirs))
    RunDirectory(elsewhere).write(edited)
    with pytest.raises(ValueError, match="may run any code; if you trust it"):
        load_policy(elsewhere)
    (elsewhere / "digests.json").unlink()
    with pytest.raises(ValueError, match=r"digests.json is missing\); export the run"):
        load_policy(elsewhere, trust=True)
    (elsewhere / "model.safetensors").write_bytes(b"{")
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read"):
        load_policy(elsewhere, trust=True)


def test_weights_keep_their_types_and_order(tmp_path):
    kernel = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    arrays = {"kernel": kernel, "transposed": kernel.T, "count": np.float64(0.1)}
    state = {"es": {"mean": arrays, "generation": np.int32(7)}}
    write_weights(tmp_path, state)
    restored = restore(RunDirectory(tmp_path), "best")
    assert restored.step == 7
    for name, array in arrays.items():
        read = restored.state["es"]["mean"][name]
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An exported policy that sees observations through statistics."""
    folder = tmp_path_factory.mktemp("exported")
    save_run(folder / "run", TINY)
    export(Arguments(folder / "run", folder / "policy"))
    return folder / "policy"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"es": np.ones(3)}, "model.safetensors cannot be read"),
        ({"es/mean": np.ones(3)}, "model.safetensors cannot be read"),
        ({"es/generation/x": np.ones(3)}, "model.safetensors cannot be read"),
        ({"es/generation": np.full((), np.inf)}, "model.safetensors cannot be read"),
        ({"es/mean/head/bias": np.ones(9)}, "it does not fit"),
        ({"observation_statistics": np.ones(3)}, "model.safetensors cannot be read"),
        ({"observation_statistics/sum": np.ones(7)}, "of the shape (4,), which Inv"),
        ({"observation_statistics/sum_of_squares": np.ones(())}, "the observation st"),
    ],
)
def test_arrays_of_other_names_and_shapes_are_one_line(
    exported, tmp_path, refused, changes, said
):
    copy = shutil.copytree(exported, tmp_path / "copy")
    file = copy / "model.safetensors"
    safetensors.numpy.save_file({**safetensors.numpy.load_file(file), **changes}, file)
    write_digests(copy)  # not damage, but another's arrays
    assert said in refused(evaluate.main, [copy, "--episodes", 1])
    with pytest.raises(ValueError, match=re.escape(said)):
        load_policy(copy)
