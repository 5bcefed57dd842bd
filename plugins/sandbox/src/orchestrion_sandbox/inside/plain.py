"""Plain data as JSON and back; values without a form in JSON are tagged.

Used inside and outside of sandboxes. `decode` takes what `json.loads` returned and returns exactly
the built-in types, whatever the other side claims; data that `encode` cannot have made is
`Malformed`.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MOST_ITEMS = 100_000
MOST_VALUES = 200_000
"""Limit of values in one message, at all depths."""
MOST_DEPTH = 60
LARGE = 1 << 4096
"""Integers of this size are written in hexadecimal: Python does not convert such long decimals."""

_TAG, _VALUE = "$", "v"
_PLAIN = frozenset(
    (type(None), bool, int, float, str, bytes, complex, list, tuple, dict, set, frozenset)
)
_NOT_FINITE = frozenset(("nan", "inf", "-inf"))
_VIEWS: tuple[type, ...] = (
    range,
    collections.deque,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)


class Refused(Exception):
    """A value has no encoding, or is too large."""


class Malformed(Exception):
    """`encode` cannot have made this data."""


class Items:
    """The items of an iterator or view. It can be iterated, counted and indexed, and is equal to no
    list, like the original."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self._at = 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items[self._at :])

    def __next__(self) -> Any:
        if self._at >= len(self.items):
            raise StopIteration
        self._at += 1
        return self.items[self._at - 1]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __repr__(self) -> str:
        return f"Items({self.items!r})"


def crowded(message: bytes) -> bool:
    """Return whether JSON may have more values than a message can, without parsing it."""
    if len(message) <= MOST_VALUES or _marks(message) <= MOST_VALUES:
        return False
    # Characters inside strings are not marks of JSON.
    plain = message.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * MOST_VALUES:
        return True
    return _marks(b"".join(plain.split(b'"')[::2])) > MOST_VALUES


def _marks(message: bytes) -> int:
    """Return an upper bound of the number of values, less one."""
    return message.count(b",") + message.count(b"[") + message.count(b"{")


