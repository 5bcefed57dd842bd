"""Whether a value that came out of a sandbox is the wanted one. Both are plain data here."""

from __future__ import annotations

import cmath
from typing import Any

from orchestrion_sandbox.inside.plain import Items
from orchestrion_sandbox.verdict import Equal

__all__ = ["same"]

_NUMBERS = (bool, int, float, complex)
_NAN = object()


def same(got: Any, wanted: Any, equal: Equal = "exact", tolerance: float = 0.0) -> bool:
    """Compare by value and, unless `equal` says otherwise, by exact type at every depth.

    NaN is the same as NaN. With a tolerance, numbers that are near enough are the same; members of
    sets and keys of dicts always have to be equal.
    """
    if type(got) is Items and equal == "items":
        got = got.items
    if type(got) in _NUMBERS and type(wanted) in _NUMBERS:
        return _same_number(got, wanted, equal, tolerance)
    if type(got) is not type(wanted):
        # Only sets and frozensets are equal to one another in Python's eyes.
        sets = {type(got), type(wanted)} == {set, frozenset}
        return sets and equal != "exact" and _same_members(got, wanted, equal)
    if isinstance(got, list | tuple):
        pairs = zip(got, wanted, strict=False)
        return len(got) == len(wanted) and all(same(g, w, equal, tolerance) for g, w in pairs)
    if isinstance(got, dict):
        mine = {_key(key, equal): value for key, value in got.items()}
        theirs = {_key(key, equal): value for key, value in wanted.items()}
        return (
            len(got) == len(wanted)
            and mine.keys() == theirs.keys()
            and all(same(mine[key], theirs[key], equal, tolerance) for key in theirs)
        )
    if isinstance(got, set | frozenset):
        return _same_members(got, wanted, equal)
    return bool(got == wanted)


def _same_number(got: Any, wanted: Any, equal: Equal, tolerance: float) -> bool:
    if equal == "exact" and type(got) is not type(wanted):
        return False
    if got == wanted or (got != got and wanted != wanted):
        return True
    if not tolerance or isinstance(got, bool) or isinstance(wanted, bool):
        return False
    try:
        return cmath.isclose(got, wanted, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an int too large for a float
        return False


def _same_members(got: Any, wanted: Any, equal: Equal) -> bool:
    theirs = {_key(member, equal) for member in wanted}
    return len(got) == len(wanted) and {_key(member, equal) for member in got} == theirs


def _key(value: Any, equal: Equal) -> Any:
    """A hashable value with what `==` overlooks: types, if they count, and that NaN is NaN."""
    if isinstance(value, tuple):
        return (tuple, *(_key(item, equal) for item in value))
    if isinstance(value, frozenset):
        return (frozenset, frozenset(_key(item, equal) for item in value))
    if value != value:
        value = _NAN
    return (type(value), value) if equal == "exact" else value
