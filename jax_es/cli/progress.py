"""What a run shows while it trains: a live bar, or plain lines in a log.

On a terminal three lines stay at the bottom: how far the run is and the time left, how
good the policy is, where the time goes. Anywhere else (a file, a pipe, a dumb terminal)
each generation prints one ASCII line of names and values separated by blanks, so that
``line.split()`` alternates between them::

    generation   12/200  evaluation  5321.0  mean  4980.2  max  6120.5  length  812.4 …

In a notebook each of these lines takes the place of the one before.

A training without generations shows its steps in the same ways.
"""

import abc
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jax_es.runs.metrics import GenerationRecord

_REDRAW_SECONDS = 0.25
"""Drawing costs milliseconds, so it is done at most this often."""

_RECENT_GENERATIONS = 10
"""How many generations the time left is estimated from: their lengths drift."""

_RECENT_SECONDS = 60
"""How far back speed and time left of steps are estimated from."""


class Layout(NamedTuple):
    """What a kind of training calls its parts, and what it shows of them.

    Attributes:
        unit: what a run counts.
        part: what is counted within one of them.
        fields: a finished unit's record → names and values of its plain line.
        details: the last record, None before the first, → two lines below the bar.
    """

    unit: str
    part: str
    fields: Callable[[Any], list[str]]
    details: Callable[[Any], tuple[str, str]]


