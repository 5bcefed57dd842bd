"""What an edit looks like: the named numbers by which a learned ranking scores it.

Traits are names with values, hashed into `SIZE` slots (Weinberger et al., 2009), so that a model is
one vector of weights whatever the team, the program and the families are. There are four groups:

- of its kind (`of_kind`), for each way in which tests fail;
- of its line (`of_line`): how tests cover it, what stands there, what earlier edits there did;
- of its kind on its line (`of_crossing`);
- of the edit itself (`Reader`): where it stands, how the text around it changes (the 2- and 3-grams
  of abstracted tokens that come and go), what becomes of the names in it, and how well its rows
  resemble the rest of the program (Tu, Su and Devanbu, 2014: code repeats itself locally).

All is public: the program, the visible tests and their results, and the edits that were tried.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from attrs import frozen

from orchestrion_repair.operators import Candidate
from orchestrion_repair.operators.kinds import outer
from orchestrion_repair.operators.source import Source

SIZE = 8192
"""Slots of a model."""

Trait = tuple[int, float]
"""A slot and a value."""
Gram = tuple[str, ...]
"""Two or three tokens in a row."""


@lru_cache(maxsize=100_000)
def slot(name: str) -> int:
    """Return the slot of a trait, the same on every machine."""
    return crc32(name.encode()) % SIZE


@frozen
class Evidence:
    """What is known of a line.

    Args:
        suspicion: Ochiai's coefficient; None if no test was run with coverage.
        rank: how many lines are more suspicious.
        raised: whether an exception came from here.
        gain: the best share of failing tests that an edit here mended.
        tried, moved: how many edits here were run, and changed what the first failing test gives.
        odd: whether a linter named it.
        words: what stands there, see `syntax.line_syntax`.
    """

    suspicion: float | None
    rank: int
    raised: bool
    gain: float
    tried: int
    moved: int
    odd: bool
    words: frozenset[str]


# ---------------------------------------------------------------- of edits


_TOKEN = re.compile(
    r"[A-Za-z_]\w*|\d[\w.]*|\"[^\"\n]*\"|'[^'\n]*'|\*\*=?|//=?|<<|>>|[-+*/%&|^<>=!]=|\n *|\S"
)
_KEPT = frozenset([*keyword.kwlist, *dir(builtins), "self"])
_SELF = re.compile(r"(?<![\w.\])])(\w+) (?:[-+*/%<>=!]|//|==|!=|<=|>=|and|or) \1(?![\w.\[(])")
_WORD = re.compile(r"[a-z]+")


def _grams(tokens: list[str]) -> list[Gram]:
    """Return the 2- and 3-grams of some tokens."""
    return [*pairwise(tokens), *zip(tokens, tokens[1:], tokens[2:], strict=False)]


@lru_cache(maxsize=100_000)
def _slot_of(gram: Gram) -> int:
    return slot(f"gram {' '.join(gram)}")


def _rows(text: str) -> list[str]:
    return [row.strip() for row in text.split("\n") if row.strip()]


class Reader:
    """Reads a program's candidates."""

    def __init__(self, source: Source) -> None:
        self._code = source.code
        names = (node for node in ast.walk(source.tree) if isinstance(node, ast.Name))
        self._loads = Counter(name.id for name in names if isinstance(name.ctx, ast.Load))
        self._names: dict[str, str] = {}
        for function in source.functions:
            kinds = source.kinds(function)
            for name in source.names(function):
                self._names.setdefault(name, outer(kinds.name(name)))
        self._own = frozenset(function.name for function in source.functions)
        self._tokens: dict[str, tuple[list[str], list[str]]] = {}
        self._row_grams: dict[str, set[Gram]] = {}
        self._other_grams: dict[range, set[Gram]] = {}
        self._rows = [row.strip() for row in source.code.split("\n")]
        self._number = Counter(token for row in self._rows for token in self._read(row)[0])
        self._shapes = frozenset(self._shape(row) for row in self._rows)
        self._documented = frozenset(
            word
            for node in (source.tree, *source.functions)
            for word in _WORD.findall((ast.get_docstring(node) or "").lower())
        )

    def traits(self, candidate: Candidate) -> list[Trait]:
        """Return the traits of one candidate that depend on the program alone."""
        family, kind = candidate.family, f"{candidate.family}/{candidate.sub}"
        code = self._code
        first = code.rfind("\n", 0, candidate.start) + 1
        last = code.find("\n", candidate.end)
        last = len(code) if last < 0 else last
        head, tail = code[first : candidate.start], code[candidate.end : last]
        old, new = code[first:last], head + candidate.text + tail
        grown = len(new) - len(old)
        traits = [
            (slot(f"where {family} {candidate.where}"), 1.0),
            (slot(f"where {kind} {candidate.where}"), 1.0),
            *self._changed(old, new),
            *self._used(old, new),
            (slot("longer" if grown > 0 else "shorter"), math.log1p(abs(grown)) / 3),
        ]
        if _SELF.search(new) and not _SELF.search(old):
            traits.append((slot("with itself"), 1.0))
        if "\n" not in new and new.strip() and new.strip() in self._rows:
            traits.append((slot("row again"), 1.0))
        rows = range(code.count("\n", 0, first), code.count("\n", 0, last) + 1)
        traits += self._alike(old, new, rows)
        traits.append((slot("text written"), len(candidate.text) / 30))
        traits.append((slot("text replaced"), (candidate.end - candidate.start) / 30))
        return traits

    def _grams_of(self, row: str) -> set[Gram]:
        grams = self._row_grams.get(row)
        if grams is None:
            grams = self._row_grams[row] = set(_grams(["^", *self._read(row)[0], "$"]))
        return grams

    def _elsewhere(self, rows: range) -> set[Gram]:
        """Return the n-grams of all other rows of the program."""
        grams = self._other_grams.get(rows)
        if grams is None:
            others = (row for i, row in enumerate(self._rows) if i not in rows)
            grams = self._other_grams[rows] = set().union(*map(self._grams_of, others))
        return grams

    def _alike(self, old: str, new: str, rows: range) -> Iterator[Trait]:
        """Yield how what comes and what goes resembles the rest of the program."""
        gone, come = [], _rows(new)
        for row in _rows(old):
            if row in come:
                come.remove(row)
            else:
                gone.append(row)
        went, came = (set().union(*map(self._grams_of, some)) for some in (gone, come))
        elsewhere = self._elsewhere(rows)
        for sign, only in (("-", went - came), ("+", came - went)):
            known = len(only & elsewhere)
            if only:
                yield slot(f"elsewhere {sign}"), 3.0 * known / len(only)
                if sign == "+" and known == len(only):
                    yield slot("all elsewhere"), 2.0
            if sign == "+":
                yield slot("new grams"), math.log1p(len(only))
        if any(len(shape) > 3 for shape in self._shapes.intersection(map(self._shape, come))):
            yield slot("shape again"), 2.0
        change: Counter[str] = Counter()
        for row in come:
            change.update(self._read(row)[0])
        for row in gone:
            change.subtract(self._read(row)[0])
        for sign, way in (("-", -1), ("+", 1)):
            left = {token: way * number for token, number in change.items() if way * number > 0}
            yield slot(f"tokens {sign}"), 1.5 * math.log1p(sum(left.values()))
            if not left:
                yield slot(f"no tokens {sign}"), 2.0
            names = [token for token in left if token.isidentifier()]
            if names:
                least = min(self._number[name] for name in names)
                yield slot(f"rarest name {sign}"), math.log1p(least)
                if not least:
                    yield slot("unknown name"), 2.0
                words = (_WORD.findall(name.lower()) for name in names)
                mentions = sum(not self._documented.isdisjoint(some) for some in words)
                yield slot(f"documented {sign}"), float(mentions)

    def _shape(self, row: str) -> tuple[str, ...]:
        return tuple(self._read(row)[1])

    def _read(self, text: str) -> tuple[list[str], list[str]]:
        """Return a text's tokens as they are, and abstracted: own names by what they hold."""
        read = self._tokens.get(text)
        if read is None:
            plain = _TOKEN.findall(text)
            abstract = list(map(self._abstract, plain, ["", *plain]))
            read = self._tokens[text] = plain, abstract
        return read

    def _abstract(self, token: str, before: str) -> str:
        if token[0] == "\n":
            return "\n"
        if token in self._own:
            return "own()"
        if token in self._names:
            return f"<{self._names[token]}>"
        if token in _KEPT or before == ".":
            return token
        if token[0] in "\"'":
            return "text" if len(token) > 2 else '""'
        if token[0].isdigit():
            return token if token in ("0", "1", "2", "10") else "9"
        return "<other>" if token.isidentifier() else token

    def _changed(self, old: str, new: str) -> Iterator[Trait]:
        """Yield the n-grams around the change that come (+) and go (-)."""
        (_, before), (_, after) = self._read(old), self._read(new)
        start, limit = 0, min(len(before), len(after))
        while start < limit and before[start] == after[start]:
            start += 1
        end = 0
        while end < limit - start and before[-1 - end] == after[-1 - end]:
            end += 1
        counts: dict[Gram, int] = {}
        for sign, tokens in ((1, after), (-1, before)):
            window = ["^", "^", *tokens, "$", "$"][start : len(tokens) - end + 4]
            if len(window) <= 40:
                for gram in _grams(window):
                    counts[gram] = counts.get(gram, 0) + sign
        for gram, number in counts.items():
            if number:
                yield _slot_of(gram), 0.5 * max(-2, min(2, number))

    def _used(self, old: str, new: str) -> Iterator[Trait]:
        """Yield what becomes of the names: one that nobody read is read, or the reverse."""
        (before, _), (after, _) = self._read(old), self._read(new)
        was, is_ = set(before), set(after)
        # Sorted: a set has another order in every process, which the last bit of a sum would show.
        for name in sorted(is_ - was):
            if name in self._names:
                yield slot("name comes"), 1.0
                if not self._loads[name]:
                    yield slot("unread name is read"), 1.0
        for name in sorted(was - is_):
            if name in self._names:
                yield slot("name goes"), 1.0
                if self._loads[name] == 1:
                    yield slot("name is read no more"), 1.0
        if len(after) > len(before) and is_ <= was:
            yield slot("nothing new in it"), 1.0


