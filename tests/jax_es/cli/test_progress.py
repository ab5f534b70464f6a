"""Exact plain lines; a live bar that fits the terminal and moves with the tasks."""

import io
import math
import re

import pytest

from jax_es.cli.progress import Progress
from jax_es.runs.records import GenerationRecord


class Clock:
    """A clock that moves only when told."""

    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True

    def shown(self):
        """Everything that was written, without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def make_record(generation, **changes):
    values = {
        "generation": generation,
        "total_env_steps": 0,
        "evaluation_return_mean": 5321.04,
        "return_mean": 4980.26,
        "return_max": 6120.5,
        "episode_length_mean": 812.44,
        "env_steps_per_second": 10312.3,
        "seconds_total": 10.0,
    }
    return GenerationRecord(**values | changes)


def run_generation(progress, clock, record, seconds):
    progress.generation_started(record.generation)
    if clock.seconds == 100:
        # Programs are compiled before the first task ends, half of them at once here.
        clock.seconds += 7
        progress.tasks_done(1, 2)
        seconds /= 2
    clock.seconds += seconds
    progress.generation_done(record)


# Plain lines


def test_plain_lines_are_exact():
    stream, clock = io.StringIO(), Clock()
    with Progress(200, first_generation=8, stream=stream, clock=clock) as progress:
        run_generation(progress, clock, make_record(8), 60)
        progress.message("checkpoint [8]: fallen back")
        changes = {
            "evaluation_return_mean": math.nan,
            "return_mean": -12345.6,
            "return_max": 0.0,
            "episode_length_mean": 1000.0,
        }
        run_generation(progress, clock, make_record(9, **changes), 30)
    assert stream.getvalue() == (
        "compiling and running the first generation\n"
        "generation    9/200  evaluation    5321.0  mean    4980.3  max    6120.5"
        "  length   812  left 3:11:00\n"
        "checkpoint [8]: fallen back\n"
        "generation   10/200  evaluation       nan  mean  -12345.6  max       0.0"
        "  length  1000  left 2:06:40\n"
    )


@pytest.mark.parametrize("label", ["", "seed 3  run 4/10"])
@pytest.mark.parametrize("limit", [None, 5_000_000])
def test_plain_lines_fit_100_columns(label, limit):
    stream = io.StringIO()
    with Progress(
        100_000, stream=stream, label=label, max_env_steps=limit, clock=Clock()
    ) as progress:
        record = make_record(0, env_steps=5_000, total_env_steps=5_000)
        progress.generation_done(record)
    *_, line = stream.getvalue().splitlines()
    assert len(line) <= 100
    assert {"generation", "evaluation", "mean", "left"} <= {*line.split()[::2]}


def test_returns_near_zero_have_significant_digits():
    stream = io.StringIO()
    values = {"evaluation_return_mean": 0.00472, "return_mean": -0.0519}
    with Progress(1, stream=stream, clock=Clock()) as progress:
        progress.generation_done(make_record(0, **values, return_max=0.953))
    words = "evaluation   0.00472  mean   -0.0519  max     0.953  length"
    assert words in stream.getvalue()


def test_one_run_of_several_is_named_first(terminal):
    label = "seed 3  run 4/10"
    lines = io.StringIO()
    for stream in (lines, terminal):
        clock = Clock()
        with Progress(2, stream=stream, clock=clock, label=label) as progress:
            run_generation(progress, clock, make_record(0), 1)
    assert f"\n{label}  generation  1/2" in lines.getvalue()
    assert f"{label}  generation 1/2" in terminal.shown()


class Notebook(io.StringIO):
    """A stream of a notebook's kernel, told by where its class is from."""


Notebook.__module__ = "ipykernel.iostream"


