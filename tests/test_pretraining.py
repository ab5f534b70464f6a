"""The guide's way from a teacher to evolution, each command as it stands there."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from jax_es.runs.find import find_run
from jax_es.runs.metrics import read_metrics
from jax_es.training.trained_mean import load_mean

pytest.importorskip("sbx")
pytest.importorskip("minari")

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "guides" / "pretraining.md").read_text()
SMALLEST = {
    "--steps": "64",
    "--learning-starts": "16",
    "--evaluate-every": "32",
    "--episodes": "4",
    "--warmup-steps": "2",
    "--steps-per-epoch": "3",
    "--epochs": "2",
    "--max-env-steps": "200",
}
"""What takes minutes at the guide's scale takes seconds at this one."""

MORE = {
    "teacher": "--env.max-episode-steps 10 --evaluation.num-episodes 2",
    "pretrain": "--env.max-episode-steps 10 --evaluation.num-episodes 2",
    "train": "--env.max-episode-steps 10 --es.num-pairs 4",
}


def commands():
    """Those of the block that begins with a teacher, with small numbers."""
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE, flags=re.DOTALL)
    (block,) = [b for b in blocks if "hopper-small --fine-tune --init runs/clone" in b]
    for line in block.splitlines():
        python, m, module, *options = shlex.split(line)
        assert [python, m] == ["python", "-m"]
        for option, value in SMALLEST.items():
            if option in options:
                options[options.index(option) + 1] = value
        extra = MORE.get(module.removeprefix("jax_es."), "").split()
        yield module, [*options, *extra]


@pytest.mark.slow
@pytest.mark.filterwarnings("always")  # a program's own are lines for the user
def test_a_teacher_is_cloned_and_evolution_goes_on(
    stay_as_configured, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    programs = []
    for module, arguments in commands():
        capsys.readouterr()
        assert importlib.import_module(module).main(arguments) == 0, module
        programs.append(module.removeprefix("jax_es."))
    assert programs == ["teacher", "collect", "pretrain", "train", "evaluate"]
    assert "mean return" in capsys.readouterr().out

    runs = {n: find_run(tmp_path / "runs" / n) for n in ("td3", "clone", "evolved")}
    methods = [run.method().name for run in runs.values()]
    assert methods == ["td3", "cloning", "openai-es"]
    # The same episodes of the same θ: evolution begins where the clone ended.
    evolved = runs["evolved"].config()
    assert evolved.init == "runs/clone" and evolved.es.sigma == 0.01
    clone = load_mean(tmp_path / "runs" / "clone").mean["head"]["kernel"]
    begun = load_mean(tmp_path / "runs" / "evolved", 0).mean["head"]["kernel"]
    assert (clone == begun).all()
    assert len(read_metrics(tmp_path / "runs" / "evolved")) >= 1
