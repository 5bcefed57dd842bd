"""Who grades work: it knows how good the work is, and says so with stated faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import NormalDist
from typing import Annotated, Any

from attrs import field, frozen

from orchestrion import JSON, Key, Meta
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import asked_text, mentioned, system_text
from orchestrion_offline.shaped import Filler, Place, filled, form_of
from orchestrion_offline.speakers.skills import Share
from orchestrion_offline.speakers.steps import lines_of
from orchestrion_offline.worksheet import events, leading, sheets_in

__all__ = ["Judge", "quality"]

_MARK = re.compile(r"^mark: (\S+)$", re.M)
_TURN = re.compile(r"^.*\bbegin turn (\d+)\b.*$", re.M)
_SCALE = r"(-?\d+(?:\.\d+)?) ?(?:to|-|–|\.\.) ?(-?\d+(?:\.\d+)?)"  # noqa: RUF001
_STEP = re.compile(r"in steps of (\d+(?:\.\d+)?)")
_LONG = 2000  # characters at which the length bias is full


@frozen
class Judge(Speaker):
    """Grades a worksheet or code by what it is really worth, as far as it is accurate.

    Grades have the form that the question wants: by its JSON Schema, or the JSON it shows. A plain
    text ends with `Score: N/10`. What it can neither read as a worksheet nor as known code, it
    takes for half good.

    Args:
        accuracy: how often it looks at the work; else its grades are any on the scale. 0 is a
            judge that is nothing but noise.
        noise: deviation of a grade, as a share of the scale.
        position_bias: added to what the question names first, taken from what it names last, as a
            share of the scale.
        length_bias: added where the question has 2,000 characters or more, less for a shorter one,
            as a share of the scale.
        marks: what works that have a phrase are worth, 0 to 1, whatever else is in them.
    """

    accuracy: Share = 1.0
    noise: Annotated[float, Meta(ge=0)] = 0.05
    position_bias: Annotated[float, Meta(ge=-1, le=1)] = 0.0
    length_bias: Annotated[float, Meta(ge=-1, le=1)] = 0.0
    marks: Mapping[str, Share] = field(factory=dict)

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        text = asked_text(request)
        worth = next((w for part, w in self.marks.items() if mentioned(part, text)), None)
        known = worth if worth is not None else quality(text)
        looks = draw.child("looks").uniform() < self.accuracy
        long = self.length_bias * min(len(text) / _LONG, 1.0)
        form = form_of(request)
        grading = _Grading(self, known if looks else None, long, request, draw)
        if form is None:
            return Answer(f"Score: {grading.on_scale('score', 0, 10, 0.0, 0):g}/10")
        return Answer(filled(form, grading))


class _Grading(Filler):
    def __init__(
        self,
        judge: Judge,
        worth: float | None,
        bonus: float,
        request: Mapping[str, JSON],
        draw: Key,
    ) -> None:
        self.judge, self.worth, self.bonus, self.draw = judge, worth, bonus, draw
        self.told = f"{system_text(request)}\n{asked_text(request)}"
        self.mark = next(iter(_MARK.findall(asked_text(request))), "")

    def text(self, place: Place) -> str | None:
        """The mark, a grade in words, or a reason."""
        if place.name == "mark":
            return self.mark
        about = self._about(place)
        if "as text" in about or re.fullmatch(r"\d+/\d+", str(place.schema.get("example", ""))):
            _, high = self._scale(place)
            return f"{self._grade(place):g}/{high:g}"
        return "This is what I saw in the work."

    def number(self, place: Place) -> float:
        """A grade."""
        return self._grade(place)

    def choice(self, place: Place, options: list[Any]) -> Any:
        """The grade nearest to what it means, of numbers; else the best verdict for the best."""
        if all(isinstance(one, int | float) for one in options):
            grade = self._grade(place)
            return min(options, key=lambda one: abs(one - grade))
        grade = self.on_scale(place.name, 0, len(options) - 1, 1.0, self._order(place))
        return options[len(options) - 1 - round(grade)]  # the best is named first

    def _grade(self, place: Place) -> float:
        low, high = self._scale(place)
        step = 1.0 if place.schema.get("type") == "integer" else self._step(place)
        return self.on_scale(place.name, low, high, step, self._order(place))

    def on_scale(self, name: str, low: float, high: float, step: float, order: float) -> float:
        """A grade between two numbers; `order` is 1 for what is named first, -1 for the last."""
        luck, error = self.draw.child("grade", name).uniforms(2)
        if self.worth is None:
            share = luck
        else:
            share = self.worth + self.judge.noise * NormalDist().inv_cdf(
                min(max(error, 1e-9), 0.999999)
            )
        share += self.bonus + order * self.judge.position_bias
        value = low + (high - low) * min(max(share, 0.0), 1.0)
        if step:
            value = low + round((value - low) / step) * step
        return min(max(round(value, 2), low), high)

    def _about(self, place: Place) -> str:
        """What is said of a grade: by the schema, or in a list in the instructions."""
        row = re.search(rf"^- {re.escape(place.name)} \(([^)]*)\)", self.told, re.M)
        return f"{place.about} {row[1] if row else ''}"

    def _scale(self, place: Place) -> tuple[float, float]:
        numbers = [one for one in place.schema.get("enum", ()) if isinstance(one, int | float)]
        if numbers:
            return min(numbers), max(numbers)
        low, high = place.schema.get("minimum"), place.schema.get("maximum")
        if low is not None and high is not None:
            return float(low), float(high)
        found = re.search(_SCALE, self._about(place)) or re.search(_SCALE, self.told)
        return (float(found[1]), float(found[2])) if found else (0.0, 10.0)

    def _step(self, place: Place) -> float:
        about = self._about(place)
        found = _STEP.search(about)
        return float(found[1]) if found else 1.0 if "integer" in about else 0.0

    def _order(self, place: Place) -> float:
        """1 for what the question names first, -1 for what it names last, 0 for what is alone."""
        if place.among < 2 or not self.judge.position_bias:
            return 0.0
        listed = re.findall(r"^- ([\w-]+) \(", self.told, re.M)
        if place.name in listed and len(listed) > 1:
            return 1 - 2 * listed.index(place.name) / (len(listed) - 1)
        return 1 - 2 * place.index / (place.among - 1)


def quality(text: str) -> float:
    """What the work in a question is worth, 0 to 1: of a worksheet, or of code that is known."""
    sheets = sheets_in(text)
    if not sheets:
        from orchestrion_offline.speakers.code_known import worth_of

        return worth_of(text)
    ordered = _in_order(text)
    sheet, done = lines_of(ordered)
    if not done.lines:  # only the last line may be shown
        said = [(number, value) for number, value in events(ordered) if value is not None]
        number, value = said[-1] if said else (0, None)
        return float(0 < number <= len(sheet.steps) and sheet.values[number - 1] == value)
    return leading(sheet, done.lines) / len(sheet.steps)


def _in_order(text: str) -> str:
    """A transcript whose turns are numbered, in their order, whichever way it is shown."""
    found = list(_TURN.finditer(text))
    if len(found) < 2:
        return text
    ends = [one.start() for one in found[1:]] + [len(text)]
    turns = [(int(one[1]), text[one.start() : end]) for one, end in zip(found, ends, strict=True)]
    return text[: found[0].start()] + "".join(part for _, part in sorted(turns, key=lambda t: t[0]))
