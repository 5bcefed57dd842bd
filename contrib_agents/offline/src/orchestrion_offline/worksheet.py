"""Worksheets: computations written out line by line, as text that people and speakers read.

    Worksheet (mixed): start with 418.
    1. add 57
    2. multiply by 7
    3. reverse the digits

Every value has three digits at most: what is above 999 loses its front digits. Lines are written as
`Line 2: 325`, the value after step 2. A line may be written again; those after it then fall away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from attrs import frozen

from orchestrion import Key

__all__ = [
    "CATEGORIES",
    "KINDS",
    "Sheet",
    "Step",
    "Written",
    "draw_sheet",
    "events",
    "leading",
    "line",
    "sheets_in",
    "written",
]

KINDS = ("sums", "products", "digits")
CATEGORIES = (*KINDS, "mixed")
_BELOW = 1000

_STEP = r"\d+\. (?:add \d+|subtract \d+|multiply by \d+|reverse the digits|rotate the digits)"
_GAP = r"(?:\\n|[\s>|*])+"
_SHEET = re.compile(rf"Worksheet \((\w+)\): start with (\d{{1,3}})\.((?:{_GAP}{_STEP}(?!\w))+)")
_EVENT = re.compile(
    r"\bLine (?P<wrote>\d{1,4}): (?P<value>-?\d{1,9})(?![\d.,]\d|\d)"
    r"|\bLine (?P<blamed>\d{1,4}) is wrong\b"
)


@frozen
class Step:
    """One step of a worksheet: "add", 57."""

    verb: str
    number: int = 0

    @property
    def kind(self) -> str:
        """Which skill it takes."""
        if self.verb in ("add", "subtract"):
            return "sums"
        return "products" if self.verb == "multiply by" else "digits"

    @property
    def text(self) -> str:
        """The step in words."""
        return self.verb if self.kind == "digits" else f"{self.verb} {self.number}"

    def after(self, value: int) -> int:
        """The value after this step."""
        match self.verb:
            case "add":
                return (value + self.number) % _BELOW
            case "subtract":
                return (value - self.number) % _BELOW
            case "multiply by":
                return value * self.number % _BELOW
            case "reverse the digits":
                return int(f"{value % _BELOW:03d}"[::-1])
            case _:
                return value % 10 * 100 + value % _BELOW // 10


@frozen
class Sheet:
    """A worksheet."""

    category: str
    start: int
    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        """The worksheet as it is shown."""
        rows = "".join(f"\n{i}. {step.text}" for i, step in enumerate(self.steps, 1))
        return f"Worksheet ({self.category}): start with {self.start}.{rows}"

    @property
    def values(self) -> tuple[int, ...]:
        """The right value of each line."""
        found: list[int] = []
        for step in self.steps:
            found.append(step.after(found[-1] if found else self.start))
        return tuple(found)


@frozen
class Written:
    """What stands on a sheet: the lines, and the one that was called wrong last, or 0."""

    lines: tuple[int, ...] = ()
    blamed: int = 0

    def with_line(self, number: int, value: int) -> Written:
        """With a line more, or one written again; a line that is not yet due changes nothing."""
        if not 1 <= number <= len(self.lines) + 1:
            return self
        return Written((*self.lines[: number - 1], value))


def line(number: int, value: int) -> str:
    """A line as it is written."""
    return f"Line {number}: {value}"


def events(text: str) -> Iterator[tuple[int, int | None]]:
    """What a text says about lines, in order: (number, value), or (number, None) for "is wrong"."""
    for match in _EVENT.finditer(text):
        if match["wrote"]:
            yield int(match["wrote"]), int(match["value"])
        else:
            yield int(match["blamed"]), None


def written(text: str, most: int, start: Written | None = None) -> Written:
    """What stands on a sheet of `most` steps after all that a text says."""
    sheet = start or Written()
    for number, value in events(text):
        if value is not None:
            sheet = sheet.with_line(number, value) if number <= most else sheet
        elif 1 <= number <= len(sheet.lines):
            sheet = Written(sheet.lines, number)
    return sheet


def leading(sheet: Sheet, lines: Sequence[int]) -> int:
    """How many lines are right before the first wrong one."""
    for i, value in enumerate(sheet.values):
        if i >= len(lines) or lines[i] != value:
            return i
    return len(sheet.steps)


def sheets_in(text: str) -> list[tuple[Sheet, int, int]]:
    """The worksheets a text shows, each with where it begins and ends."""
    return [
        (_sheet(match[1], match[2], match[3]), match.start(), match.end())
        for match in _SHEET.finditer(text)
    ]


@lru_cache(maxsize=4096)
def _sheet(category: str, start: str, steps: str) -> Sheet:
    found = []
    for row in re.findall(_STEP, steps):
        verb, _, number = row.partition(". ")[2].rpartition(" ")
        if number.isdigit():
            found.append(Step(verb, int(number)))
        else:
            found.append(Step(f"{verb} {number}"))
    return Sheet(category, int(start), tuple(found))


def draw_sheet(category: str, steps: int, start: int, key: Key) -> Sheet:
    """A worksheet; `mixed` ones have every kind of step."""
    found: list[Step] = []
    for i in range(steps):
        which, number = key.child("step", i).uniforms(2)
        kinds = KINDS if category == "mixed" else (category,)
        # Kinds take turns from a drawn one on, so that a mixed sheet has all of them.
        kind = kinds[(int(key.uniform() * len(kinds)) + i) % len(kinds)]
        found.append(_draw_step(kind, which < 0.5, number))
    return Sheet(category, start, tuple(found))


def _draw_step(kind: str, first: bool, number: float) -> Step:
    if kind == "sums":
        return Step("add" if first else "subtract", 11 + int(number * 389))
    if kind == "products":
        return Step("multiply by", 3 + int(number * 17))
    return Step("reverse the digits" if first else "rotate the digits")
