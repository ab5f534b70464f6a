"""Command lines that cannot be done, from ``inputs.txt``."""

from pathlib import Path
from typing import NamedTuple

TINY = (
    "inverted-pendulum --env.max-episode-steps 5 --policy mlp --policy.hidden-sizes 2 "
    "--es.num-pairs 2 --evaluation.num-episodes 1 --rollout.num-slots 1 "
    "--rollout.num-threads 1 --rollout.num-devices 1"
)
CLONE = f"{TINY.replace('--es.num-pairs 2 ', '')} --dataset pole-v0"


class Input(NamedTuple):
    """A line of the file: ``COMMAND => WORDS … WORDS``.

    Attributes:
        name: the command as it stands there.
        command: after ``python -m jax_es.``.
        words: that the one line of its error must contain.
    """

    name: str
    command: str
    words: list[str]


def read() -> list[Input]:
    """Reads the file."""
    found = []
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line:
            name, _, words = line.partition(" => ")
            command = name.format(TINY=TINY, CLONE=CLONE, LONG=300 * "n")
            found.append(Input(name, command, words.split(" … ")))
    return found


COMMAND_LINES = read()
