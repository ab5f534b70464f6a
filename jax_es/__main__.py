"""All programs as one: ``jax-es PROGRAM …`` or ``python -m jax_es PROGRAM …``."""

import importlib
import sys

from jax_es import __version__

PROGRAMS = {
    "train": "train a policy with OpenAI-ES",
    "evaluate": "play episodes with the policies of runs",
    "plot": "draw learning curves and other figures of runs",
    "report": "write one HTML page about runs",
    "export": "write a policy as a folder for others",
    "tune": "search for hyperparameters",
    "illuminate": "fill an archive with many different good policies",
    "poet": "grow terrains and policies together",
    "adapt": "recover from damage with an archive's policies",
    "teacher": "train a policy by gradients, with SAC, TD3 or PPO",
    "collect": "record a run's episodes as a dataset",
    "pretrain": "clone the behaviour in a dataset",
    "benchmark": "measure how fast this machine trains",
}

_LISTED = "\n".join(f"  {name:10}  {what}" for name, what in PROGRAMS.items())
USAGE = f"""usage: jax-es PROGRAM [ARGUMENTS]

{_LISTED}

jax-es PROGRAM --help lists the arguments of a program.
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names; returns its exit code."""
    program, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if program in PROGRAMS:
        # Only now: another program's imports cost seconds.
        return importlib.import_module(f"jax_es.{program}").main(rest)
    if program in ("-h", "--help", "--version"):
        sys.stdout.write(f"jax-es {__version__}\n" if "v" in program else USAGE)
        return 0
    what = f"got {program!r}" if program else "none is given"
    sys.stderr.write(
        f"error: PROGRAM must be one of {', '.join(PROGRAMS)}; {what}. "
        "jax-es --help says what they do.\n"
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
