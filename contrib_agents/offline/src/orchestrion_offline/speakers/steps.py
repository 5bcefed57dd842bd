"""Fill in worksheets, review them, and name the agent for the next line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from attrs import field, frozen

from orchestrion import JSON, Key, Meta
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import Filler, Slot, asked_text, fill, form_of, system_text
from orchestrion_offline.speakers.habits import HABITS, Habit, Share, effective
from orchestrion_offline.steps import (
    Sheet,
    WorksheetStep,
    Written,
    leading,
    line,
    sheets_in,
    written,
)

REMARKS = (
    "I go on from the value above.",
    "Only the last three digits are kept.",
    "This step is a simple one.",
    "The result follows at once.",
)


def lines_of(text: str) -> tuple[Sheet, Written]:
    """Return the last worksheet in a text, and its written lines.

    Raises:
        ValueError: the text has no worksheet.
    """
    sheets = sheets_in(text)
    if not sheets:
        raise ValueError(
            "this speaker works on worksheets of the task 'steps', and the request has none; the "
            "speaker for 'code-review' is coder"
        )
    sheet, begin, _ = sheets[-1]
    # The problem may stand before or after the work on it. Lines before another sheet's end are
    # not work on this one.
    others = [end for other, _, end in sheets if other != sheet and end < begin]
    return sheet, written(text[max(others, default=0) :], len(sheet.steps))


def _skills() -> dict[str, float]:
    return {"sums": 0.92, "products": 0.8, "digits": 0.72}


@frozen
class Solver(Speaker):
    """Writes the next line of a worksheet, or again the line that a reviewer called wrong.

    It continues from the line above, whether that is right or wrong.

    Args:
        skills: chance of a right line, by the kind of its step: `sums`, `products`, `digits`.
        skill: for kinds that `skills` does not name.
        habits: sentences in its instructions that change its skill.
        common: share of its mistakes that are the same one, instead of a random one.
        remarks: most additional sentences in an answer.
    """

    skills: Mapping[str, Share] = field(factory=_skills)
    skill: Share = 0.8
    habits: tuple[Habit, ...] = HABITS
    common: Share = 0.3
    remarks: Annotated[int, Meta(ge=0, le=4)] = 0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        sheet, done = lines_of(asked_text(request))
        number = done.blamed or len(done.lines) + 1
        if number > len(sheet.steps):
            return Answer("All lines are written.")
        step = sheet.steps[number - 1]
        before = done.lines[number - 2] if number > 1 else sheet.start
        success, kind, which, talk = draw.uniforms(4)
        value = step.after(before)
        if success >= self.chance(step, system_text(request), sheet.category):
            error = 10 if kind < self.common else 1 + int(which * 998)
            value = (value + error) % 1000
        remarks = REMARKS[: int(talk * (self.remarks + 1))]
        return Answer("\n".join([*remarks, line(number, value)]))

    def chance(self, step: WorksheetStep, instructions: str = "", about: str = "") -> float:
        """Return the chance of a right line for a step, on a worksheet of the category `about`."""
        return effective(self.skills, self.skill, step.kind, self.habits, instructions, about)


@frozen
class Reviewer(Speaker):
    """Names the first wrong line of a worksheet, or says that it sees no mistake.

    Args:
        skills: chance that it sees a mistake, by the kind of the step.
        skill: for kinds that `skills` does not name.
        false_alarm: chance that it calls the last line wrong though all are right.
        habits: sentences in its instructions that change its skill.
    """

    skills: Mapping[str, Share] = field(factory=dict)
    skill: Share = 0.85
    false_alarm: Share = 0.05
    habits: tuple[Habit, ...] = ()

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        sheet, done = lines_of(asked_text(request))
        if not done.lines:
            return Answer("There is nothing to review yet.")
        right = leading(sheet, done.lines)
        number, chance = len(done.lines), self.false_alarm
        if right < len(done.lines):
            number, kind, instructions = right + 1, sheet.steps[right].kind, system_text(request)
            chance = effective(
                self.skills, self.skill, kind, self.habits, instructions, sheet.category
            )
        objects = draw.uniform() < chance
        return Answer(f"Line {number} is wrong." if objects else "I see no mistake.")


@frozen
class Router(Speaker):
    """Names the agent that should act next, as JSON, and errs at a known rate.

    The right agent is the successor of the agent that the question mentions last.

    Args:
        follows: the successor of each agent.
        first: the first agent, where the question mentions no agent of `follows`.
        accuracy: chance of the right name; else any other.
    """

    follows: Mapping[str, str] = field(factory=dict)
    first: str = "stop"
    accuracy: Share = 1.0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        form = form_of(request) or {"type": "object", "properties": {"next": {"type": "string"}}}
        known = [*self.follows.values(), self.first]
        return Answer(fill(form, _Choice(self._right(request), self.accuracy, known, draw)))

    def _right(self, request: Mapping[str, JSON]) -> str:
        text = asked_text(request)
        last = [
            (match.start(), name)
            for name in self.follows
            for match in re.finditer(rf"\b{re.escape(name)}\b", text)
        ]
        return self.follows[max(last)[1]] if last else self.first


@frozen
class _Choice(Filler):
    right: str
    accuracy: float
    known: list[str]
    draw: Key

    def text(self, slot: Slot) -> str | None:
        if _asks_for_agent(slot):
            return self._draw_from(self.known)
        return None if "option" in slot.name.lower() else "simulated"

    def choice(self, slot: Slot, options: list[Any]) -> Any:
        if not _asks_for_agent(slot):
            return options[0]
        return self._draw_from([str(name) for name in options if name is not None])

    def _draw_from(self, options: list[str]) -> str:
        others = sorted({name for name in options if name and name != self.right})
        success, which = self.draw.uniforms(2)
        if others and (success >= self.accuracy or self.right not in options):
            return others[int(which * len(others))]
        return self.right


def _asks_for_agent(slot: Slot) -> bool:
    names = ("next", "agent", "name", "choice", "member")
    return any(name in slot.name.lower() for name in names)
