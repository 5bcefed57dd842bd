"""The task `steps`: worksheets that a team fills in, a line a turn, and any line may be wrong."""

from __future__ import annotations

from collections.abc import Sequence
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
from orchestrion import Step as Environment
from orchestrion_offline.worksheet import (
    CATEGORIES,
    KINDS,
    Sheet,
    Written,
    draw_sheet,
    events,
    leading,
    sheets_in,
)

__all__ = ["Steps", "sheet_of"]

Count = Annotated[int, Meta(ge=0, le=100_000)]
_PATIENCE = 1000  # draws in a row that bring nothing new
_SPLITS: tuple[Split, ...] = ("train", "validation", "test")
RULES = (
    "Every value keeps its last three digits only. Write the next line, one line a turn, as\n"
    "`Line K: VALUE`, the value after step K. To correct a line write it again; the lines after it "
    "then fall away. To object to a line write `Line K is wrong`."
)


@frozen
class Steps(Task):
    """Worksheets to fill in line by line; solved if every line is right.

    A turn writes at most one line: the last that its content has. Only what stands in contents
    counts. `value` is the share of lines that are right before the first wrong one.

    Args:
        steps: lines of a worksheet.
        categories: kinds of worksheet; they take turns.
        ends: whether an episode ends with the last line; else the team decides, and may correct.
        train: problems in the training split.
        validation: problems in the validation split.
        test: problems in the test split.
        seed: other worksheets.
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
        """The worksheets of a split; no two are alike, here or in another split."""
        key = Key(self.seed).child("steps", split)
        seen: set[str] = set()
        found: list[Problem] = []
        draw = repeats = 0
        while len(found) < getattr(self, split):
            sheet = self._draw(split, len(found), key.child(draw))
            draw += 1
            repeats = repeats + 1 if sheet.text in seen else 0
            if not repeats:
                seen.add(sheet.text)
                found.append(_problem(f"{split}-{len(found)}", sheet))
            elif repeats == _PATIENCE:
                raise UsageError(
                    f"steps: there are no {getattr(self, split)} different worksheets of "
                    f"{self.steps} lines; make `steps` larger or the split {split!r} smaller"
                )
        return found

    def _draw(self, split: Split, n: int, key: Key) -> Sheet:
        # Splits are disjoint by their start values: each has every third number.
        place = _SPLITS.index(split)
        start = 3 * int(key.child("start").uniform() * 333) + place
        return draw_sheet(self.categories[n % len(self.categories)], self.steps, start, key)

    def problem_from(self, text: str) -> Problem:
        """A worksheet in the form that problems are shown in."""
        found = sheets_in(text)
        if not found:
            raise UsageError(
                "steps: an input looks like 'Worksheet (sums): start with 5.' and then, each on "
                "a line of its own, '1. add 7', '2. multiply by 3', '3. reverse the digits'"
            )
        return _problem("input", found[0][0])

    def start(self, problem: Problem, key: Key) -> Environment:
        """An empty sheet."""
        return self._shown(State(sheet_of(problem)))

    def step(self, state: State, turn: Turn, key: Key) -> Environment:
        """The sheet after a turn."""
        if turn.status != "completed":
            return self._shown(state)
        return self._shown(State(state.sheet, after(state.sheet, state.written, turn)))

    def _shown(self, state: State) -> Environment:
        total, done = len(state.sheet.steps), len(state.written.lines)
        kind = state.sheet.steps[done].kind if done < total else ""
        blamed = state.written.blamed
        text = f"{done} of {total} lines are written."
        seen = Observation(
            text + (f" Line {blamed} is called wrong." if blamed else ""),
            {"lines": done, "of": total, "next": kind, "blamed": blamed},
            (done / total, float(blamed > 0), *(float(kind == one) for one in KINDS)),
            progress=done / total,
        )
        return Environment(state, seen, self.ends and done == total and not blamed)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: State, *, final: bool, calls: Calls
    ) -> Scores:
        """The share of lines that are right before the first wrong one; the same at any time."""
        total, lines = len(state.sheet.steps), state.written.lines
        right = leading(state.sheet, lines)
        parts = {"written": len(lines) / total, "right": right / total}
        return Scores(right / total, right == total, parts)


@frozen
class State:
    """A sheet and what stands on it."""

    sheet: Sheet
    written: Written = Written()


def sheet_of(problem: Problem) -> Sheet:
    """The worksheet of a problem, from what is public."""
    return sheets_in(problem.text)[0][0]


def after(sheet: Sheet, before: Written, turn: Turn) -> Written:
    """What stands on a sheet after a turn: at most one line more, or one line called wrong."""
    said = list(events(turn.output.content))
    if not said:
        return before
    number, value = said[-1]
    if value is not None:
        return before.with_line(number, value) if number <= len(sheet.steps) else before
    return Written(before.lines, number) if 1 <= number <= len(before.lines) else before


def _problem(name: str, sheet: Sheet) -> Problem:
    return Problem(name, f"{sheet.text}\n\n{RULES}", category=sheet.category)
