"""Compares a value that came out of a sandbox with the wanted one. Both are plain data here.

No untrusted value is hashed, because a program could return numbers that all have the same hash:
keys and members are sorted by bytes.
"""

from __future__ import annotations

import cmath
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from orchestrion_sandbox.inside.plain import LARGE, Codec, Items
from orchestrion_sandbox.verdict import Equal

_NUMBERS = (bool, int, float, complex)


@frozen
class Pairs:
    """An untrusted dict: its keys and values, in their order."""

    items: list[tuple[Any, Any]]


@frozen
class Members:
    """An untrusted set or frozenset."""

    kind: type
    items: list[Any]


class Outside(Codec):
    """Decodes untrusted data."""

    def mapping(self, pairs: list[tuple[Any, Any]]) -> Any:
        """Return keys and values, unhashed."""
        _check_hashable([key for key, _ in pairs])
        return Pairs(pairs)

    def members(self, kind: type, items: list[Any]) -> Any:
        """Return members, unhashed."""
        _check_hashable(items)
        return Members(kind, items)


def _check_hashable(values: Iterable[Any]) -> None:
    for value in values:
        if _kind(value) in (list, dict, set):
            raise TypeError(f"a {_kind(value).__name__} in a set or as a key")
        if _kind(value) is tuple:
            _check_hashable(value)


def same(got: Any, wanted: Any, equal: Equal = "exact", tolerance: float = 0.0) -> bool:
    """Return whether two values are equal, by `equal` and with their types at every depth.

    NaN equals NaN. With a tolerance, numbers within it are equal unless both are integers, but not
    members of sets and keys of dicts.
    """
    if type(got) is Items and equal == "items":
        got = got.items
    if type(got) in _NUMBERS and type(wanted) in _NUMBERS:
        return _same_number(got, wanted, equal, tolerance)
    kind = _kind(got)
    if kind is not _kind(wanted):
        # Only sets and frozensets are equal to one another in Python's eyes.
        sets = {kind, _kind(wanted)} == {set, frozenset}
        return sets and equal != "exact" and _same_members(got, wanted, equal)
    if kind is list or kind is tuple:
        values = zip(got, wanted, strict=False)
        return len(got) == len(wanted) and all(same(g, w, equal, tolerance) for g, w in values)
    if kind is dict:
        pairs, others = _sorted_pairs(got, equal), _sorted_pairs(wanted, equal)
        return len(pairs) == len(others) and all(
            key == other and same(value, want, equal, tolerance)
            for (key, value), (other, want) in zip(pairs, others, strict=True)
        )
    if kind is set or kind is frozenset:
        return _same_members(got, wanted, equal)
    return bool(got == wanted)


def _kind(value: Any) -> type:
    if type(value) is Pairs:
        return dict
    return value.kind if type(value) is Members else type(value)


def _same_number(got: Any, wanted: Any, equal: Equal, tolerance: float) -> bool:
    if equal == "exact" and type(got) is not type(wanted):
        return False
    if equal == "json" and (
        isinstance(got, complex) or isinstance(got, bool) != isinstance(wanted, bool)
    ):
        return False
    if got == wanted or (got != got and wanted != wanted):
        return True
    if not tolerance or isinstance(got, bool) or isinstance(wanted, bool):
        return False
    if isinstance(got, int) and isinstance(wanted, int):
        return False
    try:
        return cmath.isclose(got, wanted, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an int too large for a float
        return False


def _same_members(got: Any, wanted: Any, equal: Equal) -> bool:
    return _sorted_members(got, equal) == _sorted_members(wanted, equal)


def _sorted_members(value: Any, equal: Equal) -> list[bytes]:
    items = value.items if type(value) is Members else value
    return sorted(_key(item, equal) for item in items)


def _sorted_pairs(value: Any, equal: Equal) -> list[tuple[bytes, Any]]:
    pairs = value.items if type(value) is Pairs else value.items()
    return sorted(((_key(key, equal), item) for key, item in pairs), key=lambda pair: pair[0])


def _key(value: Any, equal: Equal) -> bytes:
    """Return bytes that are equal if two keys are, by `==` and, for `exact`, by type."""
    kind = _kind(value)
    if kind is tuple:
        return b"t" + _joined(_key(item, equal) for item in value)
    if kind is frozenset:
        return b"f" + _joined(_sorted_members(value, equal))
    if kind in _NUMBERS:
        name = kind.__name__.encode() if equal == "exact" else b"number"
        return name + b":" + _number(value)
    if kind is str:
        return b"s" + bytes(value.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return b"b" + bytes(value)
    if value is None:
        return b"None"
    raise TypeError(f"a {kind.__name__} in a set or as a key")


def _number(value: Any) -> bytes:
    if value != value:
        return b"nan"
    if isinstance(value, complex):
        if value.imag:
            return _number(value.real) + b"+" + _number(value.imag) + b"j"
        value = value.real
    if isinstance(value, float):
        if not value.is_integer():
            return repr(value).encode()
        value = int(value)
    return b"%x" % value


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


# ---------------------------------------------------------------- as text


def shown(value: Any, length: int) -> str:
    """Return the first `length` characters of a value's `repr`, without building all of it."""
    text = ""
    for piece in _pieces(value, length):
        text += piece
        if len(text) > length:
            break
    return text[:length]


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
}


def _pieces(value: Any, length: int) -> Iterator[str]:
    kind = _kind(value)
    if isinstance(value, int) and not -LARGE < value < LARGE:
        yield f"an int of {value.bit_length()} bits"
    elif isinstance(value, str | bytes):
        yield repr(value[:length])
    elif kind in (set, frozenset) and not value.items:
        yield f"{kind.__name__}()"
    elif kind in _BRACKETS or kind in (frozenset, Items):
        first, last = _BRACKETS.get(kind, (f"{kind.__name__}([", "])"))
        yield first
        items = value.items if isinstance(value, Pairs | Members | Items) else value
        for number, item in enumerate(items):
            yield ", " if number else ""
            if kind is dict:
                yield from _pieces(item[0], length)
                yield ": "
            yield from _pieces(item[1] if kind is dict else item, length)
        yield ",)" if kind is tuple and len(items) == 1 else last
    else:
        yield repr(value)
