"""What a judge returns: one outcome per case, how it was judged, and every attempt to forge it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import Factory, frozen

Equal = Literal["exact", "python", "items", "json"]
"""Which values count as the same. `exact`: equal and of the same type, at every depth. `python`:
what `==` says, so that 1, 1.0 and True are the same. `items`: likewise, and an iterator is the
list of its items. `json`: as JSON has it, so that 1 and 1.0 are one and True is neither."""

Method = Literal["outside", "split"]
"""How a verdict was reached, the stronger one first.

`outside`: wanted values never entered the sandbox; replies were compared by exact type and value.
`split`: the tests ran in one sandbox and the program in another; only plain data crossed.
"""


@frozen
class Case:
    """One call and what it has to return. Values are plain data: None, bool, int, float, str,
    bytes, complex, list, tuple, dict, set, frozenset.

    Args:
        args: positional arguments.
        wanted: the value it has to return, of exactly this type; floats within `tolerance`.
        named: keyword arguments.
        raises: the name of the exception it has to raise instead; "" if none.
        tolerance: relative and absolute, for floats in lists, tuples and dicts too; 0 is exact.
        equal: see `Equal`.
    """

    args: tuple[Any, ...]
    wanted: Any = None
    named: Mapping[str, Any] = Factory(dict)
    raises: str = ""
    tolerance: float = 0.0
    equal: Equal = "exact"


@frozen
class CaseOutcome:
    """The result of one case.

    Args:
        passed: whether the program returned or raised what was wanted.
        error: the name of the exception or of the limit that ended it; "" if it returned a value.
        text: the exception's message, cut. The program wrote it: show it, never judge by it.
        got: the value it returned, as text, cut.
    """

    passed: bool
    error: str = ""
    text: str = ""
    got: str = ""


@frozen
class Verdict:
    """The result of judging a program.

    Args:
        outcomes: one per case, in their order; a case that was never reached has not passed.
        method: how it was judged.
        forgeries: what the program did that only makes sense to sway the judge, in words.
        unproven: what of the program could not be checked, e.g. an object that is not plain data.
            An outcome that rests on it has not passed.
        backend: the sandbox that ran it.
        level: the protection level of that sandbox.
        cpu_seconds: of the program's processes.
    """

    outcomes: tuple[CaseOutcome, ...]
    method: Method
    forgeries: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    backend: str = ""
    level: int = 0
    cpu_seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether there was at least one case, all passed, and nothing was forged."""
        return bool(self.outcomes) and not self.forgeries and all(o.passed for o in self.outcomes)

    @property
    def share(self) -> float:
        """The share of cases passed, in [0, 1]; 0 without a case or with a forgery."""
        if self.forgeries or not self.outcomes:
            return 0.0
        return sum(o.passed for o in self.outcomes) / len(self.outcomes)
