"""numpy arrays as they go into checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrion import Array, CheckpointError, Saved

__all__ = ["pack", "unpack"]


def pack(values: NDArray[Any]) -> Array:
    """Double precision, little-endian, in C order."""
    return Array("F64", values.shape, np.ascontiguousarray(values, "<f8").tobytes())


def unpack(
    saved: Saved, name: str, shape: tuple[int, ...] | None, path: str
) -> NDArray[np.float64]:
    """The saved array of this name; any one-dimensional one if `shape` is None.

    Raises:
        CheckpointError: it is missing, or has another type or shape.
    """
    found = saved.arrays.get(name)
    if found is None:
        raise CheckpointError(f"{path}: the checkpoint has no array {name!r}")
    wanted = shape if shape is not None else found.shape[:1]
    size = 8 * int(np.prod(wanted, dtype=np.int64))
    if found.dtype != "F64" or tuple(found.shape) != wanted or len(found.data) != size:
        raise CheckpointError(
            f"{path}: the saved array {name!r} is {found.dtype} {tuple(found.shape)}, "
            f"expected F64 {wanted}"
        )
    return np.frombuffer(found.data, "<f8").reshape(wanted).astype(np.float64)
