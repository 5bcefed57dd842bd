"""What can be tried on a program: every small edit, by family, with a rank.

    >>> source, found = candidates("def f(x):\\n    return x < 1\\n")
    >>> found[0].apply(source.code).splitlines()[1]
    '    return x <= 1'

A *family* is a kind of mistake it undoes; a *sub-kind* a finer one. Both count in the ranking.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from orchestrion_repair.operators.calls import argument, function, unwrap, wrap
from orchestrion_repair.operators.computing import arithmetic, comparison, off_by_one, operand
from orchestrion_repair.operators.conditions import condition, extend
from orchestrion_repair.operators.missing import guard, insert
from orchestrion_repair.operators.source import Source
from orchestrion_repair.operators.statements import augmented, control, delete, move, returned
from orchestrion_repair.operators.values import constant, graft, slices, variable

__all__ = ["FAMILIES", "Candidate", "candidates"]

_EXPRESSIONS = {
    "comparison": comparison,
    "off-by-one": off_by_one,
    "arithmetic": arithmetic,
    "condition": condition,
    "extend": extend,
    "variable": variable,
    "constant": constant,
    "argument": argument,
    "function": function,
    "unwrap": unwrap,
    "wrap": wrap,
    "operand": operand,
    "graft": graft,
    "slice": slices,
}
_STATEMENTS = {
    "guard": guard,
    "insert": insert,
    "delete": delete,
    "move": move,
    "return": returned,
    "control": control,
    "arithmetic": augmented,
}
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys((*_EXPRESSIONS, *_STATEMENTS)))


class Candidate(NamedTuple):
    """One edit: the program's text from `start` to `end` becomes `text`.

    `line` is the first line of the statement it is about; `number` its place among all
    candidates of the program; `where` the type of what it changes and of what stands above.
    """

    number: int
    family: str
    sub: str
    line: int
    start: int
    end: int
    text: str
    where: str = ""

    def apply(self, code: str) -> str:
        """Return the program after the edit."""
        return code[: self.start] + self.text + code[self.end :]


def candidates(
    code: str, entry_point: str = "", arguments: tuple[str, ...] = ()
) -> tuple[Source | None, tuple[Candidate, ...]]:
    """Return the parsed program and everything to try on it, in the order it is written.

    No two candidates give the same text. `arguments` are the kinds of the entry point's, see
    `kinds_of_arguments`. A program without syntax has neither source nor candidates.
    """
    seen = {code}
    edits: list[Candidate] = []
    try:
        source = Source(code, entry_point, arguments)
        for edit in _edits(source):
            new = edit.apply(code)
            if new not in seen:
                seen.add(new)
                edits.append(edit._replace(number=len(edits)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # also: nested too deeply
        return None, ()
    return source, tuple(edits)


def _edits(source: Source) -> Iterator[Candidate]:
    """Yield all edits without their numbers, some of them with equal programs."""
    for family in FAMILIES:
        if family in _EXPRESSIONS:
            for site in source.sites:
                span, where = source.span(site.node), _where(site.node, site.parent)
                for sub, text in _EXPRESSIONS[family](source, site):
                    yield Candidate(-1, family, sub, site.line, *span, text, where)
        if family in _STATEMENTS:
            for place in source.places:
                line, where = place.node.lineno, _where(place.node, place.owner)
                for sub, start, end, text in _STATEMENTS[family](source, place):
                    yield Candidate(-1, family, sub, line, start, end, text, where)


def _where(node: ast.AST, above: ast.AST) -> str:
    return f"{type(node).__name__}<{type(above).__name__}"
