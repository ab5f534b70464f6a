"""Notebooks run from first cell to last, and hold what a real run showed."""

import ast
import base64
import functools
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
PNG_HEADER = b"\x89PNG\r\n\x1a\n"
# A path from the root of a file system, and not a fraction or an environment's id.
ABSOLUTE_PATH = re.compile(r"(?<![\w.~])(/|[A-Z]:\\)\w[\w.-]*[/\\]\w")


@functools.cache
def can_render() -> bool:
    """Whether MuJoCo renders here, asked in a process of its own: it may die of it."""
    program = (
        "import os; os.environ.setdefault('MUJOCO_GL', 'egl'); import gymnasium;"
        "env = gymnasium.make('HalfCheetah-v5', render_mode='rgb_array');"
        "env.reset(); env.render()"
    )
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, cwd="/").returncode == 0


# What a kernel's sockets and processes leave behind is not ours.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_at_its_smallest_scale(name, tmp_path, monkeypatch):
    if name == "quickstart" and not can_render():
        pytest.skip("MuJoCo cannot render: install EGL (apt-get install libegl1)")
    monkeypatch.setenv("JAX_ES_NOTEBOOK_SCALE", "smallest")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": tmp_path}}
    ).execute()
    # The stored outputs come from these cells: each shows the same kinds of things.
    assert [kinds(cell) for cell in code_cells(notebook)] == [
        kinds(cell) for cell in code_cells(stored(name))
    ]


@pytest.mark.parametrize("name", NOTEBOOKS)
class TestStoredOutputs:
    def test_every_cell_ran_in_order_and_without_an_error(self, name):
        cells = code_cells(stored(name))
        counts = [cell.execution_count for cell in cells]
        assert counts == list(range(1, len(cells) + 1))
        assert not any(output.output_type == "error" for output in outputs(name))

    def test_it_ends_in_a_conclusion(self, name):
        last = stored(name).cells[-1]
        assert last.cell_type == "markdown" and last.source.startswith("## ")

    def test_it_imports_what_the_documentation_names(self, name):
        documented = (ROOT / "docs" / "api").glob("*.md")
        pages = "\n".join(page.read_text() for page in documented)
        for cell in code_cells(stored(name)):
            source = cell.source.replace("%matplotlib inline", "")
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom) and "jax_es." in str(node.module):
                    for alias in node.names:
                        assert f"::: {node.module}.{alias.name}\n" in pages

    def test_there_are_pictures(self, name):
        pictures = [
            base64.b64decode(output.data["image/png"])
            for output in outputs(name)
            if "image/png" in output.get("data", {})
        ]
        assert pictures
        assert all(picture.startswith(PNG_HEADER) for picture in pictures)
        # Axes with nothing in them take 10 kB.
        assert all(len(picture) > 12_000 for picture in pictures)

    def test_they_say_nothing_of_the_machine(self, name):
        for output in outputs(name):
            for text in texts(output):
                assert not ABSOLUTE_PATH.search(text), text
                assert "Warning" not in text
        for cell in stored(name).cells:
            assert not cell.metadata  # such as times of execution
        assert set(stored(name).metadata) == {"kernelspec", "language_info"}

    def test_they_are_of_the_scale_that_is_the_default(self, name):
        first = code_cells(stored(name))[0].source
        assert 'os.environ.get("JAX_ES_NOTEBOOK_SCALE", "workstation")' in first
        for scale in ("smallest", "workstation", "paper"):
            assert f'"{scale}": (' in first


@functools.cache
def stored(name):
    return nbformat.read(NOTEBOOKS[name], as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(name):
    return [output for cell in code_cells(stored(name)) for output in cell.outputs]


def texts(output):
    yield output.get("text", "")
    for kind, value in output.get("data", {}).items():
        if not kind.startswith("image/png"):
            yield str(value)


def kinds(cell):
    """What a cell shows: pictures, tables, text; not the progress of training."""
    return {
        kind
        for output in cell.outputs
        if output.get("name") != "stderr"
        for kind in (output.get("data") or {output.output_type: None})
    }
