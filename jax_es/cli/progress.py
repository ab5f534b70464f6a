"""What a run shows while it trains: a live bar, or plain lines in a log.

On a terminal a bar stays at the bottom, with the time left and the last generation's
values. Anywhere else (a file, a pipe, a dumb terminal) each generation prints one ASCII
line of names and values separated by blanks, so that ``line.split()`` alternates
between them; the last names are left out where a line would be too long::

    generation   12/200  evaluation  5321.0  mean  4980.2  max  6120.5  …  left 0:20:15

In a notebook each of these lines takes the place of the one before. What took the time
is in ``metrics.jsonl``; ``python -m jax_es.plot --figure time`` draws it.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO, cast

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from jax_es.cli.display import Display
from jax_es.runs.records import GenerationRecord
from jax_es.runs.wording import counted, significant
from jax_es.train_config import TrainConfig, policy_kind

_REDRAW_SECONDS = 0.25
"""Drawing costs milliseconds, so it is done at most this often."""

_LINE_WIDTH = 100
"""Of a plain line, at most; in columns."""


class Layout(NamedTuple):
    """What a kind of training calls its parts, and what it shows of them."""

    unit: str
    """What a run counts."""
    part: str
    """What is counted within one of them."""
    fields: Callable[[Any], list[str]]
    """A finished unit's record → names and values, aligned for a plain line; the most
    important come first."""


class _Bar(RichProgress):
    """A bar with names and values below it."""

    values: Sequence[str] = ()

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        values = [Text(" ".join(value.split())) for value in self.values]
        yield Columns(values, padding=(0, 2))


class Progress:
    """Shows a run's progress; a context manager.

    Args:
        num_generations: generations of the whole run.
        first_generation: index of the first one to come; above 0 on a resume.
        stream: where to write; standard error by default.
        max_env_steps: environment steps that end the run earlier; they are counted
            then, unless the generations will be done before.
        env_steps: those taken so far; above 0 on a resume.
        label: what stands before the generation, for instance ``"seed 3"``.
        layout: of a training that is not by generations; its "generations" and "tasks"
            are then the layout's units and parts.
        clock: seconds from any origin; the time left is computed from it, beginning
            with the first finished task: programs are compiled before that.
        more: returns further names and values to show.
        verbose: whether to show anything.

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
        env_steps: int = 0,
        label: str = "",
        layout: Layout | None = None,
        clock: Callable[[], float] = time.monotonic,
        more: Callable[[], Sequence[str]] = tuple,
        verbose: bool = True,
    ) -> None:
        # A training goes on without its display, from Python as well.
        self._stream = Display.of(stream or sys.stderr)
        self._verbose = verbose
        self._clock, self._more = clock, more
        self._num_generations, self._max_env_steps = num_generations, max_env_steps
        self._env_steps = env_steps
        self._layout = layout or GENERATIONS
        self._unit = f"{label}  {self._layout.unit}".lstrip()
        # With a limit on steps, a first generation tells how many there will be.
        self._total = num_generations if max_env_steps is None else None
        console = Console(file=cast(TextIO, self._stream))
        self._bar = _Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[left]} left"),
            console=console,
            expand=True,
            # A refresh thread would compete with the rollout.
            auto_refresh=False,
            # Redirected output of a program stays out of the bar's terminal.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            get_time=clock,
            # Of the last 1,000 updates, which are some minutes or all generations.
            speed_estimate_period=math.inf,
            disable=not (verbose and self._stream.isatty()) or console.is_dumb_terminal,
        )
        self._bar.values = [f"compiling and running the first {self._layout.unit}"]
        self._bar.add_task("", total=None, completed=first_generation, left="")
        self._task = self._bar.tasks[0]
        self._is_notebook = type(self._stream.stream).__module__.startswith(
            "ipykernel."
        )
        self._is_line_open = False
        self.generation_started(first_generation)

    def __enter__(self) -> Self:
        """Shows the bar, or says that the first line takes a while."""
        self._bar.start()
        if self._bar.disable:
            self._print(*self._bar.values, in_place=self._is_notebook)
        return self

    def __exit__(self, *exception: object) -> None:
        """Leaves the bar's last state on the screen, or the notebook's last line."""
        self._bar.stop()
        if self._is_line_open:
            self._stream.write("\n")
            self._is_line_open = False

    def message(self, text: str) -> None:
        """Prints one line that stays, above the bar."""
        if self._bar.disable:
            self._print(text)
        else:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def generation_started(self, generation: int) -> None:
        """Says that the generation with this index, from 0, begins."""
        self._generation = generation
        self._show()

    def tasks_done(self, done: int, total: int) -> None:
        """Says how many of a generation's tasks (episodes) are finished; is cheap."""
        if self._clock() - self._updated >= _REDRAW_SECONDS:
            self._show(f"  {self._layout.part} {done}/{total}", done / max(total, 1))

    def generation_done(self, record: Any) -> None:
        """Shows a finished generation: redraws the bar, or prints its line."""
        self._generation += 1
        if self._max_env_steps is not None:
            self._env_steps = record.total_env_steps
            steps_left = max(self._max_env_steps - self._env_steps, 0)
            left = math.ceil(steps_left / record.env_steps)
            self._total = min(self._num_generations, self._generation + left)
        self._bar.values = [*self._layout.fields(record), *self._more()]
        self._show()
        if self._bar.disable:
            self._print(self._line(), in_place=self._is_notebook)

    def _line(self) -> str:
        """Returns a generation's plain line, with as many values as fit."""
        line = f"{self._unit}  {self._count(is_aligned=True)}"
        left = f"  left {self._task.fields['left']}"
        for value in self._bar.values:
            if len(f"{line}  {value}{left}") > _LINE_WIDTH:
                break
            line += f"  {value}"
        return line + left

    def _count(self, is_aligned: bool = False) -> str:
        """Says how far the run is towards what will end it."""
        most, steps = self._num_generations, self._max_env_steps
        width = len(str(most)) if is_aligned else 0
        if steps is None or self._total == most:
            return f"{self._generation:{width}}/{most}"
        share = min(self._env_steps / steps, 1.0)
        return f"{self._generation:{width}}  steps {share:{4 if is_aligned else 0}.0%}"

    def _print(self, line: str, in_place: bool = False) -> None:
        """Prints a line; one in place stays open until the next takes its place."""
        if not self._verbose:
            return
        end = "\n" if self._is_line_open and not in_place else ""
        self._stream.write(end + (f"\r{line}" if in_place else f"{line}\n"))
        self._stream.flush()
        self._is_line_open = in_place

    def _show(self, part: str = "", share: float = 0.0) -> None:
        """Draws the bar, whose time left rich estimates from the updates."""
        self._updated = self._clock()
        count = f"{self._unit} {self._count()}{part}"
        self._task.total = self._total  # rich's update would forget the former speed
        done = self._generation + share
        self._bar.update(self._task.id, description=count, completed=done)
        left = _duration(self._task.time_remaining)
        self._bar.update(self._task.id, left=left, refresh=True)


