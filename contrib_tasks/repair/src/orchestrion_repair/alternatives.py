"""Which edits would not change what a test computes: seen in one run of the program as it is.

An edit that puts another expression in a place, which has the value of the program's own in every
round of a failing test, cannot mend that test (test-equivalence: Mechtaev, Gao, Tan and
Roychoudhury, 2018). So the program is run with calls written into it that evaluate the
alternatives of a place beside its own expression (`probes.py`). Only alternatives without effects
are evaluated, and none in programs whose values change by being looked at, such as iterators.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import lru_cache

from attrs import frozen

from orchestrion_repair.operators import Candidate
from orchestrion_repair.operators.source import Site, Source
from orchestrion_repair.probes import AFTER, BEFORE, Probe
from orchestrion_repair.ranking import Program

_PURE = frozenset(
    "abs all any bool chr dict divmod float frozenset int isinstance len list max min ord range "
    "repr round set sorted str sum tuple capitalize casefold copy count difference endswith find "
    "get index intersection isalnum isalpha isdigit islower isnumeric isspace issubset issuperset "
    "isupper items join keys lower lstrip partition replace rfind rpartition rsplit "
    "rstrip split startswith strip swapcase symmetric_difference title union upper values "
    "floor ceil sqrt gcd and or not in if else is".split()
)
"""Functions and methods that change nothing, and words that may stand before a parenthesis."""
_WORD = re.compile(r"\w+")
_CALL = re.compile(r"(\w+)\s*\(")
_COSTLY = re.compile(r"(?<!^)\brange\(|(?<!\b\d)(?<!\b\d\d) \* (?!\d{1,2}\b)|\*[^ ]")
"""What may take long where the program does not: items of a range, a list times a large number."""
_EFFECTS = re.compile(r"\n|\*\*|<<|:=|\b(?:for|lambda|await|yield)\b|[\])]\s*\(")
_STATEFUL = re.compile(
    r"\b(?:defaultdict|random|itertools|iter|next|map|filter|zip|finditer|yield|class|await|open"
    r"|locals|globals|\w*Queue)\b|:="
)
_NEW = re.compile(r"(?:(?:list|dict|set|sorted)\(|\[|\{)")
"""What makes a new object."""


@frozen(eq=False)
class Probed:
    """A program with probes, and the places these look at, as `Probes` takes them."""

    code: str
    sites: tuple[Probe, ...]

    @property
    def numbers(self) -> str:
        """Return all candidates that are looked at, as the bits of a hexadecimal number."""
        return f"{sum(1 << number for numbers, *_ in self.sites for number in numbers):x}"


@lru_cache(maxsize=100)
def probed(program: Program) -> Probed | None:
    """Return the program with probes; None if nothing can be looked at."""
    source = program.source
    if source is None or _STATEFUL.search(source.code):
        return None
    own = frozenset(function.name for function in source.functions)
    if _lazy(source, own):
        return None
    readable = (site for site in source.sites if _readable(site))
    places = {source.span(s.node): s for s in readable if _calls_pure(source.text(s.node), own)}
    by_place: dict[tuple[int, int], list[Candidate]] = defaultdict(list)
    for edit in program.candidates:
        if (edit.start, edit.end) in places and _pure(edit.text, own):
            by_place[edit.start, edit.end].append(edit)
    sites: list[Probe] = []
    marks: list[tuple[int, int, int, str]] = []
    # An outer expression comes before those in it.
    for number, (start, end) in enumerate(sorted(by_place, key=lambda span: (span[0], -span[1]))):
        call = f"{AFTER}({number},{BEFORE}({number},locals(),globals()),("
        marks += [(start, 1, number, call), (end, 0, -number, "))")]
        site, edits = places[start, end], by_place[start, end]
        new = isinstance(site.node, ast.BinOp) or bool(_NEW.match(source.code, start))
        fresh = [new and bool(_NEW.match(edit.text)) for edit in edits]
        numbers, texts = [edit.number for edit in edits], [edit.text for edit in edits]
        sites.append((numbers, texts, fresh, _is_test(site)))
    code = source.code
    for position, _, _, text in sorted(marks, reverse=True):
        code = code[:position] + text + code[position:]
    try:
        ast.parse(code)
    except (SyntaxError, RecursionError, MemoryError):  # a pattern of `match`, or nested too deep
        return None
    return Probed(code, tuple(sites))


def _pure(text: str, own: frozenset[str]) -> bool:
    """Return whether a text changes nothing when evaluated, and names no `own` function."""
    if _EFFECTS.search(text) or _COSTLY.search(text) or not own.isdisjoint(_WORD.findall(text)):
        return False
    return _calls_pure(text, own)


def _calls_pure(text: str, own: frozenset[str]) -> bool:
    """Return whether a text calls only what changes nothing; a value may come with an effect."""
    return _PURE.difference(own).issuperset(_CALL.findall(text))


def _readable(site: Site) -> bool:
    """Return whether a call may stand here instead, with the same value."""
    if isinstance(site.node, ast.Slice | ast.Starred | ast.GeneratorExp | ast.Lambda):
        return False
    called = isinstance(site.parent, ast.Call) and site.parent.func is site.node
    return not called and isinstance(getattr(site.node, "ctx", ast.Load()), ast.Load)


def _is_test(site: Site) -> bool:
    match site.parent:
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            return test is site.node
        case ast.comprehension(ifs=conditions):
            return site.node in conditions
        case ast.UnaryOp(ast.Not()):
            return True
    return False


def _lazy(source: Source, own: frozenset[str]) -> bool:
    """Return whether the program keeps an iterator, or gives it to a function of its own."""
    for site in source.sites:
        match site.node, site.parent:
            case _, ast.For() | ast.comprehension():
                pass
            case _, ast.Call(ast.Name(name) | ast.Attribute(attr=name)) if name in _PURE - own:
                pass
            case ast.GeneratorExp() | ast.Call(ast.Name("enumerate" | "reversed")), _:
                return True
    return False
