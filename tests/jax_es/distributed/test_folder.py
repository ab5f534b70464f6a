"""What Ray keeps is for one user, and goes with the program, however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jax_es.distributed import folder
from jax_es.runs.files import open_lock

HOLD = """
from jax_es.distributed.session import ray_session
with ray_session(1):
    print("started", flush=True)
    time.sleep(600)
"""


def mode(path):
    return path.stat().st_mode & 0o777


def test_a_start_removes_folders_whose_programs_are_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "TEMPORARY", tmp_path)
    made = {name: tmp_path / f"jax-es-ray-{name}" for name in ("dead", "alive", "new")}
    for path in made.values():
        path.mkdir()
    (made["dead"] / "r").mkdir()
    (made["alive"] / "r").mkdir()  # the new one's Ray has not started
    with open_lock(made["alive"]), folder.private_folder() as rays:
        private = Path(rays).parent
        assert set(tmp_path.iterdir()) == {made["alive"], made["new"], private}
        assert mode(private) == 0o700
        Path(rays).mkdir(mode=0o777)
        with folder.private_folder():
            assert private.exists()
    assert not private.exists()


def test_nobody_else_may_read_the_token(tmp_path, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".ray" / "auth_token"
    with monkeypatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        folder.make_token()
        assert not file.exists()
    folder.make_token()
    token = file.read_text()
    assert len(token) == 64 and mode(file) == 0o600
    file.chmod(0o644)  # as Ray leaves it
    folder.make_token()
    assert file.read_text() == token and mode(file) == 0o600


@pytest.mark.slow
def test_nothing_outlives_a_program_that_is_killed():
    pytest.importorskip("ray")
    import psutil

    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "started\n"
        started = psutil.Process(program.pid).children(recursive=True)
        (rays,) = folder.TEMPORARY.glob(f"jax-es-ray-*/r/session_*_{program.pid}")
        private = rays.parents[1]
        assert mode(private) == 0o700
        os.kill(program.pid, signal.SIGKILL)
    # Ray's agents alone would take a minute.
    assert len(started) > 4
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not alive
    with folder.private_folder():
        assert not private.exists()