def test_in_a_notebook_lines_take_each_others_place():
    stream, clock = Notebook(), Clock()
    with Progress(3, stream=stream, clock=clock) as progress:
        run_generation(progress, clock, make_record(0), 1)
        run_generation(progress, clock, make_record(1), 1)
        progress.message("two")
        progress.message("messages")
        run_generation(progress, clock, make_record(2), 1)
    # What is left of a line is what follows its last carriage return.
    lines = [line.rpartition("\r")[2] for line in stream.getvalue().split("\n")]
    assert [line[:16] for line in lines] == [
        "generation  2/3 ",
        "two",
        "messages",
        "generation  3/3 ",
        "",
    ]


def test_time_left_counts_down_and_follows_the_speed():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(10, first_generation=4, stream=stream, clock=clock)
    lefts = []
    for generation in range(4, 10):
        run_generation(progress, clock, make_record(generation), 60)
        lefts.append(stream.getvalue().split()[-1])
    assert lefts == ["0:05:00", "0:04:00", "0:03:00", "0:02:00", "0:01:00", "0:00:00"]


def test_time_left_and_the_bar_know_the_limit_on_steps(terminal):
    lines = io.StringIO()
    for stream in (lines, terminal):
        clock = Clock()
        with Progress(100, 0, stream, clock=clock, max_env_steps=1000) as progress:
            for generation, steps in enumerate([250, 500, 1000]):
                record = make_record(generation, env_steps=250, total_env_steps=steps)
                run_generation(progress, clock, record, 10)
    lefts = [line.split()[-1] for line in lines.getvalue().splitlines()[1:]]
    assert lefts == ["0:00:30", "0:00:20", "0:00:00"]
    assert "\ngeneration    3  steps 100%  evaluation" in lines.getvalue()
    assert re.search("generation 3  steps 100% ━+ 0:00:00", terminal.shown())


def test_generations_are_counted_where_they_end_a_run_with_a_limit_on_steps():
    stream, clock = io.StringIO(), Clock()
    limits = {"max_env_steps": 1000, "env_steps": 500}
    with Progress(3, 2, stream, clock=clock, **limits) as progress:
        assert progress._count() == "2  steps 50%"  # of a resume, until one ends
        record = make_record(2, env_steps=250, total_env_steps=750)
        run_generation(progress, clock, record, 10)
    assert "\ngeneration  3/3  evaluation" in stream.getvalue()


# The live bar


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_bar_shows_everything_without_wrapping(terminal, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    clock = Clock()
    with Progress(200, 11, terminal, clock=clock) as progress:
        assert "compiling and running the first generation" in terminal.shown()
        run_generation(progress, clock, make_record(11), 40)
        progress.message("first [bold] notice: 1/2")
        progress.generation_started(12)
        clock.seconds += 10
        progress.tasks_done(32, 512)
    text = terminal.shown()
    assert re.search(r"generation 12/200  episode 32/512 [━╸╺]+ 2:47:04 left", text)
    for words in ("evaluation 5321.0", "length 812", "steps/s 10312"):
        assert words in text
    assert "first [bold] notice: 1/2\n" in text
    assert max(map(len, re.split(r"[\r\n]+", text))) <= width


def test_finished_tasks_redraw_at_most_four_times_a_second(terminal):
    clock = Clock()
    with Progress(200, 11, terminal, clock=clock) as progress:
        progress.generation_started(11)
        before = terminal.getvalue()
        clock.seconds += 0.2
        progress.tasks_done(100, 100)
        assert terminal.getvalue() == before
        clock.seconds += 0.1
        progress.tasks_done(100, 100)
        assert "episode 100/100" in terminal.shown()


@pytest.mark.parametrize("term", ["dumb", "unknown", "xterm-256color"])
def test_a_terminal_gets_the_live_bar_unless_it_is_dumb(monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    stream = Terminal()
    with Progress(1, stream=stream, clock=Clock()) as progress:
        progress.generation_done(make_record(0))
    is_live = term.startswith("xterm")
    assert ("\x1b[" in stream.getvalue()) == is_live
    assert ("generation 1/1" if is_live else "generation  1/1") in stream.getvalue()
