"""Types of numpy arrays, and arrays as checkpoints hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from orchestrion import Array, CheckpointError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

TYPES = {"F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "|b1"}
NAMES = {np.dtype(code): name for name, code in TYPES.items()}

T = TypeVar("T")


def pack(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Return arrays of 64-bit numbers, 32-bit integers or booleans as a checkpoint holds them."""
    return {
        name: Array(NAMES[values.dtype], values.shape, np.ascontiguousarray(values).tobytes())
        for name, values in arrays.items()
    }


def unpack(arrays: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """Return the arrays that were given to `pack`.

    Raises:
        CheckpointError: an array has another type.
    """
    result = {}
    for name, array in arrays.items():
        if array.dtype not in TYPES:
            raise CheckpointError(f"the saved array {name!r} has the unknown type {array.dtype}")
        result[name] = np.frombuffer(array.data, TYPES[array.dtype]).reshape(array.shape).copy()
    return result


def under(arrays: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