# ---------------------------------------------------------------- of lines and kinds


def of_line(evidence: Evidence) -> Iterator[Trait]:
    """Yield the traits of everything on a line."""
    if evidence.suspicion is None:
        yield slot("not run"), 1.0
    else:
        yield slot("suspicion"), math.log(evidence.suspicion + 0.05)
        yield slot("suspicion, linear"), evidence.suspicion
        yield slot("rank"), math.log1p(evidence.rank)
        if not evidence.rank:
            yield slot("most suspicious"), 1.0
    if evidence.raised:
        yield slot("raised here"), 1.0
    if evidence.odd:
        yield slot("odd"), 1.0
    for word in sorted(evidence.words):
        yield slot(f"word {word}"), 1.0
    yield from _tried_traits("", evidence)


def _tried_traits(prefix: str, evidence: Evidence) -> Iterator[Trait]:
    if evidence.gain:
        yield slot(f"{prefix}mended some"), 1.0
        yield slot(f"{prefix}gain"), evidence.gain
    if evidence.tried:
        share = evidence.moved / evidence.tried
        yield slot(f"{prefix}tried"), math.log1p(evidence.tried)
        yield slot(f"{prefix}moved"), share
        if not evidence.moved:
            yield slot(f"{prefix}never moved"), math.log1p(evidence.tried)


