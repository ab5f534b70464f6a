"""How much of the house a run enters: files, counted in a process of its own.

A file is entered when one of its functions is called; imports do not count.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]

PROGRAM = """
import json
import os
import sys
import threading
from pathlib import Path

import jax_es
from jax_es.training import loop, train_policy

root, room, resume = Path(sys.argv[1]), "setup", bool(sys.argv[2:])
entered, opened = {"setup": set()}, []


def enter(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & 2:  # a function, no body of a module
        entered.setdefault(room, set()).add(code.co_filename)


def listen(event, given):
    if event == "open" and Path(str(given[0])).name == "config.json":
        opened.append(given[1])


def within(name, function):
    def call(*given, **named):
        global room
        before, room = room, name
        try:
            return function(*given, **named)
        finally:
            room = before

    return call


config = jax_es.preset("inverted-pendulum", "mlp").replace(
    {"es.num_pairs": 4, "evaluation.num_episodes": 2, "num_generations": 2 + resume}
)
turns, warm = loop.PolicyTraining.advance, loop.run_generation


def advance(*given):
    global room
    room = f"turn {given[0].generation}"
    return turns(*given)


def generation(parts, state, on_step, elapsed):
    calls = [within(room, each) for each in (on_step, elapsed)]
    return within(f"generation {int(state.es.generation)}", warm)(parts, state, *calls)


def finish(*given):
    global room
    room = "end"
    return ended(*given)


ended = loop.PolicyTraining.finish
loop.PolicyTraining.advance, loop.PolicyTraining.finish = advance, finish
loop.run_generation = generation
sys.addaudithook(listen)
threading.setprofile(enter)
sys.setprofile(enter)
train_policy.train_policy(config, "run", resume=resume, verbose=False)
sys.setprofile(None)
rooms = [(root / name).resolve() for name in ("jax_es", "models", "envs")]
files = {
    name: sorted(
        path.relative_to(root).as_posix()
        for path in {Path(file).resolve() for file in found}
        if any(path.is_relative_to(each) for each in rooms)
    )
    for name, found in entered.items()
}
print(json.dumps([files, opened]))
"""


def trained(folder, *resume):
    """Files by what enters them, and how config.json was opened, of a tiny run."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT), *resume],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entered")
    return folder, *trained(folder)


def test_a_warm_generation_enters_few_files(begun):
    """Whatever shows, records and saves it is the session's, and counted below."""
    _, files, _ = begun
    assert len(files["generation 1"]) <= 22, files["generation 1"]
    turn = {*files["generation 1"], *files["turn 1"]}
    assert len(turn) <= 33, sorted(turn)


def test_a_set_up_enters_no_more_files_than_it_did(begun):
    _, files, _ = begun
    assert len(files["setup"]) <= 47, files["setup"]


def test_a_resume_reads_its_record_once(begun):
    folder, _, opened = begun
    assert opened == []  # what was written is known
    _, opened = trained(folder, "resume")
    assert opened == ["r"]
