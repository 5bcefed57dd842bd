"""What a judge says: one outcome a case, how it was judged, and every attempt to forge it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from attrs import Factory, evolve, frozen

__all__ = ["Case", "CaseOutcome", "Equal", "Method", "Verdict", "if_proven"]

_MOST_TEXT = 200

Equal = Literal["exact", "python", "items", "json"]
"""What counts as the same value. `exact`: the same type as well, all the way down. `python`: what
`==` says, so that 1, 1.0 and True are one. `items`: likewise, and an iterator is the list of what
it gives. `json`: as JSON has it: 1 and 1.0 are one, True is neither."""

Method = Literal["outside", "split", "shared"]
"""How a verdict was reached, strongest first.

`outside`: wanted values never entered the sandbox; replies were compared by exact type and value.
`split`: the tests ran in one sandbox and the program in another; only plain data crossed.
`shared`: tests and program shared a process, so that every outcome is the program's word.
"""


@frozen
class Case:
    """One call and what it has to give. Values are plain data: None, bool, int, float, str,
    bytes, complex, list, tuple, dict, set, frozenset.

    Args:
        args: positional arguments.
        wanted: the value it has to return; of exactly this type, floats by `tolerance`.
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
    """How one case went.

    Args:
        passed: whether it gave what was wanted.
        error: the name of the exception or of the limit that ended it; "" if it gave a value.
        text: the exception's message, cut; the program's word, to be shown, never to be judged by.
        got: the value it gave, in words, cut.
        name: of the test, where tests have names.
    """

    passed: bool
    error: str = ""
    text: str = ""
    got: str = ""
    name: str = ""


@frozen
class Verdict:
    """What a judge found.

    Args:
        outcomes: one a case, in their order; a case that was never reached has not passed.
        method: how it was judged.
        forgeries: what the program did that only makes sense to sway the judge, in words.
        unproven: what was left to the program's own word, e.g. a comparison of two of its objects.
            An outcome that rests on it has not passed, unless the judge was told to accept it.
        reason: why nothing passed, if no case could be asked at all.
        backend: the sandbox that ran it.
        level: what that sandbox holds.
        cpu_seconds: of the program's processes.
    """

    outcomes: tuple[CaseOutcome, ...]
    method: Method
    forgeries: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    reason: str = ""
    backend: str = ""
    level: int = 0
    cpu_seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether there was at least one case and all passed, without an attempt to forge."""
        return bool(self.outcomes) and not self.forgeries and all(o.passed for o in self.outcomes)

    @property
    def share(self) -> float:
        """The share of cases passed, in [0, 1]; 0 without a case or with a forgery."""
        if self.forgeries or not self.outcomes:
            return 0.0
        return sum(o.passed for o in self.outcomes) / len(self.outcomes)


def if_proven(outcome: CaseOutcome, unproven: Collection[str], accept: bool) -> CaseOutcome:
    """The outcome of a case that left something to the program's word: no pass, unless accepted."""
    if accept or not outcome.passed or not unproven:
        return outcome
    text = f"it rests on the program's word: {', '.join(sorted(unproven))}"[:_MOST_TEXT]
    return evolve(outcome, passed=False, error="Unproven", text=text)
