"""A trained policy as a folder that travels, in the layout of the Hugging Face hub.

``model.safetensors`` holds all that θ acts with, by the names that checkpoints have
(``checkpoint.py``), ``digests.json`` its SHA-256; ``config.json`` is the run's. Such a
folder is read like a run.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import safetensors.numpy

from jax_es.checks import ConfigError
from jax_es.runs.checkpoint import CheckpointError, Checkpoints, Restored
from jax_es.runs.digests import check_digests, recorded, write_digests
from jax_es.runs.directory import RunDirectory
from jax_es.runs.files import check_regular
from jax_es.runs.folders import CONFIG_FILE
from jax_es.runs.state_arrays import as_stored
from jax_es.types import PyTree

WEIGHTS_FILE = "model.safetensors"
HUB = "hf://"
NICHE = "niche-"
"""What a checkpoint's name begins with that is a niche of POET's, by its number."""


def write_weights(folder: Path, state: PyTree) -> None:
    """Writes what θ acts with, and its digest, into an empty folder.

    The arrays keep their exact bits.
    """
    arrays = ocp.tree.to_flat_dict(as_stored(state), sep="/")
    # safetensors writes the memory of an array as it lies there.
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    safetensors.numpy.save_file(arrays, folder / WEIGHTS_FILE)
    write_digests(folder)


def restore(run: RunDirectory, checkpoint: str | int) -> Restored:
    """Restores a checkpoint of a run, or what an exported folder holds.

    ``niche-N`` is the last checkpoint with the θ of that niche.
    """
    file = run.path / WEIGHTS_FILE
    which = str(checkpoint)
    if which.startswith(NICHE.removesuffix("-")) and not file.exists():
        restored = Checkpoints(run.checkpoints).restore("last")
        stored = restored.state.get("niches", {"number": np.zeros(0, int)})
        rows = {f"{NICHE}{number}": row for row, number in enumerate(stored["number"])}
        if which not in rows:
            known = ", ".join(rows) or "none; choose best, last or a number"
            raise CheckpointError(
                f"no checkpoint {checkpoint!r} in {run.path}, whose niches are {known}."
            )
        row, es = rows[which], restored.state["es"]
        es = {**es, "mean": niche_mean(stored, row), "number": stored["number"][row]}
        if "terrain" in stored:  # not where nothing mutates
            es["terrain"] = stored["terrain"][row]
        return Restored(restored.step, {**restored.state, "es": es})
    if not file.exists():
        return Checkpoints(run.checkpoints).restore(checkpoint)
    record = run.path / CONFIG_FILE
    entry = recorded(record)
    try:
        check_regular(file)
        check_digests(run.path, entry, record)
        state = ocp.tree.from_flat_dict(safetensors.numpy.load_file(file), sep="/")
        step = int(state["es"]["generation"])
    except Exception as error:  # arrays may have any names and shapes
        raise CheckpointError(
            f"{file} cannot be read ({error}); export the run again."
        ) from error
    if which not in ("best", "last", str(step)):
        raise CheckpointError(
            f"{run.path} holds checkpoint {step} alone, got {checkpoint!r}; leave it "
            "out, or export the other one."
        )
    return Restored(step, state)


def niche_mean(stored: Mapping[str, PyTree], row: int) -> PyTree:
    """Returns θ of the niche in a row of a checkpoint's niches.

    The active ones' and the retired ones' are apart, each in the order of the rows.
    """
    is_active = stored["retired"] < 0
    kind = stored["es"]["mean"] if is_active[row] else stored["left"]
    place = int((is_active[:row] == is_active[row]).sum())
    return jax.tree.map(lambda leaf: leaf[place], kind)


def local_folder(run: str | os.PathLike[str]) -> Path:
    """Returns a run's folder; of ``hf://owner/name`` the downloaded copy."""
    if not str(run).startswith(HUB):
        return Path(run)
    try:
        from huggingface_hub import (  # pyright: ignore[reportMissingImports]
            snapshot_download,
        )

        name = str(run).removeprefix(HUB)
        return Path(snapshot_download(name, allow_patterns=["*.json", WEIGHTS_FILE]))
    except ImportError as error:
        raise ConfigError(
            f"{run} needs the hub's client ({error}); pip install huggingface_hub."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{run} cannot be downloaded ({str(error).splitlines()[0]}); expected "
            f"{HUB}owner/name."
        ) from error
