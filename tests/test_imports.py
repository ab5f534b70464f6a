"""Who may import whom, read from the source: no room reaches into another's."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("jax_es", "models", "envs")

# What every file of a room may import besides the standard library and its room.
ALLOWED = {
    "models": {"jax", "flax", "numpy"},
    "envs": {"numpy", "gymnasium", "mujoco", "ale_py"},
    "jax_es": {"jax", "optax", "numpy", "orbax"},
}
# Packages with one home: only these files know them.
HOMES = {
    "evosax": {"jax_es/evosax_bridge.py"},
    "rich": {"jax_es/progress.py"},
    "tensorboardX": {"jax_es/metrics.py"},
    "imageio": {"jax_es/video.py"},
    # Programs with a command line; the first two hold the spaces of environments.
    "gymnasium": {"jax_es/experiment.py", "jax_es/loading.py", "jax_es/video.py"},
    "orbax": {"jax_es/checkpoint.py"},
}
PROGRAMS = ("train", "evaluate", "pretrain", "plot", "benchmark")
PLOTTING = {"jax_es/plot.py", "jax_es/benchmark.py"}
# The composition root, and the file that fills its configurations in.
ROOT_FILES = {"jax_es/experiment.py", "jax_es/presets.py"}
