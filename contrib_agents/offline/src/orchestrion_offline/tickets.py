"""Sort support tickets into five categories: the task `tickets` and the speaker `clerk`.

A team answers in contents, in the form `Category: delivery`; the last answer counts. Tickets are
generated.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from attrs import field, frozen

from orchestrion import (
    JSON,
    Calls,
    Key,
    Meta,
    Observation,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    no_calls,
)
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import asked_text

COMPLAINTS: dict[str, tuple[str, ...]] = {
    "billing": (
        "I was charged twice for one order",
        "The invoice shows a wrong amount",
        "My card was debited after I cancelled",
        "The discount is missing on the receipt",
    ),
    "delivery": (
        "The parcel has been on its way for three weeks",
        "The courier left it at the wrong door",
        "Tracking has not moved since Monday",
        "Half of the boxes never arrived",
    ),
    "account": (
        "I cannot sign in any more",
        "The code to confirm my address never comes",
        "Please close my profile",
        "Somebody else uses my login",
    ),
    "technical": (
        "The app stops when I open the camera",
        "The update makes the screen go black",
        "It does not pair with my phone",
        "The battery is empty after an hour",
    ),
    "returns": (
        "I want to send the shoes back",
        "The label for the parcel back does not print",
        "How long may I try it before it goes back",
        "It came broken and I want another one",
    ),
}
CATEGORIES = tuple(COMPLAINTS)
KNOWN = {complaint: name for name, complaints in COMPLAINTS.items() for complaint in complaints}
OPENINGS = ("Hello,", "Dear team,", "Hi there,", "To whom it may concern,", "Good morning,")
MIDDLES = (
    "I have been a customer for years.",
    "I wrote last week already.",
    "This is the second time.",
    "It was a present for my sister.",
    "I did as the page says.",
)
CLOSINGS = ("Please help.", "What can I do?", "I am waiting.", "Thank you.", "Best regards.")
RULES = f"Sort this ticket. Answer `Category: NAME`, one of {', '.join(CATEGORIES)}."
_ANSWER = re.compile(r"\bcategory: *([a-z][\w-]*)", re.IGNORECASE)


@frozen
class Tickets(Task):
    """Tickets to sort; solved if the last answer is the right category.

    Args:
        seed: another seed generates other tickets.
        train: generated tickets for training.
        validation: for validation.
        test: for the test.
    """

    seed: int = 0
    train: Annotated[int, Meta(ge=0, le=100_000)] = 20
    validation: Annotated[int, Meta(ge=0, le=100_000)] = 0
    test: Annotated[int, Meta(ge=0, le=100_000)] = 200

    ceiling = no_calls

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the tickets of a split."""
        return [self._generated(split, n) for n in range(getattr(self, split))]

    def _generated(self, split: Split, n: int) -> Problem:
        key = Key(self.seed).child("tickets", split, n)
        category = CATEGORIES[n % len(CATEGORIES)]
        parts = (OPENINGS, MIDDLES, COMPLAINTS[category], CLOSINGS)
        opening, middle, complaint, closing = (
            part[int(u * len(part))] for part, u in zip(parts, key.uniforms(4), strict=True)
        )
        text = f"{opening} {middle} {complaint}. {closing}"
        return _problem(text, category, f"{split}-{n + 1}")

    def problem_from(self, text: str) -> Problem:
        """Return a ticket of unknown category."""
        return _problem(text, "", "input")

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the state without an answer."""
        return _after(())

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return the answers after a turn."""
        answer = answer_in(turn.output.content) if turn.status == "completed" else ""
        return _after((*state, answer) if answer else state)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return whether the last answer is right, at any time of an episode."""
        right = bool(state) and state[-1] == problem.hidden
        return Scores(float(right), right)


def answer_in(text: str) -> str:
    """Return the last category that a text gives as answer, in lower case; "" if it gives none."""
    answers = _ANSWER.findall(text)
    return answers[-1].lower() if answers else ""


def category_of(text: str, known: Mapping[str, str] = KNOWN) -> str:
    """Return the category of the last known ticket in a text; "" if there is none."""
    last = max(known, key=text.rfind)
    return known[last] if last in text else ""


def _after(answers: tuple[str, ...]) -> Step:
    votes = Counter(answers)
    leading = max(votes.values(), default=0)
    features = (
        float(bool(answers)),
        min(1.0, len(answers) / 4),
        leading / max(1, len(answers)),
        float(len(answers) > 1 and votes[answers[-1]] == leading),
        *(float(bool(answers) and answers[-1] == name) for name in CATEGORIES),
    )
    counts = ", ".join(f"{name} {count}" for name, count in votes.items())
    return Step(answers, Observation(f"Answers: {counts or 'none'}.", dict(votes), features))


def _problem(text: str, category: str, name: str) -> Problem:
    return Problem(name, f"{text}\n\n{RULES}", hidden=category)


@cache
def _questions(path: Path) -> dict[str, str]:
    """Return the answers of a file by its questions, these without the mark at their end.

    Raises:
        ValueError: it cannot be read, or has no such columns.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        known = {row["question"].strip().rstrip(".?!"): row["answer"].strip() for row in rows}
    except (OSError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise ValueError(
            f"speaker clerk: {path} is no CSV file with the columns `question` and `answer`: "
            f"{type(error).__name__}: {error}"
        ) from None
    if not known:
        raise ValueError(f"speaker clerk: {path} has no rows")
    return known


@frozen
class Clerk(Speaker):
    """Names the category of a generated ticket, right at a known rate.

    Every request is drawn independently, so it may err again.

    Args:
        file: a CSV file with the columns `question` and `answer`; the clerk knows its questions
            instead of the generated tickets, and an answer is what it calls their category.
        skills: chance of the right answer, by category.
        skill: for categories that `skills` does not name.
        checks: chance that it sees whether the answer before its own is right, and then answers
            rightly; 0 is a clerk that does not read other answers.
    """

    file: Path | None = None
    skills: Mapping[str, Annotated[float, Meta(ge=0, le=1)]] = field(factory=dict)
    skill: Annotated[float, Meta(ge=0, le=1)] = 0.7
    checks: Annotated[float, Meta(ge=0, le=1)] = 0.0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        text = asked_text(request)
        known = KNOWN if self.file is None else _questions(self.file)
        category = category_of(text, known)
        if not category:
            names = "the made-up tickets of task `tickets`" if self.file is None else str(self.file)
            raise ValueError(
                f"the speaker clerk knows only {names}; give it a `file` of questions and answers, "
                "or write a speaker (docs/offline.md, A speaker of your own)"
            )
        success, which, check = draw.uniforms(3)
        checked = bool(answer_in(text.rpartition("one of")[2])) and check < self.checks
        if not checked and success >= self.skills.get(category, self.skill):
            others = [name for name in dict.fromkeys(known.values()) if name != category]
            others = others or ["unknown"]
            category = others[int(which * len(others))]
        return Answer(f"Category: {category}")