def of_effect(family: str, changed: float) -> Iterator[Trait]:
    """Yield the traits of the share of passing tests that an edit would change; -1: unknown."""
    if changed < 0:
        yield slot("not probed"), 1.0
        yield slot(f"not probed {family}"), 1.0
        return
    yield slot("changes"), changed
    yield slot(f"changes {family}"), changed
    if not changed:
        yield slot("changes nothing"), 1.0
        yield slot(f"changes nothing {family}"), 1.0


def of_kind(family: str, sub: str, number: int, symptoms: Mapping[str, float]) -> Iterator[Trait]:
    """Yield the traits of a kind of edit, of which the program has so many candidates.

    `symptoms` say how tests fail, without zeros.
    """
    yield slot("alike"), math.log(number)
    yield slot(f"family {family}"), 1.0
    yield slot(f"kind {family}/{sub}"), 1.0
    for name, share in symptoms.items():
        yield slot(f"symptom {name} {family}"), share
        yield slot(f"symptom {name} {family}/{sub}"), share


def of_crossing(family: str, evidence: Evidence) -> Iterator[Trait]:
    """Yield the traits of a family on a line."""
    for word in sorted(evidence.words):
        yield slot(f"word {word} {family}"), 1.0
    if evidence.raised:
        yield slot(f"raised here {family}"), 1.0
    if evidence.gain > 0:
        yield slot(f"mended some {family}"), 1.0
    if evidence.suspicion is not None:
        yield slot(f"suspicion {family}"), evidence.suspicion
