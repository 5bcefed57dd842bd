"""Generated problems, and the model `math-teacher`, which solves them with mistakes."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Literal

from attrs import Attribute, field, frozen

from orchestrion import (
    JSON,
    Answer,
    CallError,
    Calls,
    Key,
    Meta,
    Model,
    Problem,
    Split,
    Usage,
    UsageError,
    no_calls,
)

Count = Annotated[int, Meta(ge=0)]
NAMES = "Ada Bo Cleo Dan Eve Finn Gus Hana Ida Jon Kim Lea".split()
THINGS = "apples coins stamps shells books pens cards stones".split()
PHRASES = {"+": "gets {} more", "-": "gives {} away", "*": "makes it {} times as many"}
"""The words of a story, by operator."""

_STEP = re.compile(r"gets (\d+) more|gives (\d+) away|makes it (\d+) times")
TRIES = 100
"""Draws for each wanted problem, after which there are not enough different ones."""


@frozen
class Arithmetic:
    """Generated problems.

    Args:
        form: `symbols`, as in "12+7", or a `story` in several steps.
        operators: which of + - *; in symbols, * goes first.
        digits: the most digits of a number.
        steps: operators in a problem.
        negative: whether results may be below zero.
        reverse: answers are written with the last digit first, which small models learn sooner:
            a sum is computed from its last digit on.
        padded: numbers in symbols have leading zeros up to `digits`, as in "07+12", so that every
            digit has a fixed position in the prompt.
        train: training problems.
        validation: validation problems.
        test: test problems.
        seed: of the problems.
    """

    form: Literal["symbols", "story"] = "symbols"
    operators: str = field(default="+-")
    digits: Annotated[int, Meta(ge=1, le=9)] = 2
    steps: Annotated[int, Meta(ge=1, le=8)] = 1
    negative: bool = False
    reverse: bool = False
    padded: bool = field(default=False)
    train: Count = 2048
    validation: Count = 128
    test: Count = 512
    seed: int = 0

    @operators.validator
    def _check(self, attribute: Attribute[str], value: str) -> None:
        if not value or not set(value) <= set(PHRASES) or len(set(value)) < len(value):
            raise ValueError(f"operators: got {value!r}; want some of + - *, each once")

    @padded.validator
    def _check_padded(self, attribute: Attribute[bool], value: bool) -> None:
        if value and self.form == "story":
            raise ValueError("does nothing in a story, which tells numbers as people do")


def generate(settings: Arithmetic) -> dict[Split, tuple[Problem, ...]]:
    """Return the problems of every split; none is in two.

    Raises:
        UsageError: there are not enough different ones.
    """
    made: dict[Split, tuple[Problem, ...]] = {}
    seen: set[str] = set()
    # Training problems come last, so that their number does not change the other splits.
    order: Sequence[Split] = ("test", "validation", "train")
    for split in order:
        size = getattr(settings, split)
        problems: list[Problem] = []
        for n in range(TRIES * (size + 20)):
            if len(problems) == size:
                break
            text = _draw(settings, Key(settings.seed).child("arithmetic", split, n).random())
            if text and text not in seen:
                seen.add(text)
                answer = {"answer": str(solve(text)), "reverse": settings.reverse}
                name = f"{split}-{len(problems) + 1}"
                problems.append(Problem(name, text, category=settings.form, hidden=answer))
        if len(problems) < size:
            raise UsageError(
                f"task math: generated: only {len(seen)} different problems were found, which is "
                f"not enough for {split}: {size}; allow more digits, steps or operators"
            )
        made[split] = tuple(problems)
    return made


def _draw(settings: Arithmetic, draw: random.Random) -> str:
    """Return a problem; "" if its result is negative and must not be."""
    numbers = [draw.randrange(10**settings.digits) for _ in range(settings.steps + 1)]
    signs = [draw.choice(settings.operators) for _ in range(settings.steps)]
    if settings.form == "story":
        text = _story(numbers, signs, draw)
        low = _lowest(numbers, signs)
    else:
        pairs = zip(signs, numbers[1:], strict=True)
        width = settings.digits if settings.padded else 1
        text = f"{numbers[0]:0{width}}" + "".join(
            f"{sign}{number:0{width}}" for sign, number in pairs
        )
        low = solve(text)
    return "" if low < 0 and not settings.negative else text


def _story(numbers: Sequence[int], signs: Sequence[str], draw: random.Random) -> str:
    name, things = draw.choice(NAMES), draw.choice(THINGS)
    steps = [PHRASES[sign].format(number) for sign, number in zip(signs, numbers[1:], strict=True)]
    story = ". ".join(f"{'Then ' if i else ''}{name} {step}" for i, step in enumerate(steps))
    return f"{name} has {numbers[0]} {things}. {story}. How many {things} does {name} have now?"


def _lowest(numbers: Sequence[int], signs: Sequence[str]) -> int:
    """Return the lowest number that occurs in a story."""
    totals = [numbers[0]]
    for sign, number in zip(signs, numbers[1:], strict=True):
        totals.append(_apply(totals[-1], sign, number))
    return min(totals)


def _apply(left: int, sign: str, right: int) -> int:
    if sign == "*":
        return left * right
    return left + right if sign == "+" else left - right


def solve(text: str) -> int:
    """Return the answer to a generated problem.

    Raises:
        ValueError: the text is no generated problem.
    """
    if re.fullmatch(r"\d+(?:[-+*]\d+)+", text):
        return _value(text)
    if " has " not in text:
        raise ValueError(f"{text[:80]!r} is no generated problem")
    start, _, rest = text.partition(". ")
    now = int(start.split()[2])
    for more, less, times in _STEP.findall(rest):
        sign, number = ("+", more) if more else ("-", less) if less else ("*", times)
        now = _apply(now, sign, int(number))
    return now


def _value(text: str) -> int:
    """Return the value: products first, then from left to right."""
    total = 0
    for sign, product in re.findall(r"([-+]?)(\d+(?:\*\d+)*)", text):
        value = prod(map(int, product.split("*")))
        total += -value if sign == "-" else value
    return total


Share = Annotated[float, Meta(ge=0, le=1)]
_PROMPT = re.compile(r"([SV])(?:\d+:)?(.+?)=(.*?)\??", re.S)


@frozen
class MathTeacher(Model):
    """Plays solver and verifier of generated problems with stated mistakes, to learn from.

    A prompt for the solver is "S", the problem and "="; one for the verifier is "V", the problem,
    "=", the solver's answer and "?". After the first letter there may be a number and ":".

    Args:
        reverse: answers are written with the last digit first.
        wrong_answer: how often the solver gets some digit wrong.
        wrong_verdict: how often the verifier says the opposite.
        approve: what the verifier says of a right answer.
        reject: what it says of a wrong one.
    """

    reverse: bool = False
    wrong_answer: Share = 0.5
    wrong_verdict: Share = 0.25
    approve: str = "y"
    reject: str = "n"

    ceiling = no_calls

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Return one answer, or one verdict."""
        prompt = str(request["messages"][-1]["content"])
        match = _PROMPT.fullmatch(prompt)
        try:
            if match is None:
                raise ValueError(f"{prompt[:80]!r} is not S or V, a problem, and '='")
            right = str(solve(match[2]))
        except ValueError as error:
            raise CallError(f"math-teacher: {error}", "permanent") from error
        text = self._say(match[1], right, match[3], key.random())
        return Answer({"text": text, "stop": "end", "tool_calls": [], "model": "teacher"}, Usage())

    def _say(self, role: str, right: str, answer: str, draw: random.Random) -> str:
        if role == "V":
            wrong = (answer[::-1] if self.reverse else answer) != right
            if draw.random() < self.wrong_verdict:
                wrong = not wrong
            return self.reject if wrong else self.approve
        text = _mistaken(right, draw) if draw.random() < self.wrong_answer else right
        return text[::-1] if self.reverse else text


def _mistaken(right: str, draw: random.Random) -> str:
    """Return the same with one digit changed."""
    at = draw.choice([i for i, other in enumerate(right) if other.isdigit()])
    digit = draw.choice([other for other in "0123456789" if other != right[at]])
    return right[:at] + digit + right[at + 1 :]
