"""The model `math-teacher`: what a small model can learn from, mistakes included."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Annotated

from attrs import frozen

from orchestrion import JSON, Answer, CallError, Calls, Key, Meta, Model, Usage, no_calls
from orchestrion_math.generate import solve

__all__ = ["MathTeacher"]

Share = Annotated[float, Meta(ge=0, le=1)]
_PROMPT = re.compile(r"([SV])(?:\d+:)?(.+?)=(.*?)\??", re.S)


@frozen
class MathTeacher(Model):
    """Plays solver and verifier of generated problems with stated mistakes, to learn from.

    A prompt is "S", the problem and "=", for the solver; or "V", the problem, "=", what the solver
    said, and "?", for the verifier. After the first letter there may be a number and ":".

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
        """One answer, or one verdict."""
        prompt = str(request["messages"][-1]["content"])
        found = _PROMPT.fullmatch(prompt)
        try:
            if found is None:
                raise ValueError(f"{prompt[:80]!r} is not S or V, a problem, and '='")
            right = str(solve(found[2]))
        except ValueError as error:
            raise CallError(f"math-teacher: {error}", "permanent") from error
        text = self._say(found[1], right, found[3], key.random())
        return Answer({"text": text, "stop": "end", "tool_calls": [], "model": "teacher"}, Usage())

    def _say(self, role: str, right: str, said: str, draw: random.Random) -> str:
        if role == "V":
            wrong = (said[::-1] if self.reverse else said) != right
            if draw.random() < self.wrong_verdict:
                wrong = not wrong
            return self.reject if wrong else self.approve
        text = _mistaken(right, draw) if draw.random() < self.wrong_answer else right
        return text[::-1] if self.reverse else text


def _mistaken(right: str, draw: random.Random) -> str:
    """The same with one digit changed."""
    places = [i for i, one in enumerate(right) if one.isdigit()]
    at = draw.choice(places)
    digit = draw.choice([one for one in "0123456789" if one != right[at]])
    return right[:at] + digit + right[at + 1 :]
