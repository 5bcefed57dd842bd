"""Answers of models: read strictly, asked once more, never guessed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from orchestrion_improve.asking import UnusableError, ask, read_object
from orchestrion_improve.habits import Habit
from orchestrion_improve.proposing import Candidate, read_habits
from orchestrion_improve.writing import read_instructions

from orchestrion import JSON, Answer, CallError, Calls, Fault, Key, Model
from orchestrion._session import EngineSession
from orchestrion.testing import Fixed, ScriptedAgent, engine_for

OLD = Habit("anna", "any", "old")
GOOD = {"habits": [{"category": "sums", "habit": "Carry the one.", "replaces": None}]}


class Says(Model):
    """Gives its answers in order."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Sequence[Mapping[str, JSON]]]] = []

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Return the next answer."""
        self.asked.append((key.hex(), request["messages"]))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        text, stop = answer if isinstance(answer, tuple) else (answer, "end")
        return Answer({"text": text, "stop": stop})


def asked(model: Says) -> tuple[list[Candidate] | None, dict[str, int]]:
    """What is read, and what is counted."""
    engine = engine_for({"a": ScriptedAgent()}, Fixed())
    session = EngineSession(engine, "s", Key(1), Key(2))
    read = lambda text: read_habits(text, "anna", ["sums"], [OLD], 2)  # noqa: E731
    counts: Counter[str] = Counter()
    value = asyncio.run(ask(model, session, Key(3), "s", "q", read, 100, counts))
    return value, dict(counts)


def test_a_good_answer_is_asked_for_once() -> None:
    model = Says(json.dumps(GOOD))
    assert asked(model) == ([Candidate(Habit("anna", "sums", "Carry the one."))], {})
    assert len(model.asked) == 1


def test_one_fence_around_the_answer_does_no_harm() -> None:
    assert asked(Says(f"```json\n{json.dumps(GOOD)}\n```"))[0] is not None


def test_an_unusable_answer_is_asked_again_with_the_reason() -> None:
    model = Says("Carry the one!", json.dumps(GOOD))
    value, counts = asked(model)
    assert value is not None
    assert counts == {"unusable": 1}
    (first, _), (second, messages) = model.asked
    assert first != second
    assert messages[-2]["content"] == "Carry the one!"
    assert "not JSON" in messages[-1]["content"]


@pytest.mark.parametrize("second", ["no", ("{", "length"), ("", "refused")])
def test_after_two_unusable_answers_there_is_no_value(second: Any) -> None:
    assert asked(Says("no", second)) == (None, {"unusable": 2})


@pytest.mark.parametrize("fault", ["transient", "rate_limit", "malformed"])
def test_a_failed_call_is_counted_and_not_text(fault: Fault) -> None:
    assert asked(Says(CallError("down", fault))) == (None, {"failed": 1})


def test_a_request_that_is_wrong_ends_the_run() -> None:
    with pytest.raises(CallError, match="no such model"):
        asked(Says(CallError("no such model", "permanent")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not a JSON object"),
        ("{}", "lacks 'habits'"),
        ('{"habits": {}}', "not a list"),
        ('{"habits": [], "habits": []}', "twice"),
        ('{"habits": [], "more": 1}', "'more'"),
        ('{"habits": [NaN]}', "NaN"),
        ('{"habits": []} or {"habits": []}', "not JSON"),
        ('{"habits": ["Carry."]}', "habit 1 is not an object"),
        ('{"habits": [{"habit": "x"}]}', "lacks 'category'"),
        ('{"habits": [{"habit": "x", "category": "poems"}]}', "none of those listed"),
        ('{"habits": [{"habit": "", "category": "any"}]}', "habit 1 is empty"),
        ('{"habits": [{"habit": 7, "category": "any"}]}', "must be text"),
        ('{"habits": [{"habit": "a\\nb", "category": "any"}]}', "one line"),
        ('{"habits": [{"habit": "x", "category": "any", "replaces": "y"}]}', "present habits"),
        ('{"habits": [{"habit": "x", "category": "any", "why": 1}]}', "'why'"),
        (json.dumps({"habits": GOOD["habits"] * 3}), "2 is the most"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_habits_are_read_strictly(text: str, message: str) -> None:
    with pytest.raises(UnusableError, match=message):
        read_habits(text, "anna", ["sums"], [OLD], 2)


def test_a_habit_may_take_the_place_of_a_present_one() -> None:
    row = {"category": "any", "habit": " new ", "replaces": "old"}
    proposals = read_habits(json.dumps({"habits": [row]}), "anna", [], [OLD], 2)
    assert proposals == [Candidate(Habit("anna", "any", "new"), OLD)]


@pytest.mark.parametrize("text", ['{"instructions": ""}', '{"instructions": 3}', "x", "{}"])
def test_instructions_are_read_strictly(text: str) -> None:
    with pytest.raises(UnusableError):
        read_instructions(text, 10)
    with pytest.raises(UnusableError, match="10 is the most"):
        read_instructions('{"instructions": "far too long for that"}', 10)
    assert read_instructions('{"instructions": " short "}', 10) == "short"


def test_an_object_has_just_the_names_asked_for() -> None:
    assert read_object('{"a": 1, "b": null}', ["a", "b"]) == {"a": 1, "b": None}
