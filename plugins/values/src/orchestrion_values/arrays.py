"""numpy arrays as they go into checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrion import Array, CheckpointError, Saved

__all__ = ["pack", "unpack"]

TYPES = {"f": ("F64", "<f8"), "i": ("I64", "<i8"), "b": ("BOOL", "?")}
"""By numpy's kind: the name in a checkpoint, and the type that has it."""
READ = dict(TYPES.values())


def pack(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Double precision, 64-bit whole numbers and truth values, in C order."""
    result = {}
    for name, values in arrays.items():
        dtype, kind = TYPES[values.dtype.kind]
        result[name] = Array(dtype, values.shape, np.ascontiguousarray(values, kind).tobytes())
    return result


def unpack(saved: Saved, path: str, *names: str) -> list[NDArray[Any]]:
    """The saved arrays of these names.

    Raises:
        CheckpointError: one is missing, or of another type or size than it says.
    """
    result: list[NDArray[Any]] = []
    for name in names:
        array = saved.arrays.get(name)
        if array is None:
            raise CheckpointError(f"{path}: the checkpoint has no array {name!r}")
        try:
            values = np.frombuffer(array.data, READ[array.dtype]).reshape(array.shape)
        except (KeyError, ValueError):
            raise CheckpointError(
                f"{path}: the saved array {name!r} is {array.dtype} {tuple(array.shape)} with "
                f"{len(array.data)} bytes; expected {', '.join(READ)} of that shape"
            ) from None
        result.append(values.copy())
    return result
