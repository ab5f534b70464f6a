"""The wheel holds every folder: it trains where there is no clone."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, cwd):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_trains_outside_the_clone(tmp_path):
    source = tmp_path / "source"  # setuptools would leave its build in the clone
    for room in ("jax_es", "models", "envs"):
        shutil.copytree(ROOT / room, source / room)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", str(source), "--no-deps", "-w", str(tmp_path), cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for room in ("jax_es", "models", "envs"):
        files = (*(ROOT / room).rglob("*.py"), *(ROOT / room).rglob("*.typed"))
        assert {path.relative_to(ROOT).as_posix() for path in files} <= names
    assert {"jax_es/analysis/page.html", "jax_es/analysis/style.mplstyle"} <= names
    # An environment with nothing of ours; what ours depends on is borrowed.
    run(sys.executable, "-m", "venv", "--system-site-packages", "env", cwd=tmp_path)
    python = str(tmp_path / "env" / "bin" / "python")
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text("\n".join(p for p in sys.path if "site-" in p))
    target = ("--target", str(site), "--no-deps", "--no-index", str(wheel))
    run(*pip, "install", *target, cwd=tmp_path)
    options = (
        "inverted-pendulum --policy mlp --policy.hidden-sizes 4 --es.num-pairs 2 "
        "--num-generations 1 --evaluation.num-episodes 1 --name one"
    )
    run(python, "-m", "jax_es.train", *options.split(), cwd=tmp_path)
    where = run(python, "-c", "import jax_es; print(jax_es.__file__)", cwd=tmp_path)
    assert str(site) in where
    assert "one" in run(str(python), "-m", "jax_es.evaluate", "runs/one", cwd=tmp_path)
