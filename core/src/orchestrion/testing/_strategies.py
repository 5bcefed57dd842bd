"""Hypothesis strategies that draw every field: records, and settings of any component.

`st.builds(cls)` never draws fields that have a default; these strategies do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from orchestrion._config.shapes import (
    Anything,
    Choice,
    Fixed,
    Items,
    Record,
    Ref,
    Scalar,
    Setting,
    Shape,
    Shaper,
    Table,
    Variants,
)
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

__all__ = ["FIELDS", "json", "record", "settings", "text", "trajectories"]

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


# ---------------------------------------------------------------------------- settings

# Values that a config file can hold: no lone surrogates, nothing that YAML cannot hold.
_plain_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | number | _plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_plain_text, inner, max_size=3),
    max_leaves=4,
)


def settings(cls: type, shaper: Shaper) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for a component's settings, in which optional fields may be left out.

    A field that refers to components gets the kit's fakes.
    """
    return _settings(shaper.settings(cls, True), shaper)


def _settings(
    fields: tuple[Setting, ...], shaper: Shaper, within: tuple[type, ...] = ()
) -> st.SearchStrategy[dict[str, Any]]:
    def values(chosen: list[Setting]) -> dict[str, st.SearchStrategy[Any]]:
        return {field.key: _value(field.shape, shaper, within) for field in chosen}

    required = values([field for field in fields if field.required])
    # A secret is left out: it is masked when a config is stored, and so does not survive that.
    optional = values([field for field in fields if not field.required and not field.secret])
    return st.fixed_dictionaries(required, optional=optional)


def _value(shape: Shape, shaper: Shaper, within: tuple[type, ...] = ()) -> st.SearchStrategy[Any]:
    match shape:
        case Anything():
            return _plain
        case Scalar(type=kind):
            return _scalar(kind, _bounds(shape))
        case Choice(values=values):
            return st.sampled_from(values)
        case Items(item=item):
            bounds = _bounds(shape)
            return st.lists(
                _value(item, shaper, within),
                min_size=bounds.get("min_length", 0),
                max_size=min(bounds.get("max_length", 3), bounds.get("min_length", 0) + 3),
            )
        case Fixed(items=items):
            return st.tuples(*(_value(item, shaper, within) for item in items)).map(list)
        case Table(key=key, item=item):
            keys = _value(key, shaper, within) if isinstance(key, Choice) else _name
            return st.dictionaries(keys, _value(item, shaper, within), max_size=3)
        case Record(cls=cls):
            inner = shaper.settings(cls)
            if cls in within:  # a class that may contain itself does so once
                inner = tuple(field for field in inner if field.required)
            return _settings(inner, shaper, (*within, cls))
        case Ref(kind=kind):
            return st.just({"use": f"kit-{kind}"})
        case Variants(members=members):
            return st.one_of(*(_value(member, shaper, within) for member in members))
    raise TypeError(f"no strategy for {shape}")


_name = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)


def _bounds(shape: Shape) -> dict[str, Any]:
    names = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern")
    return {
        name: getattr(meta, name)
        for meta in shape.limits
        for name in names
        if getattr(meta, name, None) is not None
    }


def _scalar(kind: type, bounds: dict[str, Any]) -> st.SearchStrategy[Any]:
    if kind is bool:
        return st.booleans()
    if kind is int:
        low = bounds.get("ge", bounds["gt"] + 1 if "gt" in bounds else None)
        high = bounds.get("le", bounds["lt"] - 1 if "lt" in bounds else None)
        return st.integers(_or(low, -1000), _or(high, max(_or(low, 0), 0) + 1000))
    if kind is float:
        low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
        return st.floats(
            _or(low, -1e6),
            _or(high, max(_or(low, 0), 0) + 1e6),
            exclude_min="gt" in bounds,
            exclude_max="lt" in bounds,
        )
    if kind in (str, Path):
        if "pattern" in bounds:
            return st.from_regex(bounds["pattern"]).filter(str.isprintable)
        low = bounds.get("min_length", 0)
        return st.text(
            st.characters(min_codepoint=32, max_codepoint=126),
            min_size=low,
            max_size=max(low, min(bounds.get("max_length", 12), 12)),
        )
    return st.none()


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
