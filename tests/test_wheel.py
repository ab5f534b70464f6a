"""What is released: sdist, wheel, container and versions; they need no clone."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import jax_es

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = (
    *("matplotlib", "jinja2", "optuna", "wandb", "minari"),
    *("h5py", "sbx", "torch", "ale_py", "cv2", "moviepy", "tensorboard", "ray"),
)
ACT = """
import sys

for name in sys.argv[1].split(","):
    sys.modules[name] = None
import jax_es
import numpy as np

run, exported = (jax_es.load_policy(folder) for folder in sys.argv[2:])
observations = np.random.default_rng(0).normal(size=(20, 4))
np.testing.assert_array_equal(
    *([policy(x) for x in observations] for policy in (run, exported))
)
print(jax_es.__file__)
"""


def run(*command, cwd):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that the sdist makes."""
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"  # setuptools would leave its build in the clone
    for room in ("jax_es", "models", "envs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / room, source / room, symlinks=True, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    run(sys.executable, "-m", "venv", "builder", cwd=folder)
    python = str(folder / "builder" / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "install", "setuptools>=77", cwd=folder)
    build = (
        f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    )
    run(python, "-c", build, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    assert sdist.name == f"jax_es-{jax_es.__version__}.tar.gz"
    options = ("--no-deps", "--no-build-isolation", "-w", str(folder))
    run(*pip, "wheel", str(sdist), *options, cwd=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.slow
def test_an_installed_wheel_trains_outside_the_clone(wheel, tmp_path):
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = (".py", ".typed", ".xml", ".html", ".mplstyle")
    rooms = {"jax_es": ROOT / "jax_es"}
    rooms |= {f"jax_es/{room}": ROOT / room for room in ("models", "envs")}
    assert {name for name in names if name.startswith("jax_es/")} == {
        f"{room}/{path.relative_to(folder).as_posix()}"
        for room, folder in rooms.items()
        for path in folder.rglob("*")
        if path.suffix in kinds and not path.is_symlink()
    }
    others = {name.split("/")[0] for name in names} - {"jax_es"}
    assert [name.endswith(".dist-info") for name in others] == [True]
    assert {"jax_es/analysis/page.html", "jax_es/analysis/style.mplstyle"} <= names
    # An environment with nothing of ours; what ours depends on is borrowed.
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    scripts = tmp_path / "env" / "bin"
    python, program = str(scripts / "python"), str(scripts / "jax-es")
    options = ("-m", "pip", "-q", "install", "--no-deps", "--no-index", str(wheel))
    run(python, *options, cwd=tmp_path)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text("\n".join(p for p in sys.path if "site-" in p))
    tiny = (
        "inverted-pendulum --policy mlp --policy.hidden-sizes 4 --es.num-pairs 2 "
        "--num-generations 1 --evaluation.num-episodes 1 --name one"
    )
    run(program, "train", *tiny.split(), cwd=tmp_path)
    assert "one" in run(program, "evaluate", "runs/one", cwd=tmp_path)
    # A policy travels: no package is needed that is not always installed.
    run(program, "export", "runs/one", "exported", cwd=tmp_path)
    act = (python, "-c", ACT, ",".join(OPTIONAL), "runs/one", "exported")
    assert str(site) in run(*act, cwd=tmp_path)


@pytest.mark.slow
def test_the_oldest_and_the_newest_python_read_it(wheel, tmp_path):
    """Its files compile, and the program says its version."""
    found = [shutil.which(f"python3.{minor}") for minor in (11, 12)]
    works = [p for p in found if p and not subprocess.call([p, "-c", ""])]
    if not works:
        pytest.skip("neither python3.11 nor python3.12 is installed")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for python in works:
        said = run(python, "-m", "jax_es", "--version", cwd=tmp_path)
        assert said == f"jax-es {jax_es.__version__}\n"
        run(python, "-m", "compileall", "-qf", "jax_es", cwd=tmp_path)


def test_one_version_is_said_everywhere():
    version = jax_es.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{version}}}" in (ROOT / "docs" / "cite.md").read_text()
    first = re.findall(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    assert first == version


def test_the_container_installs_as_the_readme_says():
    text = (ROOT / "Dockerfile").read_text()
    lines = re.findall(r"^([A-Z]+) (.*)$", text, re.MULTILINE)
    steps = {kind: [rest for k, rest in lines if k == kind] for kind, _ in lines}
    assert next(iter(steps)) == "FROM"
    version = re.fullmatch(r"python:(3\.\d+)-slim", steps["FROM"][0])
    assert version
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]
    (extras,) = (rest.removeprefix("EXTRAS=") for rest in steps["ARG"])
    on_gpu = re.findall(r"--build-arg EXTRAS=(\S+)", text)[0]
    for names in (extras, on_gpu):
        assert set(names.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "cuda" in on_gpu
    installed = steps["RUN"][-1].replace('".[$EXTRAS]"', ".")
    assert installed in (ROOT / "README.md").read_text()
    copied = [shlex.split(rest)[:-1] for rest in steps["COPY"]]
    names = {name for group in copied for name in group}
    assert all((ROOT / name).exists() for name in names)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert {p.split(".")[0] for p in packages["setuptools"]["packages"]} <= names
    assert {"models", "envs"} <= names  # what links in jax_es lead to
    assert {"pyproject.toml", "constraints.txt", PROJECT["readme"]} <= names
    assert steps["ENTRYPOINT"] == ['["jax-es"]'] and "jax-es" in PROJECT["scripts"]


def test_the_oldest_versions_are_the_lower_bounds():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.lower().split("==") for line in lines if "==" in line)
    extras = PROJECT["optional-dependencies"]
    for each in [*PROJECT["dependencies"], *(extras[name][0] for name in ("atari",))]:
        name, bound = re.findall(r"^([\w-]+)(?:\[.*?\])?>=([\d.]+)", each)[0]
        assert oldest[name.lower()].startswith(bound), each
