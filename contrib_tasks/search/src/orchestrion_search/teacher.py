"""The model `search-teacher`: what a small model can learn from, mistakes included."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Annotated

from attrs import frozen

from orchestrion import JSON, Answer, CallError, Calls, Key, Meta, Model, Usage, no_calls
from orchestrion_search.world import asked, facts_in, query_for

__all__ = ["SearchTeacher"]

Share = Annotated[float, Meta(ge=0, le=1)]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@frozen
class SearchTeacher(Model):
    """Plays all three roles on generated questions with stated mistakes, to learn from.

    A prompt begins with "V" for the verifier, "S" for the searcher or "A" for the answerer, and
    perhaps a digit; the observation follows, and perhaps "=".

    Args:
        wrong_verdict: how often the verifier says the opposite.
        wrong_query: how often the searcher gets a letter of its query wrong.
        wrong_answer: how often the answerer gets a letter of the answer wrong.
        enough: what the verifier says when the answer is known.
        more: what it says when it is not.
    """

    wrong_verdict: Share = 0.25
    wrong_query: Share = 0.4
    wrong_answer: Share = 0.3
    enough: str = "y"
    more: str = "n"

    ceiling = no_calls

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """One verdict, query or answer."""
        prompt = str(request["messages"][-1]["content"])
        shown = prompt[1:].lstrip("0123456789").rstrip("=")
        if prompt[:1] not in ("V", "S", "A"):
            raise CallError(f"search-teacher: {prompt[:80]!r} begins with no role", "permanent")
        try:
            text = self._say(prompt[0], shown, key.random())
        except ValueError as error:
            raise CallError(f"search-teacher: {error}", "permanent") from error
        return Answer({"text": text, "stop": "end", "tool_calls": [], "model": "teacher"}, Usage())

    def _say(self, role: str, shown: str, draw: random.Random) -> str:
        question, facts = asked(shown), facts_in(shown)
        person, missing, last = question.person, "", ""
        for relation in question.relations:
            last = query_for(person, relation)
            if (person, relation) not in facts:
                missing = last
                break
            person = facts[person, relation]
        wrong = draw.random()
        if role == "V":
            return self.more if bool(missing) != (wrong < self.wrong_verdict) else self.enough
        if role == "S":
            return _mistaken(missing or last, draw) if wrong < self.wrong_query else missing or last
        return _mistaken(person, draw) if wrong < self.wrong_answer else person


def _mistaken(right: str, draw: random.Random) -> str:
    """The same with one letter changed."""
    at = draw.choice([i for i, one in enumerate(right) if one.isalpha()])
    letter = draw.choice([one for one in _LETTERS if one != right[at].lower()])
    return right[:at] + letter + right[at + 1 :]