class _Display(abc.ABC):
    """A live bar, or lines: where a program shows how far it is."""

    def __init__(
        self,
        stream: TextIO | None,
        console: Console | None,
        clock: Callable[[], float],
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._drawn = clock()
        self._is_notebook = _is_notebook(self._stream)
        self._is_line_open = False
        self._live: Live | None = None
        if console is not None or _is_terminal(self._stream):
            # Without its refresh thread, which would compete with the rollout.
            self._live = Live(
                console=console or Console(file=self._stream),
                auto_refresh=False,
                # Redirected output of a program stays out of the bar's terminal.
                redirect_stdout=sys.stdout.isatty(),
                get_renderable=self._render,
            )

    def __enter__(self) -> Self:
        """Shows the bar, if there is one."""
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        """Leaves the bar's last state on the screen, or the notebook's last line."""
        if self._live is not None:
            self._live.stop()
        else:
            self._end_line()

    def message(self, text: str) -> None:
        """Prints one line that stays, above the bar."""
        if self._live is None:
            self._print(text)
        else:
            self._live.console.print(
                text, markup=False, highlight=False, soft_wrap=True
            )

    @abc.abstractmethod
    def _render(self) -> Group:
        """Returns the live bar and the lines below it."""

    def _show(self, line: str) -> None:
        """Prints a line of values, or redraws the bar that shows them."""
        if self._live is None:
            self._print(line, in_place=self._is_notebook)
        self._redraw()

    def _print(self, line: str, in_place: bool = False) -> None:
        """Prints a line; one in place stays open until the next takes its place."""
        if not in_place:
            self._end_line()
        self._stream.write(f"\r{line}" if in_place else f"{line}\n")
        self._stream.flush()
        self._is_line_open = in_place

    def _end_line(self) -> None:
        if self._is_line_open:
            self._stream.write("\n")
            self._is_line_open = False

    def _redraw(self) -> None:
        if self._live is not None:
            self._drawn = self._clock()
            self._live.refresh()

    def _redraw_now_and_then(self) -> None:
        if self._live is not None and self._clock() - self._drawn >= _REDRAW_SECONDS:
            self._redraw()


class Progress(_Display):
    """Shows a run's progress; a context manager.

    Example::

        with Progress(num_generations=200) as progress:
            for generation in range(200):
                progress.generation_started(generation)
                progress.tasks_done(done=64, total=512)
                progress.generation_done(record)
    """

    def __init__(
        self,
        num_generations: int,
        first_generation: int = 0,
        stream: TextIO | None = None,
        *,
        max_env_steps: int | None = None,
        label: str = "",
        layout: Layout | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares the display; nothing is shown before the ``with`` block.

        Args:
            num_generations: generations of the whole run.
            first_generation: index of the first one to come; above 0 on a resume.
            stream: where to write; standard error by default.
            max_env_steps: environment steps that end the run earlier.
            label: names and values that stand before the generation, for instance
                ``"seed 3"``.
            layout: of a training that is not by generations; its "generations" and
                "tasks" are then the layout's units and parts, and records have a
                ``generation``, too.
            console: a rich console to draw the live bar on, instead of ``stream``.
            clock: seconds from any origin; the time left is computed from it, so one
                that stands still while programs are compiled leaves them out.
        """
        self._num_generations = num_generations
        self._max_env_steps = max_env_steps
        self._label = f"{label}  " if label else ""
        self._layout = layout or GENERATIONS
        self._generation = first_generation
        self._tasks = (0, 0)
        self._record: Any = None
        self._durations: deque[float] = deque(maxlen=_RECENT_GENERATIONS)
        self._started = clock()
        super().__init__(stream, console, clock)

    def __enter__(self) -> Self:
        """Shows the bar, if there is one."""
        self._started = self._clock()
        return super().__enter__()

    def generation_started(self, generation: int) -> None:
        """Says that a generation begins.

        Args:
            generation: its index, from 0.
        """
        self._generation = generation
        self._tasks = (0, 0)
        self._started = self._clock()
        self._redraw()

    def tasks_done(self, done: int, total: int) -> None:
        """Moves the bar within a generation; costs about a microsecond.

        Args:
            done: finished tasks (episodes) of this generation.
            total: all tasks of this generation.
        """
        self._tasks = (done, total)
        self._redraw_now_and_then()

    def generation_done(self, record: Any) -> None:
        """Shows a finished generation: redraws the bar, or prints its line."""
        self._durations.append(self._clock() - self._started)
        self._started = self._clock()
        self._generation = record.generation + 1
        self._tasks = (0, 0)
        self._record = record
        self._show(self._plain_line(record))

    def _fraction(self) -> float:
        """Returns how much of the current generation is done, from 0 to 1."""
        done, total = self._tasks
        return min(done / total, 1.0) if total else 0.0

    def _time_left(self) -> float | None:
        """Estimates the seconds to the end, or None when there is nothing to go by."""
        remaining = self._generations_left()
        elapsed = self._clock() - self._started
        if self._max_env_steps is not None and self._record is None:
            return None  # how many generations that is, a first one will tell
        if self._durations:
            duration = sum(self._durations) / len(self._durations)
        elif self._fraction() > 0:
            duration = elapsed / self._fraction()
        else:
            return None
        # A generation that outlasts its predecessors has no time left of its own.
        spent = min(max(elapsed, self._fraction() * duration), duration)
        return max(remaining * duration - spent, 0.0)

    def _generations_left(self) -> int:
        """Returns the generations to come, the current one included."""
        left = self._num_generations - self._generation
        if self._max_env_steps is None or self._record is None:
            return left
        steps = self._max_env_steps - self._record.total_env_steps
        return max(0, min(left, math.ceil(steps / self._record.env_steps)))

    def _plain_line(self, record: Any) -> str:
        width = len(str(self._num_generations))
        count = f"{self._generation:{width}}/{self._num_generations}"
        fields = [
            f"{self._label}{self._layout.unit}  {count}",
            *self._layout.fields(record),
            f"left {_duration(self._time_left()):>8}",
        ]
        return "  ".join(fields)

    def _render(self) -> Group:
        return Group(
            self._bar(),
            *(
                Text(line, no_wrap=True, overflow="ellipsis")
                for line in self._layout.details(self._record)
            ),
        )

    def _bar(self) -> Table:
        total = self._generation + self._generations_left()
        done = min(self._generation + self._fraction(), total)
        layout = self._layout
        count = f"{self._label}{layout.unit} {self._generation}/{self._num_generations}"
        if self._tasks[1]:
            count += f"  {layout.part} {self._tasks[0]}/{self._tasks[1]}"
        return _bar_row(count, done, total, _duration(self._time_left()))


class StepProgress(_Display):
    """Shows the progress of a training that counts steps; a context manager.

    Example::

        with StepProgress(total=1000) as progress:
            for step in range(1000):
                progress.steps_done(step + 1)
            progress.report(evaluation="321.0")
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        stream: TextIO | None = None,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares the display; nothing is shown before the ``with`` block.

        Args:
            total: steps of the whole run.
            done: those of before, on a resume.
            stream: where to write; standard error by default.
            console: a rich console to draw the live bar on, instead of ``stream``.
            clock: seconds from any origin.
        """
        self._total, self._done = total, done
        self._values = "no evaluation yet"
        self._recent = deque([(clock(), done)], maxlen=_RECENT_SECONDS)
        super().__init__(stream, console, clock)

    def steps_done(self, done: int) -> None:
        """Moves the bar; costs about a microsecond.

        Args:
            done: steps since the run began.
        """
        self._done = done
        now = self._clock()
        if now - self._recent[-1][0] >= 1.0:
            self._recent.append((now, done))
        self._redraw_now_and_then()

    def report(self, **values: str) -> None:
        """Shows what is known now: in the bar's second line, or as a line of its own.

        Args:
            **values: formatted, by name.
        """
        self._values = "  ".join(f"{name} {value}" for name, value in values.items())
        width = len(str(self._total))
        speed, left = self._speed_and_time_left()
        self._show(
            f"steps  {self._done:{width}}/{self._total}  {self._values}  "
            f"steps/s {speed:>6}  left {left:>8}"
        )

    def _speed_and_time_left(self) -> tuple[str, str]:
        """Returns both as text; of the last minute, evaluations and all."""
        then, before = self._recent[0]
        seconds, steps = self._clock() - then, self._done - before
        if not steps or seconds <= 0:
            return "-", _duration(None)
        left = max(self._total - self._done, 0) * seconds / steps
        return f"{steps / seconds:.0f}", _duration(left)

    def _render(self) -> Group:
        speed, left = self._speed_and_time_left()
        row = _bar_row(
            f"steps {self._done}/{self._total}", self._done, self._total, left
        )
        text = Text(f"{self._values}  steps/s {speed}", no_wrap=True)
        return Group(row, text)


def _bar_row(count: str, done: float, total: float, left: str) -> Table:
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True, justify="right")
    bar = ProgressBar(total=max(total, 1), completed=min(done, total))
    row.add_row(count, bar, f"{left} left")
    return row


def _fields(record: GenerationRecord) -> list[str]:
    """Returns a plain line's names and values."""
    return [
        f"evaluation {record.evaluation_return_mean:9.1f}",
        f"mean {record.return_mean:9.1f}",
        f"max {record.return_max:9.1f}",
        f"length {record.episode_length_mean:7.1f}",
        f"steps/s {record.env_steps_per_second:7.0f}",
        *(f"{name} {share:>4}" for name, share in _shares(record).items()),
    ]


def _details(record: GenerationRecord | None) -> tuple[str, str]:
    """Returns the live bar's lines below the bar: how good, and where time goes."""
    if record is None:
        return "compiling and running the first generation", ""
    returns = (
        f"return: evaluation {record.evaluation_return_mean:.1f}"
        f"  mean {record.return_mean:.1f}  max {record.return_max:.1f}"
        f"  length {record.episode_length_mean:.0f}"
    )
    shares = "  ".join(f"{name} {share}" for name, share in _shares(record).items())
    return returns, f"{record.env_steps_per_second:.0f} steps/s: {shares}"


GENERATIONS = Layout("generation", "episode", _fields, _details)


def _shares(record: GenerationRecord) -> dict[str, str]:
    """Returns where a generation's time went, in percent, and how full slots were."""
    fractions = {
        name: seconds / record.seconds_total if record.seconds_total else 0.0
        for name, seconds in (
            ("policy", record.seconds_policy),
            ("environment", record.seconds_environment),
            ("noise", record.seconds_noise),
            ("update", record.seconds_update),
        )
    }
    fractions["busy"] = record.slot_utilization
    return {name: f"{100 * value:.0f}%" for name, value in fractions.items()}


def _duration(seconds: float | None) -> str:
    """Formats seconds as ``h:mm:ss``."""
    if seconds is None:
        return "-:--:--"
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}"


def _is_terminal(stream: TextIO) -> bool:
    # A dumb terminal cannot move the cursor back up, nor can a notebook's stream.
    return stream.isatty() and os.environ.get("TERM", "").lower() not in (
        "dumb",
        "unknown",
    )


def _is_notebook(stream: TextIO) -> bool:
    return type(stream).__module__.partition(".")[0] == "ipykernel"
