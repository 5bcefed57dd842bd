"""The task `tickets`: letters to a support desk, each to be sorted into one of five categories.

A team answers in contents, in the form `Category: delivery`; the last answer counts. Tickets are
made up, or come from a file of your own:

    {"text": "The parcel came to the wrong door.", "category": "delivery", "split": "train"}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from attrs import frozen

from orchestrion import (
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
    UsageError,
    no_calls,
)

__all__ = ["CATEGORIES", "Tickets", "answer_in", "category_of"]

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


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file.

    Args:
        text: what the customer writes.
        category: the right one, which only the verifier sees.
        id: its name; by default its line.
        split: where it belongs; by default three of five are for training, one each for the others.
    """

    text: str
    category: str
    id: str = ""
    split: Split | None = None


@frozen
class Tickets(Task):
    """Tickets to sort; solved if the last answer is the right category.

    Args:
        file: tickets of your own as JSON lines with `text` and `category`; by default made up.
        seed: other made-up tickets.
        train: made-up tickets for training.
        validation: for validation.
        test: for the test.
    """

    file: Path | None = None
    seed: int = 0
    train: Annotated[int, Meta(ge=0, le=100_000)] = 20
    validation: Annotated[int, Meta(ge=0, le=100_000)] = 0
    test: Annotated[int, Meta(ge=0, le=100_000)] = 200

    ceiling = no_calls

    def problems(self, split: Split) -> Sequence[Problem]:
        """The tickets of a split."""
        if self.file is not None:
            return _read(self.file)[split]
        return [self._made(split, n) for n in range(getattr(self, split))]

    def _made(self, split: Split, n: int) -> Problem:
        key = Key(self.seed).child("tickets", split, n)
        category = CATEGORIES[n % len(CATEGORIES)]
        parts = (OPENINGS, MIDDLES, COMPLAINTS[category], CLOSINGS)
        opening, middle, complaint, closing = (
            part[int(u * len(part))] for part, u in zip(parts, key.uniforms(4), strict=True)
        )
        text = f"{opening} {middle} {complaint}. {closing}"
        return _problem(Ticket(text, category, f"{split}-{n + 1}"))

    def problem_from(self, text: str) -> Problem:
        """A ticket as it was written; nobody knows its category."""
        return _problem(Ticket(text, "", "input"))

    def start(self, problem: Problem, key: Key) -> Step:
        """Nobody has answered."""
        return _shown(())

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """The answers after a turn."""
        answer = answer_in(turn.output.content) if turn.status == "completed" else ""
        return _shown((*state, answer) if answer else state)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Whether the last answer is right; the same at any time."""
        right = bool(state) and state[-1] == problem.hidden
        return Scores(float(right), right)


def answer_in(text: str) -> str:
    """The last category that a text answers with, in lower case; "" if it has none."""
    found = _ANSWER.findall(text)
    return found[-1].lower() if found else ""


def category_of(text: str) -> str:
    """The category of a made-up ticket, wherever it stands in a text; "" for any other."""
    places = {
        text.rfind(complaint): category
        for category, complaints in COMPLAINTS.items()
        for complaint in complaints
    }
    last = max(places)
    return places[last] if last >= 0 else ""


def _shown(answers: tuple[str, ...]) -> Step:
    votes = Counter(answers)
    leading = max(votes.values(), default=0)
    features = (
        float(bool(answers)),
        min(1.0, len(answers) / 4),
        leading / max(1, len(answers)),
        float(len(answers) > 1 and votes[answers[-1]] == leading),
        *(float(bool(answers) and answers[-1] == name) for name in CATEGORIES),
    )
    said = ", ".join(f"{name} {count}" for name, count in votes.items())
    return Step(answers, Observation(f"Answers: {said or 'none'}.", dict(votes), features))


def _problem(ticket: Ticket, name: str = "") -> Problem:
    text = f"{ticket.text}\n\n{RULES}"
    return Problem(ticket.id or name, text, hidden=ticket.category.lower())


def _read(path: Path) -> dict[Split, list[Problem]]:
    """The tickets of a file by split.

    Raises:
        UsageError: it cannot be read, with the line.
    """
    found: dict[Split, list[Problem]] = {"train": [], "validation": [], "test": []}
    turn: tuple[Split, ...] = ("train", "validation", "train", "test", "train")
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"task tickets: {path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            ticket = msgspec.json.decode(line, type=Ticket)
        except msgspec.MsgspecError as error:
            raise UsageError(f"task tickets: {path}, line {number}: {error}") from None
        split = ticket.split or turn[(number - 1) % len(turn)]
        found[split].append(_problem(ticket, f"{number}"))
    return found
