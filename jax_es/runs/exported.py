"""A trained policy as a folder that travels, in the layout of the Hugging Face hub.

``model.safetensors`` holds all that θ acts with, by the names that checkpoints have
(``checkpoint.py``); ``config.json`` is the run's. Such a folder is read like a run, and
without a further package: the format is a header in JSON before the arrays' bytes
(https://huggingface.co/docs/safetensors).
"""

import json
import os
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

from jax_es.checks import ConfigError
from jax_es.runs.checkpoint import CheckpointError, Checkpoints, Restored
from jax_es.runs.directory import RunDirectory
from jax_es.runs.state_arrays import as_stored
from jax_es.types import PyTree

WEIGHTS_FILE = "model.safetensors"
HUB = "hf://"
_TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_TYPES |= {"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8"}
_TYPES |= {"uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8"}
_TYPES |= {"bool": "BOOL"}
"""The format's names of NumPy's types."""


def write_weights(folder: Path, state: PyTree) -> None:
    """Writes what θ acts with into a folder; the arrays keep their exact bits."""
    arrays = ocp.tree.to_flat_dict(as_stored(state), sep="/")
    # The format's order: the widest numbers first, so that all are aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header, data = {}, b""
    for name in names:
        array, start = arrays[name], len(data)
        data += array.tobytes()
        header[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [start, len(data)],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / WEIGHTS_FILE).write_bytes(len(text).to_bytes(8, "little") + text + data)


def _read_weights(file: Path) -> dict[str, np.ndarray]:
    """Reads arrays by name.

    Raises:
        OSError, ValueError, KeyError, TypeError: it cannot be read.
    """
    raw = file.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    kinds = {short: name for name, short in _TYPES.items()}
    arrays = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        numbers = np.frombuffer(
            raw[start + first : start + last], kinds[entry["dtype"]]
        )
        arrays[name] = numbers.reshape(entry["shape"])
    return arrays


def restore(run: RunDirectory, checkpoint: str | int) -> Restored:
    """Restores a checkpoint of a run, or what an exported folder holds.

    Raises:
        CheckpointError: if it is missing or damaged.
    """
    file = run.path / WEIGHTS_FILE
    if not file.exists():
        return Checkpoints(run.checkpoints).restore(checkpoint)
    try:
        state = ocp.tree.from_flat_dict(_read_weights(file), sep="/")
        step = int(state["es"]["generation"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{file} cannot be read ({error}); export the run again."
        ) from error
    if str(checkpoint) not in ("best", "last", str(step)):
        raise CheckpointError(
            f"{run.path} holds checkpoint {step} alone, got {checkpoint!r}; leave it "
            "out, or export the other one."
        )
    return Restored(step, state)


def local_folder(run: str | os.PathLike[str]) -> Path:
    """Returns a run's folder; of ``hf://owner/name`` the downloaded copy.

    Raises:
        ConfigError: if nothing can be downloaded.
    """
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
