"""What a call asked, in pieces: what many calls share (a long prompt, tools) is stored once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from orchestrion._records import JSON

__all__ = ["cut", "joined"]

_SHORT = 64
"""Bytes up to which a value is not worth a piece of its own."""

_encode, _decode = msgspec.json.encode, msgspec.json.decode


def cut(content: JSON) -> tuple[bytes, ...]:
    """A request's content as pieces of JSON, from which `joined` makes it again.

    The first one holds what is short (settings) and says how the others are put in: each record
    of a list (messages, tools) is a piece, and each other value that is long.
    """
    if not isinstance(content, dict):
        return (_encode([content, []]),)
    short: dict[str, JSON] = {}
    places: list[list[JSON]] = []
    pieces: list[bytes] = []
    for name, value in content.items():
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
            places.append([name, len(value)])
            pieces += map(_encode, value)
            continue
        if isinstance(value, (str, list, tuple, dict)):
            data = _encode(value)
            if len(data) > _SHORT:
                places.append([name, None])
                pieces.append(data)
                continue
        short[name] = value
    return (_encode([short, places]), *pieces)


def joined(pieces: Sequence[str]) -> JSON:
    """The content that was cut."""
    content, places = _decode(pieces[0])
    at = 1
    for name, count in places:
        values = [_decode(piece) for piece in pieces[at : at + (1 if count is None else count)]]
        at += len(values)
        content[name] = values[0] if count is None else values
    return content
