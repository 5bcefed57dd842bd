"""The task `lookup`: the smallest question that a team must search for before it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from attrs import evolve, frozen

from orchestrion import (
    JSON,
    Answer,
    CallError,
    Calls,
    Key,
    Meta,
    Model,
    Observation,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    Usage,
    no_calls,
)
from orchestrion_search.answers import value_of

DIGITS, LETTERS = "0123456789", "abcdefgh"
WITHOUT, WITH_ONE = 0.30, 0.35
"""Shares of questions with no and with one letter; the rest have two."""

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


@frozen
class _State:
    shown: str
    table: str
    """The digit of each letter."""
    rounds: int = 0
    answer: str = ""


@frozen
class Lookup(Task):
    """Which of x and y is larger? Letters stand for digits that must be looked up.

    A question is "xMy". In each of at most `rounds` rounds the verifier says whether enough is
    known ("y") or not ("n"). Then the searcher names a letter, which is replaced by its digit in
    the question, or the answerer says a digit and the episode ends. It is solved if that digit is
    the larger one. "n" in the last round ends it unsolved.

    Args:
        rounds: the most rounds.
        train: training questions.
        validation: validation questions.
        test: test questions.
        seed: of the questions.
        verifier: the agent that says whether enough is known.
        searcher: the agent that names a letter.
        answerer: the agent that answers.
    """

    rounds: Count = 4
    train: Count = 4096
    validation: Count = 256
    test: Count = 512
    seed: int = 0
    verifier: str = "verifier"
    searcher: str = "searcher"
    answerer: str = "answerer"

    ceiling = no_calls

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return questions of a split; no question is in two."""
        return _questions(self.seed, self.train, self.validation, self.test)[split]

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the question."""
        return self._step(_State(problem.text, problem.hidden["table"]))

    def step(self, state: _State, turn: Turn, key: Key) -> Step:
        """Return the question after a turn; a failed turn uses up its round."""
        symbol = value_of(turn)
        if turn.agent == self.verifier:
            state = evolve(state, rounds=state.rounds + 1)
            return self._step(state, done=symbol == "n" and state.rounds >= self.rounds)
        if turn.agent == self.searcher:
            if len(symbol) == 1 and symbol in LETTERS:
                digit = state.table[LETTERS.index(symbol)]
                state = evolve(state, shown=state.shown.replace(symbol, digit))
            return self._step(state, done=state.rounds >= self.rounds)
        if turn.agent == self.answerer:
            return self._step(evolve(state, answer=symbol), done=True)
        return self._step(state)

    def _step(self, state: _State, done: bool = False) -> Step:
        left = sum(symbol in LETTERS for symbol in state.shown)
        features = (left / 2, min(1.0, state.rounds / self.rounds))
        return Step(state, Observation(state.shown, features=features, progress=1 - left / 2), done)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return 1 for the larger digit; before the end, a quarter for each known digit."""
        if state.answer:
            right = state.answer == problem.hidden["answer"]
            return Scores(float(right), right)
        known = sum(symbol in DIGITS for symbol in state.shown) / 2
        return Scores(0.0 if final else 0.5 * known)


@lru_cache(8)
def _questions(
    seed: int, train: int, validation: int, test: int
) -> Mapping[Split, tuple[Problem, ...]]:
    made: dict[Split, tuple[Problem, ...]] = {}
    seen: set[tuple[str, str]] = set()
    sizes: dict[Split, int] = {"train": train, "validation": validation, "test": test}
    for split, size in sizes.items():
        problems: list[Problem] = []
        n = 0
        while len(problems) < size:
            question = _question(Key(seed).child("lookup", split, n))
            n += 1
            if question not in seen:
                seen.add(question)
                problems.append(_problem(f"{split}-{len(problems)}", *question))
        made[split] = tuple(problems)
    return made


def _question(key: Key) -> tuple[str, str]:
    draw = key.random()
    table = "".join(draw.choice(DIGITS) for _ in LETTERS)
    kind = draw.random()
    letters = draw.sample(LETTERS, 2)
    sides = [draw.choice(DIGITS), draw.choice(DIGITS)]
    if kind >= WITHOUT + WITH_ONE:
        sides = letters
    elif kind >= WITHOUT:
        sides[draw.randrange(2)] = letters[0]
    return "M".join(sides), table


def _problem(name: str, text: str, table: str) -> Problem:
    digits = [
        symbol if symbol in DIGITS else table[LETTERS.index(symbol)]
        for symbol in (text[0], text[2])
    ]
    letters = sum(symbol in LETTERS for symbol in text)
    hidden = {"table": table, "answer": max(digits)}
    return Problem(name, text, category=("known", "one", "two")[letters], hidden=hidden)


@frozen
class LookupTeacher(Model):
    """Plays all three roles of `lookup` with stated mistakes, to learn from.

    The first character of a prompt, "V", "S" or "A", is the role; "xMy" in it is the question.

    Args:
        wrong_verdict: how often the verifier says the opposite.
        wrong_with_one: the same where just one letter is left.
        wrong_letter: how often the searcher names any letter.
        wrong_digit: how often the answerer says any digit.
    """

    wrong_verdict: Share = 0.25
    wrong_with_one: Share = 0.55
    wrong_letter: Share = 0.40
    wrong_digit: Share = 0.10

    ceiling = no_calls

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Return one symbol."""
        prompt = str(request["messages"][-1]["content"])
        match = re.search(r"([0-9a-h])M([0-9a-h])", prompt)
        if match is None or prompt[0] not in "VSA":
            raise CallError(
                f'lookup-teacher: {prompt[:80]!r} is not V, S or A and then "xMy"', "permanent"
            )
        text = self._say(prompt[0], match[1] + match[2], key)
        return Answer({"text": text, "stop": "end", "tool_calls": [], "model": "teacher"}, Usage())

    def _say(self, role: str, sides: str, key: Key) -> str:
        draw = key.random()
        chance = draw.random()
        letters = [symbol for symbol in sides if symbol in LETTERS]
        if role == "V":
            wrong = chance < (self.wrong_with_one if len(letters) == 1 else self.wrong_verdict)
            return "n" if bool(letters) != wrong else "y"
        if role == "S":
            return draw.choice(LETTERS if chance < self.wrong_letter or not letters else letters)
        digits = [symbol for symbol in sides if symbol in DIGITS]
        return draw.choice(DIGITS) if chance < self.wrong_digit or not digits else max(digits)
