"""Doubles of known worth: pupils whom some habits help and others harm, and a coach for them.

What the right decision is, is known here, so they show whether an improver takes it. No model is
called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Annotated, Any, Literal

from attrs import Factory, frozen

from orchestrion import (
    JSON,
    Agent,
    Answer,
    Calls,
    Key,
    Meta,
    Model,
    Output,
    Problem,
    Request,
    Scores,
    Split,
    Task,
    Trajectory,
    Usage,
    View,
    learnable,
    no_calls,
)

__all__ = ["Idea", "Practice", "PracticeCoach", "Pupil"]

Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Category = Literal["sums", "differences"]
TOPICS: tuple[Category, ...] = ("sums", "differences")
ANY = "any"
WHEN = "When the problem is about "


@frozen
class Practice(Task):
    """Sums and differences, half of the problems each. Solved if every turn says the right number.

    Args:
        train: problems in the training split.
        validation: problems in the validation split.
        test: problems in the test split.
        topics: categories of the problems, in turn.
    """

    train: Count = 32
    validation: Count = 64
    test: Count = 64
    topics: Annotated[Sequence[Category], Meta(min_length=1)] = TOPICS

    def problems(self, split: Split) -> Sequence[Problem]:
        """Drawn from keys that the splits do not share."""
        key = Key(0).child("practice", split)
        return [self._problem(split, n, key.child(n)) for n in range(getattr(self, split))]

    def _problem(self, split: str, n: int, key: Key) -> Problem:
        first, second = (1 + int(99 * draw) for draw in key.uniforms(2))
        topic = self.topics[n % len(self.topics)]
        sign = "+" if topic == "sums" else "-"
        return Problem(f"{split}-{n}", f"{first} {sign} {second}", [first, second], topic)

    ceiling = no_calls

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """The share of turns that are right."""
        right = str(solution(problem))
        said = [turn.output.content == right for turn in trajectory if turn.status == "completed"]
        value = fsum(said) / len(said) if said else 0.0
        return Scores(value, value == 1.0)


def solution(problem: Problem) -> int:
    """The right answer."""
    first, second = problem.data
    return int(first + second if problem.category == "sums" else first - second)


@frozen
class Pupil(Agent):
    """Is right at a known rate. What it is told changes the rate by a known amount.

    Args:
        skill: how often it is right, told nothing.
        effects: by phrase, what it adds to the rate by category, `any` for all others. A phrase
            works if it stands in the instructions or in a habit; one with " + " needs all parts.
            A habit that begins "When the problem is about ..." works there only.
        aligned: whether luck is drawn alike whatever the pupil is told, as a good experiment has
            it; models do not do that.
        heeds: whether it heeds when a habit applies; if not, every habit works everywhere.
        cost: of a turn.
        dear: by phrase, what it adds to the cost if it is told so.
        instructions: what it is told.
        habits: what it is told besides.
    """

    skill: Share = 0.5
    effects: Mapping[str, Mapping[str, float]] = Factory(dict)
    aligned: bool = True
    heeds: bool = True
    cost: Annotated[float, Meta(ge=0)] = 1.0
    dear: Mapping[str, float] = Factory(dict)
    instructions: str = learnable("")
    habits: Sequence[str] = learnable(())

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """A number; whether it is the right one is drawn from the key."""
        problem = view.problem
        if problem.category not in TOPICS:
            raise ValueError("pupils work on the task practice only")
        luck = key if self.aligned else key.child("told", self.instructions, *self.habits)
        right = luck.uniform() < self.rate(problem.category)
        told = "\n".join([self.instructions, *self.habits])
        cost = self.cost + fsum(more for phrase, more in self.dear.items() if phrase in told)
        return Output(str(solution(problem) + (not right)), usage=Usage(cost=cost))

    def rate(self, category: str) -> float:
        """How often it is right on a category."""
        about = f"{WHEN}{category}:"
        told = [self.instructions] + [
            habit
            for habit in self.habits
            if not self.heeds or habit.startswith(about) or not habit.startswith(WHEN)
        ]
        text = "\n".join(told)
        return self.skill + fsum(
            by.get(category, by.get(ANY, 0.0))
            for phrase, by in self.effects.items()
            if all(part in text for part in phrase.split(" + "))
        )


@frozen
class Idea:
    """A habit that the coach proposes.

    Args:
        habit: its text.
        category: what for.
    """

    habit: str
    category: str = ANY


@frozen
class PracticeCoach(Model):
    """Stands where a model would coach: proposes what it is given, in the form that is asked for.

    Asked for instructions, it adds its lesson for the category that went worst, or puts the lines
    of two versions together.

    Args:
        habits: what it proposes, whatever it reads; those tried before it leaves out.
        lessons: a line for the instructions, by category.
        keeps: whether the instructions it writes keep what stood there.
        garbled: how often it answers with something that cannot be used.
    """

    habits: Sequence[Idea] = ()
    lessons: Mapping[str, str] = Factory(dict)
    keeps: bool = True
    garbled: Share = 0.0

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """One answer, through the run's call path."""
        content = {"coach": "practice", "messages": request["messages"]}
        sent = Request("practice", content, sample=key.hex())

        async def do() -> Answer:
            text = self.answer([one["content"] for one in request["messages"]], key)
            return Answer({"text": text, "stop": "end", "tool_calls": []}, Usage(calls=1))

        return await calls.run(sent, do, Usage(calls=1))

    def ceiling(self, tokens: int) -> Usage:
        """One call."""
        return Usage(calls=1)

    def answer(self, messages: Sequence[str], key: Key) -> str:
        """What it says to a conversation."""
        if key.uniform() < self.garbled:
            return "Practice makes perfect."
        system, question = messages[0], messages[min(1, len(messages) - 1)]
        if '"habits"' in system:
            return json.dumps({"habits": self._habits(question)})
        return json.dumps({"instructions": self._instructions(question)})

    def _habits(self, question: str) -> list[JSON]:
        [most] = re.findall(r"Propose at most (\d+) habits", question)
        told = question.partition("\n\n##")[0].splitlines()
        categories = question.partition("Categories: ")[2].partition("\n")[0].split(", ")
        new = [
            {"category": one.category, "habit": one.habit, "replaces": None}
            for one in self.habits
            if one.category in categories and not any(one.habit in line for line in told)
        ]
        return new[: int(most)]

    def _instructions(self, question: str) -> str:
        versions = re.findall(r"^~~~\n(.*?)\n~~~$", question, re.M | re.S)
        lines = [line for text in versions for line in text.splitlines() if line != "(none)"]
        if len(versions) == 1:
            seen = re.findall(r"^## Episode \d+, category (\w+), reward (\S+)$", question, re.M)
            worst = min(seen, key=lambda one: float(one[1]), default=("", ""))[0]
            if worst in self.lessons:
                lines = [*(lines if self.keeps else []), self.lessons[worst]]
        return "\n".join(dict.fromkeys(lines)) or "work well"
