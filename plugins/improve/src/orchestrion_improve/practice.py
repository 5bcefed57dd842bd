"""Simulate pupils whom some habits help and others harm, and a coach that proposes them.

The right decision is known here, so they show whether an improver makes it. No model is called.
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

Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Category = Literal["sums", "differences"]
TOPICS: tuple[Category, ...] = ("sums", "differences")
ANY = "any"
WHEN = "When the problem is about "


@frozen
class Practice(Task):
    """Sums and differences, half of the problems each. Solved if every turn has the right number.

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
        """Return problems from keys that the splits do not share."""
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
        """Return the share of right turns; solved if all are right."""
        right = str(solution(problem))
        is_right = [t.output.content == right for t in trajectory if t.status == "completed"]
        value = fsum(is_right) / len(is_right) if is_right else 0.0
        return Scores(value, value == 1.0)


def solution(problem: Problem) -> int:
    """Return the right number."""
    first, second = problem.data
    return int(first + second if problem.category == "sums" else first - second)


@frozen
class Pupil(Agent):
    """Is right at a known rate, which instructions and habits change by a known amount.

    Args:
        skill: the rate without instructions and habits.
        effects: by phrase, what it adds to the rate by category, `any` for all others. A phrase
            works if it is in the instructions or in a habit; a phrase with " + " needs all parts.
            A habit that begins "When the problem is about ..." works there only.
        aligned: whether the same key gives the same luck whatever the pupil is told, as in a good
            experiment; models do not have that.
        heeds: whether a habit for one category works there only; if not, it works everywhere.
        cost: cost of a turn.
        dear: by phrase, what it adds to the cost.
        instructions: its instructions.
        habits: its habits.
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
        """Return a number; the key decides whether it is the right one."""
        problem = view.problem
        if problem.category not in TOPICS:
            raise ValueError("pupils work on the task `practice` only")
        luck = key if self.aligned else key.child("told", self.instructions, *self.habits)
        is_right = luck.uniform() < self.rate(problem.category)
        text = "\n".join([self.instructions, *self.habits])
        cost = self.cost + fsum(more for phrase, more in self.dear.items() if phrase in text)
        return Output(str(solution(problem) + (not is_right)), usage=Usage(cost=cost))

    def rate(self, category: str) -> float:
        """Return the rate of right answers on a category."""
        about = f"{WHEN}{category}:"
        habits = [
            habit
            for habit in self.habits
            if not self.heeds or habit.startswith(about) or not habit.startswith(WHEN)
        ]
        text = "\n".join([self.instructions, *habits])
        return self.skill + fsum(
            by.get(category, by.get(ANY, 0.0))
            for phrase, by in self.effects.items()
            if all(part in text for part in phrase.split(" + "))
        )


@frozen
class Idea:
    """Describe a habit that the coach proposes.

    Args:
        habit: its text.
        category: the category it is for.
    """

    habit: str
    category: str = ANY


@frozen
class PracticeCoach(Model):
    """Takes the place of a model that coaches: proposes the habits and lessons of its settings.

    Asked for instructions, it adds its lesson for the category with the lowest reward, or puts the
    lines of two versions together.

    Args:
        habits: the habits it proposes, whatever it reads, but for those tried before.
        lessons: a line for the instructions, by category.
        keeps: whether new instructions keep the present ones.
        garbled: the share of answers that cannot be used.
    """

    habits: Sequence[Idea] = ()
    lessons: Mapping[str, str] = Factory(dict)
    keeps: bool = True
    garbled: Share = 0.0

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Return one answer, through the run's call path."""
        content = {"coach": "practice", "messages": request["messages"]}
        sent = Request("practice", content, sample=key.hex())

        async def do() -> Answer:
            text = self.answer([message["content"] for message in request["messages"]], key)
            return Answer({"text": text, "stop": "end", "tool_calls": []}, Usage(calls=1))

        return await calls.run(sent, do, Usage(calls=1))

    def ceiling(self, tokens: int) -> Usage:
        """Return the bound: one call."""
        return Usage(calls=1)

    def answer(self, messages: Sequence[str], key: Key) -> str:
        """Return the answer to a conversation."""
        if key.uniform() < self.garbled:
            return "Practice makes perfect."
        system, question = messages[0], messages[min(1, len(messages) - 1)]
        if '"habits"' in system:
            return json.dumps({"habits": self._habits(question)})
        return json.dumps({"instructions": self._instructions(question)})

    def _habits(self, question: str) -> list[JSON]:
        [limit] = re.findall(r"Propose at most (\d+) habits", question)
        listed_lines = question.partition("\n\n##")[0].splitlines()
        categories = question.partition("Categories: ")[2].partition("\n")[0].split(", ")
        new = [
            {"category": idea.category, "habit": idea.habit, "replaces": None}
            for idea in self.habits
            if idea.category in categories and not any(idea.habit in line for line in listed_lines)
        ]
        return new[: int(limit)]

    def _instructions(self, question: str) -> str:
        versions = re.findall(r"^~~~\n(.*?)\n~~~$", question, re.M | re.S)
        lines = [line for text in versions for line in text.splitlines() if line != "(none)"]
        if len(versions) == 1:
            pairs = re.findall(r"^## Episode \d+, category (\w+), reward (\S+)$", question, re.M)
            worst = min(pairs, key=lambda pair: float(pair[1]), default=("", ""))[0]
            if worst in self.lessons:
                lines = [*(lines if self.keeps else []), self.lessons[worst]]
        return "\n".join(dict.fromkeys(lines)) or "work well"