def _fields(record: GenerationRecord) -> list[str]:
    """Returns how good the policy is, and how fast it learns."""
    fitness = record.evaluation_fitness  # NaN unless an objective of one's own counts
    return [
        named("evaluation", record.evaluation_return_mean),
        *([] if math.isnan(fitness) else [named("fitness", fitness)]),
        named("mean", record.return_mean),
        named("max", record.return_max),
        f"length {record.episode_length_mean:5.0f}",
        f"steps/s {record.env_steps_per_second:6.0f}",
    ]


def named(name: str, value: float, width: int = 9) -> str:
    """Writes a return, or what has its unit, under its name in a plain line."""
    return f"{name} {significant(value, decimals=1, thousands=''):>{width}}"


GENERATIONS = Layout("generation", "episode", _fields)


def _duration(seconds: float | None) -> str:
    """Formats seconds as ``h:mm:ss``."""
    if seconds is None:
        return "-:--:--"
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{second:02d}"


def nothing_left(limits: Sequence[str]) -> str:
    """Says of a resume what the run had reached before, limits with their values."""
    return (
        f"Nothing is left to train: the run has reached {' and '.join(limits)}; raise "
        "that to go on."
    )


def ending(limits: Sequence[str], generations: int, env_steps: int) -> str:
    """Says why a run is over."""
    return (
        f"Ended after {counted(generations, 'generation')} and "
        f"{counted(env_steps, 'environment step')}: "
        + (f"{' and '.join(limits)} reached." if limits else "a callback ended it.")
    )


def opening(
    begins: str, config: TrainConfig, mean: Any, details: str, path: Path
) -> str:
    """Says what is about to run, and with how many parameters."""
    import jax

    count = sum(leaf.size for leaf in jax.tree.leaves(mean))
    task = config.env.id + config.rollout.named_physics()
    return (
        f"{begins} {policy_kind(config.policy)} ({count:,} parameters) on "
        f"{task}{details}. Run: {path}"
    )
