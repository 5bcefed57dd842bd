"""Records made fast, for the few kinds of which every turn needs one.

A frozen attrs class sets each field through `object.__setattr__`, since plain assignment is what
it forbids. For eight fields that takes longer than all the engine does with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from attrs import fields

from orchestrion._interfaces import Situation, View
from orchestrion._records import Episode, Turn

__all__ = ["make_episode", "make_situation", "make_turn", "make_view", "maker"]

T = TypeVar("T")


def maker(kind: type[T]) -> Callable[..., T]:
    """A function that takes every field of a frozen attrs class with slots, in order.

    The object is made as one of a subclass that allows assignment, filled, and then turned into
    one of the class itself. Validators, converters and `__attrs_post_init__` do not run.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    # Both: the interpreter assigns directly only where neither is overridden.
    plain = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    open_kind = type(kind.__name__, (kind,), {"__slots__": (), **plain})
    source = [
        f"def make({', '.join(names)}):",
        " new = blank(open_kind)",
        *(f" new.{name} = {name}" for name in names),
        " new.__class__ = kind",
        " return new",
    ]
    scope: dict[str, Any] = {"blank": object.__new__, "open_kind": open_kind, "kind": kind}
    exec("\n".join(source), scope)  # of field names only
    made: Callable[..., T] = scope["make"]
    return made


make_episode = maker(Episode)
make_situation = maker(Situation)
make_turn = maker(Turn)
make_view = maker(View)
