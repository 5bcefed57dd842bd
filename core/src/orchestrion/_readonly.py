"""JSON that nobody can change: what records hold is shared by all episodes, agents and trainers.

It is copied once, when a record is made, so that whoever made it may change what was put into it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn


def _refuse(self: object, *arguments: object, **named: object) -> NoReturn:
    raise TypeError(
        "data of a record cannot be changed, since others read it as well; change a copy: "
        "copy.deepcopy(data)"
    )


class ReadOnlyDict(dict[Any, Any]):
    """A dict that refuses to be changed. Copies of it, and what is unpickled, are plain dicts."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A list that refuses to be changed. Copies of it, and what is unpickled, are plain lists."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def finite(value: Any, text: Callable[[str], str] = str) -> Any:
    """Return a value as JSON: NaN and infinities as null, what JSON lacks as text.

    `text` changes every text, e.g. cuts it.
    """
    if isinstance(value, Mapping):
        return {str(name): finite(item, text) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item, text) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (int, float)) else text(str(value))


EMPTY: Mapping[str, Any] = ReadOnlyDict()
"""Stands for every mapping that was left out."""

_DONE = frozenset({str, int, float, bool, type(None), frozenset, bytes, ReadOnlyDict, ReadOnlyList})


def read_only(value: Any) -> Any:
    """Return JSON that cannot be changed; what is not JSON is returned as it is."""
    if type(value) in _DONE:
        return value
    try:
        return _copied(value)
    except RecursionError:
        raise ValueError("data that contains itself, or is nested too deeply, is no JSON") from None


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        mapping = ReadOnlyDict(value)
        for name, item in value.items():
            if type(item) not in _DONE:
                dict.__setitem__(mapping, name, _copied(item))
        return mapping
    if isinstance(value, list):
        items = ReadOnlyList(value)
        for place, item in enumerate(value):
            if type(item) not in _DONE:
                list.__setitem__(items, place, _copied(item))
        return items
    if type(value) is tuple and any(type(item) not in _DONE for item in value):
        return tuple(item if type(item) in _DONE else _copied(item) for item in value)
    if isinstance(value, set):
        return frozenset(value)
    return bytes(value) if isinstance(value, bytearray) else value
