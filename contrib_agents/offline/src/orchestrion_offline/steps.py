"""Fill in worksheets, a line a turn: the task `steps`, whose best possible value is known.

A worksheet is a computation, as text that people and speakers read:

    Worksheet (mixed): start with 418.
    1. add 57
    2. multiply by 7
    3. reverse the digits

Every value keeps its last three digits. A line is written as `Line 2: 325`, the value after step 2.
Writing a line again deletes the lines after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from attrs import Attribute, field, frozen

from orchestrion import (
    Calls,
    Key,
    Meta,
    Observation,
    Problem,
    Scores,
    Split,
    Task,
    Trajectory,
    Turn,
    UsageError,
    no_calls,
)
from orchestrion import Step as TaskStep

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
class WorksheetStep:
    """A step of a worksheet, such as "add", 57."""

    verb: str
    number: int = 0

    @property
    def kind(self) -> str:
        """The skill that it takes: one of `KINDS`."""
        if self.verb in ("add", "subtract"):
            return "sums"
        return "products" if self.verb == "multiply by" else "digits"

    @property
    def text(self) -> str:
        """The step in words."""
        return self.verb if self.kind == "digits" else f"{self.verb} {self.number}"

    def after(self, value: int) -> int:
        """Return the value after this step."""
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
    steps: tuple[WorksheetStep, ...]

    @property
    def text(self) -> str:
        """The worksheet as teams see it."""
        rows = "".join(f"\n{i}. {step.text}" for i, step in enumerate(self.steps, 1))
        return f"Worksheet ({self.category}): start with {self.start}.{rows}"

    @property
    def values(self) -> tuple[int, ...]:
        """The right value of each line."""
        values: list[int] = []
        for step in self.steps:
            values.append(step.after(values[-1] if values else self.start))
        return tuple(values)


@frozen
class Written:
    """The written lines of a worksheet, and the line that was called wrong last, or 0."""

    lines: tuple[int, ...] = ()
    blamed: int = 0

    def with_event(self, number: int, value: int | None, steps: int) -> Written:
        """Return the lines after an event on a worksheet of `steps` lines.

        A value writes the next line, or writes a line again; None calls a written line wrong. An
        event about any other line changes nothing.
        """
        if value is None:
            return Written(self.lines, number) if 1 <= number <= len(self.lines) else self
        if not 1 <= number <= min(len(self.lines) + 1, steps):
            return self
        return Written((*self.lines[: number - 1], value))


def line(number: int, value: int) -> str:
    """Return a line as text."""
    return f"Line {number}: {value}"


def events(text: str) -> Iterator[tuple[int, int | None]]:
    """Yield the events in a text: (number, value) of a line, or (number, None) for "is wrong"."""
    for match in _EVENT.finditer(text):
        if match["wrote"]:
            yield int(match["wrote"]), int(match["value"])
        else:
            yield int(match["blamed"]), None


def written(text: str, steps: int) -> Written:
    """Return the lines of a worksheet of `steps` lines after all that a text says."""
    done = Written()
    for number, value in events(text):
        done = done.with_event(number, value, steps)
    return done


def leading(sheet: Sheet, lines: Sequence[int]) -> int:
    """Return the number of right lines before the first wrong one."""
    for i, value in enumerate(sheet.values):
        if i >= len(lines) or lines[i] != value:
            return i
    return len(sheet.steps)


def sheets_in(text: str) -> list[tuple[Sheet, int, int]]:
    """Return the worksheets in a text, each with the positions of its begin and end."""
    return [
        (_sheet(match[1], match[2], match[3]), match.start(), match.end())
        for match in _SHEET.finditer(text)
    ]


@lru_cache(maxsize=4096)
def _sheet(category: str, start: str, rows: str) -> Sheet:
    steps = []
    for row in re.findall(_STEP, rows):
        verb, _, last = row.partition(". ")[2].rpartition(" ")
        steps.append(
            WorksheetStep(verb, int(last)) if last.isdigit() else WorksheetStep(f"{verb} {last}")
        )
    return Sheet(category, int(start), tuple(steps))


def draw_sheet(category: str, steps: int, start: int, key: Key) -> Sheet:
    """Draw a worksheet; a `mixed` one has every kind of step if it is long enough."""
    kinds = KINDS if category == "mixed" else (category,)
    first = int(key.uniform() * len(kinds))  # kinds take turns from a drawn one on
    rows: list[WorksheetStep] = []
    for i in range(steps):
        which, number = key.child("step", i).uniforms(2)
        match kinds[(first + i) % len(kinds)]:
            case "sums":
                rows.append(
                    WorksheetStep("add" if which < 0.5 else "subtract", 11 + int(number * 389))
                )
            case "products":
                rows.append(WorksheetStep("multiply by", 3 + int(number * 17)))
            case _:
                rows.append(WorksheetStep(f"{'reverse' if which < 0.5 else 'rotate'} the digits"))
    return Sheet(category, start, tuple(rows))


# ---------------------------------------------------------------- the task

Count = Annotated[int, Meta(ge=0, le=100_000)]
_MOST_REPEATS = 1000  # draws in a row that bring no new worksheet
_SPLITS: tuple[Split, ...] = ("train", "validation", "test")
RULES = (
    "Every value keeps its last three digits only. Write the next line, one line a turn, as\n"
    "`Line K: VALUE`, the value after step K. To correct a line write it again; the lines after it "
    "then fall away. To object to a line write `Line K is wrong`."
)


@frozen
class WorksheetState:
    """A worksheet and its written lines."""

    sheet: Sheet
    written: Written = Written()


@frozen
class Steps(Task):
    """Worksheets to fill in line by line; solved if every line is right.

    A turn counts as its last statement about a line, in its content. `value` is the share of right
    lines before the first wrong one.

    Args:
        steps: lines of a worksheet.
        categories: kinds of worksheet; they take turns.
        ends: whether an episode ends with the last line; else the team stops, and may correct.
        train: problems in the training split.
        validation: problems in the validation split.
        test: problems in the test split.
        seed: another seed gives other worksheets.
    """

    steps: Annotated[int, Meta(ge=1, le=100)] = 6
    categories: tuple[Literal["sums", "products", "digits", "mixed"], ...] = field(
        default=CATEGORIES
    )
    ends: bool = True
    train: Count = 48
    validation: Count = 48
    test: Count = 200
    seed: int = 0

    ceiling = no_calls

    @categories.validator
    def _check_categories(self, attribute: Attribute[Any], value: tuple[str, ...]) -> None:
        if not value or len(set(value)) < len(value):
            raise ValueError("categories: expected at least one, each once")

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the worksheets of a split; no two are equal, in this split or in another.

        Raises:
            UsageError: there are fewer different worksheets than the split needs.
        """
        key, size = Key(self.seed).child("steps", split), getattr(self, split)
        sheets: dict[str, Problem] = {}
        draw = repeats = 0
        while len(sheets) < size:
            category = self.categories[len(sheets) % len(self.categories)]
            # Splits are disjoint by their start values: each split has every third number.
            start = 3 * int(key.child(draw).child("start").uniform() * 333) + _SPLITS.index(split)
            sheet = draw_sheet(category, self.steps, start, key.child(draw))
            draw += 1
            if sheet.text not in sheets:
                sheets[sheet.text] = _problem(f"{split}-{len(sheets)}", sheet)
                repeats = 0
                continue
            repeats += 1
            if repeats == _MOST_REPEATS:
                raise UsageError(
                    f"steps: there are no {size} different worksheets of {self.steps} lines; make "
                    f"`steps` larger or the split {split!r} smaller"
                )
        return list(sheets.values())

    def problem_from(self, text: str) -> Problem:
        """Return the worksheet in a text, in the form that problems have.

        Raises:
            UsageError: the text has no worksheet.
        """
        sheets = sheets_in(text)
        if not sheets:
            raise UsageError(
                "steps: an input looks like 'Worksheet (sums): start with 5.' and then, each on "
                "a line of its own, '1. add 7', '2. multiply by 3', '3. reverse the digits'"
            )
        return _problem("input", sheets[0][0])

    def start(self, problem: Problem, key: Key) -> TaskStep:
        """Return an empty worksheet."""
        return self._after(WorksheetState(sheet_of(problem)))

    def step(self, state: WorksheetState, turn: Turn, key: Key) -> TaskStep:
        """Return the worksheet after a turn; a failed turn changes nothing."""
        statements = list(events(turn.output.content)) if turn.status == "completed" else []
        if not statements:
            return self._after(state)
        number, value = statements[-1]
        done = state.written.with_event(number, value, len(state.sheet.steps))
        return self._after(WorksheetState(state.sheet, done))

    def _after(self, state: WorksheetState) -> TaskStep:
        total, done = len(state.sheet.steps), len(state.written.lines)
        kind = state.sheet.steps[done].kind if done < total else ""
        blamed = state.written.blamed
        text = f"{done} of {total} lines are written."
        observation = Observation(
            text + (f" Line {blamed} is called wrong." if blamed else ""),
            {"lines": done, "of": total, "next": kind, "blamed": blamed},
            (done / total, float(blamed > 0), *(float(kind == name) for name in KINDS)),
            progress=done / total,
        )
        return TaskStep(state, observation, self.ends and done == total and not blamed)

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: WorksheetState,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        """Return the share of right lines before the first wrong one, at any time of an episode."""
        total, lines = len(state.sheet.steps), state.written.lines
        right = leading(state.sheet, lines)
        parts = {"written": len(lines) / total, "right": right / total}
        return Scores(right / total, right == total, parts)


def sheet_of(problem: Problem) -> Sheet:
    """Return the worksheet of a problem, from its public text."""
    return sheets_in(problem.text)[0][0]


def _problem(name: str, sheet: Sheet) -> Problem:
    return Problem(name, f"{sheet.text}\n\n{RULES}", category=sheet.category)
