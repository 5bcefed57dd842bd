"""The safetensors format: 8 bytes of header length, a JSON header, the arrays' bytes.

Any safetensors reader opens what is written here. The header begins with `__metadata__`, and that
with a SHA-256 of the whole file (taken with zeros in its own place), so that no changed bit and no
missing byte goes unnoticed. Equal content gives equal bytes.

    format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from orchestrion._errors import CheckpointError
from orchestrion._records import Array

ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL"), 1),
}

_HEAD = b'{"__metadata__":{"sha256":"'
_AT = 8 + len(_HEAD)
_END = _AT + 64
_ZEROS = b"0" * 64
_MAX_HEADER = 100_000_000  # what the reference implementation accepts


def pack(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[bytes]:
    """Return arrays and text as one safetensors file, in parts to write one after another.

    Raises:
        CheckpointError: an array's bytes do not fit its type and shape.
    """
    # Wider items first: every array is then aligned to its item, as readers that map the file want.
    order = sorted(arrays, key=lambda name: (-_item_bytes(name, arrays[name]), name))
    header: dict[str, Any] = {
        "__metadata__": {"sha256": "0" * 64, **dict(sorted(metadata.items()))}
    }
    end = 0
    for name in order:
        array, begin = arrays[name], end
        end = begin + len(array.data)
        header[name] = {
            "dtype": array.dtype,
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    body = [arrays[name].data for name in order]
    digest = sha256(head)
    for part in body:
        digest.update(part)
    return [head[:_AT] + digest.hexdigest().encode() + head[_END:], *body]


def unpack(data: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays and the text that `pack` wrote.

    Raises:
        CheckpointError: with the reason, if so much as one bit differs from what was written.
    """
    if len(data) < _END or data[8:_AT] != _HEAD:
        raise CheckpointError("it is too short, or no checkpoint of this program")
    digest = sha256(data[:_AT])
    digest.update(_ZEROS)
    digest.update(memoryview(data)[_END:])
    if digest.hexdigest().encode() != data[_AT:_END]:
        raise CheckpointError("its checksum does not match: it is truncated or damaged")
    start = 8 + int.from_bytes(data[:8], "little")
    if start - 8 > _MAX_HEADER or start > len(data):
        raise CheckpointError("its header is longer than the file")
    try:
        header = json.loads(data[8:start])
        metadata = header.pop("__metadata__")
        del metadata["sha256"]
        body = memoryview(data)[start:]
        return {name: _array(name, entry, body) for name, entry in header.items()}, metadata
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # The checksum is right, so somebody built it like this.
        raise CheckpointError(f"its header is malformed: {error!r}") from None


def _array(name: str, entry: dict[str, Any], body: memoryview) -> Array:
    begin, end = entry["data_offsets"]
    array = Array(entry["dtype"], tuple(entry["shape"]), bytes(body[begin:end]))
    _item_bytes(name, array)
    return array


def _item_bytes(name: str, array: Array) -> int:
    item = ITEM_BYTES.get(array.dtype)
    if item is None:
        known = ", ".join(sorted(ITEM_BYTES))
        raise CheckpointError(f"array {name}: type {array.dtype!r} is none of {known}")
    wanted = item * math.prod(array.shape)
    if len(array.data) != wanted:
        raise CheckpointError(
            f"array {name}: {array.dtype} of shape {list(array.shape)} takes {wanted} bytes, "
            f"got {len(array.data)}"
        )
    return item
