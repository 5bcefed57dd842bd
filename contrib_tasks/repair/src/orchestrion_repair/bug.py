"""What a repair problem is: a buggy function, cases to see and cases to be judged by.

A case is a call with the value it must give, or a statement that raises if something is wrong:

    {"call": [[3, 1, 2]], "want": [1, 2, 3]}
    {"assert": "assert rank([3, 1, 2]) == [1, 2, 3]"}

How a case is run, whoever runs it: execute `Bug.code` and then `Bug.prelude` in one fresh
namespace; then either call the entry point with a copy of the arguments and compare with `same`,
or execute the statement in that namespace. Any exception fails the case. Cases are independent
of each other; none may see what another left behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from orchestrion import JSON, Split
from orchestrion_repair.harness import plain

TOLERANCE = 1e-9
"""Relative and absolute, where either number is a float."""


@frozen
class Case:
    """One test: `args` and the value `want`ed, or a `statement` that raises on failure."""

    args: tuple[JSON, ...] = ()
    want: JSON = None
    statement: str = ""

    def to_json(self) -> dict[str, JSON]:
        """Return the case as it stands in problems, files and child processes."""
        if self.statement:
            return {"assert": self.statement}
        return {"call": list(self.args), "want": self.want}

    @classmethod
    def from_json(cls, data: Mapping[str, JSON]) -> Case:
        """Return the inverse of `to_json`."""
        if "assert" in data:
            return cls(statement=data["assert"])
        return cls(tuple(data["call"]), data["want"])


@frozen
class Bug:
    """A function to repair.

    Args:
        id: unique in its collection, e.g. "shipping_cost/3".
        name: for people.
        entry_point: the function the cases call.
        code: the buggy source, a whole module.
        visible: cases that agents may run.
        hidden: cases that only the verifier runs.
        kind: what kind of mistake it is, see `suite.KINDS`; "" if unknown.
        group: bugs of one group share their correct source and their split.
        split: where it belongs; a group is never in two.
        category: the area, e.g. "strings".
        prelude: source the statements need (imports, helpers), run after `code`.
        solution: a correct source, if known; for reports and checks, never for agents.
    """

    id: str
    name: str
    entry_point: str
    code: str
    visible: tuple[Case, ...]
    hidden: tuple[Case, ...]
    kind: str = ""
    group: str = ""
    split: Split = "test"
    category: str = ""
    prelude: str = ""
    solution: str = ""


def same(got: Any, want: JSON) -> bool:
    """Return whether a result is the wanted one.

    Types must agree, with two exceptions that files of cases need: an int and a float of one
    value are equal (never a bool and a number), and `got` is first made `plain`. If either
    number is a float, a difference of 1e-9 is allowed, relative or absolute.
    """
    return _same(plain(got), plain(want))


def _same(got: Any, want: Any) -> bool:
    if isinstance(got, bool) or isinstance(want, bool):
        return got is want
    if isinstance(got, int) and isinstance(want, int):
        return got == want
    if isinstance(got, int | float) and isinstance(want, int | float):
        close = math.isclose(got, want, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return close or (math.isnan(got) and math.isnan(want))
    if isinstance(got, list) and isinstance(want, list):
        return len(got) == len(want) and all(map(_same, got, want))
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(_same(got[key], want[key]) for key in want)
    return type(got) is type(want) and bool(got == want)
