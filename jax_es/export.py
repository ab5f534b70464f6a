"""Exports a trained policy: ``python -m jax_es.export RUN DIRECTORY``.

The folder has the layout of a model on the Hugging Face hub: weights, configuration and
a model card. ``load_policy`` reads it, wherever it is copied.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jax_es.checks import require
from jax_es.cli.options import parse_options
from jax_es.cli.program import input_errors, program
from jax_es.phases import in_phase
from jax_es.runs.digests import ALWAYS, DIGESTS
from jax_es.runs.directory import RunDirectory, trust_option
from jax_es.runs.files import check_place, writing
from jax_es.runs.find import find_run, how_to_use
from jax_es.runs.method import POET
from jax_es.runs.metrics import records_so_far
from jax_es.runs.reproduce import command
from jax_es.runs.wording import significant
from jax_es.train_config import policy_kind

if TYPE_CHECKING:
    from jax_es.runs.records import GenerationRecord
    from jax_es.training.trained_mean import TrainedMean


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Writes a run's mean policy as a folder in the layout of the Hugging Face hub."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder, runs/NAME."""
    directory: Annotated[Path, tyro.conf.Positional]
    """Where to write; a new or an empty folder."""
    checkpoint: str = "best"
    """best (highest evaluation return in training), last, or a number of finished
    generations; of POET also niche-N."""
    video: Path | None = None
    """A video (.mp4, .gif) to show in the model card."""
    trust: bool = False
    """Export a run whose environment (module:id) or policy (module:Name) is a module's.
    Who loads it has to trust that module, too."""

    def __post_init__(self) -> None:
        require(
            self.video is None or self.video.is_file(),
            f"--video {self.video} does not exist; make one with evaluate --video.",
        )
        there = self.directory
        require(
            not there.exists() or (there.is_dir() and not any(there.iterdir())),
            f"{there} exists and is not an empty folder; choose another one.",
        )
        check_place(there)


@program
def main(argv: list[str]) -> None:
    """Runs the program."""
    with input_errors():
        arguments = parse_options(Arguments, argv, "export")
        folder = arguments.directory
        with writing(folder, "choose another folder"):
            export(arguments)
    sys.stderr.write(
        f"{folder}\n{how_to_use(find_run(folder))}\n"
        f"To the hub: hf upload OWNER/NAME {folder}\n"
    )


def export(arguments: Arguments) -> None:
    """Writes the folder; ``ValueError`` if there is no such run or checkpoint."""
    from jax_es.runs.exported import write_weights
    from jax_es.training.trained_mean import load_mean

    run = find_run(arguments.run)
    trained = load_mean(run.path, arguments.checkpoint, arguments.trust)
    folder, video = arguments.directory, ""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, trained.state())
    if arguments.video is not None:
        video = f"replay{arguments.video.suffix.lower()}"
        shutil.copy(arguments.video, folder / video)
    evaluation = _evaluation(run, trained, arguments.checkpoint)
    whose = _whose(run, arguments.checkpoint)
    text = card(run, trained, evaluation, folder.resolve().name, video, whose)
    (folder / "README.md").write_text(text, encoding="utf-8")
    # Last: a folder without it is no policy.
    RunDirectory(folder).write({**run.record(), DIGESTS: ALWAYS})


def _evaluation(
    run: RunDirectory, trained: TrainedMean, checkpoint: str
) -> GenerationRecord | None:
    """Returns the record of θ's evaluation, if the run holds one."""
    records = {
        record.generation: record
        for record in records_so_far(run.path)
        if math.isfinite(record.evaluation_return_mean)
    }
    if trained.method.is_evolution:
        return records.get(trained.generation)
    if trained.method.name == POET:  # the last record evaluated θ as it is saved
        is_named = checkpoint.startswith("niche-")
        return None if is_named else records.get(trained.generation - 1)
    if not records or checkpoint not in ("best", "last"):
        return None
    of_best = max(records, key=lambda each: records[each].evaluation_return_mean)
    return records[of_best if checkpoint == "best" else max(records)]


def _whose(run: RunDirectory, checkpoint: str) -> str:
    """Says of a policy of POET's which niche's it is."""
    from jax_es.niches.saved import played

    found = played(run, checkpoint)
    if found is None:
        return ""
    number, terrain = found
    words = [f"--variation {name} {value:.9g}" for name, value in terrain.items()]
    play = ["python -m jax_es.evaluate DIRECTORY", trust_option(run).strip(), *words]
    return (
        f"It is niche {number}'s. Returns are those in its terrain, in which "
        f"`{' '.join(filter(None, play))}` plays it."
    )


def card(
    run: RunDirectory,
    trained: TrainedMean,
    evaluation: GenerationRecord | None,
    name: str,
    video: str = "",
    whose: str = "",
) -> str:
    """Returns the model card, in Markdown under a heading of YAML.

    The video is a file beside the card; ``whose`` tells of its niche.
    """
    config, record, method = run.config(), run.record(), trained.method
    seen = in_phase(config, evaluation.phase - 1 if evaluation else -1)
    physics = seen.rollout.named_physics()
    env_id, kind = config.env.id, policy_kind(config.policy)
    tags = ["jax-es", "jax", "reinforcement-learning", "evolution-strategies", env_id]
    heading = {"library_name": "jax-es", "tags": tags}
    said = "The run holds no evaluation of it."
    if evaluation is not None:
        mean, std = evaluation.evaluation_return_mean, evaluation.evaluation_return_std
        low, high = evaluation.evaluation_return_min, evaluation.evaluation_return_max
        said = (
            f"Return over {seen.evaluation.num_episodes} evaluation episodes"
            f"{physics}: **{significant(mean)} ± {significant(std)}** (mean and "
            f"standard deviation; {significant(low)} to {significant(high)})."
        )
        result = {
            "task": {"type": "reinforcement-learning"},
            "dataset": {"type": env_id, "name": env_id + physics},
            "metrics": [{"type": "mean_reward", "value": f"{mean:.2f} +/- {std:.2f}"}],
        }
        heading["model-index"] = [{"name": name, "results": [result]}]
    shown = f"![An episode]({video})" if video.endswith(".gif") else ""
    if video and not shown:
        shown = f'<video src="{video}" controls></video>'
    trust = ", trust=True" if trust_option(run) else ""
    versions = ", ".join(f"{k} {v}" for k, v in record.get("versions", {}).items())
    again = command(
        config, record["preset"], leave_out=["rollout.num_devices"], method=method
    )
    # JSON is YAML.
    yaml = "\n".join(f"{key}: {json.dumps(value)}" for key, value in heading.items())
    parts = [
        f"---\n{yaml}\n---",
        f"# {name}",
        f"A policy ({kind}) for {env_id}, trained by {method.title} with jax-es: "
        f"checkpoint {trained.generation}.",
        whose,
        f"Its run went on from the θ of `{config.init}`." if config.init else "",
        said,
        shown,
        "## Load",
        "With jax-es installed; DIRECTORY is this folder, or `hf://OWNER/NAME` on the "
        "hub (which takes `pip install huggingface_hub`):",
        f'```python\nimport jax_es\n\npolicy = jax_es.load_policy("DIRECTORY"{trust})\n'
        "action = policy(observation, reward)\n```",
        "## Train again",
        f"```bash\n{again}\n```",
        f"Versions: {versions}. `config.json` has the whole configuration.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


if __name__ == "__main__":
    sys.exit(main())
