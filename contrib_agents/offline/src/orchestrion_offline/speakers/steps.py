"""Who fills in worksheets, and who looks for mistakes in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from attrs import field, frozen

from orchestrion import JSON, Key, Meta
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import asked_text, system_text
from orchestrion_offline.speakers.skills import HABITS, Habit, Share, effective
from orchestrion_offline.worksheet import Sheet, Step, Written, leading, line, sheets_in, written

__all__ = ["Reviewer", "Solver", "lines_of", "sheet_and_lines"]

REMARKS = (
    "I go on from the value above.",
    "Only the last three digits are kept.",
    "This step is a simple one.",
    "The result follows at once.",
)


def sheet_and_lines(request: Mapping[str, JSON]) -> tuple[Sheet, Written]:
    """The worksheet that a request shows, and what stands on it.

    Raises:
        ValueError: it shows none.
    """
    return lines_of(asked_text(request))


def lines_of(text: str) -> tuple[Sheet, Written]:
    """The last worksheet that a text shows, and what stands on it.

    Raises:
        ValueError: it shows none.
    """
    found = sheets_in(text)
    if not found:
        raise ValueError(
            "this speaker works on worksheets of the task 'steps', and sees none; the speaker for "
            "'code-review' is coder"
        )
    sheet, begin, _ = found[-1]
    # A problem may stand before or after the work on it; an earlier worksheet is another matter.
    others = [end for other, _, end in found if other != sheet and end < begin]
    return sheet, written(text[max(others, default=0) :], len(sheet.steps))


def _skills() -> dict[str, float]:
    return {"sums": 0.92, "products": 0.8, "digits": 0.72}


@frozen
class Solver(Speaker):
    """Writes the next line of a worksheet, or again the one that was called wrong.

    It goes on from the line above, right or wrong.

    Args:
        skills: how often a line is right, by the kind of its step: `sums`, `products`, `digits`.
        skill: for kinds that `skills` does not name.
        habits: sentences that change its skill if its instructions have them.
        common: how many of its mistakes are the same one, instead of any.
        remarks: sentences at most that it says besides.
    """

    skills: Mapping[str, Share] = field(factory=_skills)
    skill: Share = 0.8
    habits: tuple[Habit, ...] = HABITS
    common: Share = 0.3
    remarks: Annotated[int, Meta(ge=0, le=4)] = 0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        sheet, done = sheet_and_lines(request)
        number = done.blamed or len(done.lines) + 1
        if number > len(sheet.steps):
            return Answer("All lines are written.")
        step = sheet.steps[number - 1]
        before = done.lines[number - 2] if number > 1 else sheet.start
        luck, kind, which, talk = draw.uniforms(4)
        right = step.after(before)
        if luck < self.chance(step, system_text(request), sheet.category):
            value = right
        else:
            slip = 10 if kind < self.common else 1 + int(which * 998)
            value = (right + slip) % 1000
        said = [*REMARKS[: int(talk * (self.remarks + 1))], line(number, value)]
        return Answer("\n".join(said))

    def chance(self, step: Step, instructions: str = "", about: str = "") -> float:
        """How likely the line of a step is right, on a worksheet of the category `about`."""
        known, told = self.habits, instructions
        return effective(self.skills, self.skill, step.kind, known, told, about)


@frozen
class Reviewer(Speaker):
    """Says which line of a worksheet is wrong, or that it sees no mistake.

    Args:
        skills: how often it sees a mistake, by the kind of the step.
        skill: for kinds that `skills` does not name.
        false_alarm: how often it calls the last line wrong though all are right.
        habits: sentences that change its skill if its instructions have them.
    """

    skills: Mapping[str, Share] = field(factory=dict)
    skill: Share = 0.85
    false_alarm: Share = 0.05
    habits: tuple[Habit, ...] = ()

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        sheet, done = sheet_and_lines(request)
        if not done.lines:
            return Answer("There is nothing to review yet.")
        right = leading(sheet, done.lines)
        luck = draw.uniform()
        if right < len(done.lines):
            kind, told = sheet.steps[right].kind, system_text(request)
            about = sheet.category
            if luck < effective(self.skills, self.skill, kind, self.habits, told, about):
                return Answer(f"Line {right + 1} is wrong.")
        elif luck < self.false_alarm:
            return Answer(f"Line {len(done.lines)} is wrong.")
        return Answer("I see no mistake.")
