"""Hypothesis strategies for records, which draw every field.

`st.builds(cls)` never draws fields that have a default; these strategies do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from orchestrion._records import (
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Problem,
    Reward,
    Scores,
    Trajectory,
    Turn,
    Usage,
)

__all__ = ["FIELDS", "json", "record", "text", "trajectories"]

# Lone surrogates included: models produce them.
text = st.text(st.characters(exclude_categories=()), max_size=8)
number = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**53)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=4,
)
_PLAIN = {
    Any: json,
    NoneType: st.none(),
    bool: st.booleans(),
    float: number,
    int: count,
    str: text,
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of an annotation of a record."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint is Trajectory:
        return st.deferred(lambda: trajectories)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return st.one_of(*map(_values, parts))
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is Mapping:
        return st.dictionaries(text, _values(parts[1]), max_size=2)
    if origin is tuple:
        return st.lists(_values(parts[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(_values(parts[0]), max_size=2)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    return st.deferred(lambda: record(hint))


_RECORDS = (
    Usage,
    Problem,
    Output,
    Activation,
    Decision,
    Turn,
    Observation,
    Scores,
    Reward,
    Episode,
)
FIELDS: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
    kind: {name: _values(hint) for name, hint in get_type_hints(kind).items()} for kind in _RECORDS
}
"""A strategy for every field of every record that is stored."""
FIELDS[Decision]["record"] = st.builds(object)  # anything, since it is never stored


def record(kind: type[Any], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for records of a kind; `fixed` replaces the strategies of some fields."""
    return st.builds(kind, **{**FIELDS[kind], **fixed})


def _in_order(turns: list[Turn]) -> Trajectory:
    return Trajectory(sorted(turns, key=lambda turn: turn.index))


trajectories: st.SearchStrategy[Trajectory] = st.lists(
    record(Turn), max_size=2, unique_by=lambda turn: turn.index
).map(_in_order)
