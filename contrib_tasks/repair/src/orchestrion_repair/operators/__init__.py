"""What can be tried on a program: every small edit, by family, with a rank.

    >>> [c.family for c in candidates("def f(x):\\n    return x < 1\\n")][:2]
    ['comparison', 'comparison']

A *family* is a kind of mistake it undoes; a *sub-kind* a finer one, by which edits of equal place
are ranked: `PRIOR` says how often an edit of a sub-kind is the right one.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from functools import lru_cache

from attrs import frozen

from orchestrion_repair.operators.expressions import EXPRESSION_FAMILIES
from orchestrion_repair.operators.source import Source
from orchestrion_repair.operators.statements import STATEMENT_FAMILIES

__all__ = ["FAMILIES", "Candidate", "Program", "candidates", "program"]

FAMILIES: tuple[str, ...] = (*EXPRESSION_FAMILIES, *(
    name for name in STATEMENT_FAMILIES if name not in EXPRESSION_FAMILIES
))  # fmt: skip


@frozen
class Candidate:
    """One edit: the program's text from `start` to `end` becomes `text`.

    `line` is the first line of the statement it is about; `number` its place among all
    candidates of the program.
    """

    number: int
    family: str
    sub: str
    line: int
    start: int
    end: int
    text: str

    def apply(self, code: str) -> str:
        """The program after the edit."""
        return code[: self.start] + self.text + code[self.end :]


@frozen
class Program:
    """A program and all that can be tried on it; no candidate stands there twice."""

    source: Source | None
    candidates: tuple[Candidate, ...]


@lru_cache(maxsize=2_000)
def program(code: str, entry_point: str = "", arguments: tuple[str, ...] = ()) -> Program:
    """Everything to try on a program, in the order it is written; nothing if it has no syntax.

    `arguments` are the kinds of the entry point's, see `kinds_of_arguments`.
    """
    try:
        source = Source(code, entry_point, arguments)
    except (SyntaxError, ValueError, RecursionError):
        return Program(None, ())
    seen = {code}
    found: list[Candidate] = []
    for family, sub, line, start, end, text in _edits(source):
        candidate = Candidate(len(found), family, sub, line, start, end, text)
        new = candidate.apply(code)
        if new not in seen:
            seen.add(new)
            found.append(candidate)
    return Program(source, tuple(found))


def candidates(code: str) -> tuple[Candidate, ...]:
    """All edits of a program."""
    return program(code).candidates


def _edits(source: Source) -> Iterator[tuple[str, str, int, int, int, str]]:
    for family in FAMILIES:
        if family in EXPRESSION_FAMILIES:
            for site in source.sites:
                span = source.span(site.node)
                for sub, text in EXPRESSION_FAMILIES[family](source, site):
                    yield family, sub, site.line, *span, text
        if family in STATEMENT_FAMILIES:
            for place in source.places:
                line = place.node.lineno
                for sub, start, end, text in STATEMENT_FAMILIES[family](source, place):
                    yield family, sub, line, start, end, text
