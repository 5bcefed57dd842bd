"""numpy arrays as they go into checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrion import Array, CheckpointError

__all__ = ["pack", "unpack"]

TYPES = {"F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "|b1"}
NAMES = {np.dtype(code): name for name, code in TYPES.items()}


def pack(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Numbers of 64 bits, whole numbers of 32 bits and truth values, in C order."""
    return {
        name: Array(NAMES[values.dtype], values.shape, np.ascontiguousarray(values).tobytes())
        for name, values in arrays.items()
    }


def unpack(arrays: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """What `pack` packed.

    Raises:
        CheckpointError: an array is of another type.
    """
    result = {}
    for name, array in arrays.items():
        if array.dtype not in TYPES:
            raise CheckpointError(f"the saved array {name!r} is of the type {array.dtype}")
        result[name] = np.frombuffer(array.data, TYPES[array.dtype]).reshape(array.shape).copy()
    return result
