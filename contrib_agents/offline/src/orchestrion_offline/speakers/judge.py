"""Grade work whose real worth is known, with a stated accuracy, noise and biases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import NormalDist
from typing import Annotated, Any

from attrs import frozen

from orchestrion import JSON, Key, Meta
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import Filler, Slot, asked_text, fill, form_of, system_text
from orchestrion_offline.speakers.habits import Share
from orchestrion_offline.speakers.steps import lines_of
from orchestrion_offline.steps import events, leading, sheets_in

_MARK = re.compile(r"^mark: (\S+)$", re.M)
_TURN = re.compile(r"^.*\bbegin turn (\d+)\b.*$", re.M)
_SCALE = r"(-?\d+(?:\.\d+)?) ?(?:to|-|–|\.\.) ?(-?\d+(?:\.\d+)?)"  # noqa: RUF001
_STEP = re.compile(r"in steps of (\d+(?:\.\d+)?)")
_LONG = 2000  # characters at which the length bias is full
Bias = Annotated[float, Meta(ge=-1, le=1)]


@frozen
class Judge(Speaker):
    """Grades a worksheet or code by its real worth, as far as it is accurate.

    Grades have the form that the question asks for: a JSON Schema, or JSON as in an example. A
    plain text ends with `Score: N/10`. Work that is neither a worksheet nor known code is worth a
    half.

    Args:
        accuracy: chance that it looks at the work; else the grade is uniform on the scale. 0 is a
            judge of pure noise.
        noise: standard deviation of a grade, as a share of the scale.
        position_bias: added to the criterion named first and subtracted from the one named last,
            as a share of the scale.
        length_bias: added for a question of 2,000 characters or more, in proportion for a shorter
            one, as a share of the scale.
    """

    accuracy: Share = 1.0
    noise: Annotated[float, Meta(ge=0)] = 0.05
    position_bias: Bias = 0.0
    length_bias: Bias = 0.0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        text = asked_text(request)
        looks = draw.child("looks").uniform() < self.accuracy
        worth = quality(text) if looks else None
        bonus = self.length_bias * min(len(text) / _LONG, 1.0)
        grades = _Grades(self, worth, bonus, draw, system_text(request), text)
        form = form_of(request)
        if form is None:
            return Answer(f"Score: {grades.grade('score', 0, 10):g}/10")
        return Answer(fill(form, grades))


@frozen
class _Grades(Filler):
    judge: Judge
    worth: float | None
    bonus: float
    draw: Key
    instructions: str
    question: str

    def text(self, slot: Slot) -> str | None:
        if slot.name == "mark":
            return next(iter(_MARK.findall(self.question)), "")
        example = str(slot.schema.get("example", ""))
        if "as text" in self._about(slot) or re.fullmatch(r"\d+/\d+", example):
            return f"{self.number(slot):g}/{self._scale(slot)[1]:g}"
        return "This is what I saw in the work."

    def number(self, slot: Slot) -> float:
        low, high = self._scale(slot)
        step = 1.0 if slot.schema.get("type") == "integer" else self._step(slot)
        return self.grade(slot.name, low, high, step, self._order(slot))

    def choice(self, slot: Slot, options: list[Any]) -> Any:
        if all(isinstance(option, int | float) for option in options):
            grade = self.number(slot)
            return min(options, key=lambda option: abs(option - grade))
        grade = self.grade(slot.name, 0, len(options) - 1, 1.0, self._order(slot))
        return options[len(options) - 1 - round(grade)]  # the best verdict is the first option

    def grade(
        self, name: str, low: float, high: float, step: float = 0.0, order: float = 0.0
    ) -> float:
        """Return a grade from `low` to `high`; `order` is as from `_order`."""
        share, error = self.draw.child("grade", name).uniforms(2)
        if self.worth is not None:
            deviation = NormalDist().inv_cdf(min(max(error, 1e-9), 0.999999))
            share = self.worth + self.judge.noise * deviation
        share += self.bonus + order * self.judge.position_bias
        value = low + (high - low) * min(max(share, 0.0), 1.0)
        if step:
            value = low + round((value - low) / step) * step
        return min(max(round(value, 2), low), high)

    @property
    def _all(self) -> str:
        return f"{self.instructions}\n{self.question}"

    def _about(self, slot: Slot) -> str:
        """Return the description of a grade: in the schema, and in a list in the question."""
        row = re.search(rf"^- {re.escape(slot.name)} \(([^)]*)\)", self._all, re.M)
        return f"{slot.schema.get('description', '')} {row[1] if row else ''}"

    def _scale(self, slot: Slot) -> tuple[float, float]:
        numbers = [value for value in slot.schema.get("enum", ()) if isinstance(value, int | float)]
        if numbers:
            return min(numbers), max(numbers)
        low, high = slot.schema.get("minimum"), slot.schema.get("maximum")
        if low is not None and high is not None:
            return float(low), float(high)
        match = re.search(_SCALE, self._about(slot)) or re.search(_SCALE, self._all)
        return (float(match[1]), float(match[2])) if match else (0.0, 10.0)

    def _step(self, slot: Slot) -> float:
        about = self._about(slot)
        match = _STEP.search(about)
        return float(match[1]) if match else 1.0 if "integer" in about else 0.0

    def _order(self, slot: Slot) -> float:
        """Return 1 for the criterion that is named first, -1 for the last, 0 for a single one."""
        if slot.siblings < 2 or not self.judge.position_bias:
            return 0.0
        listed = re.findall(r"^- ([\w-]+) \(", self._all, re.M)
        if slot.name in listed and len(listed) > 1:
            return 1 - 2 * listed.index(slot.name) / (len(listed) - 1)
        return 1 - 2 * slot.index / (slot.siblings - 1)


def quality(text: str) -> float:
    """Return the worth, 0 to 1, of the worksheet or the known code in a question."""
    if not sheets_in(text):
        from orchestrion_offline.speakers.coder import worth_of

        return worth_of(text)
    ordered = _by_turn(text)
    sheet, done = lines_of(ordered)
    if done.lines:
        return leading(sheet, done.lines) / len(sheet.steps)
    # The question may show the last line alone.
    shown = [(number, value) for number, value in events(ordered) if value is not None]
    number, value = shown[-1] if shown else (0, None)
    return float(0 < number <= len(sheet.steps) and sheet.values[number - 1] == value)


def _by_turn(text: str) -> str:
    """Return a transcript with its numbered turns in their order."""
    heads = list(_TURN.finditer(text))
    if len(heads) < 2:
        return text
    ends = [head.start() for head in heads[1:]] + [len(text)]
    turns = [
        (int(head[1]), text[head.start() : end]) for head, end in zip(heads, ends, strict=True)
    ]
    turns.sort(key=lambda turn: turn[0])
    return text[: heads[0].start()] + "".join(turn for _, turn in turns)
