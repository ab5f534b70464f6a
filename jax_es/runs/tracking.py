"""Who is told of a run's generations while it trains: TensorBoard, Weights & Biases."""

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from jax_es.checks import ConfigError, optional, require
from jax_es.runs.files import read_json
from jax_es.runs.folders import CONFIG_FILE, EVOLUTION_FILE
from jax_es.runs.records import GenerationRecord


def check_callbacks(callbacks: Iterable[Any]) -> None:
    """Raises ``ConfigError`` for one that cannot be told of a generation."""
    for each in callbacks:
        require(
            callable(getattr(each, "on_generation", None)),
            "callbacks must be objects with a method on_generation(record, state), "
            f"got {each!r}.",
        )


class Callback(Protocol):
    """What ``train_policy(config, callbacks=[…])`` tells of each generation."""

    def on_generation(self, record: GenerationRecord, state: Any) -> bool | None:
        """Takes note of a generation that is in ``metrics.jsonl``.

        If it returns ``True``, the run ends: its last θ is evaluated, and a checkpoint
        saved. A resume goes on.

        It is called before the generation's checkpoint: what a killed run has to repeat
        is told again, with the same numbers. At the run's end comes the record of the
        last θ's evaluation, which has no population (``num_episodes`` is 0).

        Args:
            record: what happened.
            state: the :class:`~jax_es.training.generation.TrainState` after it;
                ``state.es.mean`` is θ. Of an archive its
                :class:`~jax_es.illumination.generations.IlluminationState`, whose
                ``archive`` has the elites.

        Raises:
            Exception: of any kind, ends the run after a checkpoint of ``state``.
        """
        ...


class TensorBoard:
    """Writes ``tensorboard/`` in a run's folder.

    Args:
        run_directory: the run's folder.
        first: generation from which on earlier files are to be forgotten.
    """

    def __init__(self, run_directory: Path, first: int = 0) -> None:
        from tensorboardX import SummaryWriter  # late: readers never need it

        self._writer = SummaryWriter(
            str(run_directory / "tensorboard"),
            purge_step=first,
            # Files are named by the second they were opened in; this keeps two apart.
            filename_suffix=f".{first:08d}.{os.getpid()}",
        )

    def on_generation(self, record: GenerationRecord, state: Any = None) -> None:
        """Writes a record's numbers."""
        for tag, value in scalars(record).items():
            self._writer.add_scalar(tag, value, record.generation)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file; closing twice does no harm."""
        self._writer.close()


def import_wandb() -> Any:
    """Imports Weights & Biases; ``ConfigError`` if it is not installed."""
    with optional("--track wandb needs Weights & Biases", "track"):
        import wandb
    return wandb


class WandB:
    """Sends a run's records to Weights & Biases (``--track wandb``; extra ``track``).

    Its environment variables hold, such as ``WANDB_PROJECT`` (``jax-es`` if not set),
    ``WANDB_ENTITY`` and ``WANDB_MODE=offline``. A resumed run goes on in its chart.

    Args:
        run_directory: the run's folder; it need not be there yet.

    Raises:
        ConfigError: if ``wandb`` is not installed.
    """

    def __init__(self, run_directory: str | os.PathLike[str]) -> None:
        self._wandb, self._path = import_wandb(), Path(run_directory).absolute()
        self._run: Any = None

    def on_generation(self, record: GenerationRecord, state: Any = None) -> None:
        """Sends a record's numbers; ``ConfigError`` if the run may not begin."""
        self._run = self._run or self._begin()
        self._run.log({**scalars(record), "generation": record.generation})

    def _begin(self) -> Any:
        files = [self._path / name for name in (CONFIG_FILE, EVOLUTION_FILE)]
        described = read_json(next(filter(Path.exists, files), files[0]))
        # Told apart by when they began: many experiments have a seed-0.
        name = "-".join(self._path.parts[-2:])
        try:
            run = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT", "jax-es"),
                dir=self._path,
                name=name,
                id=re.sub(r"\W", "-", f"{name}-{described['created']}")[-64:],
                resume="allow",
                reinit="finish_previous",  # of several seeds
                config=described["config"],
                settings=self._wandb.Settings(console="off"),
            )
        except self._wandb.errors.Error as error:
            raise ConfigError(
                f"--track wandb: {' '.join(str(error).split())}; call wandb login, or "
                "set WANDB_MODE=offline, and resume."
            ) from error
        run.define_metric("*", step_metric="generation")
        return run


def scalars(record: GenerationRecord) -> dict[str, float]:
    """Returns what is shown of a record, by its names in ``metrics.jsonl``."""
    return {
        name: value
        for name, value in record.numbers().items()
        if name not in ("generation", "phase") and math.isfinite(value)
    }