class Codec:
    """Encodes and decodes plain data; subclasses add other values."""

    def other(self, value: Any) -> Any:
        """Return the encoding of a value that is not plain data."""
        raise Refused(f"a {type(value).__name__} is not plain data")

    def iterable(self, value: Any, depth: int) -> Any:
        """Return the encoding of a value that can only be iterated."""
        return {_TAG: "iter", _VALUE: self._all(value, depth)}

    def odd(self, value: Any) -> None:
        """Inspect a value whose own type is not plain."""

    def handle(self, data: Any) -> Any:
        """Return what stands for an object of the other side."""
        raise Malformed("a handle where none is allowed")

    def mapping(self, pairs: list[tuple[Any, Any]]) -> Any:
        """Return the dict of these keys and values."""
        return dict(pairs)

    def members(self, kind: type, items: list[Any]) -> Any:
        """Return the set or frozenset of these members."""
        return kind(items)

    # ------------------------------------------------------------ encode

    def encode(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON with its type. A subclass of a plain type counts as that type.

        Raises:
            Refused: for anything but plain data, endless iterators, and deep or cyclic values.
        """
        kind = type(value)
        if kind is str:
            return value if value.isascii() else _text(value)
        if kind is bool or value is None:
            return value
        if kind is int and -LARGE < value < LARGE:
            return value
        if kind not in _PLAIN:
            self.odd(value)
        if depth > MOST_DEPTH:
            raise Refused("nested too deeply")
        if kind is list:
            return self._all(value, depth)
        for plain, maker in _ENCODERS:
            if issubclass(kind, plain):
                return maker(self, value, depth)
        if issubclass(kind, type) or not hasattr(kind, "__iter__"):
            return self.other(value)
        return self.iterable(value, depth)

    def _all(self, value: Any, depth: int) -> list[Any]:
        items = itertools.islice(value, MOST_ITEMS + 1)
        return _few([self.encode(item, depth + 1) for item in items])

    def _members(self, value: Any, depth: int) -> list[Any]:
        items = list(itertools.islice(value, MOST_ITEMS + 1))
        for item in items:
            _check_hashable(item)
        return _few([self.encode(item, depth + 1) for item in items])

    def _pairs(self, value: Any, depth: int) -> Any:
        items = list(itertools.islice(value.items(), MOST_ITEMS + 1))
        pairs = []
        for key, item in items:
            _check_hashable(key)
            pairs.append([self.encode(key, depth + 1), self.encode(item, depth + 1)])
        return {_TAG: "dict", _VALUE: _few(pairs)}

    # ------------------------------------------------------------ decode

    def decode(self, data: Any) -> Any:
        """Return the value that was encoded; an iterator comes back as `Items`.

        Raises:
            Malformed: if `encode` cannot have made the data.
            RecursionError: for deep data.
        """
        kind = type(data)
        if kind is list:
            return [self.decode(item) for item in data]
        if kind is dict:
            return self._tagged(data)
        if kind is str and not data.isascii() and _text(data) is not data:
            raise Malformed("half a character that has no tag")
        if kind is float and not math.isfinite(data):
            raise Malformed("a number that JSON has no form for")
        return data

    def _tagged(self, data: dict[str, Any]) -> Any:
        if data.keys() != {_TAG, _VALUE} or type(data[_TAG]) is not str:
            raise Malformed("an object without a tag")
        tag, value = data[_TAG], data[_VALUE]
        if tag == "handle":
            return self.handle(value)
        maker = _DECODERS.get(tag)
        if maker is None:
            raise Malformed(f"an unknown tag {tag[:20]!r}")
        try:
            return maker(self, value)
        except (TypeError, ValueError) as error:
            raise Malformed(f"no {tag}: {error}") from None


def _few(items: list[Any]) -> list[Any]:
    if len(items) > MOST_ITEMS:
        raise Refused(f"more than {MOST_ITEMS} items")
    return items


def _check_hashable(value: Any) -> None:
    # A subclass of list may be hashable, but it crosses as a list.
    if isinstance(value, list | dict | set):
        raise Refused(f"a {type(value).__name__} in a set or as a key")


def _text(value: str) -> Any:
    """Encode text; two lone surrogates would become one character in JSON."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return {_TAG: "str", _VALUE: value.encode("utf-8", "surrogatepass").hex()}
    return value


def _int(codec: Codec, value: Any, depth: int) -> Any:
    number = int.__int__(value)
    return number if -LARGE < number < LARGE else {_TAG: "int", _VALUE: hex(number)}


def _float(codec: Codec, value: Any, depth: int) -> Any:
    number = float.__float__(value)
    return number if math.isfinite(number) else {_TAG: "float", _VALUE: repr(number)}


def _complex(codec: Codec, value: Any, depth: int) -> Any:
    number = complex.__add__(value, 0j) if type(value) is not complex else value
    return {_TAG: "complex", _VALUE: [_float(codec, number.real, 0), _float(codec, number.imag, 0)]}


def _tag(tag: str) -> Callable[[Codec, Any, int], Any]:
    members = tag in ("set", "frozenset")

    def encoder(codec: Codec, value: Any, depth: int) -> Any:
        items = codec._members(value, depth) if members else codec._all(value, depth)
        return {_TAG: tag, _VALUE: items}

    return encoder


_ENCODERS: tuple[tuple[type | tuple[type, ...], Callable[[Codec, Any, int], Any]], ...] = (
    (bool, lambda codec, value, depth: value),
    (int, _int),
    (float, _float),
    (str, lambda codec, value, depth: _text(str.__str__(value))),
    (tuple, _tag("tuple")),
    (dict, lambda codec, value, depth: codec._pairs(value, depth)),
    (list, lambda codec, value, depth: codec._all(value, depth)),
    (set, _tag("set")),
    (frozenset, _tag("frozenset")),
    (bytes, lambda codec, value, depth: {_TAG: "bytes", _VALUE: bytes.hex(value)}),
    (complex, _complex),
    (Mapping, lambda codec, value, depth: codec._pairs(value, depth)),
    (_VIEWS, _tag("iter")),
)


def _a(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise Malformed(f"a {type(value).__name__} where a {kind.__name__} has to be")
    return value


def _from_float(codec: Codec, value: Any) -> float:
    if value not in _NOT_FINITE:
        raise Malformed("a number that needs no tag")
    return float(value)


def _from_int(codec: Codec, value: Any) -> int:
    number = int(_a(str, value), 16)
    if -LARGE < number < LARGE:
        raise Malformed("a number that needs no tag")
    return number


def _from_text(codec: Codec, value: Any) -> str:
    text = bytes.fromhex(_a(str, value)).decode("utf-8", "surrogatepass")
    if _text(text) is text:
        raise Malformed("a text that needs no tag")
    return text


def _from_complex(codec: Codec, value: Any) -> complex:
    real, imag = (_a(float, codec.decode(part)) for part in _a(list, value))
    return complex(real, imag)


def _from_pairs(codec: Codec, value: Any) -> Any:
    pairs = [_a(list, pair) for pair in _a(list, value)]
    return codec.mapping([(codec.decode(key), codec.decode(item)) for key, item in pairs])


def _from_items(kind: Callable[[list[Any]], Any]) -> Callable[[Codec, Any], Any]:
    return lambda codec, value: kind([codec.decode(item) for item in _a(list, value)])


def _from_members(kind: type) -> Callable[[Codec, Any], Any]:
    return lambda codec, value: codec.members(kind, [codec.decode(x) for x in _a(list, value)])


_DECODERS: dict[str, Callable[[Codec, Any], Any]] = {
    "int": _from_int,
    "str": _from_text,
    "float": _from_float,
    "bytes": lambda codec, value: bytes.fromhex(_a(str, value)),
    "complex": _from_complex,
    "dict": _from_pairs,
    "tuple": _from_items(tuple),
    "set": _from_members(set),
    "frozenset": _from_members(frozenset),
    "iter": _from_items(Items),
}

_CODEC = Codec()
encode, decode = _CODEC.encode, _CODEC.decode
