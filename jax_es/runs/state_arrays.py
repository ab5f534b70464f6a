"""A state as what Orbax stores: nested dictionaries of NumPy arrays, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from jax_es.types import PyTree


def as_stored(state: PyTree) -> PyTree:
    """Turns a state into nested dictionaries of NumPy arrays.

    Named tuples become dictionaries of their fields, tuples and lists dictionaries of
    ``"0"``, ``"1"``, …; typed keys become their key data. Arrays without elements are
    left out.

    Raises:
        ValueError: a leaf is neither array, key nor number, or there is none.
    """
    arrays = {}
    for path, leaf in ocp.tree.to_flat_dict(state).items():
        array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        is_number = jnp.issubdtype(array.dtype, np.number) or array.dtype == bool
        if not (path and is_number and array.dtype.isnative):
            raise ValueError(
                f"state entry {'/'.join(path)} must be an array, a key or a number in a"
                f" container, got {type(leaf).__name__} of dtype {array.dtype}"
            )
        if array.size:
            arrays[path] = array
    if not arrays:
        raise ValueError("state must have at least one array")
    return ocp.tree.from_flat_dict(arrays)


def like_template(stored: PyTree, template: PyTree) -> PyTree:
    """Gives what :func:`as_stored` returned the structure and leaves of a template.

    Raises:
        ValueError: a shape or dtype differs; continues a sentence about ``stored``.
    """
    arrays = ocp.tree.to_flat_dict(stored)
    everything = ocp.tree.to_flat_dict(template)
    leaves = {k: v for k, v in everything.items() if 0 not in getattr(v, "shape", ())}
    for path in leaves | arrays:
        saved = _describe(arrays[path]) if path in arrays else "absent"
        here = _describe(leaves[path]) if path in leaves else "absent"
        if saved != here:
            raise ValueError(
                f"does not fit: {'/'.join(path)} is {saved} in the checkpoint and"
                f" {here} here; use the configuration it was saved with"
            )
    restored = {path: _like(leaf, arrays[path]) for path, leaf in leaves.items()}
    return ocp.tree.from_flat_dict({**everything, **restored}, template)


def _describe(leaf: Any) -> str:
    """Returns dtype and shape of a leaf as it is stored, as ``"float32[2, 3]"``."""
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    elif not hasattr(leaf, "shape"):
        leaf = np.asarray(leaf)
    return f"{leaf.dtype}{list(leaf.shape)}"


def _like(leaf: Any, array: np.ndarray) -> Any:
    """Converts a restored array to the kind of leaf that the template has."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(
            jnp.asarray(array), impl=jax.random.key_impl(leaf)
        )
    if isinstance(leaf, jax.Array):
        # An uncommitted array must stay so, or a jit would see another placement.
        return jax.device_put(array, leaf.sharding if leaf.committed else None)
    if isinstance(leaf, np.generic):
        return array[()]
    return array.item() if isinstance(leaf, bool | int | float | complex) else array


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
